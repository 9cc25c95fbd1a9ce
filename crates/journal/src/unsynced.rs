//! A sync that failed: the place is marked, and what lies behind it is written once more, on fresh pages.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::lines::{Counted, Damage, Sink, scan};
use crate::segments;
use crate::session::Session;

const MARKER_BYTES_MAX: u64 = 4096;

/// From where on the bytes of a segment may not be on the disk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unsynced {
    segment: u64,
    byte: u64,
}

impl Session<'_> {
    /// The pages of a failed sync may be gone although reads still show them; a later sync would lie. Whether whoever
    /// comes next finds out.
    pub(crate) fn mark_unsynced(&self, byte: u64) -> bool {
        let disk = self.journal.disk();
        let path = self.journal.layout.unsynced();
        if matches!(disk.len(&path), Ok(Some(_))) {
            // What is behind that place was about to be written once more, and comes again from there.
            return true;
        }
        let marker = Unsynced {
            segment: self.active,
            byte,
        };
        let bytes = serde_json::to_vec(&marker).unwrap_or_default();
        // IMPORTANT: in place, synced or not. A power cut that takes it takes the pages that it warns of as well.
        replace(disk, &path, &bytes, false).is_ok() || disk.create(&path).is_ok()
    }

    /// After a failed sync of a batch: marked; where no marker can be had, the batch is no record any more.
    pub(crate) fn disown(&self, buffer: &[u8]) {
        if self.mark_unsynced(self.bytes) {
            return;
        }
        let path = self.journal.layout.segment(self.active);
        let blank = vec![b'\n'; buffer.len()];
        // A disk that takes neither takes no records: the caller has the error already.
        let _ = self.journal.disk().write_at(&path, self.bytes, &blank);
    }

    pub(crate) fn unsynced_marker(&self) -> Result<Option<Unsynced>, JournalError> {
        let path = self.journal.layout.unsynced();
        let bytes = read_if_there(self.journal.disk(), &path, MARKER_BYTES_MAX).at(&path)?;
        // A marker that cannot be read says at least that: everything may be unsynced.
        let whole = Unsynced {
            segment: self.active,
            byte: 0,
        };
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap_or(whole)))
    }

    /// Writes the batches behind the marker once more, on fresh pages: the same records, so they count once.
    pub(crate) fn append_again(&mut self, marker: &Unsynced) -> Result<(), JournalError> {
        let bytes = segments::read(self.journal.disk(), &self.journal.layout, marker.segment)?;
        let from = usize::try_from(marker.byte)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let mut again = Lines::default();
        scan(&bytes[from..], 0, &mut again);
        let mut written = BTreeSet::new();
        for places in again.batches {
            let mut buffer = Vec::new();
            for place in places {
                buffer.push(b'\n');
                buffer.extend_from_slice(&bytes[from + place.0..from + place.1]);
                buffer.push(b'\n');
            }
            // A run before this one may have come as far as a copy.
            if written.contains(&buffer) {
                continue;
            }
            self.append(&buffer)?;
            self.bytes += buffer.len() as u64;
            written.insert(buffer);
        }
        let path = self.journal.layout.unsynced();
        self.journal.disk().remove(&path).at(&path)?;
        let events = self.journal.layout.events();
        self.journal.disk().sync_dir(&events).at(&events)
    }
}

#[derive(Default)]
struct Lines {
    batches: Vec<Vec<(usize, usize)>>,
}

impl<'a> Sink<'a> for Lines {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        let at = |byte: u64| usize::try_from(byte).unwrap_or(0);
        let places = batch.iter().map(|c| (at(c.place.start), at(c.place.end)));
        self.batches.push(places.collect());
    }

    fn damage(&mut self, _: Damage) {}
}
