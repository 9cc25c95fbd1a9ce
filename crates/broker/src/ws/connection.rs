//! One connection as a whole: its tasks, what ends it, and how it is taken down.

use std::sync::Arc;

use futures_util::stream::SplitStream;
use futures_util::{Stream, StreamExt};
use heddle_core::limits::{PUSH_WINDOW_MAX, SHUTDOWN_TIMEOUT};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::config::{CLOSE_TIMEOUT, WORK_QUEUED_MAX, WRITE_TIMEOUT};
use super::ending::Ending;
use super::hello::{self, Registration};
use super::herald;
use super::lane::Lane;
use super::pulse;
use super::pump::Pump;
use super::reader;
use super::waits;
use super::window::Window;
use super::writer::{Outbox, Writer};
use crate::limiter::Limiter;
use crate::principal::{Claim, Principal};
use crate::storage::Storage;

pub(super) async fn serve<S, L, T>(
    shared: &Arc<Shared<S, L>>,
    socket: WebSocketStream<T>,
    claim: Claim,
    shutdown: CancellationToken,
) -> Ending
where
    S: Storage,
    L: Limiter,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sink, mut frames) = socket.split();
    let (writer, outbox) = Writer::new(sink, shared.config.ping_interval);
    // Dropped with this future, the set ends its task; so does every set below.
    let mut writing = JoinSet::new();
    writing.spawn(writer.run());
    let greeted = tokio::select! {
        () = shutdown.cancelled() => Err(Ending::Shutdown),
        greeted = hello::greet(shared, &claim, &mut frames, &outbox) => greeted,
    };
    let ending = match greeted {
        Err(ending) => ending,
        Ok((principal, registration)) => {
            let connection = Connection {
                shared,
                principal,
                registration,
                outbox: outbox.clone(),
            };
            connection.run(&mut frames, &mut writing, &shutdown).await
        }
    };
    part(ending, &mut frames, outbox, writing).await;
    tracing::debug!(?ending, "a connection ended");
    ending
}

struct Connection<'a, S: Storage, L: Limiter> {
    shared: &'a Arc<Shared<S, L>>,
    principal: Principal,
    registration: Registration<S, L>,
    outbox: Outbox,
}

impl<S: Storage, L: Limiter> Connection<'_, S, L> {
    /// From the welcome until something ends it. Everything begun is finished when this returns, and
    /// only then does the member count as gone.
    async fn run<R>(
        self,
        frames: &mut R,
        writing: &mut JoinSet<Ending>,
        shutdown: &CancellationToken,
    ) -> Ending
    where
        R: Stream<Item = tungstenite::Result<Message>> + Unpin,
    {
        let stop = CancellationToken::new();
        let (work, inbox) = mpsc::channel(WORK_QUEUED_MAX);
        let mut tasks = self.start(inbox, &stop);
        let deadline = self.shared.config.ping_deadline;
        let ending = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ending::Shutdown,
            () = self.registration.session.replaced.cancelled() => {
                self.registration.session.replaced_by()
            }
            ended = writing.join_next() => joined(ended),
            // A task of ours ends early when the writer has ended, or when it broke.
            Some(ended) = tasks.join_next() => match ended {
                Ok(()) => writer_ended(writing).await,
                Err(_) => Ending::Internal,
            },
            ending = reader::run(frames, &work, &self.registration.session, deadline) => ending,
        };
        stop.cancel();
        drop(work);
        let finished = timeout(SHUTDOWN_TIMEOUT, async {
            while tasks.join_next().await.is_some() {}
        });
        if finished.await.is_err() {
            tracing::warn!(member = %self.principal.member, "a connection's work did not end in time");
            tasks.shutdown().await;
        }
        self.registration.end().await;
        ending
    }

    fn start(&self, inbox: mpsc::Receiver<reader::Work>, stop: &CancellationToken) -> JoinSet<()> {
        let session = &self.registration.session;
        session.write_to(&self.outbox);
        let window = self.shared.config.push_window.min(PUSH_WINDOW_MAX);
        let window = Arc::new(Window::new(window));
        let lane = Lane {
            shared: Arc::clone(self.shared),
            session: Arc::clone(session),
            principal: self.principal.clone(),
            window: Arc::clone(&window),
            outbox: self.outbox.clone(),
        };
        let pump = Pump {
            shared: Arc::clone(self.shared),
            session: Arc::clone(session),
            window,
            outbox: self.outbox.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(lane.run(inbox));
        tasks.spawn(pump.run(stop.clone()));
        tasks.spawn(pulse::run(
            Arc::clone(self.shared),
            Arc::clone(session),
            stop.clone(),
        ));
        tasks.spawn(waits::run(
            Arc::clone(session),
            self.outbox.clone(),
            stop.clone(),
        ));
        tasks.spawn(herald::run(
            Arc::clone(self.shared),
            Arc::clone(session),
            self.outbox.clone(),
            stop.clone(),
        ));
        tasks
    }
}

/// Why the writer ended, which it has or is about to.
async fn writer_ended(writing: &mut JoinSet<Ending>) -> Ending {
    let ended = timeout(WRITE_TIMEOUT, writing.join_next()).await;
    ended.map_or(Ending::Internal, joined)
}

fn joined(ended: Option<Result<Ending, tokio::task::JoinError>>) -> Ending {
    match ended {
        Some(Ok(ending)) => ending,
        Some(Err(_)) | None => Ending::Internal,
    }
}

/// Says goodbye where that can be heard, and waits for the writer.
async fn part<T>(
    ending: Ending,
    frames: &mut SplitStream<WebSocketStream<T>>,
    outbox: Outbox,
    mut writing: JoinSet<Ending>,
) where
    T: AsyncRead + AsyncWrite + Unpin,
{
    if ending == Ending::PeerSilent {
        // It may be stuck in a write that nobody will ever read.
        writing.abort_all();
    } else if let Some(frame) = ending.close_frame() {
        let _ = timeout(WRITE_TIMEOUT, outbox.close(frame)).await;
    }
    drop(outbox);
    while writing.join_next().await.is_some() {}
    // Reading on completes the closing handshake, and keeps a TCP stack from cutting our last words.
    let _ = timeout(CLOSE_TIMEOUT, async {
        while matches!(frames.next().await, Some(Ok(_))) {}
    })
    .await;
}
