//! Where the history of this store begins: at seq 1, or, in a clone, right behind the checkpoint that git brought.
//!
//! A checkpoint holds the state of what it covers, and not the history. Where the oldest segment is gone nothing is wrong
//! with the state, and what was recorded is lost all the same: that is told.

use serde_json::value::RawValue;

use crate::checkpoint::Reference;
use crate::error::{At, JournalError};
use crate::format::{SEGMENT_BYTES_MAX, checkpoint_seq};
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::migrate::OF_CLONE;
use crate::notes::{MetaPayload, Note};
use crate::segments;

/// Why the records before the oldest live segment are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    Archived,
    /// They are of the store that this one was cloned from.
    NotOurs,
    Lost,
}

/// Where a log begins that was asked for more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begins {
    pub oldest: u64,
    /// Of what is not lost, where anything is left.
    pub earlier: Earlier,
    /// First and last seq, each.
    pub lost: Vec<[u64; 2]>,
}

impl Journal {
    /// The seqs before the oldest segment, live or archived, where they are lost and not another store's.
    pub(crate) fn lost_beginning(&self) -> Result<Option<[u64; 2]>, JournalError> {
        let oldest = self.all_segments()?.first().copied();
        let Some(first) = oldest.filter(|first| *first > 1) else {
            return Ok(None);
        };
        Ok((!self.begins_at_clone(first)?).then_some([1, first - 1]))
    }

    /// Whether a journal whose oldest segment is this one was begun in a clone.
    fn begins_at_clone(&self, first: u64) -> Result<bool, JournalError> {
        let before = first - 1;
        for folder in [
            self.layout.checkpoints(),
            self.layout.archived_checkpoints(),
        ] {
            let entries = self.disk().list(&folder).at(&folder)?;
            let mut named = entries
                .iter()
                .filter_map(|entry| checkpoint_seq(&entry.name));
            // One of ours has its reference right behind it.
            // And a store that wrote the checkpoint itself is no clone, whatever it has lost since.
            if named.any(|seq| seq == before)
                && matches!(self.reference(before)?, Reference::NoSegment)
                && !self.is_own_checkpoint(before)?
            {
                return Ok(true);
            }
        }
        // Git may have taken that checkpoint away since.
        let mut finder = Begun {
            first,
            is_found: false,
        };
        for segment in self.all_segments()? {
            let bytes = segments::read(self.disk(), &self.layout, segment)?;
            scan(&bytes, 0, &mut finder);
            if finder.is_found {
                break;
            }
        }
        Ok(finder.is_found)
    }

    /// Where the log begins, if older records than that were asked for, and what became of those.
    pub fn begins_at(&self, after: u64) -> Result<Option<Begins>, JournalError> {
        let live = segments::live(self.disk(), &self.layout)?;
        let Some(oldest) = live
            .first()
            .copied()
            .filter(|oldest| after.saturating_add(1) < *oldest)
        else {
            return Ok(None);
        };
        let lost = self.lost_before(oldest, after)?;
        let lost_count: u64 = lost.iter().map(|[first, last]| last - first + 1).sum();
        let is_archived = !segments::archived(self.disk(), &self.layout)?.is_empty();
        let earlier = if lost_count >= oldest - after - 1 {
            Earlier::Lost
        } else if is_archived {
            Earlier::Archived
        } else if lost.is_empty() {
            Earlier::NotOurs
        } else {
            Earlier::Lost
        };
        Ok(Some(Begins {
            oldest,
            earlier,
            lost,
        }))
    }

    /// What is lost between a seq and the oldest live segment: neither in the archive nor another store's. By the names and the ends of the
    /// segments; only what seems to be missing is looked for in them.
    pub(crate) fn lost_before(
        &self,
        oldest: u64,
        after: u64,
    ) -> Result<Vec<[u64; 2]>, JournalError> {
        let mut missing: Vec<[u64; 2]> = self.lost_beginning()?.into_iter().collect();
        let all = self.all_segments()?;
        for pair in all.windows(2).filter(|pair| pair[1] <= oldest) {
            let path = self.segment_path(pair[0])?;
            let length = self.disk().len(&path).at(&path)?.unwrap_or(0);
            let end = segments::end(self.disk(), &path, length.min(SEGMENT_BYTES_MAX))?;
            let last = segments::last_before(self.disk(), &path, end)?;
            let next = last.map_or(pair[0], |last| last.saturating_add(1));
            if next < pair[1] {
                missing.push([next, pair[1] - 1]);
            }
        }
        missing.retain(|[_, last]| *last > after);
        for place in &mut missing {
            place[0] = place[0].max(after + 1);
        }
        self.still_missing(&missing)
    }
}

/// Finds the note of a clone's first write.
struct Begun {
    first: u64,
    is_found: bool,
}

impl<'a> Sink<'a> for Begun {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for record in batch.iter().map(|counted| &counted.record) {
            let payload = record.payload.map(RawValue::get);
            let parsed = payload.and_then(|text| MetaPayload::parse(record.action, text));
            if let Some(MetaPayload::Note(Note::Genesis {
                migrated_from,
                first_seq,
                ..
            })) = parsed
            {
                // A build that did not say where is believed.
                self.is_found |= match first_seq {
                    Some(begun) => begun == self.first,
                    None => migrated_from == OF_CLONE,
                };
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}
