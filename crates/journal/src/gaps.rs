//! Places where seqs are missing, and a person's word that what stood there is gone for good.
//!
//! A gap is told for ever, as a warning; once it is accepted it is no fault any more. Another one, or a
//! larger one, is.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::JournalError;
use crate::journal::Journal;
use crate::notes::Note;

/// A reason is a sentence.
const REASON_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    /// The first and the last seq that is missing, each.
    found: BTreeSet<[u64; 2]>,
    accepted: BTreeSet<[u64; 2]>,
    /// Seqs that came behind larger ones: they are here, whatever was called missing before they were met.
    late: BTreeSet<u64>,
}

impl Gaps {
    pub(crate) fn find(&mut self, first: u64, last: u64) {
        self.found.insert([first, last]);
    }

    /// A record that stands behind a larger seq.
    pub(crate) fn meet(&mut self, seq: u64) {
        self.late.insert(seq);
    }

    /// What was met late is not missing. Once, when everything was read.
    pub(crate) fn settle(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let late = std::mem::take(&mut self.late);
        let found = std::mem::take(&mut self.found).into_iter();
        self.found = found
            .flat_map(|[first, last]| missing_of(&late, first, last))
            .collect();
    }

    pub(crate) fn accept(&mut self, gaps: &[[u64; 2]]) {
        self.accepted.extend(gaps);
    }

    /// Nothing was ever missing.
    pub(crate) fn is_none(&self) -> bool {
        self.found.is_empty() && self.accepted.is_empty()
    }

    /// Whether the record of this seq is missing, accepted or not.
    pub(crate) fn hold(&self, seq: u64) -> bool {
        let mut all = self.found.iter().chain(&self.accepted);
        all.any(|[first, last]| (*first..=*last).contains(&seq))
    }

    /// Whether a person has given up the record of this seq.
    pub(crate) fn is_given_up(&self, seq: u64) -> bool {
        let mut all = self.accepted.iter();
        all.any(|[first, last]| (*first..=*last).contains(&seq))
    }

    /// Those of which nobody has said anything, each once.
    pub(crate) fn open(&self) -> Vec<[u64; 2]> {
        let accepted = Cover::of(&self.accepted);
        let mut all: Vec<[u64; 2]> = self.found.iter().copied().collect();
        // The longest of those that begin at one place first: whatever is inside of another comes behind it.
        all.sort_by_key(|[first, last]| (*first, std::cmp::Reverse(*last)));
        let mut told_to = 0;
        all.retain(|[_, last]| {
            let is_inner = *last <= told_to;
            told_to = told_to.max(*last);
            !is_inner
        });
        all.retain(|gap| !accepted.holds(gap));
        all
    }

    /// What a person has given up, put back since or not; each seq once.
    pub(crate) fn accepted(&self) -> Vec<[u64; 2]> {
        let mut all: Vec<[u64; 2]> = Vec::new();
        for [first, last] in &self.accepted {
            match all.last_mut() {
                Some(before) if *first <= before[1].saturating_add(1) => {
                    before[1] = before[1].max(*last);
                }
                _ => all.push([*first, *last]),
            }
        }
        all
    }

    /// Also those of which a part is here again, or that are seen from a later beginning.
    pub(crate) fn accepted_count(&self) -> u64 {
        let accepted = Cover::of(&self.accepted);
        self.found.iter().filter(|gap| accepted.holds(gap)).count() as u64
    }

    /// What two looks at the same journal found, from different beginnings.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self {
            found: self.found.union(&other.found).copied().collect(),
            accepted: self.accepted.union(&other.accepted).copied().collect(),
            late: self.late.union(&other.late).copied().collect(),
        }
    }
}

/// What is missing of a range in which these are here, though this build does not understand them.
pub(crate) fn missing_of(here: &BTreeSet<u64>, first: u64, last: u64) -> Vec<[u64; 2]> {
    let mut missing = Vec::new();
    let mut from = first;
    if first > last {
        // Nobody of ours writes such a range; a cache or a checkpoint may have come from anywhere.
        return missing;
    }
    for seq in here.range(first..=last) {
        if *seq > from {
            missing.push([from, seq - 1]);
        }
        from = seq.saturating_add(1);
    }
    if from <= last {
        missing.push([from, last]);
    }
    missing
}

/// What of these is in none of the others, which rise.
fn without(gaps: &[[u64; 2]], others: &[[u64; 2]]) -> Vec<[u64; 2]> {
    let mut left = Vec::new();
    for [first, last] in gaps {
        let mut from = *first;
        for [begin, end] in others.iter().filter(|[_, end]| end >= first) {
            if *begin > *last {
                break;
            }
            if *begin > from {
                left.push([from, begin - 1]);
            }
            from = from.max(end + 1);
        }
        if from <= *last {
            left.push([from, *last]);
        }
    }
    left
}

