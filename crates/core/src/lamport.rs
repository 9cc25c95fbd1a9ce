//! Logical time: a counter per mesh, and the total order of all operations (C8).
//!
//! The clock merges `max + 1`; rows keep the stamp of the op that made them and never take the
//! merged value.

use std::cmp::Ordering;

use crate::ids::OpId;
use crate::limits::{LAMPORT_AHEAD_MAX, LAMPORT_MAX};
use crate::names::nfc;

/// A peer's identity in stamps: NFC, compared by bytes, never by locale (LF-07).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(String);

impl PeerId {
    pub fn new(text: &str) -> Self {
        Self(nfc(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A mesh's counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Lamport(pub u64);

/// The highest stamp of all ops that a mesh's log has brought so far: the same on every replica that has
/// read as far, whatever its own counter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogClock(pub u64);

/// A stamp so far ahead that taking it over would poison every counter (C39).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stamp {remote} is too far ahead of {log}, the highest of the log before it")]
pub struct TooFarAhead {
    pub log: u64,
    pub remote: u64,
}

impl LogClock {
    /// The clock after an op of the log, or why the op may not move it. Depends on nothing but the log, so
    /// no replica takes what another refuses.
    pub fn admit(self, remote: u64) -> Result<Self, TooFarAhead> {
        let Self(log) = self;
        if remote > log.saturating_add(LAMPORT_AHEAD_MAX) || remote > LAMPORT_MAX {
            return Err(TooFarAhead { log, remote });
        }
        Ok(Self(log.max(remote)))
    }
}

impl Lamport {
    /// A local event.
    #[must_use]
    pub fn tick(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// A remote event that the log's clock has admitted: `max(own, remote) + 1`.
    #[must_use]
    pub fn merge(self, remote: u64) -> Self {
        Self(self.0.max(remote)).tick()
    }
}

/// What an op is ordered by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stamp {
    pub lamport: u64,
    pub peer: PeerId,
    pub op: OpId,
}

impl Ord for Stamp {
    fn cmp(&self, other: &Self) -> Ordering {
        self.lamport
            .cmp(&other.lamport)
            .then_with(|| {
                self.peer
                    .as_str()
                    .as_bytes()
                    .cmp(other.peer.as_str().as_bytes())
            })
            .then_with(|| self.op.0.as_bytes().cmp(other.op.0.as_bytes()))
    }
}

impl PartialOrd for Stamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn stamp(lamport: u64, peer: &str, op: u128) -> Stamp {
        Stamp {
            lamport,
            peer: PeerId::new(peer),
            op: OpId(Uuid::from_u128(op)),
        }
    }

    #[test]
    fn lf_01_local_and_merged_events_step_as_specified() {
        assert_eq!(Lamport(4).tick(), Lamport(5));
        assert_eq!(Lamport(4).merge(2), Lamport(5));
        assert_eq!(Lamport(4).merge(9), Lamport(10));
    }

    #[test]
    fn lf_06_a_poisoned_stamp_is_not_admitted() {
        assert!(LogClock(4).admit((1 << 63) - 1).is_err());
        assert!(LogClock(4).admit(u64::MAX).is_err());
        let edge = 4 + LAMPORT_AHEAD_MAX;
        assert_eq!(LogClock(4).admit(edge), Ok(LogClock(edge)));
        assert!(LogClock(4).admit(edge + 1).is_err());
        assert_eq!(LogClock(4).admit(2), Ok(LogClock(4)));
    }

    #[test]
    fn lf_06_small_steps_do_not_lead_past_the_end_either() {
        let end = LogClock(LAMPORT_MAX);
        assert_eq!(end.admit(LAMPORT_MAX), Ok(end));
        assert!(end.admit(LAMPORT_MAX + 1).is_err());
    }

    #[test]
    fn c8_equal_lamport_and_peer_are_still_ordered() {
        assert!(stamp(1, "a", 1) < stamp(1, "a", 2));
        assert!(stamp(1, "a", 9) < stamp(1, "b", 1));
        assert!(stamp(1, "z", 9) < stamp(2, "a", 1));
    }

    #[test]
    fn lf_07_composed_and_decomposed_peers_are_one() {
        assert_eq!(PeerId::new("cafe\u{301}"), PeerId::new("caf\u{e9}"));
        // A locale would sort these the other way round.
        assert!(PeerId::new("Z") < PeerId::new("a"));
        assert!(PeerId::new("z") < PeerId::new("\u{e9}"));
    }

    fn any_stamp() -> impl Strategy<Value = Stamp> {
        (0..3_u64, "[a-cé\u{301}]{0,2}", 0..3_u128).prop_map(|(l, p, o)| stamp(l, &p, o))
    }

    proptest! {
        #[test]
        fn lf_07_the_order_is_total_antisymmetric_and_transitive(
            a in any_stamp(), b in any_stamp(), c in any_stamp()
        ) {
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
        }
    }
}
