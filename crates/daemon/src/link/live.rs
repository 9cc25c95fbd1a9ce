//! A live connection as the rest of the daemon sees it: frames out, answers back.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::limits::{REPLY_TIMEOUT, VERDICT_TIMEOUT};
use heddle_wire::broker::{
    AckItem, ClientFrame, PartBytes, ReplyResult, Request, SendItem, Verdict,
};
use tokio::sync::{mpsc, oneshot};

use crate::shared::lock;

/// A question that may wait for less says nothing about a broker that is only slow.
const SILENT_FROM: Duration = Duration::from_secs(2);

/// The verdicts of a batch, and the epoch of now where the batch held an op.
pub(crate) type Answered = (Vec<Verdict>, Option<u64>);

#[derive(Debug)]
pub(crate) struct Live {
    outgoing: mpsc::Sender<String>,
    waiting: Mutex<Waiting>,
    offers: Offers,
    /// When anything last came from the broker, in milliseconds on the wall; 0 before that.
    heard: AtomicI64,
    /// A question was not answered in time, and nothing came since.
    is_silent: AtomicBool,
}

/// What the broker can beyond what every broker must.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "features that are offered or not, each by itself"
)]
pub(crate) struct Offers {
    /// It passes bytes of files from one member to another.
    pub(crate) blobs: bool,
    /// It publishes a large mesh as one snapshot.
    pub(crate) snapshots: bool,
    /// It takes such a snapshot in parts.
    pub(crate) uploads: bool,
    /// What was decided about effects before a mesh moved there.
    pub(crate) hand_over: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The connection is gone: whoever came late would wait for an answer that nobody can bring.
    is_gone: bool,
    next: u64,
    replies: HashMap<u64, oneshot::Sender<ReplyResult>>,
    verdicts: HashMap<u64, oneshot::Sender<Answered>>,
}

impl Waiting {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Live {
    pub(crate) fn new(outgoing: mpsc::Sender<String>) -> Self {
        Self {
            outgoing,
            waiting: Mutex::default(),
            offers: Offers::default(),
            heard: AtomicI64::new(0),
            is_silent: AtomicBool::new(false),
        }
    }

    /// Something came.
    pub(crate) fn hear(&self, now: WallMs) {
        self.heard.store(now.0, Ordering::Relaxed);
        self.is_silent.store(false, Ordering::Relaxed);
    }

    pub(crate) fn heard(&self) -> Option<WallMs> {
        Some(WallMs(self.heard.load(Ordering::Relaxed))).filter(|at| at.0 > 0)
    }

    /// Whether the broker leaves questions unanswered: it hangs, though the connection is open.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    pub(crate) fn with(self, offers: Offers) -> Self {
        Self { offers, ..self }
    }

    pub(crate) fn offers(&self) -> Offers {
        self.offers
    }

    /// Sends a batch and waits for its verdicts; `None` when the connection was lost first or the
    /// broker kept silent.
    pub(crate) async fn send(&self, items: Vec<SendItem>) -> Option<Vec<Verdict>> {
        self.send_ops(items).await.map(|(verdicts, _)| verdicts)
    }

    /// The same, with the epoch that the answer carries.
    pub(crate) async fn send_ops(&self, items: Vec<SendItem>) -> Option<Answered> {
        let before = self.heard.load(Ordering::Relaxed);
        let (batch, answer) = {
            let mut waiting = lock(&self.waiting);
            if waiting.is_gone {
                return None;
            }
            let (sender, receiver) = oneshot::channel();
            let batch = waiting.number();
            waiting.verdicts.insert(batch, sender);
            (batch, receiver)
        };
        self.write(&ClientFrame::Send { batch, items }).await;
        let verdicts = tokio::time::timeout(VERDICT_TIMEOUT, answer).await;
        lock(&self.waiting).verdicts.remove(&batch);
        self.note_silence(verdicts.is_err(), before);
        verdicts.ok()?.ok()
    }

    pub(crate) async fn request(&self, body: Request) -> Option<ReplyResult> {
        self.request_within(body, REPLY_TIMEOUT).await
    }

    /// For answers that others than the broker have a part in.
    pub(crate) async fn request_within(
        &self,
        body: Request,
        time: Duration,
    ) -> Option<ReplyResult> {
        let before = self.heard.load(Ordering::Relaxed);
        let (request, answer) = {
            let mut waiting = lock(&self.waiting);
            if waiting.is_gone {
                return None;
            }
            let (sender, receiver) = oneshot::channel();
            let request = waiting.number();
            waiting.replies.insert(request, sender);
            (request, receiver)
        };
        // The line to a broker that does not read may be full: writing counts.
        let reply = tokio::time::timeout(time, async {
            self.write(&ClientFrame::Request { request, body }).await;
            answer.await
        });
        let reply = reply.await;
        lock(&self.waiting).replies.remove(&request);
        self.note_silence(reply.is_err() && time >= SILENT_FROM, before);
        reply.ok()?.ok()
    }

    /// A question ran out of time. Somebody else may have been to answer it: only where nothing at all came
    /// meanwhile does the broker hang.
    fn note_silence(&self, has_timed_out: bool, heard_before: i64) {
        if has_timed_out && self.heard.load(Ordering::Relaxed) == heard_before {
            self.is_silent.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) async fn ack(&self, items: Vec<AckItem>) {
        self.write(&ClientFrame::Ack { items }).await;
    }

    /// Answers a question for bytes of a file.
    pub(crate) async fn part(&self, ask: u64, data: Option<PartBytes>) {
        self.write(&ClientFrame::BlobPart { ask, data }).await;
    }

    /// A frame that cannot be written is a connection that is being lost: the waiters hear of that.
    async fn write(&self, frame: &ClientFrame) {
        match serde_json::to_string(frame) {
            Ok(text) => {
                let _ = self.outgoing.send(text).await;
            }
            Err(error) => tracing::error!(%error, "a frame could not be serialised"),
        }
    }

    pub(crate) fn settle_verdicts(&self, batch: u64, items: Vec<Verdict>, epoch: Option<u64>) {
        if let Some(waiter) = lock(&self.waiting).verdicts.remove(&batch) {
            let _ = waiter.send((items, epoch));
        }
    }

    pub(crate) fn settle_reply(&self, request: u64, result: ReplyResult) {
        if let Some(waiter) = lock(&self.waiting).replies.remove(&request) {
            let _ = waiter.send(result);
        }
    }

    /// The connection is gone: nobody waits any longer, and nobody begins to.
    pub(crate) fn hang_up(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.is_gone = true;
        waiting.replies.clear();
        waiting.verdicts.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// The drain may have taken rows while the connection was lost. It would wait for their verdicts for
    /// half a minute, and the next connection for the drain.
    #[test]
    fn a_send_or_a_request_after_the_end_is_answered_at_once() {
        let (outgoing, frames) = mpsc::channel(1);
        let live = Live::new(outgoing);
        drop(frames);
        live.hang_up();
        assert_eq!(live.send(Vec::new()).now_or_never(), Some(None));
        assert!(matches!(
            live.request(Request::Roster).now_or_never(),
            Some(None)
        ));
    }
}