/// Whether one range of many holds another, asked often.
struct Cover(Vec<[u64; 2]>);

impl Cover {
    /// With the furthest end of all that begin so far in place of each one's own.
    fn of(ranges: &BTreeSet<[u64; 2]>) -> Self {
        let mut furthest = 0;
        let cover = ranges.iter().map(|[first, last]| {
            furthest = furthest.max(*last);
            [*first, furthest]
        });
        Self(cover.collect())
    }

    fn holds(&self, [first, last]: &[u64; 2]) -> bool {
        let begun = self.0.partition_point(|[begin, _]| begin <= first);
        begun
            .checked_sub(1)
            .is_some_and(|at| self.0[at][1] >= *last)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AcceptedGaps {
    /// The first and the last seq that is missing, each; none where nothing was open.
    pub accepted: Vec<[u64; 2]>,
    /// Those that were missing, and are here again since somebody put a copy back.
    pub back: Vec<[u64; 2]>,
}

impl Journal {
    /// Notes that what is missing is known to be lost; only when a person asks. What was put back is taken in first.
    pub fn accept_gaps(&self, reason: &str) -> Result<AcceptedGaps, JournalError> {
        if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
            return Err(JournalError::Refused(format!(
                "a reason has 1 to {REASON_BYTES_MAX} bytes"
            )));
        }
        self.must_be_on()?;
        let before = self.cached_lost()?.seqs;
        let mut session = self.session()?;
        let accepted = self.open_gaps()?;
        let back = without(&before, &accepted);
        if let Some([_, last]) = accepted.last() {
            // Behind the gap, so that it is the same one from then on, and no seq comes twice.
            session.is_sealed |= *last >= session.next_seq;
            session.next_seq = session.next_seq.max(last + 1);
            let note = Note::GapsAccepted {
                gaps: accepted.clone(),
                reason: reason.to_owned(),
                by: self.who.agent.clone(),
            };
            session.note_all(&[note])?;
        }
        if !accepted.is_empty() || !session.lost.is_empty() {
            // IMPORTANT: everything is compared before the loss is forgotten. An index that was made while records were
            // missing does not know those that were put back, and would give their revisions a second time.
            session.reconcile_full()?;
            session.lost.forgive();
            session.write_meta(false)?;
            self.tell_aside(std::mem::take(&mut session.kept_aside));
        }
        Ok(AcceptedGaps { accepted, back })
    }

    /// From the first record on, as the verification looks.
    pub(crate) fn open_gaps(&self) -> Result<Vec<[u64; 2]>, JournalError> {
        let newest = self.rebuild(0)?.replay.gaps;
        let all = self.rebuild(usize::MAX)?.replay.gaps;
        Ok(newest.with(&all).open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_back_is_what_is_missing_no_more() {
        let lost = [[2, 6], [9, 9]];
        for (open, back) in [
            (vec![], vec![[2, 6], [9, 9]]),
            (vec![[2, 6], [9, 9]], vec![]),
            (vec![[3, 3], [5, 12]], vec![[2, 2], [4, 4]]),
            (vec![[1, 2]], vec![[3, 6], [9, 9]]),
        ] {
            assert_eq!(without(&lost, &open), back, "{open:?}");
        }
    }

    #[test]
    fn what_is_here_and_not_understood_is_not_missing() {
        let here = BTreeSet::from([3, 4, 7]);
        assert_eq!(missing_of(&here, 3, 4), Vec::<[u64; 2]>::new());
        assert_eq!(missing_of(&here, 2, 8), [[2, 2], [5, 6], [8, 8]]);
        assert_eq!(missing_of(&BTreeSet::new(), 2, 8), [[2, 8]]);
    }

    #[test]
    fn what_comes_late_is_not_missing() {
        let mut gaps = Gaps::default();
        gaps.find(1, 4);
        gaps.find(1, 9);
        for seq in [3, 9, 1, 12] {
            gaps.meet(seq);
        }
        gaps.settle();
        assert_eq!(gaps.open(), [[2, 2], [4, 8]]);
        assert!(gaps.hold(4) && !gaps.hold(3));
    }

    #[test]
    fn a_gap_is_open_until_all_of_it_was_accepted_and_is_told_once() {
        let mut gaps = Gaps::default();
        gaps.find(2, 5);
        gaps.accept(&[[2, 4]]);
        assert_eq!(gaps.open(), [[2, 5]], "a larger one is news");
        gaps.accept(&[[2, 5]]);
        gaps.find(3, 3);
        assert_eq!((gaps.open(), gaps.accepted_count()), (vec![], 2));
        let mut later = Gaps::default();
        later.find(8, 9);
        let mut whole = Gaps::default();
        whole.find(7, 9);
        assert_eq!(gaps.with(&later).with(&whole).open(), [[7, 9]]);
    }
}
