//! Segments under a number that is larger than all that they hold: somebody has renamed them. Names decide the order of segments and the
//! next seq, so nothing is written behind such a one.

use crate::error::JournalError;
use crate::format::segment_name;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::segments;

/// The first and the last seq of the records of a segment.
#[derive(Default)]
struct Held(Option<(u64, u64)>);

impl<'a> Sink<'a> for Held {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for seq in batch.iter().map(|counted| counted.record.seq) {
            let (first, last) = self.0.unwrap_or((seq, seq));
            self.0 = Some((first.min(seq), last.max(seq)));
        }
    }

    fn damage(&mut self, _: Damage) {}
}

impl Journal {
    /// Why a live segment has not the name that its records give it; None where nothing is wrong with it.
    fn misname_of(&self, live: &[u64], named: u64) -> Result<Option<String>, JournalError> {
        let mut held = Held::default();
        scan(
            &segments::read(self.disk(), &self.layout, named)?,
            0,
            &mut held,
        );
        let Some((first, last)) = held.0.filter(|(_, last)| *last < named) else {
            return Ok(None);
        };
        // What a failed sync had appended again is in the segment before, too.
        let before = live.iter().rev().find(|other| **other < named);
        if let Some(before) = before
            && segments::newest(self.disk(), &self.layout, *before)? >= Some(last)
        {
            return Ok(None);
        }
        let (is, should) = (segment_name(named), segment_name(first));
        Ok(Some(format!(
            "it holds seq {first} to {last}, so somebody has renamed it: `mv .heddle/events/{is} .heddle/events/{should}` gives it its name back, and changes no record"
        )))
    }

    /// Before a writer goes on behind the last segment. `last_seq` is what its end says, so that a sound one costs nothing.
    pub(crate) fn check_name(
        &self,
        live: &[u64],
        last_seq: Option<u64>,
    ) -> Result<(), JournalError> {
        let Some(active) = live.last().copied() else {
            return Ok(());
        };
        if last_seq.is_none_or(|last| last >= active) {
            return Ok(());
        }
        match self.misname_of(live, active)? {
            None => Ok(()),
            Some(reason) => Err(JournalError::Damaged {
                path: self.layout.segment(active),
                reason,
            }),
        }
    }

    /// How many live segments are called by another number than their own.
    pub(crate) fn warn_of_misnamed(&self, warnings: &mut Vec<String>) -> Result<u64, JournalError> {
        let live = segments::live(self.disk(), &self.layout)?;
        let mut count = 0;
        for named in &live {
            if let Some(reason) = self.misname_of(&live, *named)? {
                warnings.push(format!(".heddle/events/{}: {reason}", segment_name(*named)));
                count += 1;
            }
        }
        Ok(count)
    }
}
