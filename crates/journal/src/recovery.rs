//! What a writer may find when it takes the lock, and what it does about it: a table, proven complete.

/// Where the cache stands against the segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaState {
    /// Never written, or removed.
    Absent,
    /// There, but not readable.
    Damaged,
    /// Its writer died between the sync and the cache.
    Behind,
    Level,
    /// The segments lost what the cache, or another witness, has seen.
    Ahead,
}

/// What a start-up finds. Every combination is possible on some disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a row of the table is what was found, one by one"
)]
pub struct Found {
    pub meta: MetaState,
    /// Bytes at the end that do not count.
    pub is_torn: bool,
    /// A sync failed before: bytes may be in memory and not on the disk.
    pub is_unsynced: bool,
    /// Same start of the machine, or cleanly closed (C43).
    pub is_same_boot: bool,
    /// The projections are at the end of the journal.
    pub is_applied: bool,
    /// The index is, and the files behind it were never compared: their writer died behind its answer.
    pub is_unproven: bool,
}

/// How the projections come level with the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reconcile {
    Nothing,
    /// From where the cache says that they are.
    Gap,
    /// The index is level; every file is compared with it.
    Files,
    /// From the newest checkpoint, every entity compared.
    Full,
}

/// In this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a row of the table is what to do, step by step"
)]
pub struct Steps {
    /// What counts must be on the disk before anything builds on it.
    pub sync_segment: bool,
    /// Append again what a failed sync may have lost.
    pub append_again: bool,
    pub note_torn: bool,
    pub repair_seq: bool,
    pub reconcile: Reconcile,
}

#[allow(clippy::match_same_arms, reason = "each row has a reason of its own")]
pub fn decide(found: Found) -> Steps {
    let reconcile = match (found.meta, found.is_same_boot, found.is_applied) {
        // Nothing is known about the projections.
        (MetaState::Absent | MetaState::Damaged, _, _) => Reconcile::Full,
        // Projections may show what the journal lost; the guard keeps and reports them.
        (MetaState::Ahead, _, _) => Reconcile::Full,
        // A power cut may have kept the cache and lost the projections.
        (_, false, _) => Reconcile::Full,
        // Files that were never compared are not brought forward one by one.
        (MetaState::Behind, true, _) | (MetaState::Level, true, false) if found.is_unproven => {
            Reconcile::Full
        }
        (MetaState::Behind, true, _) => Reconcile::Gap,
        (MetaState::Level, true, false) => Reconcile::Gap,
        (MetaState::Level, true, true) if found.is_unproven => Reconcile::Files,
        (MetaState::Level, true, true) => Reconcile::Nothing,
    };
    Steps {
        sync_segment: found.is_torn || reconcile != Reconcile::Nothing,
        append_again: found.is_unsynced,
        note_torn: found.is_torn,
        repair_seq: found.meta == MetaState::Behind,
        reconcile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METAS: [MetaState; 5] = [
        MetaState::Absent,
        MetaState::Damaged,
        MetaState::Behind,
        MetaState::Level,
        MetaState::Ahead,
    ];

    #[test]
    fn every_combination_has_its_steps_and_the_rules_hold_in_all_of_them() {
        let mut seen = 0;
        for meta in METAS {
            for bits in 0..32_u8 {
                let found = Found {
                    meta,
                    is_torn: bits & 1 != 0,
                    is_unsynced: bits & 2 != 0,
                    is_same_boot: bits & 4 != 0,
                    is_applied: bits & 8 != 0,
                    is_unproven: bits & 16 != 0,
                };
                let steps = decide(found);
                seen += 1;
                // Nothing is projected, noted or repaired on top of bytes that may not be on the disk.
                let builds =
                    steps.note_torn || steps.repair_seq || steps.reconcile != Reconcile::Nothing;
                assert!(!builds || steps.sync_segment, "{found:?}");
                // JN-10: one note a torn tail. JN-13: one repair a stale cache, none without one.
                assert_eq!(steps.note_torn, found.is_torn);
                assert_eq!(steps.repair_seq, meta == MetaState::Behind);
                assert_eq!(steps.append_again, found.is_unsynced);
                // C43: another boot is never trusted.
                if !found.is_same_boot {
                    assert_eq!(steps.reconcile, Reconcile::Full);
                }
                let is_level = meta == MetaState::Level && found.is_same_boot && found.is_applied;
                let is_calm = is_level && !found.is_unproven;
                assert_eq!(steps.reconcile == Reconcile::Nothing, is_calm, "{found:?}");
                // Files that nobody compared are never taken for level, and never brought forward as if they were.
                let is_files = steps.reconcile == Reconcile::Files;
                assert_eq!(is_files, is_level && found.is_unproven, "{found:?}");
                assert!(!found.is_unproven || steps.reconcile != Reconcile::Gap);
            }
        }
        assert_eq!(seen, 160);
    }
}
