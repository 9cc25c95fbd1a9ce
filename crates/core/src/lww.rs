//! Last writer wins: which of two writes of one row stays (C8, LF-08).
//!
//! The later stamp in the total order of [`crate::lamport::Stamp`] wins, whatever came first. A row
//! keeps the stamp of the op that made it, so the same set of ops leaves the same row in any order.

use std::cmp::Ordering;

use crate::lamport::Stamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The incoming op makes the row, with its own stamp.
    Take,
    /// The row is younger: not a byte of it changes (LF-10).
    Keep,
    /// The row is of this very op: applying it again is nothing (C9).
    Same,
}

/// What an op does to the row that its key has now, if it has one. A tombstone is a row like any other.
pub fn merge(existing: Option<&Stamp>, incoming: &Stamp) -> Merge {
    match existing.map(|stamp| incoming.cmp(stamp)) {
        None | Some(Ordering::Greater) => Merge::Take,
        Some(Ordering::Less) => Merge::Keep,
        Some(Ordering::Equal) => Merge::Same,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::ids::OpId;
    use crate::lamport::PeerId;

    fn stamp(lamport: u64, peer: &str, op: u128) -> Stamp {
        Stamp {
            lamport,
            peer: PeerId::new(peer),
            op: OpId(Uuid::from_u128(op)),
        }
    }

    /// A row as two replicas hold it: merging one into the other.
    fn joined(row: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
        match other {
            None => row,
            Some(other) => match merge(row.as_ref(), &other) {
                Merge::Take => Some(other),
                Merge::Keep | Merge::Same => row,
            },
        }
    }

    fn applied(ops: &[Stamp]) -> Option<Stamp> {
        ops.iter()
            .fold(None, |row, op| joined(row, Some(op.clone())))
    }

    #[test]
    fn every_case_of_the_decision_has_its_verdict() {
        let row = stamp(5, "b", 5);
        assert_eq!(merge(None, &row), Merge::Take);
        assert_eq!(merge(Some(&row), &row), Merge::Same);
        for (other, verdict) in [
            (stamp(6, "a", 0), Merge::Take),
            (stamp(4, "c", 9), Merge::Keep),
            (stamp(5, "c", 0), Merge::Take),
            (stamp(5, "a", 9), Merge::Keep),
            (stamp(5, "b", 6), Merge::Take),
            (stamp(5, "b", 4), Merge::Keep),
        ] {
            assert_eq!(merge(Some(&row), &other), verdict, "{other:?}");
        }
    }

    fn any_stamp() -> impl Strategy<Value = Stamp> {
        (0..3_u64, "[a-cé\u{301}]{0,2}", 0..3_u128).prop_map(|(l, p, o)| stamp(l, &p, o))
    }

    fn any_row() -> impl Strategy<Value = Option<Stamp>> {
        proptest::option::of(any_stamp())
    }

    proptest! {
        #[test]
        fn lf_08_merge_is_commutative_associative_and_idempotent(
            a in any_row(), b in any_row(), c in any_row()
        ) {
            prop_assert_eq!(joined(a.clone(), b.clone()), joined(b.clone(), a.clone()));
            prop_assert_eq!(
                joined(joined(a.clone(), b.clone()), c.clone()),
                joined(a.clone(), joined(b, c))
            );
            prop_assert_eq!(joined(a.clone(), a.clone()), a);
        }

        #[test]
        fn lf_08_any_order_with_duplicates_leaves_the_greatest_stamp(
            ops in proptest::collection::vec(any_stamp(), 1..12), seed in any::<proptest::sample::Index>()
        ) {
            let mut shuffled = ops.clone();
            shuffled.rotate_left(seed.index(ops.len()));
            shuffled.extend(ops.iter().rev().cloned());
            prop_assert_eq!(applied(&shuffled), applied(&ops));
            prop_assert_eq!(applied(&ops), ops.iter().max().cloned());
        }
    }
}
