//! The table of a task's life: where it stands, what an op wants, what becomes of it.
//!
//! It serves twice. The fold asks it about every op in order; the daemon asks it about a new op before
//! it makes one, so what would be recorded as lost is refused at home instead.

use super::{TaskStatus, TaskStep};

/// Where a task stands. Completed and cancelled are one here: both absorb (LF-23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Open,
    Claimed,
    Finished,
}

impl From<TaskStatus> for Phase {
    fn from(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Open => Self::Open,
            TaskStatus::Claimed => Self::Claimed,
            TaskStatus::Completed | TaskStatus::Cancelled => Self::Finished,
        }
    }
}

/// What an op wants, without its details. A create is no step of a life: it is its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Claim,
    Renew,
    Release,
    Complete,
    Cancel,
    Expire,
}

impl Wish {
    pub fn of(step: &TaskStep) -> Option<Self> {
        Some(match step {
            TaskStep::Create { .. } => return None,
            TaskStep::Claim { .. } => Self::Claim,
            TaskStep::Renew { .. } => Self::Renew,
            TaskStep::Release { .. } => Self::Release,
            TaskStep::Complete { .. } => Self::Complete,
            TaskStep::Cancel => Self::Cancel,
            TaskStep::Expire { .. } => Self::Expire,
        })
    }
}

/// What becomes of the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It holds the task from here on.
    Claim,
    /// The holder's lease counts from here on. No event (LF-25).
    Extend,
    /// The holder gave it back.
    Release,
    /// The holder's lease ran out: the task is open, and the record says whose word ended it.
    Expire,
    Complete,
    Cancel,
    /// Lost. Recorded, and nothing else changes.
    Superseded,
    /// Too late. Recorded, and nothing else changes.
    RejectedTerminal,
    /// Nothing to do and nothing to tell.
    Nothing,
}

