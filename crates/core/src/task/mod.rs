//! Tasks: what they are made of, and which state a set of ops leaves (C7).
//!
//! A task is never written, it is folded: all its ops in the total order of stamps, through the one
//! table in [`table`]. The same set of ops gives the same task on every replica, in any order of arrival.

pub mod fold;
pub mod lease;
pub mod table;

use crate::ids::OpId;
use crate::lamport::PeerId;
use crate::limits::{
    TASK_BLOCKERS_MAX, TASK_LEASE_MS_MAX, TASK_LEASE_MS_MIN, TASK_TEXT_BYTES_MAX,
    TASK_TITLE_BYTES_MAX,
};
use crate::names::nfc;

/// A task's id: the id of the op that created it.
pub type TaskId = OpId;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    #[error("the title is empty")]
    NoTitle,
    #[error("the {what} is longer than {bytes_max} bytes")]
    TooLong {
        what: &'static str,
        bytes_max: usize,
    },
    #[error("the {what} holds the control character {character:?}")]
    Control { what: &'static str, character: char },
    #[error("the task is blocked by {0} others; at most {TASK_BLOCKERS_MAX} are kept")]
    TooManyBlockers(usize),
    // In seconds, which every door asks for.
    #[error("a lease lasts from {} to {} seconds", TASK_LEASE_MS_MIN / 1000, TASK_LEASE_MS_MAX / 1000)]
    Lease,
}

/// What a task is called: one line in NFC, not only spaces, no control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTitle(String);

impl TaskTitle {
    pub fn parse(text: &str) -> Result<Self, TaskError> {
        let text = nfc(text);
        if text.trim().is_empty() {
            return Err(TaskError::NoTitle);
        }
        checked("title", text, TASK_TITLE_BYTES_MAX, |_| false).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is to be done, in full: NFC, of control characters only tabs and line ends. May be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskText(String);

impl TaskText {
    pub fn parse(text: &str) -> Result<Self, TaskError> {
        let is_kept = |c| matches!(c, '\n' | '\r' | '\t');
        checked("description", nfc(text), TASK_TEXT_BYTES_MAX, is_kept).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn checked(
    what: &'static str,
    text: String,
    bytes_max: usize,
    is_kept: impl Fn(char) -> bool,
) -> Result<String, TaskError> {
    if text.len() > bytes_max {
        return Err(TaskError::TooLong { what, bytes_max });
    }
    match text.chars().find(|c| c.is_control() && !is_kept(*c)) {
        Some(character) => Err(TaskError::Control { what, character }),
        None => Ok(text),
    }
}

/// The tasks that must be finished before this one is ready: sorted, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blockers(Vec<TaskId>);

impl Blockers {
    pub fn new(mut ids: Vec<TaskId>) -> Result<Self, TaskError> {
        if ids.len() > TASK_BLOCKERS_MAX {
            return Err(TaskError::TooManyBlockers(ids.len()));
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(Self(ids))
    }

    pub fn as_slice(&self) -> &[TaskId] {
        &self.0
    }
}

/// How long a claim lasts without a sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseMs(u64);

impl LeaseMs {
    pub fn new(ms: u64) -> Result<Self, TaskError> {
        if (TASK_LEASE_MS_MIN..=TASK_LEASE_MS_MAX).contains(&ms) {
            Ok(Self(ms))
        } else {
            Err(TaskError::Lease)
        }
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

/// One step in a task's life, as its op says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStep {
    Create {
        title: TaskTitle,
        description: TaskText,
        blocked_by: Blockers,
    },
    Claim {
        lease: LeaseMs,
    },
    /// The holder was active; `fence` is the number of its claim.
    Renew {
        fence: u64,
    },
    Release {
        fence: u64,
    },
    /// Without a fence: of a task that nobody holds.
    Complete {
        fence: Option<u64>,
    },
    Cancel,
    /// Any member's word that this claim is past its deadline. It counts only while the claim is as
    /// it was seen: a renewal that the issuer did not know of makes it void.
    Expire {
        holder: PeerId,
        fence: u64,
        /// The lamport of the newest renewal that was seen; of the claim if there was none.
        renewed: u64,
    },
}

impl TaskStep {
    /// Only a create may come without its task.
    pub fn is_create(&self) -> bool {
        matches!(self, Self::Create { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStatus {
    Open,
    Claimed,
    Completed,
    Cancelled,
}

impl TaskStatus {
    pub const ALL: [Self; 4] = [Self::Open, Self::Claimed, Self::Completed, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Claimed => "claimed",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }

    /// Whether whoever waits for it waits no longer.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }
}

/// What the record of a task says of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Claimed,
    /// Lost to a claim that stands before it, or under a fence that is not the latest.
    Superseded,
    /// Too late: the task was finished.
    RejectedTerminal,
    Released,
    Completed,
    Cancelled,
}

impl EventKind {
    pub const ALL: [Self; 6] = [
        Self::Claimed,
        Self::Superseded,
        Self::RejectedTerminal,
        Self::Released,
        Self::Completed,
        Self::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Superseded => "superseded",
            Self::RejectedTerminal => "rejected_terminal",
            Self::Released => "released",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn hostile_titles_and_texts_are_refused_with_their_reason() {
        let long = "x".repeat(TASK_TITLE_BYTES_MAX + 1);
        for bad in ["", "  ", "a\0b", "a\nb", "\u{1b}[31mred", "\u{9b}m", &long] {
            assert!(TaskTitle::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["fix it", "';DROP TABLE tasks;--", "日本", &long[1..]] {
            assert_eq!(TaskTitle::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(
            TaskTitle::parse("cafe\u{301}"),
            TaskTitle::parse("caf\u{e9}")
        );
        assert_eq!(TaskText::parse("a\r\n\tb").unwrap().as_str(), "a\r\n\tb");
        let long = "x".repeat(TASK_TEXT_BYTES_MAX + 1);
        for bad in ["a\0b", "\u{1b}[2J", &long] {
            assert!(TaskText::parse(bad).is_err());
        }
    }

    #[test]
    fn blockers_are_sorted_each_once_and_bounded() {
        let id = |n| OpId(Uuid::from_u128(n));
        let blockers = Blockers::new(vec![id(2), id(1), id(2)]).unwrap();
        assert_eq!(blockers.as_slice(), [id(1), id(2)]);
        assert!(Blockers::new(vec![id(1); TASK_BLOCKERS_MAX + 1]).is_err());
    }

    #[test]
    fn a_lease_has_bounds() {
        assert!(LeaseMs::new(TASK_LEASE_MS_MIN).is_ok());
        assert!(LeaseMs::new(TASK_LEASE_MS_MAX).is_ok());
        for bad in [0, TASK_LEASE_MS_MIN - 1, TASK_LEASE_MS_MAX + 1, u64::MAX] {
            assert_eq!(LeaseMs::new(bad), Err(TaskError::Lease));
        }
    }

    #[test]
    fn words_round_trip() {
        for status in TaskStatus::ALL {
            assert_eq!(TaskStatus::parse(status.as_str()), Some(status));
        }
        for kind in EventKind::ALL {
            assert_eq!(EventKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(TaskStatus::parse("Open"), None);
    }

    #[test]
    fn a_lease_is_refused_in_the_unit_that_every_door_asks_it_in() {
        let words = LeaseMs::new(0).unwrap_err().to_string();
        assert_eq!(words, "a lease lasts from 1 to 604800 seconds");
    }
}
