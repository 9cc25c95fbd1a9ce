//! Sync of data ops: what a broker's answer means for an op, when a mesh pauses, what a gap is.
//!
//! Ops differ from messages in what their failures mean: an op never dies of age, the network's faults
//! are nobody's, and only a refusal of the op itself counts against it (C40).

use serde::{Deserialize, Serialize};

use crate::drain::{BrokerAnswer, RowMove, Waits, drain};
use crate::error_code::ErrorCode;
use crate::ids::{BrokerMessageId, HistoryId};
use crate::limits::OP_REFUSALS_MAX;

/// Refusals that say nothing about the op: the mesh waits, and nothing is counted.
///
/// IMPORTANT: `unknown_agent` is none of them. It is about one op's author, whom the daemon makes known and then asks once
/// more; taken for a matter of the mesh, one such op would hold up all the others for ever.
pub const NOT_THE_OPS_FAULT: [ErrorCode; 13] = [
    ErrorCode::Unauthorized,
    ErrorCode::UnknownMesh,
    ErrorCode::RequestTimeout,
    ErrorCode::EpochMismatch,
    ErrorCode::DaemonBusy,
    ErrorCode::TooManyStreams,
    ErrorCode::RateLimited,
    ErrorCode::NotConnected,
    ErrorCode::LimiterUnavailable,
    ErrorCode::StorageUnavailable,
    ErrorCode::ShuttingDown,
    ErrorCode::InsufficientStorage,
    ErrorCode::HookUnavailable,
];

/// Where an op goes after it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpMove {
    Done {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
    },
    /// The op itself was refused: counted, and tried again later; the others go on (LF-18).
    Refused { error: String },
    /// Nobody's fault: the op waits with all the others, and nothing is counted (LF-17).
    Wait { error: String, why: WaitFor },
}

/// What the ops of a mesh wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// The connection.
    Network,
    /// The broker, which takes nothing for now.
    Broker,
    /// Nothing: the epoch that came with the answer is learnt, and the op goes out again at once.
    Epoch,
}

/// The table of answers, for ops.
pub fn op_move(answer: BrokerAnswer) -> OpMove {
    let code = match &answer {
        BrokerAnswer::Refused { code, .. } => Some(ErrorCode::parse(code)),
        _ => None,
    };
    match drain(answer) {
        RowMove::Done {
            broker_message_id,
            history_id,
        } => OpMove::Done {
            broker_message_id,
            history_id,
        },
        RowMove::Retry {
            error,
            waits: Waits::Mesh,
        } => OpMove::Wait {
            error,
            why: WaitFor::Network,
        },
        RowMove::Dead { reason: error }
        | RowMove::Park { reason: error }
        | RowMove::Retry { error, .. } => match code.flatten() {
            Some(ErrorCode::EpochMismatch) => OpMove::Wait {
                error,
                why: WaitFor::Epoch,
            },
            Some(code) if NOT_THE_OPS_FAULT.contains(&code) => OpMove::Wait {
                error,
                why: WaitFor::Broker,
            },
            _ => OpMove::Refused { error },
        },
    }
}

/// Whether an op that was refused so often pauses its mesh.
pub fn pauses_mesh(refusals: u32) -> bool {
    refusals >= OP_REFUSALS_MAX
}

/// The epoch to keep: it never falls, whatever an answer says (LF-16).
#[must_use]
pub fn epoch_after(recorded: u64, heard: u64) -> u64 {
    recorded.max(heard)
}

/// Whether an op was missed: the one before it stands behind everything that was received. One that
/// stands before the cursor is none: the broker lost what came after it, and began a new epoch.
pub fn is_gap(received_through: HistoryId, previous: HistoryId) -> bool {
    previous > received_through
}

/// A stretch of a log whose ops its broker has lost: behind the first place, through the second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogHole {
    pub after: HistoryId,
    pub through: HistoryId,
}

impl LogHole {
    pub fn has(&self, place: HistoryId) -> bool {
        self.after < place && place <= self.through
    }
}

