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
use crate::storage::AnyStorage;
use crate::ws::{Broker, Ending};

/// The broker that a process serves.
pub type AnyBroker = Broker<AnyStorage, AnyLimiter>;

/// Bytes in both directions: a socket, with TLS or without, or a pipe of this process.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// Something that runs until it is stopped.
type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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

    /// [`Broker::upkeep`] and [`Broker::attend`], for as long as the process serves.
    pub fn housekeeping(&self, shutdown: CancellationToken) -> Running<'_, ()> {
        Box::pin(async move {
            tokio::join!(self.upkeep(shutdown.clone()), self.attend(shutdown));
        })
    }
}
