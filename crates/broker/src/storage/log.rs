//! The log of a mesh: its replicated ops, read by cursor; and the promises about that.
//!
//! **Complete.** An accepted op is in the log from its commit on and stays there: retention does not
//! take it, because a member that joins later needs it.
//!
//! **In order.** Ops come in the order of `(epoch, seq)`, which is their commit order (C4). Messages take
//! places of the same sequence, so the places of a log have holes; each op names the one before it, and
//! that is how a reader tells a hole from a gap (LF-15).
//!
//! **Epochs.** A new epoch begins its places anew and never goes back. What was accepted under an older
//! one keeps its place.
//!
//! **Losses are told.** A log that has lost ops (its file was damaged) is mended once, in one transaction: an op whose
//! message is still there gets its row of the log back; of any other the remains are taken away, so that it is new to B0
//! when its home sends it again; the stretches without ops are noted as holes, each op names the one before it that is there, and a new
//! epoch begins, with which the homes ask for the holes. What is whole is not touched.

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, HistoryId, MeshId, Party};
use heddle_core::limits::LOG_HOLES_MAX;
use heddle_core::sync::LogHole;

use super::contract::Answer;
use super::rows::PageLimit;

/// One op of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    pub history_id: HistoryId,
    /// The op before it, as it was when this one was accepted; [`HistoryId::ZERO`] for the first.
    pub previous: HistoryId,
    pub sender: Party,
    pub client_message_id: ClientMessageId,
    pub accepted_at: WallMs,
    pub envelope: Box<str>,
}

/// A stretch of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// The epoch that the history is in.
    pub epoch: u64,
    pub rows: Vec<LogRow>,
}

/// Where the epochs of a history ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epochs {
    /// The running one.
    pub epoch: u64,
    /// The last place of every epoch that has one, the running one included, in order.
    pub ends: Vec<HistoryId>,
    /// Stretches of the log whose ops were lost, in order; at most [`LOG_HOLES_MAX`].
    pub holes: Vec<LogHole>,
}

/// What a mend of a log has found and done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MendedLog {
    /// The epoch that began with it.
    pub epoch: u64,
    /// Ops that are in the log again: their messages were there.
    pub found: u64,
    pub holes: Vec<LogHole>,
}

/// As many as may be named. Behind the bound they become one, which holds ops that are not lost, too: their homes send
/// them again and hear that they are known.
pub(super) fn bounded(mut holes: Vec<LogHole>) -> Vec<LogHole> {
    holes.sort_unstable();
    // Of those behind one op the longest is the last.
    holes.dedup_by(|next, kept| {
        let is_same = next.after == kept.after;
        if is_same {
            kept.through = next.through;
        }
        is_same
    });
    if let (Some(last), true) = (holes.last().copied(), holes.len() > LOG_HOLES_MAX) {
        holes.truncate(LOG_HOLES_MAX);
        if let Some(end) = holes.last_mut() {
            end.through = end.through.max(last.through);
        }
    }
    holes
}

pub trait Log: Send + Sync + 'static {
    /// Ops behind this place, in order; an empty page is the end.
    fn log_after(
        &self,
        mesh: MeshId,
        after: HistoryId,
        limit: PageLimit,
    ) -> impl Future<Output = Answer<LogPage>> + Send;

    fn epochs(&self, mesh: MeshId) -> impl Future<Output = Answer<Epochs>> + Send;

    /// Begins a new epoch, with which the leases of queues end; its number.
    fn bump_epoch(&self, mesh: MeshId) -> impl Future<Output = Answer<u64>> + Send;

    /// Mends the log where it has lost ops; `None` where it has lost none right before `at`, or this store cannot lose any.
    fn mend_log(
        &self,
        _mesh: MeshId,
        _at: HistoryId,
    ) -> impl Future<Output = Answer<Option<MendedLog>>> + Send {
        async { Ok(None) }
    }
}
