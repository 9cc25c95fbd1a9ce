//! The snapshot of a mesh that is being published: its many rows are ops of the log like any others, and
//! nobody else reads them before the last of them is there (LF-34).
//!
//! **Wholly or not at all.** From `begin_snapshot` on, whatever is accepted behind the place of that moment
//! is hidden from every reader but the one who publishes; `commit_snapshot` shows all of it at once. Both
//! are one row each, so a crash leaves the one or the other.
//!
//! **Idempotent.** The same snapshot begun or committed again is what it was. A member that begins another
//! one in the place of its own keeps the older place: nothing that was hidden appears half.
//!
//! **Of one.** While a member's snapshot is open nobody else's begins.
//!
//! A store without it says so ([`SnapshotVerdict::Unsupported`]), and meshes are published without one.

use std::future::Future;

use heddle_core::ids::{HistoryId, MemberId, MeshId, OpId};

use super::contract::Answer;

/// A snapshot that was begun and not committed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSnapshot {
    pub by: MemberId,
    /// The last place that everybody may read.
    pub behind: HistoryId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotVerdict {
    /// Done now.
    Changed,
    /// It was so already.
    Same,
    /// Somebody else's is open, or there is no such snapshot.
    Other,
    Unsupported,
}

pub trait Snapshots: Send + Sync + 'static {
    fn begin_snapshot(
        &self,
        _mesh: MeshId,
        _id: OpId,
        _by: MemberId,
    ) -> impl Future<Output = Answer<SnapshotVerdict>> + Send {
        async { Ok(SnapshotVerdict::Unsupported) }
    }

    fn commit_snapshot(
        &self,
        _mesh: MeshId,
        _id: OpId,
        _by: MemberId,
    ) -> impl Future<Output = Answer<SnapshotVerdict>> + Send {
        async { Ok(SnapshotVerdict::Unsupported) }
    }

    fn open_snapshot(
        &self,
        _mesh: MeshId,
    ) -> impl Future<Output = Answer<Option<OpenSnapshot>>> + Send {
        async { Ok(None) }
    }
}

/// A snapshot as a store holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) id: OpId,
    pub(super) open: OpenSnapshot,
    pub(super) is_open: bool,
}

/// The last place of a log whose next one this is.
pub(super) fn before(next: HistoryId) -> HistoryId {
    HistoryId {
        epoch: next.epoch,
        seq: next.seq.saturating_sub(1),
    }
}

/// What a begin makes of what is there; the table of the promises above.
pub(super) fn begun(
    kept: Option<Kept>,
    id: OpId,
    by: MemberId,
    end: HistoryId,
) -> (SnapshotVerdict, Option<Kept>) {
    let fresh = |behind| Kept {
        id,
        open: OpenSnapshot { by, behind },
        is_open: true,
    };
    match kept {
        Some(kept) if kept.id == id && kept.open.by == by => (SnapshotVerdict::Same, None),
        Some(kept) if kept.is_open && kept.open.by != by => (SnapshotVerdict::Other, None),
        Some(kept) if kept.is_open => (SnapshotVerdict::Changed, Some(fresh(kept.open.behind))),
        _ => (SnapshotVerdict::Changed, Some(fresh(end))),
    }
}

/// What hides the rows of an upload while they are accepted; `None` while somebody else's snapshot is open. Unlike a
/// begin that comes late, it hides again what was shown: these rows are new.
pub(super) fn hidden(kept: Option<Kept>, id: OpId, by: MemberId, end: HistoryId) -> Option<Kept> {
    let behind = match kept {
        Some(kept) if kept.is_open && kept.open.by != by => return None,
        Some(kept) if kept.is_open => kept.open.behind,
        _ => end,
    };
    Some(Kept {
        id,
        open: OpenSnapshot { by, behind },
        is_open: true,
    })
}

/// The same for a commit.
pub(super) fn committed(
    kept: Option<Kept>,
    id: OpId,
    by: MemberId,
) -> (SnapshotVerdict, Option<Kept>) {
    match kept {
        Some(kept) if kept.id != id || kept.open.by != by => (SnapshotVerdict::Other, None),
        Some(kept) if kept.is_open => {
            let is_open = false;
            (SnapshotVerdict::Changed, Some(Kept { is_open, ..kept }))
        }
        Some(_) => (SnapshotVerdict::Same, None),
        None => (SnapshotVerdict::Other, None),
    }
}
