//! A sync that failed: the place is marked, and what lies behind it is written once more, on fresh pages.

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
    /// The pages of a failed sync may be gone although reads still show them; a later sync would lie.
    pub(crate) fn mark_unsynced(&self) {
        let marker = Unsynced {
            segment: self.active,
            byte: self.bytes,
        };
        if let Ok(bytes) = serde_json::to_vec(&marker) {
            // A disk that takes no marker either takes no records: the caller has the error already.
            let _ = replace(
                self.journal.disk(),
                &self.journal.layout.unsynced(),
                &bytes,
                true,
            );
        }
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
        for places in again.batches {
            let mut buffer = Vec::new();
            for place in places {
                buffer.push(b'\n');
                buffer.extend_from_slice(&bytes[from + place.0..from + place.1]);
                buffer.push(b'\n');
            }
            self.append(&buffer)?;
            self.bytes += buffer.len() as u64;
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
