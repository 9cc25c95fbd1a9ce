//! The one task that writes to a connection, and the bounded box in front of it.
//!
//! A peer that does not take its frames in time loses the connection, never a row: the tables keep
//! what it has not acknowledged (C16).

use std::time::Duration;

use futures_util::{Sink, SinkExt};
use heddle_core::limits::SEND_BUFFER_FRAMES_MAX;
use heddle_wire::broker::ServerFrame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message};

use super::config::WRITE_TIMEOUT;
use super::ending::Ending;

/// A message on its way out. The permit, if any, is given back when it is written.
struct Outgoing {
    message: Message,
    permit: Option<OwnedSemaphorePermit>,
}

/// The sending side. Waits when it is full; ends with the writer.
#[derive(Clone)]
pub(super) struct Outbox {
    queue: mpsc::Sender<Outgoing>,
}

impl Outbox {
    pub(super) async fn send(&self, frame: &ServerFrame) -> Result<(), Ending> {
        self.put(text(frame)?, None).await
    }

    /// For frames of which only a few may be on their way at once.
    pub(super) async fn send_bulky(
        &self,
        frame: &ServerFrame,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), Ending> {
        self.put(text(frame)?, Some(permit)).await
    }

    pub(super) async fn close(&self, frame: CloseFrame) -> Result<(), Ending> {
        self.put(Message::Close(Some(frame)), None).await
    }

    /// The same box for others, which does not keep the writer at work.
    pub(super) fn weak(&self) -> WeakOutbox {
        WeakOutbox {
            queue: self.queue.downgrade(),
        }
    }

    async fn put(
        &self,
        message: Message,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Ending> {
        let outgoing = Outgoing { message, permit };
        self.queue
            .send(outgoing)
            .await
            .map_err(|_| Ending::PeerClosed)
    }
}

/// The box of another connection: what does not fit at once is not put there.
#[derive(Clone)]
pub(super) struct WeakOutbox {
    queue: mpsc::WeakSender<Outgoing>,
}

impl WeakOutbox {
    /// False where the box is full, or its connection gone.
    pub(super) fn offer(&self, frame: &ServerFrame, permit: Option<OwnedSemaphorePermit>) -> bool {
        let (Some(queue), Ok(message)) = (self.queue.upgrade(), text(frame)) else {
            return false;
        };
        queue.try_send(Outgoing { message, permit }).is_ok()
    }
}

fn text(frame: &ServerFrame) -> Result<Message, Ending> {
    match serde_json::to_string(frame) {
        Ok(text) => Ok(Message::text(text)),
        Err(error) => {
            tracing::error!(%error, "a frame of ours cannot be written as JSON");
            Err(Ending::Internal)
        }
    }
}

pub(super) struct Writer<W> {
    sink: W,
    queue: mpsc::Receiver<Outgoing>,
    ping_interval: Duration,
}

impl<W> Writer<W>
where
    W: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    pub(super) fn new(sink: W, ping_interval: Duration) -> (Self, Outbox) {
        let (sender, queue) = mpsc::channel(SEND_BUFFER_FRAMES_MAX);
        let writer = Self {
            sink,
            queue,
            ping_interval,
        };
        (writer, Outbox { queue: sender })
    }

    /// Writes until every outbox is dropped, the peer is gone, or it is too slow.
    pub(super) async fn run(mut self) -> Ending {
        let mut pings = interval(self.ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.tick().await;
        loop {
            let outgoing = tokio::select! {
                outgoing = self.queue.recv() => match outgoing {
                    Some(outgoing) => outgoing,
                    None => return Ending::PeerClosed,
                },
                _ = pings.tick() => Outgoing {
                    message: Message::Ping(Vec::new().into()),
                    permit: None,
                },
            };
            match timeout(WRITE_TIMEOUT, self.write(outgoing)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ending::PeerClosed,
                Err(_) => {
                    metrics::counter!("heddle_broker_slow_readers_total").increment(1);
                    return Ending::SlowReader;
                }
            }
        }
    }

    /// Writes one message and whatever else is waiting, and flushes once.
    async fn write(&mut self, first: Outgoing) -> tungstenite::Result<()> {
        let mut permits = Vec::new();
        let mut next = Some(first);
        while let Some(Outgoing { message, permit }) = next {
            permits.extend(permit);
            self.sink.feed(message).await?;
            next = self.queue.try_recv().ok();
        }
        self.sink.flush().await
    }
}
