//! Whether requests of before may stand in records that are lost: an id that is not found is then not a new one.
//!
//! Whoever reads the journal for requests looks at its seqs as well, which rise by one. Where they do not, all of it is asked
//! what is missing and not given up: a torn tail, another order of lines and a clone's beginning are no loss.

use crate::error::JournalError;
use crate::journal::Journal;
use crate::requests::Key;
use crate::session::Session;

/// The seqs of a stretch, as they are met.
#[derive(Debug, Default)]
pub(crate) struct Run {
    last: u64,
    is_broken: bool,
}

impl Run {
    /// One that goes on behind a seq; 0 is the very beginning.
    pub(crate) fn behind(seq: u64) -> Self {
        Self {
            last: seq,
            is_broken: false,
        }
    }

    pub(crate) fn meet(&mut self, seq: u64) {
        self.is_broken |= seq > self.last.saturating_add(1);
        self.last = self.last.max(seq);
    }

    /// The largest seq that was met.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    fn is_whole_to(&self, next_seq: u64) -> bool {
        !self.is_broken && self.last.saturating_add(1) >= next_seq
    }
}

impl Session<'_> {
    /// What is missing, where a stretch that was read to the journal's end is not whole.
    pub(crate) fn missing_in(&self, run: &Run) -> Result<Vec<[u64; 2]>, JournalError> {
        if run.is_whole_to(self.next_seq) {
            return Ok(Vec::new());
        }
        self.journal.all_missing()
    }

    /// Fails where an id that was not found may have been answered in what is `missing`, or known to be lost. `named`: the table
    /// has it, and the record of this seq that it names is not there.
    pub(crate) fn must_be_new(
        &self,
        key: &Key,
        missing: Vec<[u64; 2]>,
        named: Option<u64>,
    ) -> Result<(), JournalError> {
        let mut seqs = missing;
        if let Some(seq) = named.filter(|_| seqs.is_empty()) {
            seqs = self.journal.all_missing()?;
            if seqs.is_empty() && !self.lost.hold(seq) {
                // The table is the last that knows of it: an older copy of all else was put back. (A record that is here lost its id on request.)
                seqs = self.journal.still_missing(&[[seq, seq]])?;
            }
        }
        if seqs.is_empty() {
            seqs.clone_from(&self.lost.seqs);
        }
        if seqs.is_empty() {
            return Ok(());
        }
        let id = key.id.clone();
        Err(JournalError::RequestLost { id, seqs })
    }
}

impl Journal {
    /// From the first record on: a checkpoint keeps the state of what is lost before it, and no answers.
    fn all_missing(&self) -> Result<Vec<[u64; 2]>, JournalError> {
        Ok(self.rebuild(usize::MAX)?.replay.gaps.open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_whole_where_no_seq_is_passed_over_and_it_reaches_the_end() {
        for (behind, seqs, next_seq, is_whole) in [
            (0, vec![1, 2, 3], 4, true),
            (0, vec![2, 3], 4, false),
            (1, vec![2, 3], 4, true),
            (1, vec![3], 4, false),
            (3, vec![], 4, true),
            (3, vec![], 5, false),
            // The same line again.
            (1, vec![2, 3, 2, 3, 4], 5, true),
            // Another order is looked at closely.
            (1, vec![3, 2], 4, false),
        ] {
            let mut run = Run::behind(behind);
            for seq in &seqs {
                run.meet(*seq);
            }
            assert_eq!(run.is_whole_to(next_seq), is_whole, "{behind}, {seqs:?}");
        }
    }
}
