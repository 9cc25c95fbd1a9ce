//! Who wins between an incoming record and what is here, and whether that is a conflict: one pure decision.
//!
//! Last writer wins by revision, then origin (no clock). Winning says nothing about concurrency: that is asked
//! of `base_rev` (what the write was based on), and of the history (the same revision by another origin). An
//! image that the other side is known to have been built on is never concurrent with it.

use super::provenance::{Lineage, Mark};

/// What is here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current<'a> {
    pub(crate) mark: &'a Mark,
    pub(crate) lineage: &'a Lineage,
}

/// What the slice brings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) mark: &'a Mark,
    pub(crate) base_rev: Option<u64>,
    /// The history here has this revision from another origin, with another image.
    pub(crate) collides: bool,
    /// Its image is the one that is here.
    pub(crate) is_same: bool,
    /// The history here has this revision with this very image.
    pub(crate) is_past: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What is here has seen it already, or is it.
    Known,
    /// It becomes the entity.
    Wins { conflict: bool },
    /// What is here stays.
    Loses { conflict: bool },
}

fn has_seen(lineage: &Lineage, mark: &Mark) -> bool {
    lineage
        .get(&mark.origin_id)
        .is_some_and(|at| *at >= (mark.origin_epoch, mark.seq))
}

/// The same origin has gone on from it.
fn is_later(mark: &Mark, than: &Mark) -> bool {
    (mark.origin_id.as_str(), mark.origin_epoch) == (than.origin_id.as_str(), than.origin_epoch)
        && mark.seq >= than.seq
}

pub(crate) fn judge(current: Option<Current<'_>>, incoming: Incoming<'_>) -> Verdict {
    let Some(current) = current else {
        return Verdict::Wins { conflict: false };
    };
    let is_ancestor =
        has_seen(current.lineage, incoming.mark) || is_later(current.mark, incoming.mark);
    let is_past = incoming.is_past && incoming.mark.entity_rev < current.mark.entity_rev;
    if is_past || (is_ancestor && !incoming.collides) {
        return Verdict::Known;
    }
    let is_fast_forward = incoming
        .base_rev
        .is_none_or(|base| base >= current.mark.entity_rev);
    let is_concurrent = !is_ancestor && !is_fast_forward;
    let conflict = !incoming.is_same && (incoming.collides || is_concurrent);
    if is_ancestor || incoming.mark <= current.mark {
        Verdict::Loses { conflict }
    } else {
        Verdict::Wins { conflict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(entity_rev: u64, origin: &str, seq: u64) -> Mark {
        Mark {
            entity_rev,
            origin_id: origin.to_owned(),
            origin_epoch: 1,
            seq,
        }
    }

    /// Revision here, lineage here, incoming revision, base, collision, sameness: each with its verdict.
    #[test]
    fn jn_36_every_row_of_the_decision() {
        use Verdict::{Known, Loses, Wins};
        let none = Lineage::new();
        let seen = Lineage::from([("b".to_owned(), (1, 8))]);
        let here = mark(9, "a", 90);
        let row = |lineage, incoming: Mark, base, collides, is_same| {
            let current = Current {
                mark: &here,
                lineage,
            };
            judge(
                Some(current),
                Incoming {
                    mark: &incoming,
                    base_rev: base,
                    collides,
                    is_same,
                    is_past: false,
                },
            )
        };
        let b = |rev, seq| mark(rev, "b", seq);
        let rows = [
            // The attack of the seed: an offline edit with a lower revision.
            (
                row(&none, b(8, 8), Some(7), true, false),
                Loses { conflict: true },
            ),
            (
                row(&none, b(8, 8), Some(7), false, false),
                Loses { conflict: true },
            ),
            // An exporter without base_rev: the collision alone tells.
            (
                row(&none, b(8, 8), None, true, false),
                Loses { conflict: true },
            ),
            (
                row(&none, b(8, 8), None, false, false),
                Loses { conflict: false },
            ),
            // Clean fast-forwards.
            (
                row(&none, b(10, 8), Some(9), false, false),
                Wins { conflict: false },
            ),
            (
                row(&none, b(12, 8), Some(11), false, false),
                Wins { conflict: false },
            ),
            // Concurrent, and the higher revision wins all the same.
            (
                row(&none, b(10, 8), Some(7), false, false),
                Wins { conflict: true },
            ),
            // A tie of revisions: the origin decides.
            (
                row(&none, b(9, 8), Some(8), true, false),
                Wins { conflict: true },
            ),
            (
                row(&none, mark(9, "A", 8), Some(8), true, false),
                Loses { conflict: true },
            ),
            // The same image twice is no conflict, whoever wins.
            (
                row(&none, b(9, 8), Some(8), true, true),
                Wins { conflict: false },
            ),
            // What is here was built on it.
            (row(&seen, b(8, 8), Some(7), false, false), Known),
            (row(&seen, b(8, 7), Some(2), false, false), Known),
            (
                row(&seen, b(8, 9), Some(7), false, false),
                Loses { conflict: true },
            ),
            // The same origin has gone on; but a collision with a third one is still told.
            (row(&none, mark(8, "a", 80), Some(7), false, false), Known),
            (row(&none, mark(9, "a", 90), Some(8), false, false), Known),
            (
                row(&none, mark(8, "a", 80), Some(7), true, false),
                Loses { conflict: true },
            ),
        ];
        for (index, (told, expected)) in rows.into_iter().enumerate() {
            assert_eq!(told, expected, "row {index}");
        }
        let first = Incoming {
            mark: &b(3, 1),
            base_rev: Some(2),
            collides: false,
            is_same: false,
            is_past: false,
        };
        assert_eq!(judge(None, first), Wins { conflict: false });
        // A revision that is in the history as it is, under whatever name: it was built on.
        let current = Current {
            mark: &here,
            lineage: &none,
        };
        let past = |rev| {
            let incoming = Incoming {
                mark: &b(rev, 1),
                base_rev: Some(rev - 1),
                collides: true,
                is_same: false,
                is_past: true,
            };
            judge(Some(current), incoming)
        };
        assert_eq!(past(8), Known);
        assert_eq!(past(9), Wins { conflict: true });
    }
}