/// Whether the broker has lost this place: its epoch ended before it, or is not there at all. `ends`
/// holds the last place of every epoch of the history, the running one included.
pub fn is_lost(place: HistoryId, current_epoch: u64, ends: &[HistoryId]) -> bool {
    if place.epoch > current_epoch {
        return true;
    }
    let end = ends.iter().find(|end| end.epoch == place.epoch);
    end.is_none_or(|end| place.seq > end.seq)
}

/// The same for ops, which a log may have lost in its middle as well.
pub fn is_lost_op(
    place: HistoryId,
    current_epoch: u64,
    ends: &[HistoryId],
    holes: &[LogHole],
) -> bool {
    is_lost(place, current_epoch, ends) || holes.iter().any(|hole| hole.has(place))
}

/// The same for messages, which go on being committed while it is looked for. Only a place of an earlier epoch can be
/// lost: whoever had seen a place that the broker does not have made it begin a new epoch. A place of the running one that
/// stands behind the end that was told was committed since.
pub fn was_lost(place: HistoryId, current_epoch: u64, ends: &[HistoryId]) -> bool {
    place.epoch < current_epoch && is_lost(place, current_epoch, ends)
}

/// How a mesh's sync stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncState {
    /// Ops of this mesh go nowhere.
    Local,
    /// Nothing has happened for a while.
    #[default]
    Idle,
    Active,
    Reconnecting,
    /// Ops wait until somebody looks at one that was refused too often.
    Paused,
}

impl SyncState {
    pub const ALL: [Self; 5] = [
        Self::Local,
        Self::Idle,
        Self::Active,
        Self::Reconnecting,
        Self::Paused,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Idle => "idle",
            Self::Active => "active",
            Self::Reconnecting => "reconnecting",
            Self::Paused => "paused",
        }
    }
}

/// What a tick of the sync loop found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "five independent facts; the table below reads them by name"
)]
pub struct Tick {
    pub is_shared: bool,
    pub is_paused: bool,
    pub is_connected: bool,
    /// Something was sent, read or applied, or waits to be.
    pub did_something: bool,
    /// Nothing has happened for the time after which a mesh is idle.
    pub is_quiet: bool,
}

