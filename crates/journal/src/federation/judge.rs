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

    /// Against revision 9 of `a`, at its seq 90. Whether that has seen `b` up to 8; the incoming one (origin,
    /// revision, seq, base); whether it collides; whether it is the same image.
    #[test]
    fn jn_36_every_row_of_the_decision() {
        let rows = [
            // The attack of the seed: an offline edit with a lower revision.
            (false, ("b", 8, 8, Some(7)), true, false, "loses, conflict"),
            (false, ("b", 8, 8, Some(7)), false, false, "loses, conflict"),
            // An exporter without base_rev: the collision alone tells.
            (false, ("b", 8, 8, None), true, false, "loses, conflict"),
            (false, ("b", 8, 8, None), false, false, "loses"),
            // Clean fast-forwards.
            (false, ("b", 10, 8, Some(9)), false, false, "wins"),
            (false, ("b", 12, 8, Some(11)), false, false, "wins"),
            // Concurrent, and the higher revision wins all the same.
            (false, ("b", 10, 8, Some(7)), false, false, "wins, conflict"),
            // A tie of revisions: the origin decides.
            (false, ("b", 9, 8, Some(8)), true, false, "wins, conflict"),
            (false, ("A", 9, 8, Some(8)), true, false, "loses, conflict"),
            // The same image twice is no conflict, whoever wins.
            (false, ("b", 9, 8, Some(8)), true, true, "wins"),
            // What is here was built on it, or on what came before it.
            (true, ("b", 8, 8, Some(7)), false, false, "known"),
            (true, ("b", 8, 7, Some(2)), false, false, "known"),
            (true, ("b", 8, 9, Some(7)), false, false, "loses, conflict"),
            // The same origin has gone on; but a collision with a third one is still told.
            (false, ("a", 8, 80, Some(7)), false, false, "known"),
            (false, ("a", 9, 90, Some(8)), false, false, "known"),
            (false, ("a", 8, 80, Some(7)), true, false, "loses, conflict"),
        ];
        for (has_seen_b, incoming, collides, is_same, expected) in rows {
            let told = told(has_seen_b, incoming, (collides, is_same, false));
            assert_eq!(told, expected, "{has_seen_b} {incoming:?} {collides}");
        }
        // A revision that is in the history as it is, under whatever name: it was built on.
        let past = |rev| told(false, ("b", rev, 1, Some(rev - 1)), (true, false, true));
        assert_eq!(past(8), "known");
        assert_eq!(past(9), "wins, conflict");
        let first = Incoming {
            mark: &mark(3, "b", 1),
            base_rev: Some(2),
            collides: false,
            is_same: false,
            is_past: false,
        };
        assert_eq!(judge(None, first), Verdict::Wins { conflict: false });
    }

    fn told(
        has_seen_b: bool,
        (origin, rev, seq, base_rev): (&str, u64, u64, Option<u64>),
        (collides, is_same, is_past): (bool, bool, bool),
    ) -> &'static str {
        let here = mark(9, "a", 90);
        let mut lineage = Lineage::new();
        if has_seen_b {
            lineage.insert("b".to_owned(), (1, 8));
        }
        let current = Current {
            mark: &here,
            lineage: &lineage,
        };
        let incoming = Incoming {
            mark: &mark(rev, origin, seq),
            base_rev,
            collides,
            is_same,
            is_past,
        };
        match judge(Some(current), incoming) {
            Verdict::Known => "known",
            Verdict::Wins { conflict: false } => "wins",
            Verdict::Wins { conflict: true } => "wins, conflict",
            Verdict::Loses { conflict: false } => "loses",
            Verdict::Loses { conflict: true } => "loses, conflict",
        }
    }
}
