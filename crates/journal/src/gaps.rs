//! Places where seqs are missing, and a person's word that what stood there is gone for good.
//!
//! A gap is told for ever, as a warning; once it is accepted it is no fault any more. Another one, or a
//! larger one, is.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::JournalError;
use crate::journal::Journal;
use crate::loss::Lost;
use crate::notes::Note;

/// A reason is a sentence.
const REASON_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    /// The first and the last seq that is missing, each.
    found: BTreeSet<[u64; 2]>,
    accepted: BTreeSet<[u64; 2]>,
}

impl Gaps {
    pub(crate) fn find(&mut self, first: u64, last: u64) {
        self.found.insert([first, last]);
    }

    pub(crate) fn accept(&mut self, gaps: &[[u64; 2]]) {
        self.accepted.extend(gaps);
    }

    /// Those of which nobody has said anything.
    pub(crate) fn open(&self) -> Vec<[u64; 2]> {
        self.found.difference(&self.accepted).copied().collect()
    }

    pub(crate) fn accepted_count(&self) -> u64 {
        self.found.intersection(&self.accepted).count() as u64
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AcceptedGaps {
    /// The first and the last seq that is missing, each; none where nothing was open.
    pub accepted: Vec<[u64; 2]>,
}

impl Journal {
    /// Notes that what is missing is known to be lost. Nothing else changes; only when a person asks.
    pub fn accept_gaps(&self, reason: &str) -> Result<AcceptedGaps, JournalError> {
        if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
            return Err(JournalError::Refused(format!(
                "a reason has 1 to {REASON_BYTES_MAX} bytes"
            )));
        }
        self.must_be_on()?;
        let mut session = self.session()?;
        let accepted = self.open_gaps()?;
        if let Some([_, last]) = accepted.last() {
            // Behind the gap, so that it is the same one from then on, and no seq comes twice.
            session.next_seq = session.next_seq.max(last + 1);
            let note = Note::GapsAccepted {
                gaps: accepted.clone(),
                reason: reason.to_owned(),
                by: self.who.agent.clone(),
            };
            session.note_all(&[note])?;
        }
        // Accepted, or here again since somebody put a copy back.
        if !accepted.is_empty() || !session.lost.is_empty() {
            session.lost = Lost::default();
            session.write_meta(false)?;
        }
        Ok(AcceptedGaps { accepted })
    }

    /// From the first record on where it is here, as the verification looks.
    fn open_gaps(&self) -> Result<Vec<[u64; 2]>, JournalError> {
        let newest = self.rebuild(0)?;
        let oldest = self.all_segments()?.first().copied();
        let is_whole = oldest.map_or(newest.from.is_none(), |first| first == 1);
        let rebuilt = if is_whole {
            self.rebuild(usize::MAX)?
        } else {
            newest
        };
        Ok(rebuilt.replay.gaps.open())
    }
}
