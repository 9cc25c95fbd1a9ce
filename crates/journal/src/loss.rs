//! What this store is known to have written and the journal no longer holds. Told by every reader, never papered over.
//!
//! Witnesses are the cache, or the revision index where that is gone, which are both written behind the records, the list of
//! reservations, which says how far the journal was, and this store's own checkpoints. A checkpoint of another store, which git brought along, witnesses nothing of ours.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Rebuilt};
use crate::error::{At, JournalError};
use crate::format::SEQ_MAX;
use crate::gaps::Gaps;
use crate::journal::Journal;
use crate::meta;
use crate::newer;
use crate::revisions::{Kept, Revisions};
use crate::segments;
use crate::session::Session;

/// Places that the cache holds. That there are any is what matters; `verify` has them all.
const PLACES_MAX: usize = 64;

/// What the last full comparison found to be lost, and nobody has accepted. In the cache: without it an index that was made
/// anew could not tell "never recorded" from "lost".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// First and last seq, each.
    pub(crate) seqs: Vec<[u64; 2]>,
    /// The revision index was lost with them, so nothing remembers the revisions that they were.
    #[serde(default)]
    pub(crate) index: bool,
    /// Those that a person has accepted. They are no loss any more, and somebody may put them back all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) accepted: Vec<[u64; 2]>,
    /// Segments in which there are records of a newer build: here, and not known to the one that found them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) newer: Vec<u64>,
}

impl Lost {
    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    /// Whether the record of this seq is lost, accepted or not.
    pub(crate) fn hold(&self, seq: u64) -> bool {
        let mut all = self.seqs.iter().chain(&self.accepted);
        all.any(|[first, last]| (*first..=*last).contains(&seq))
    }

    /// Whether the newest record of an entity is: its file is then the last that has what it said.
    pub(crate) fn hold_last_of(&self, kept: Option<Kept>) -> bool {
        kept.is_some_and(|kept| self.hold(kept.head.seq))
    }

    /// Not even accepted ones, or ones that this build does not understand.
    pub fn is_nothing(&self) -> bool {
        self.is_empty() && self.accepted.is_empty() && self.newer.is_empty()
    }

    /// A cache may have been edited: ranges that no journal has are not reckoned with.
    pub(crate) fn is_sane(&self) -> bool {
        let mut all = self.seqs.iter().chain(&self.accepted);
        all.all(|[first, last]| first <= last && *last <= SEQ_MAX)
    }

    /// What a start knows that finds no cache: nothing is called lost, and whatever is found to be may be unknown to the index
    /// as well, for it may have been made while records were missing.
    pub(crate) fn unknown() -> Self {
        Self {
            index: true,
            ..Self::default()
        }
    }

    /// How many records behind a seq are lost: at most so many revisions of an entity that was last seen there.
    pub(crate) fn count_after(&self, seq: u64) -> u64 {
        let behind = |[first, last]: &[u64; 2]| (last + 1).saturating_sub((seq + 1).max(*first));
        self.seqs.iter().map(behind).sum()
    }

    /// Revisions of an entity that may have been, and that nothing remembers.
    pub(crate) fn hidden_after(&self, seq: u64) -> u64 {
        if self.index { self.count_after(seq) } else { 0 }
    }

    /// A person has accepted all of it.
    pub(crate) fn forgive(&mut self) {
        self.seqs.clear();
        self.index = false;
    }

    /// More of them, found by going on from what was known.
    pub(crate) fn add(&mut self, gaps: &Gaps) {
        let all: BTreeSet<[u64; 2]> = self.seqs.iter().copied().chain(gaps.open()).collect();
        self.seqs = all.into_iter().take(PLACES_MAX).collect();
    }

    /// After everything was compared: what is missing now, and what was missing before the checkpoint that it began with.
    fn renew(&mut self, rebuilt: &Rebuilt, has_index: bool) {
        let covered = rebuilt.from.unwrap_or(0);
        self.seqs.retain(|[_, last]| *last <= covered);
        // What a checkpoint covers, whoever wrote it has understood.
        self.newer = newer::remembered(&[], newer::segments_of(&rebuilt.replay.damage));
        self.add(&rebuilt.replay.gaps);
        self.index = !self.seqs.is_empty() && (self.index || !has_index);
    }
}

/// For people: `2, 5 to 7`.
pub(crate) fn places(seqs: &[[u64; 2]]) -> String {
    let place = |[first, last]: &[u64; 2]| {
        if first == last {
            first.to_string()
        } else {
            format!("{first} to {last}")
        }
    };
    let places: Vec<String> = seqs.iter().map(place).collect();
    places.join(", ")
}

/// For people: `the records of seq 2, 5 to 7 are`.
pub(crate) fn lost_words(seqs: &[[u64; 2]]) -> String {
    match seqs {
        [[first, last]] if first == last => format!("the record of seq {first} is"),
        all => format!("the records of seq {} are", places(all)),
    }
}

