//! The IPC accept decision, as the table of v10 §4.5.1: eleven rows, proven complete by a loop.

use crate::fingerprint::Fingerprint;
use crate::gate::{Outcome, outcome};
use crate::outbox_status::OutboxStatus;

/// Whether the presented request is the one that consumed the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FingerprintMatch {
    Match,
    Mismatch,
}

/// What the daemon answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpcVerdict {
    /// Insert a row in `pending`; `202 queued`.
    Insert,
    /// `202 queued`; nothing changes.
    Queued,
    /// `202 inflight`; nothing changes.
    Inflight,
    /// `200 duplicate` with what the broker said; nothing changes, no broker call.
    Duplicate,
    /// `409 idempotency_key_reused` with this `conflict`; nothing changes.
    Conflict(&'static str),
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptRow {
    /// Its name in tests and logs.
    pub name: &'static str,
    /// How one gets there.
    pub how: &'static str,
    /// The state that the look-up found, and how the fingerprints compare; `None` for no row.
    pub found: Option<(OutboxStatus, FingerprintMatch)>,
    pub verdict: IpcVerdict,
}

const fn row(
    name: &'static str,
    how: &'static str,
    found: Option<(OutboxStatus, FingerprintMatch)>,
    verdict: IpcVerdict,
) -> AcceptRow {
    AcceptRow {
        name,
        how,
        found,
        verdict,
    }
}

use FingerprintMatch::{Match, Mismatch};
use IpcVerdict::{Conflict, Duplicate, Inflight, Insert, Queued};
use OutboxStatus::{Aborted, Dead, Done, Pending};

/// v10 §4.5.1. A client message id once written is bound to its row for ever; the only free state
/// is "no row".
#[rustfmt::skip]
pub const IPC_ACCEPT: [AcceptRow; 11] = [
    row("no_row", "the first request with this id", None, Insert),
    row("pending_match", "a retry while the row waits for the broker", Some((Pending, Match)), Queued),
    row("pending_mismatch", "the id was taken by another request that still waits", Some((Pending, Mismatch)), Conflict("outbox_pending_fingerprint_mismatch")),
    row("inflight_match", "a retry while the row is being sent", Some((OutboxStatus::Inflight, Match)), Inflight),
    row("inflight_mismatch", "the id was taken by another request that is being sent", Some((OutboxStatus::Inflight, Mismatch)), Conflict("outbox_inflight_fingerprint_mismatch")),
    row("done_match", "a retry after the broker committed", Some((Done, Match)), Duplicate),
    row("done_mismatch", "the id was taken by a message that the broker committed", Some((Done, Mismatch)), Conflict("outbox_done_fingerprint_mismatch")),
    row("dead_match", "a retry of a request that the broker refused for good or that grew too old", Some((Dead, Match)), Conflict("outbox_dead_fingerprint_match")),
    row("dead_mismatch", "the id was taken by a request that died", Some((Dead, Mismatch)), Conflict("outbox_dead_fingerprint_mismatch")),
    row("aborted_match", "a retry of a request that an operator retired", Some((Aborted, Match)), Conflict("outbox_aborted_fingerprint_match")),
    row("aborted_mismatch", "the id was taken by a request that an operator retired", Some((Aborted, Mismatch)), Conflict("outbox_aborted_fingerprint_mismatch")),
];

/// Looks the case up. Total by construction: the loop below visits every combination.
pub fn ipc_accept(
    existing: Option<(OutboxStatus, Fingerprint)>,
    presented: Fingerprint,
) -> &'static AcceptRow {
    let compared = match outcome(existing.map(|(_, stored)| stored), presented) {
        Outcome::Conflict => Mismatch,
        Outcome::Duplicate | Outcome::Fresh => Match,
    };
    let found = existing.map(|(status, _)| (status, compared));
    let index = match found {
        None => 0,
        Some((status, compared)) => {
            let first = match status {
                Pending => 1,
                OutboxStatus::Inflight => 3,
                Done => 5,
                Dead => 7,
                Aborted => 9,
            };
            first + usize::from(compared == Mismatch)
        }
    };
    &IPC_ACCEPT[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Fingerprint = Fingerprint([1; 32]);
    const OTHER: Fingerprint = Fingerprint([2; 32]);

    #[test]
    fn ob_04_the_table_is_complete_and_each_row_is_reached_by_its_own_case_only() {
        let mut reached = Vec::new();
        let mut cases = vec![(None, None)];
        for status in OutboxStatus::ALL {
            cases.push((Some((status, SAME)), Some((status, Match))));
            cases.push((Some((status, OTHER)), Some((status, Mismatch))));
        }
        for (existing, expected) in cases {
            let row = ipc_accept(existing, SAME);
            assert_eq!(row.found, expected, "{}", row.name);
            reached.push(row.name);
        }
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached.len(), IPC_ACCEPT.len());
    }

    #[test]
    fn ob_04_conflict_strings_name_state_and_comparison() {
        for row in IPC_ACCEPT {
            let Conflict(conflict) = row.verdict else {
                continue;
            };
            let (status, compared) = row.found.unwrap();
            let compared = if compared == Match {
                "match"
            } else {
                "mismatch"
            };
            assert_eq!(
                conflict,
                format!("outbox_{}_fingerprint_{compared}", status.as_str())
            );
        }
    }

    #[test]
    fn ob_05_only_the_free_id_writes() {
        for row in IPC_ACCEPT {
            assert_eq!(row.verdict == Insert, row.found.is_none(), "{}", row.name);
            assert!(!row.how.is_empty());
        }
    }

    /// FP-07: what is shown of a fingerprint is its first eight bytes; what is compared is all of it.
    #[test]
    fn fp_07_two_requests_that_share_the_shown_prefix_are_told_apart_in_every_state() {
        for at in 8..32 {
            let mut alike = SAME;
            alike.0[at] ^= 1;
            assert_eq!(alike.prefix(), SAME.prefix());
            for status in OutboxStatus::ALL {
                let row = ipc_accept(Some((status, SAME)), alike);
                assert_eq!(row.found, Some((status, Mismatch)), "byte {at}");
                let expected = format!("outbox_{}_fingerprint_mismatch", status.as_str());
                assert!(
                    matches!(row.verdict, Conflict(conflict) if conflict == expected),
                    "{row:?}"
                );
            }
        }
    }
}