impl Verdict {
    /// Whether a home may make such an op at all.
    pub fn is_lost(self) -> bool {
        matches!(
            self,
            Self::Superseded | Self::RejectedTerminal | Self::Nothing
        )
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// How one gets there.
    pub how: &'static str,
    pub phase: Phase,
    pub wish: Wish,
    /// Whether the op fits the task as it stands: by its holder under the latest fence; an expire that
    /// names the claim as it is; on an open task a complete without a fence; on a finished one the same
    /// end again by the same peer.
    pub fits: bool,
    pub verdict: Verdict,
}

#[rustfmt::skip]
pub const TABLE: [Row; 36] = [
    Row { how: "the first claim, or the first after a release", phase: Phase::Open, wish: Wish::Claim, fits: true, verdict: Verdict::Claim },
    Row { how: "everybody fits an open task; the same", phase: Phase::Open, wish: Wish::Claim, fits: false, verdict: Verdict::Claim },
    Row { how: "nobody holds an open task; a renewal cannot fit", phase: Phase::Open, wish: Wish::Renew, fits: true, verdict: Verdict::Nothing },
    Row { how: "active, and the lease was ended meanwhile; whoever ended it told the holder", phase: Phase::Open, wish: Wish::Renew, fits: false, verdict: Verdict::Nothing },
    Row { how: "nobody holds an open task; a release cannot fit", phase: Phase::Open, wish: Wish::Release, fits: true, verdict: Verdict::Nothing },
    Row { how: "given back after the lease was ended", phase: Phase::Open, wish: Wish::Release, fits: false, verdict: Verdict::Superseded },
    Row { how: "done without a claim, and nobody claimed it", phase: Phase::Open, wish: Wish::Complete, fits: true, verdict: Verdict::Complete },
    Row { how: "done under a claim that was ended meanwhile", phase: Phase::Open, wish: Wish::Complete, fits: false, verdict: Verdict::Superseded },
    Row { how: "cancelled before anybody began", phase: Phase::Open, wish: Wish::Cancel, fits: true, verdict: Verdict::Cancel },
    Row { how: "everybody may cancel an open task; the same", phase: Phase::Open, wish: Wish::Cancel, fits: false, verdict: Verdict::Cancel },
    Row { how: "nobody holds an open task; no claim can be named", phase: Phase::Open, wish: Wish::Expire, fits: true, verdict: Verdict::Nothing },
    Row { how: "two members ended the same claim; the second finds it ended", phase: Phase::Open, wish: Wish::Expire, fits: false, verdict: Verdict::Nothing },

    Row { how: "the holder claims again: its lease counts from now", phase: Phase::Claimed, wish: Wish::Claim, fits: true, verdict: Verdict::Extend },
    Row { how: "two claimed while cut off from each other; the first wins", phase: Phase::Claimed, wish: Wish::Claim, fits: false, verdict: Verdict::Superseded },
    Row { how: "the holder was active", phase: Phase::Claimed, wish: Wish::Renew, fits: true, verdict: Verdict::Extend },
    Row { how: "a former holder was active; the loss of its claim is on record already", phase: Phase::Claimed, wish: Wish::Renew, fits: false, verdict: Verdict::Nothing },
    Row { how: "the holder gives it back", phase: Phase::Claimed, wish: Wish::Release, fits: true, verdict: Verdict::Release },
    Row { how: "given back by one whose claim lost", phase: Phase::Claimed, wish: Wish::Release, fits: false, verdict: Verdict::Superseded },
    Row { how: "the work is done", phase: Phase::Claimed, wish: Wish::Complete, fits: true, verdict: Verdict::Complete },
    Row { how: "done by one whose claim lost, or without a claim while another held it", phase: Phase::Claimed, wish: Wish::Complete, fits: false, verdict: Verdict::Superseded },
    Row { how: "the holder cancels", phase: Phase::Claimed, wish: Wish::Cancel, fits: true, verdict: Verdict::Cancel },
    Row { how: "another cancels; the holder is told", phase: Phase::Claimed, wish: Wish::Cancel, fits: false, verdict: Verdict::Cancel },
    Row { how: "past the deadline, and no renewal since", phase: Phase::Claimed, wish: Wish::Expire, fits: true, verdict: Verdict::Expire },
    Row { how: "renewed before the word of its end, or held by another by now", phase: Phase::Claimed, wish: Wish::Expire, fits: false, verdict: Verdict::Nothing },

    Row { how: "a finished task has no holder; a claim cannot fit", phase: Phase::Finished, wish: Wish::Claim, fits: true, verdict: Verdict::RejectedTerminal },
    Row { how: "claimed where the end was not known yet", phase: Phase::Finished, wish: Wish::Claim, fits: false, verdict: Verdict::RejectedTerminal },
    Row { how: "a finished task has no lease; a renewal cannot fit", phase: Phase::Finished, wish: Wish::Renew, fits: true, verdict: Verdict::Nothing },
    Row { how: "active where the end was not known yet", phase: Phase::Finished, wish: Wish::Renew, fits: false, verdict: Verdict::Nothing },
    Row { how: "a finished task has no holder; a release cannot fit", phase: Phase::Finished, wish: Wish::Release, fits: true, verdict: Verdict::Nothing },
    Row { how: "given back where the end was not known yet; nothing is lost by it", phase: Phase::Finished, wish: Wish::Release, fits: false, verdict: Verdict::Nothing },
    Row { how: "completed again by who completed it", phase: Phase::Finished, wish: Wish::Complete, fits: true, verdict: Verdict::Nothing },
    Row { how: "done where another end was not known yet", phase: Phase::Finished, wish: Wish::Complete, fits: false, verdict: Verdict::RejectedTerminal },
    Row { how: "cancelled again by who cancelled it", phase: Phase::Finished, wish: Wish::Cancel, fits: true, verdict: Verdict::Nothing },
    Row { how: "cancelled where the end was not known yet", phase: Phase::Finished, wish: Wish::Cancel, fits: false, verdict: Verdict::RejectedTerminal },
    Row { how: "a finished task has no claim to name", phase: Phase::Finished, wish: Wish::Expire, fits: true, verdict: Verdict::Nothing },
    Row { how: "past the deadline where the end was not known yet", phase: Phase::Finished, wish: Wish::Expire, fits: false, verdict: Verdict::Nothing },
];

pub fn verdict(phase: Phase, wish: Wish, fits: bool) -> Verdict {
    TABLE
        .iter()
        .find(|row| row.phase == phase && row.wish == wish && row.fits == fits)
        .map_or(Verdict::Nothing, |row| row.verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 3] = [Phase::Open, Phase::Claimed, Phase::Finished];
    const WISHES: [Wish; 6] = [
        Wish::Claim,
        Wish::Renew,
        Wish::Release,
        Wish::Complete,
        Wish::Cancel,
        Wish::Expire,
    ];

    #[test]
    fn c7_the_table_is_complete_and_says_how_one_gets_there() {
        for phase in PHASES {
            for wish in WISHES {
                for fits in [true, false] {
                    let rows: Vec<_> = TABLE
                        .iter()
                        .filter(|r| r.phase == phase && r.wish == wish && r.fits == fits)
                        .collect();
                    assert_eq!(rows.len(), 1, "{phase:?} {wish:?} {fits}");
                    assert!(rows[0].how.len() > 10);
                    assert_eq!(verdict(phase, wish, fits), rows[0].verdict);
                }
            }
        }
        assert_eq!(TABLE.len(), PHASES.len() * WISHES.len() * 2);
    }

    #[test]
    fn lf_23_a_finished_task_is_never_moved_again() {
        for row in TABLE.iter().filter(|row| row.phase == Phase::Finished) {
            assert!(row.verdict.is_lost(), "{row:?}");
        }
        for fits in [true, false] {
            let late = verdict(Phase::Finished, Wish::Claim, fits);
            assert_eq!(late, Verdict::RejectedTerminal);
        }
    }

    #[test]
    fn only_who_fits_moves_a_claimed_task_but_by_cancelling_it() {
        let claimed = TABLE.iter().filter(|row| row.phase == Phase::Claimed);
        for row in claimed.filter(|row| !row.fits && row.wish != Wish::Cancel) {
            assert!(row.verdict.is_lost(), "{row:?}");
        }
    }
}
