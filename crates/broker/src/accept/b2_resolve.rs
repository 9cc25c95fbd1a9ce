//! B2: the decision inside the transaction, over the rows that the transaction sees. Pure; every
//! store calls it, none decides for itself.

use heddle_core::fingerprint::Fingerprint;
use heddle_core::gate::{Outcome, outcome};
use heddle_core::membership::Bar;

/// What the store does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Write all five effects.
    Commit,
    /// Write nothing: the first answer stands.
    Duplicate,
    /// Write nothing: the id belongs to another request.
    Conflict,
    /// Write nothing: the destination does not exist. The id stays free.
    UnknownRecipient,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolveRow {
    /// Its name in tests and logs.
    pub name: &'static str,
    /// How one gets there.
    pub how: &'static str,
    pub outcome: Outcome,
    pub destination_exists: bool,
    pub resolution: Resolution,
}

const fn row(
    name: &'static str,
    how: &'static str,
    outcome: Outcome,
    destination_exists: bool,
    resolution: Resolution,
) -> ResolveRow {
    ResolveRow {
        name,
        how,
        outcome,
        destination_exists,
        resolution,
    }
}

/// The id is asked first: one that is consumed gets its answer though its topic is gone by now.
#[rustfmt::skip]
pub const B2_RESOLVE: [ResolveRow; 6] = [
    row("fresh_resolved", "the first request with this id", Outcome::Fresh, true, Resolution::Commit),
    row("fresh_unresolved", "the topic or agent is not there, or no longer", Outcome::Fresh, false, Resolution::UnknownRecipient),
    row("same_resolved", "the same request twice in one batch, or racing past B0", Outcome::Duplicate, true, Resolution::Duplicate),
    row("same_unresolved", "a race past B0 after which the topic went away", Outcome::Duplicate, false, Resolution::Duplicate),
    row("other_resolved", "another request under the same id won the race", Outcome::Conflict, true, Resolution::Conflict),
    row("other_unresolved", "another request won the race, and this one goes nowhere", Outcome::Conflict, false, Resolution::Conflict),
];

/// Looks the case up. Total by construction: the loop below visits every combination.
pub fn resolve(
    consumed: Option<Fingerprint>,
    presented: Fingerprint,
    destination_exists: bool,
) -> &'static ResolveRow {
    let first = match outcome(consumed, presented) {
        Outcome::Fresh => 0,
        Outcome::Duplicate => 2,
        Outcome::Conflict => 4,
    };
    &B2_RESOLVE[first + usize::from(!destination_exists)]
}

/// What a message of a sender that may not speak is refused with. An id that is consumed gets its answer all the
/// same; one that is not learns nothing about where it goes. `is_heard`: that it may speak was decided before.
pub fn barred(resolution: Resolution, bar: Option<Bar>, is_heard: bool) -> Option<Bar> {
    match resolution {
        Resolution::Commit | Resolution::UnknownRecipient => bar.filter(|_| !is_heard),
        Resolution::Duplicate | Resolution::Conflict => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Fingerprint = Fingerprint([1; 32]);
    const OTHER: Fingerprint = Fingerprint([2; 32]);

    #[test]
    fn br_08_the_table_is_complete_and_each_row_is_reached_by_its_own_case_only() {
        let mut reached = Vec::new();
        for consumed in [None, Some(SAME), Some(OTHER)] {
            for destination_exists in [true, false] {
                let row = resolve(consumed, SAME, destination_exists);
                assert_eq!(row.outcome, outcome(consumed, SAME), "{}", row.name);
                assert_eq!(row.destination_exists, destination_exists, "{}", row.name);
                assert!(!row.how.is_empty());
                reached.push(row.name);
            }
        }
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached.len(), B2_RESOLVE.len());
    }

    #[test]
    fn fp_07_a_request_that_shares_the_shown_prefix_only_is_a_conflict() {
        for at in 8..32 {
            let mut alike = SAME;
            alike.0[at] ^= 1;
            assert_eq!(alike.prefix(), SAME.prefix());
            for destination_exists in [true, false] {
                let row = resolve(Some(SAME), alike, destination_exists);
                assert_eq!(row.resolution, Resolution::Conflict, "byte {at}");
            }
        }
    }

    #[test]
    fn t_30_a_barred_sender_writes_nothing_and_a_consumed_id_is_answered_all_the_same() {
        for row in B2_RESOLVE {
            assert_eq!(barred(row.resolution, None, false), None);
            for bar in [Bar::Revoked, Bar::Blocked] {
                let is_known = row.outcome != Outcome::Fresh;
                assert_eq!(
                    barred(row.resolution, Some(bar), true),
                    None,
                    "decided before"
                );
                let refused = barred(row.resolution, Some(bar), false);
                assert_eq!(refused, (!is_known).then_some(bar), "{}", row.name);
            }
        }
    }

    #[test]
    fn br_06_only_a_free_id_with_a_destination_writes() {
        for row in B2_RESOLVE {
            let writes = row.outcome == Outcome::Fresh && row.destination_exists;
            assert_eq!(row.resolution == Resolution::Commit, writes, "{}", row.name);
        }
    }
}
