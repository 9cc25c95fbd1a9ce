//! Offline repair: damaged bytes of segments are parked in `quarantine/`, noted, and blanked; checkpoints that are not sound are
//! moved there. Nothing is thrown away.
//!
//! So are checkpoints that were written before lost records were put back. Only for damage that no note explains and no crash left; a normal start never touches it. What the bytes said is
//! lost all the same: the gap in the history stays visible in the counters.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use crate::blobs::sha256_hex;
use crate::checkpoint::{self, Trust};
use crate::disk::replace;
use crate::error::{At, JournalError};
use crate::format::{SEGMENT_BYTES_MAX, checkpoint_name, segment_name};
use crate::journal::Journal;
use crate::notes::{MetaPayload, Note};
use crate::session::Session;

/// Notes of one batch.
const NOTES_MAX: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// Files below `events/quarantine/`, one a damaged place.
    pub parked: Vec<String>,
    pub segments: Vec<String>,
    /// Checkpoints that are not sound, and nobody builds on, under the names that they have there.
    pub checkpoints: Vec<String>,
}

impl Journal {
    /// Parks what is damaged. Under the lock, and only when a person asks.
    pub fn quarantine(&self) -> Result<Quarantined, JournalError> {
        self.must_be_on()?;
        let mut session = self.session()?;
        let mut places: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
        let damage = self.rebuild(usize::MAX)?.replay.damage.into_iter();
        // What a newer build wrote is nobody's damage.
        for (segment, damage) in damage.filter(|(_, damage)| !damage.is_newer()) {
            places.entry(segment).or_default().push(damage.place);
        }
        let mut told = Quarantined {
            parked: Vec::new(),
            segments: places.keys().map(|first| segment_name(*first)).collect(),
            checkpoints: self.park_checkpoints()?,
        };
        if !told.checkpoints.is_empty() {
            // What a checkpoint had left out counts from here on.
            session.reconcile_full()?;
            self.tell_aside(std::mem::take(&mut session.kept_aside));
        }
        // IMPORTANT: parked, then noted, then blanked. A crash in between leaves the bytes twice, never nowhere.
        let mut notes = Vec::new();
        for (first, places) in &places {
            for place in places {
                notes.push(self.park_place(*first, place, &mut told.parked)?);
            }
        }
        for notes in notes.chunks(NOTES_MAX) {
            session.note_all(notes)?;
        }
        for (first, places) in &places {
            self.blank(*first, places)?;
        }
        if !places.is_empty() {
            session.write_meta(false)?;
        }
        Ok(told)
    }

    /// Every rebuild goes around those that are not sound. One that the journal itself contradicts was written without records
    /// that were put back since: where the journal is whole it is the truth, and the checkpoint hides some of it. IMPORTANT: never one
    /// that is the last to know what a lost record said, accepted or not.
    fn park_checkpoints(&self) -> Result<Vec<String>, JournalError> {
        let mut parked = Vec::new();
        let all = self.rebuild(usize::MAX)?.replay;
        let is_whole = all.gaps.open().is_empty()
            && self
                .all_segments()?
                .first()
                .is_some_and(|first| *first == 1);
        for head_seq in checkpoint::listed(self.disk(), &self.layout)?
            .into_iter()
            .rev()
        {
            let is_sound = match self.trust(head_seq)? {
                Trust::Rejected(_) => false,
                // The newest that is left.
                Trust::Verified if is_whole => {
                    let newest = self.rebuild(0)?;
                    let mut differing = Vec::new();
                    self.compare_rebuilds(&newest.replay.entities(), &all, &mut differing);
                    let mut heads = newest.replay.entities().into_iter();
                    let is_last_copy = heads.any(|(_, _, entity)| all.gaps.hold(entity.head.seq));
                    newest.from != Some(head_seq) || differing.is_empty() || is_last_copy
                }
                Trust::Orphan | Trust::Verified => true,
            };
            if is_sound {
                continue;
            }
            let (folder, events) = (self.layout.quarantine(), self.layout.events());
            self.disk().create_dir(&folder).at(&folder)?;
            self.disk().sync_dir(&events).at(&events)?;
            // Another one of this name may lie there.
            let name = format!("{}.{}", checkpoint_name(head_seq), self.world.ids.ulid());
            let from = self.layout.checkpoint(head_seq);
            let to = folder.join(&name);
            self.follow_left([(&*from, &*to)])?;
            self.disk().rename(&from, &to).at(&from)?;
            for folder in [folder, self.layout.checkpoints()] {
                self.disk().sync_dir(&folder).at(&folder)?;
            }
            parked.push(name);
        }
        Ok(parked)
    }

    pub(crate) fn segment_path(&self, first: u64) -> Result<std::path::PathBuf, JournalError> {
        let live = self.layout.segment(first);
        let is_live = self.disk().len(&live).at(&live)?.is_some();
        Ok(if is_live {
            live
        } else {
            self.layout.archived_segment(first)
        })
    }

    fn park_place(
        &self,
        first: u64,
        place: &Range<u64>,
        parked: &mut Vec<String>,
    ) -> Result<Note, JournalError> {
        let path = self.segment_path(first)?;
        let length = usize::try_from(place.end - place.start).unwrap_or(0);
        let bytes = self.disk().read_at(&path, place.start, length).at(&path)?;
        let folder = self.layout.quarantine();
        let events = self.layout.events();
        self.disk().create_dir(&folder).at(&folder)?;
        self.disk().sync_dir(&events).at(&events)?;
        let name = format!("{}.{}-{}", segment_name(first), place.start, place.end);
        let to = folder.join(&name);
        self.follow_part(&path, &to, bytes.len() as u64)?;
        replace(self.disk(), &to, &bytes, true).at(&to)?;
        parked.push(name);
        Ok(Note::TornTailAdjudicated {
            segment: segment_name(first),
            byte_start: place.start,
            byte_end: place.end,
            sha256: sha256_hex(&bytes),
        })
    }

    /// Newlines in their place: empty lines count for nothing, and every other byte stays where it was.
    fn blank(&self, first: u64, places: &[Range<u64>]) -> Result<(), JournalError> {
        let path = self.segment_path(first)?;
        let mut bytes = self.disk().read(&path, SEGMENT_BYTES_MAX).at(&path)?;
        for place in places {
            let at = |byte: u64| usize::try_from(byte).unwrap_or(0).min(bytes.len());
            let (from, to) = (at(place.start), at(place.end));
            bytes[from..to].fill(b'\n');
        }
        replace(self.disk(), &path, &bytes, true).at(&path)
    }
}

impl Session<'_> {
    pub(crate) fn note_all(&mut self, notes: &[Note]) -> Result<(), JournalError> {
        let drafts = notes
            .iter()
            .map(|note| self.meta_draft(&MetaPayload::Note(note.clone())))
            .collect::<Result<Vec<_>, _>>()?;
        self.write(&drafts).map(drop)
    }
}
