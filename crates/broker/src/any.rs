//! The broker of a process that serves, whatever it stands on: one kind, compiled here.
//!
//! A future of a generic type is compiled where it is first polled, and again for each type. What a process runs of its broker
//! is therefore boxed here, over one store, one limiter and one transport that each stand for all of theirs.

use std::future::Future;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_util::sync::CancellationToken;

use crate::limiter::AnyLimiter;
use crate::principal::Claim;
use crate::storage::{AnyStorage, StorageError};
use crate::ws::{Broker, Ending, Marks};

/// The broker that a process serves.
pub type AnyBroker = Broker<AnyStorage, AnyLimiter>;

/// Bytes in both directions: a socket, with TLS or without, or a pipe of this process.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// Something that runs until it is stopped.
type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Puts marks where they outlive the store.
pub type KeepMarks = Box<dyn Fn(&Marks) + Send + Sync>;

impl AnyBroker {
    /// [`Broker::serve`] over any transport.
    pub fn session(
        &self,
        socket: WebSocketStream<Box<dyn Transport>>,
        claim: impl Into<Claim>,
        shutdown: CancellationToken,
    ) -> Running<'_, Ending> {
        self.boxed_session(socket, claim.into(), shutdown)
    }

    fn boxed_session(
        &self,
        socket: WebSocketStream<Box<dyn Transport>>,
        claim: Claim,
        shutdown: CancellationToken,
    ) -> Running<'_, Ending> {
        Box::pin(self.serve(socket, claim, shutdown))
    }

    /// [`Broker::upkeep`], [`Broker::attend`] and [`Broker::mark`], for as long as the process serves.
    pub fn housekeeping(
        &self,
        (marks, keep): (Marks, KeepMarks),
        shutdown: CancellationToken,
    ) -> Running<'_, ()> {
        Box::pin(async move {
            tokio::join!(
                self.upkeep(shutdown.clone()),
                self.attend(shutdown.clone()),
                self.mark(marks, keep, shutdown),
            );
        })
    }

    /// [`Broker::compare`].
    pub fn compared<'a>(&'a self, marks: &'a Marks) -> Running<'a, Result<(), StorageError>> {
        Box::pin(self.compare(marks))
    }
}
