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

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, HistoryId, MeshId, Party};

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
}
