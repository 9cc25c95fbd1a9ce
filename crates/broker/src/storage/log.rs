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
//! **Losses are told.** A log that has lost ops (its file was damaged) is mended once, in short transactions of which the last
//! one mends what it was found by (the op behind a loss, or the place that a reader of lost ops reads on from): an op whose
//! message is still there gets its row of the log back; of any other the remains are taken away, so that it is new to B0
//! when its home sends it again; the stretches without ops are noted as holes, each op names the one before it that is there, and a new
//! epoch begins, with which the homes ask for the holes. What is whole is not touched.

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, HistoryId, MeshId, Party};
use heddle_core::limits::LOG_HOLES_MAX;
use heddle_core::sync::LogHole;
use heddle_core::witness::Witness;

use super::contract::Answer;
use super::error::StorageError;
use super::parting::Parted;
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
    /// The op that the reader has read last is not here any more: no op behind it would tell, where it was the last one.
    pub misses: bool,
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

/// Rows that one piece of a mend goes through: with the largest ops it takes less than 100 ms.
#[cfg(not(test))]
pub(super) const MEND_ROWS: i64 = 128;
/// So that a short log has many pieces.
#[cfg(test)]
pub(super) const MEND_ROWS: i64 = 2;

/// Where a mend stands: known to who mends, and to nobody else. Whoever is killed leaves what it was found by as it was, and
/// the next reader begins anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mending {
    /// The place of the op by which it was found.
    pub(super) at: HistoryId,
    /// That op itself is lost.
    pub(super) is_missed: bool,
    pub(super) piece: Piece,
    /// The epoch in which it began.
    pub(super) epoch: u64,
    /// Ops that are in the log again.
    pub(super) found: u64,
    /// Under which the op at `at` is known, where that is lost.
    pub(super) own_id: Option<Vec<u8>>,
}

impl Mending {
    pub(super) fn at(at: HistoryId) -> Self {
        Self {
            at,
            is_missed: false,
            piece: Piece::First,
            epoch: 0,
            found: 0,
            own_id: None,
        }
    }
}

/// What is done next, each behind a place or an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    First,
    Links(HistoryId),
    Chain(HistoryId),
    Ids(Vec<u8>),
    Last,
}

/// What became of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mended {
    /// Nothing is to be mended, or not any more.
    Not,
    More(Mending),
    Done(MendedLog),
}

/// Piece by piece to the end, whether or not anybody waits: a reader that is gone would leave the next one all of it to do.
pub(super) async fn mend_all<P, R>(at: HistoryId, mut piece: P) -> Answer<Option<MendedLog>>
where
    P: FnMut(Mending) -> R + Send + 'static,
    R: Future<Output = Answer<Mended>> + Send,
{
    let mended = tokio::spawn(async move {
        let mut mending = Mending::at(at);
        loop {
            match piece(mending).await? {
                Mended::Not => return Ok(None),
                Mended::More(next) => mending = next,
                Mended::Done(mended) => return Ok(Some(mended)),
            }
        }
    });
    let lost = |_| StorageError::Unavailable("the mend was given up".to_owned());
    mended.await.map_err(lost)?
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

/// Whether it is worth a look if the place that somebody reads from is in the log: one that is there is named by the op behind
/// it. The beginning of an epoch is nobody's place.
pub(super) fn may_miss(from: HistoryId, rows: &[LogRow]) -> bool {
    let is_named = rows.first().is_some_and(|row| row.previous >= from);
    from.seq > 0 && !is_named
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

    /// Compares the history with what somebody whom the caller trusts has seen of it. Where it parted from that, everything
    /// behind the last place that both agree on gets a new place, in the same order, in a new epoch (`parting`), and the
    /// leases of queues end. `None`: nothing speaks against it, or nothing stands behind that place.
    fn part(
        &self,
        mesh: MeshId,
        seen: Vec<Witness>,
    ) -> impl Future<Output = Answer<Option<Parted>>> + Send;

    /// Mends the log where it has lost ops; `None` where it has lost neither the one at `at`, of which somebody knows that it
    /// was one, nor any right before it, or this store cannot lose any.
    fn mend_log(
        &self,
        _mesh: MeshId,
        _at: HistoryId,
    ) -> impl Future<Output = Answer<Option<MendedLog>>> + Send {
        async { Ok(None) }
    }
}