impl Session<'_> {
    /// Records that were put back are taken in by the first writer, before it gives a revision.
    pub(crate) fn take_back(&mut self) -> Result<(), JournalError> {
        if !self.journal.is_any_back(&self.lost)? {
            return Ok(());
        }
        // IMPORTANT: first. The index does not know them, and would give their revisions a second time.
        self.reconcile_full()
    }

    pub(crate) fn renew_lost(
        &mut self,
        rebuilt: &Rebuilt,
        has_index: bool,
    ) -> Result<(), JournalError> {
        let lost = &mut self.lost;
        lost.renew(rebuilt, has_index);
        // What lies before the checkpoint that was begun with may be here again as well.
        lost.seqs = self.journal.still_missing(&lost.seqs)?;
        lost.index &= !lost.seqs.is_empty();
        self.lost.accepted = self.given_up(rebuilt)?;
        self.lost.accepted.truncate(PLACES_MAX);
        Ok(())
    }

    /// What a person has accepted as lost, and is not here: as the journal says, and the cache, for a checkpoint of an older build
    /// does not.
    pub(crate) fn given_up(&self, rebuilt: &Rebuilt) -> Result<Vec<[u64; 2]>, JournalError> {
        let mut gaps = rebuilt.replay.gaps.clone();
        gaps.accept(&self.lost.accepted);
        self.journal.still_missing(&gaps.accepted())
    }
}

impl Journal {
    /// The newest record that the revision index knows, or the list of reservations; 0 without them. A clone has neither.
    pub(crate) fn remembered_to(&self) -> u64 {
        let index = Revisions::open(self.disk(), &self.layout.revisions());
        let indexed = index.map_or(0, |index| index.seq_max());
        indexed.max(self.reserved_to())
    }

    /// Whether nothing knows of a record, where the cache is gone: neither the caches nor the store's own name, which comes with its first
    /// checkpoint or slice and which no clone brings along.
    pub(crate) fn is_never_written(&self) -> Result<bool, JournalError> {
        let name = self.layout.origin();
        let is_seen = self.remembered_to() > 0 || self.seen_beside()? > 0;
        Ok(!is_seen && self.disk().len(&name).at(&name)?.is_none())
    }

    /// Sealed, and written by this very store.
    pub(crate) fn is_own_checkpoint(&self, head_seq: u64) -> Result<bool, JournalError> {
        // A clone before its first write has no name, and need not read them.
        let Some(own) = self.origin().ok().flatten() else {
            return Ok(false);
        };
        let writer = self.checkpoint_origin(head_seq)?;
        Ok(writer.is_some_and(|writer| {
            (own.origin_id, own.origin_epoch) == (writer.origin_id, writer.origin_epoch)
        }))
    }

    /// The seqs, first and last, that are gone from the journal's end; without a lock and without a write.
    pub(crate) fn lost_tail(&self) -> Result<Option<[u64; 2]>, JournalError> {
        // IMPORTANT: the witnesses first. What is written meanwhile must not look like a loss.
        let beside = self.seen_beside()?;
        let meta = meta::read(self.disk(), &self.layout)?;
        let checkpoints = checkpoint::listed(self.disk(), &self.layout)?;
        let seen = self.seen_to(beside, &meta)?;
        let mut live = segments::live(self.disk(), &self.layout)?;
        let strays = self.strays(&live, &meta)?;
        live.retain(|first| !strays.contains(first));
        let Some(active) = live.last() else {
            // A new store and a clone have no cache. One that has it was written in, and its segments are gone.
            if meta.good().is_none() && self.is_never_written()? {
                return Ok(None);
            }
            return Ok(self.rebuild(0)?.replay.gaps.open().last().copied());
        };
        let tail = segments::tail(self.disk(), &self.layout, *active, None)?;
        if tail.is_newer {
            // It is there, and not for this build.
            return Ok(None);
        }
        let head = self.next_after(&live, &tail)? - 1;
        let last = self.witnessed(seen, &checkpoints, head)?;
        let head = self.newest_of(*active, head, last)?;
        Ok((last > head).then_some([head + 1, last]))
    }

    /// The last seq of the journal, where its end says `head` and a witness has seen more. Before that is called a loss the whole
    /// segment is asked: somebody may have changed the order of its lines.
    pub(crate) fn newest_of(&self, active: u64, head: u64, seen: u64) -> Result<u64, JournalError> {
        if seen <= head {
            return Ok(head);
        }
        let newest = segments::newest(self.disk(), &self.layout, active)?;
        Ok(newest.unwrap_or(0).max(head))
    }

    /// All that is known to be lost, and not accepted; without reading the journal.
    pub fn losses(&self) -> Result<Vec<[u64; 2]>, JournalError> {
        let tail = self.lost_tail()?;
        let mut lost = self.still_missing(&self.cached_lost()?.seqs)?;
        if let Some(tail) = tail.filter(|tail| !lost.contains(tail)) {
            lost.push(tail);
        }
        Ok(lost)
    }

    pub(crate) fn cached_lost(&self) -> Result<Lost, JournalError> {
        let meta = meta::read(self.disk(), &self.layout)?;
        Ok(meta
            .good()
            .map(|meta| (*meta.lost).clone())
            .unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_lost_behind_the_last_sight_of_an_entity_may_have_been_about_it() {
        let lost = Lost {
            seqs: vec![[2, 2], [5, 7]],
            index: true,
            ..Lost::default()
        };
        for (seq, count) in [(0, 4), (1, 4), (2, 3), (4, 3), (5, 2), (7, 0), (9, 0)] {
            assert_eq!(lost.count_after(seq), count, "{seq}");
            assert_eq!(lost.hidden_after(seq), count, "{seq}");
        }
        let remembered = Lost {
            index: false,
            ..lost
        };
        assert_eq!(remembered.hidden_after(0), 0);
        assert_eq!(lost_words(&[[3, 3]]), "the record of seq 3 is");
        let words = lost_words(&[[2, 2], [5, 7]]);
        assert_eq!(words, "the records of seq 2, 5 to 7 are");
    }
}