/// The state after a tick. The inbox is applied in every one of them.
pub fn next_state(before: SyncState, tick: Tick) -> SyncState {
    match tick {
        Tick {
            is_shared: false, ..
        } => SyncState::Local,
        Tick {
            is_connected: false,
            ..
        } => SyncState::Reconnecting,
        Tick {
            is_paused: true, ..
        } => SyncState::Paused,
        Tick {
            did_something: true,
            ..
        } => SyncState::Active,
        Tick { is_quiet: true, .. } => SyncState::Idle,
        // Just connected, or active a moment ago.
        _ if before == SyncState::Idle => SyncState::Idle,
        _ => SyncState::Active,
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn refused(code: &str) -> OpMove {
        op_move(BrokerAnswer::Refused {
            code: code.to_owned(),
            detail: "because".to_owned(),
            retry_after: None,
        })
    }

    #[test]
    fn lf_17_c40_only_a_refusal_of_the_op_itself_counts_against_it() {
        for code in ErrorCode::ALL {
            let counts = matches!(refused(code.as_str()), OpMove::Refused { .. });
            assert_eq!(
                counts,
                !NOT_THE_OPS_FAULT.contains(code),
                "{}",
                code.as_str()
            );
            let passes = code.status() == 429 || code.status() == 408 || code.status() == 503;
            assert!(!(passes && counts), "{}", code.as_str());
        }
        assert!(matches!(
            refused("a_code_of_next_year"),
            OpMove::Refused { .. }
        ));
        let silence = op_move(BrokerAnswer::Silence {
            why: "reset".to_owned(),
        });
        assert!(matches!(
            silence,
            OpMove::Wait {
                why: WaitFor::Network,
                ..
            }
        ));
    }

    #[test]
    fn lf_13_a_duplicate_is_done_like_the_first() {
        let committed = |duplicate| BrokerAnswer::Committed {
            broker_message_id: BrokerMessageId(Ulid::from(7)),
            history_id: HistoryId { epoch: 1, seq: 9 },
            duplicate,
            history_available: true,
        };
        assert_eq!(op_move(committed(false)), op_move(committed(true)));
    }

    #[test]
    fn lf_16_the_epoch_never_falls_and_a_mismatch_is_no_refusal() {
        assert_eq!(epoch_after(3, 2), 3);
        assert_eq!(epoch_after(3, 4), 4);
        assert!(matches!(
            refused("epoch_mismatch"),
            OpMove::Wait {
                why: WaitFor::Epoch,
                ..
            }
        ));
    }

    #[test]
    fn lf_15_a_gap_is_a_place_that_was_never_received() {
        let at = |epoch, seq| HistoryId { epoch, seq };
        for (received, previous, gap) in [
            (HistoryId::ZERO, HistoryId::ZERO, false),
            (at(1, 5), at(1, 5), false),
            (at(1, 5), at(1, 7), true),
            (HistoryId::ZERO, at(1, 1), true),
            // The broker fell back to 1.3 and went on in a new epoch.
            (at(1, 5), at(1, 3), false),
            (at(1, 5), at(2, 1), true),
        ] {
            assert_eq!(is_gap(received, previous), gap, "{received} {previous}");
        }
    }

    #[test]
    fn places_behind_the_end_of_their_epoch_are_lost() {
        let at = |epoch, seq| HistoryId { epoch, seq };
        let ends = [at(1, 80), at(3, 2)];
        for (place, lost) in [
            (at(1, 80), false),
            (at(1, 81), true),
            (at(2, 1), true),
            (at(3, 2), false),
            (at(4, 1), true),
        ] {
            assert_eq!(is_lost(place, 3, &ends), lost, "{place}");
        }
    }

    #[test]
    fn lf_15_ops_in_a_hole_of_the_log_are_lost_and_those_around_it_are_not() {
        let at = |epoch, seq| HistoryId { epoch, seq };
        let (ends, hole) = ([at(1, 80), at(2, 9)], |after, through| LogHole {
            after,
            through,
        });
        let holes = [hole(at(1, 10), at(1, 12)), hole(at(1, 70), at(2, 3))];
        for (place, lost) in [
            (at(1, 10), false),
            (at(1, 11), true),
            (at(1, 12), true),
            (at(1, 13), false),
            (at(1, 71), true),
            (at(2, 3), true),
            (at(2, 4), false),
            (at(2, 10), true),
        ] {
            assert_eq!(is_lost_op(place, 2, &ends, &holes), lost, "{place}");
        }
    }

    #[test]
    fn a_message_that_was_committed_while_it_was_looked_for_is_not_lost() {
        let place = |epoch, seq| HistoryId { epoch, seq };
        let ends = [place(1, 20), place(2, 25)];
        for (place, lost) in [
            (place(1, 20), false),
            (place(1, 21), true),
            (place(2, 25), false),
            // Behind the end that was told a moment ago, and in an epoch that began since.
            (place(2, 26), false),
            (place(3, 27), false),
        ] {
            assert_eq!(was_lost(place, 2, &ends), lost, "{place}");
        }
    }

    #[test]
    fn every_state_is_reached_and_every_tick_has_one() {
        let mut reached = Vec::new();
        for before in SyncState::ALL {
            for bits in 0..32_u8 {
                let tick = Tick {
                    is_shared: bits & 1 > 0,
                    is_paused: bits & 2 > 0,
                    is_connected: bits & 4 > 0,
                    did_something: bits & 8 > 0,
                    is_quiet: bits & 16 > 0,
                };
                let next = next_state(before, tick);
                assert_eq!(next == SyncState::Local, !tick.is_shared);
                let offline = tick.is_shared && !tick.is_connected;
                assert_eq!(next == SyncState::Reconnecting, offline);
                reached.push(next.as_str());
            }
        }
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached.len(), SyncState::ALL.len());
    }
}
