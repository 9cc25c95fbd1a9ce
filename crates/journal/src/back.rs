//! Lost records that somebody has put back: whoever reads or writes next finds them, accepted or not, behind a checkpoint or not.
//!
//! The cache and the checkpoints name the seqs that were missing. Of those that a person has given up, for ever, halving a segment
//! says cheaply that nothing is there; what may be there is scanned, for only a record whose batch is whole counts. Open losses are
//! few and do not last: their segments are scanned, for a line may have been put back in another place than its own.

use std::collections::BTreeSet;

use crate::error::{At, JournalError};
use crate::format::SEGMENT_BYTES_MAX;
use crate::gaps::missing_of;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::loss::Lost;
use crate::recorded::{Nearest, nearest};
use crate::segments;

impl Journal {
    /// Whether any record that the cache calls lost, or accepted as lost, is here.
    pub(crate) fn is_any_back(&self, lost: &Lost) -> Result<bool, JournalError> {
        if lost.is_nothing() {
            // As a rule, and asked by every reader.
            return Ok(false);
        }
        let all = self.all_segments()?;
        let open = all_overlapping(&all, &lost.seqs);
        let given_up = self.segments_with(&all, &lost.accepted);
        Ok(!self.here_in(open, &lost.seqs)?.is_empty()
            || !self.here_in(given_up, &lost.accepted)?.is_empty())
    }

    /// What of these is not here.
    pub(crate) fn still_missing(&self, ranges: &[[u64; 2]]) -> Result<Vec<[u64; 2]>, JournalError> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let among = all_overlapping(&self.all_segments()?, ranges);
        let here = self.here_in(among, ranges)?;
        let missing = |[first, last]: &[u64; 2]| missing_of(&here, *first, *last);
        Ok(ranges.iter().flat_map(missing).collect())
    }

    /// The segments among these that hold some of the seqs of these ranges, rising.
    pub(crate) fn segments_with(&self, among: &[u64], ranges: &[[u64; 2]]) -> Vec<u64> {
        let mut found = BTreeSet::new();
        for range in ranges {
            for first in overlapping(among, *range) {
                if !found.contains(&first) && self.may_hold(first, *range) {
                    found.insert(first);
                }
            }
        }
        found.into_iter().collect()
    }

    /// Those seqs of these ranges of which these segments have a record that counts, or one of a newer build.
    fn here_in(&self, among: Vec<u64>, ranges: &[[u64; 2]]) -> Result<BTreeSet<u64>, JournalError> {
        let mut here = Here {
            ranges,
            seqs: BTreeSet::new(),
        };
        for first in among {
            let bytes = segments::read(self.disk(), &self.layout, first)?;
            scan(&bytes, 0, &mut here);
        }
        Ok(here.seqs)
    }

    /// False where no line of the range is in that segment. True also where halving cannot say.
    fn may_hold(&self, first: u64, [from, to]: [u64; 2]) -> bool {
        let look = || -> Result<Nearest, JournalError> {
            let path = self.segment_path(first)?;
            let file = self.disk().open_read(&path).at(&path)?;
            let length = file.length().at(&path)?.min(SEGMENT_BYTES_MAX);
            let end = segments::end(self.disk(), &path, length)?;
            nearest(&*file, end, from).at(&path)
        };
        match look() {
            Ok(Nearest::Seq(seq)) => seq <= to,
            Ok(Nearest::Behind) => false,
            // Also one that was moved between two looks, or cannot be read: whoever reads it says why.
            Ok(Nearest::Unclear) | Err(_) => true,
        }
    }
}

/// By their names alone.
fn overlapping(segments: &[u64], [from, to]: [u64; 2]) -> impl Iterator<Item = u64> {
    let begin = segments::holding(segments, from);
    let rest = segments.get(begin..).unwrap_or_default();
    rest.iter().copied().take_while(move |first| *first <= to)
}

fn all_overlapping(segments: &[u64], ranges: &[[u64; 2]]) -> Vec<u64> {
    let each = ranges
        .iter()
        .flat_map(|range| overlapping(segments, *range));
    let once: BTreeSet<u64> = each.collect();
    once.into_iter().collect()
}

struct Here<'r> {
    ranges: &'r [[u64; 2]],
    seqs: BTreeSet<u64>,
}

impl Here<'_> {
    fn add(&mut self, seq: u64) {
        let mut ranges = self.ranges.iter();
        if ranges.any(|[first, last]| (*first..=*last).contains(&seq)) {
            self.seqs.insert(seq);
        }
    }
}

impl<'a> Sink<'a> for Here<'_> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for counted in batch {
            self.add(counted.record.seq);
        }
    }

    fn damage(&mut self, damage: Damage) {
        if let Some(seq) = damage.newer_seq() {
            self.add(seq);
        }
    }
}
