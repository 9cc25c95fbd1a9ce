//! The five states of an outbox row and the moves between them (OB-08, OB-09).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxStatus {
    /// Accepted from the caller; waits for its turn.
    Pending,
    /// On its way to the broker; at most one transmission at a time.
    Inflight,
    /// The broker committed it. Final.
    Done,
    /// Will not be tried again under this id.
    Dead,
    /// Retired by an operator; a successor carries the payload. Final.
    Aborted,
}

impl OutboxStatus {
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Inflight,
        Self::Done,
        Self::Dead,
        Self::Aborted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Inflight => "inflight",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Aborted => "aborted",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// The closed list of moves. The store's trigger says the same, and a test compares the two.
    ///
    /// A last look at the broker before a row dies or is requeued (C5, C32) is a transmission too:
    /// such a row goes through `inflight` on its way to `done`.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Pending => matches!(next, Self::Inflight | Self::Dead | Self::Aborted),
            Self::Inflight => matches!(next, Self::Pending | Self::Done | Self::Dead),
            // Done: a requeue that asks first may learn that the broker had it all along (C5, DR-05).
            Self::Dead => matches!(next, Self::Aborted | Self::Done),
            Self::Done | Self::Aborted => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_09_done_and_aborted_are_final() {
        for end in [OutboxStatus::Done, OutboxStatus::Aborted] {
            assert!(
                OutboxStatus::ALL
                    .into_iter()
                    .all(|next| !end.may_become(next))
            );
        }
    }

    #[test]
    fn names_round_trip() {
        for status in OutboxStatus::ALL {
            assert_eq!(OutboxStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(OutboxStatus::parse(""), None);
    }
}
