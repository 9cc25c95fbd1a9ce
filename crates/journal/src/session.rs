//! The lock, held: what was found is put right first, then records are appended, one batch a write.

use std::path::Path;
use std::time::Duration;

use crate::action::Mode;
use crate::disk::LockGuard;
use crate::error::{At, JournalError};
use crate::format::segment_name;
use crate::journal::Journal;
use crate::loss::Lost;
use crate::meta::{self, Meta, MetaFound, Position};
use crate::notes::{MetaPayload, Note, SeqRepair};
use crate::phases::Phases;
use crate::recovery::{Found, MetaState, Reconcile, Steps, decide};
use crate::revisions::Revisions;
use crate::segments::{self, Tail};
use crate::{blobs, checkpoint, witness};

const LOCK_SLEEP_MIN: Duration = Duration::from_micros(100);
const LOCK_SLEEP_MAX: Duration = Duration::from_millis(2);

/// When doubtful files are compared with the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    /// Before anything else.
    First,
    /// Where there are many of them: behind the answer. The index alone comes first, and serves.
    Behind,
}

pub(crate) struct Session<'j> {
    pub(crate) journal: &'j Journal,
    pub(crate) active: u64,
    /// Where the active segment ends.
    pub(crate) bytes: u64,
    /// The length of its file: between the two there is blank room.
    pub(crate) reach: u64,
    pub(crate) next_seq: u64,
    /// The newest segment that is here is not the newest that there was: it is sealed, or its end is lost. Nothing is added to it.
    pub(crate) is_sealed: bool,
    pub(crate) unannotated: u64,
    pub(crate) phases: Phases,
    /// The revision index while a mutation is planned, and only then: whoever writes another one puts it under the name.
    pub(crate) index: Option<Revisions<'j>>,
    pub(crate) files: Files,
    /// What stood where a record's file belongs, under its name of `quarantine/`.
    pub(crate) kept_aside: Vec<String>,
    /// The index is level and the files were not compared: [`Session::reconcile_full`] does that.
    pub(crate) is_unproven: bool,
    /// Records that are lost and not accepted.
    pub(crate) lost: Lost,
    /// The newest record that the revision index must know.
    pub(crate) indexed_to: u64,
    /// And which index that was.
    pub(crate) index_made: u64,
    /// The seq that the list of reservations must have.
    pub(crate) reserved_to: u64,
    /// The last seq that the lock says.
    pub(crate) signed: u64,
    /// The last seq of a record that is on the disk for certain.
    pub(crate) recorded_to: u64,
    pub(crate) guard: Box<dyn LockGuard>,
}

impl Journal {
    /// Waits for the lock, up to the limit; the kernel gives it back when its holder dies (C12).
    pub(crate) fn session(&self) -> Result<Session<'_>, JournalError> {
        let mut sleep = LOCK_SLEEP_MIN;
        let mut waited = Duration::ZERO;
        loop {
            if let Some(mut session) = self.try_session()? {
                session.phases.wait.note(waited);
                return Ok(session);
            }
            if waited >= self.settings.lock_wait {
                return Err(self.busy(waited));
            }
            std::thread::sleep(sleep);
            waited += sleep;
            sleep = (sleep * 2).min(LOCK_SLEEP_MAX);
        }
    }

    /// Keeps writers out and does nothing else. None where that cannot be had in time, or at all.
    pub(crate) fn hold_still(&self) -> Option<Box<dyn LockGuard>> {
        let path = self.layout.lock();
        let mut waited = Duration::ZERO;
        loop {
            match self.disk().try_lock(&path) {
                Ok(Some(guard)) => return Some(guard),
                Ok(None) if waited < self.settings.lock_wait => {}
                // Not in time; or the folder may only be read, and has no writers either.
                Ok(None) | Err(_) => return None,
            }
            std::thread::sleep(LOCK_SLEEP_MIN);
            waited += LOCK_SLEEP_MIN;
        }
    }

    /// None when somebody else holds the lock.
    pub(crate) fn try_session(&self) -> Result<Option<Session<'_>>, JournalError> {
        self.try_session_with(Files::First)
    }

    pub(crate) fn try_session_with(
        &self,
        files: Files,
    ) -> Result<Option<Session<'_>>, JournalError> {
        let path = self.layout.lock();
        let guard = match self.disk().try_lock(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // A clone without checkpoints has no such folder.
                let folder = self.layout.checkpoints();
                self.disk().create_dir(&folder).at(&folder)?;
                self.disk().try_lock(&path)
            }
            other => other,
        };
        let guard = guard.at(&path)?;
        guard.map(|guard| self.begin(guard, files)).transpose()
    }

    pub(crate) fn busy(&self, waited: Duration) -> JournalError {
        JournalError::Busy {
            owner: self.owner_of(&self.layout.lock()),
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Who signed a lock, for people.
    pub(crate) fn owner_of(&self, lock: &Path) -> String {
        let owner = witness::signed_owner(&self.lock_text(lock));
        owner.unwrap_or_else(|| "unknown".to_owned())
    }

    pub(crate) fn begin(
        &self,
        mut guard: Box<dyn LockGuard>,
        files: Files,
    ) -> Result<Session<'_>, JournalError> {
        let path = self.layout.lock();
        let signed = guard.signed().at(&path)?;
        let text = self.signature(witness::signed_seq(&signed));
        guard.sign(&text).at(&path)?;
        let mut meta = meta::read(self.disk(), &self.layout)?;
        let is_other = meta.good().is_none_or(|meta| meta.mode != self.mode);
        if is_other || self.mode == Mode::Off {
            if self.end_parking(self.mode_now()?)?.is_some() {
                meta = meta::read(self.disk(), &self.layout)?;
            }
            self.check_mode()?;
        }
        if let Some(clean) = meta.good().filter(|meta| meta.clean) {
            meta::soil(self.disk(), &self.layout, clean, self.boot())?;
        }
        let mut segments = segments::live(self.disk(), &self.layout)?;
        self.put_strays_aside(&mut segments, &meta)?;
        if segments.is_empty() {
            let first = self.first_seq(&meta)?;
            self.announce_adoption(&meta)?;
            // IMPORTANT: before the first record that stands on it.
            self.keep_base()?;
            create_segment(self, first)?;
            segments.push(first);
        }
        let (mut session, tail, tail_next) = self.at_end(guard, &segments, &meta)?;
        if tail.is_newer {
            // IMPORTANT: before anything is noted. These were answered, and whoever goes on here would write over their seqs.
            return Err(JournalError::Newer(self.layout.segment(session.active)));
        }
        // IMPORTANT: the same. A seq behind such a name would leave a gap that never was.
        self.check_name(&segments, tail.last_seq)?;
        session.files = files;
        session.recover(&meta, &tail, tail_next)?;
        session.recorded_to = session.next_seq - 1;
        if session.is_sealed || tail.last_seq.is_none() {
            // Behind a loss the seqs go on far from where they were: also from where the store's name had them.
            session.give_on()?;
        }
        session.take_back()?;
        session.resume_redaction()?;
        Ok(session)
    }

    /// A session at the end of the newest segment, before anything is put right.
    pub(crate) fn at_end(
        &self,
        guard: Box<dyn LockGuard>,
        segments: &[u64],
        meta: &MetaFound,
    ) -> Result<(Session<'_>, Tail, u64), JournalError> {
        let active = *segments.last().unwrap_or(&1);
        let cache = meta
            .good()
            .filter(|meta| meta.applied.segment == active && meta.survives(self.boot().as_deref()));
        let mut tail = segments::tail(self.disk(), &self.layout, active, cache)?;
        if tail.reach > tail.bytes && self.is_on_network() {
            // No lock is to be relied on there: an append at the very end cannot meet another.
            tail.bytes = tail.reach;
        }
        let mut tail_next = self.next_after(segments, &tail)?;
        let signed = guard.signed().map_or(0, |text| witness::signed_seq(&text));
        // IMPORTANT: not the cache alone. Somebody may have put an older copy of it back with its segment.
        let known = match meta.good() {
            Some(meta) if self.is_looked_at() => self.seen_at_once(signed).max(meta.next_seq - 1),
            _ => self.witnessed_by_all(meta, tail_next - 1)?,
        };
        // Without a cache nobody knows whether the last line has the largest seq.
        let seen = meta.good().map_or(u64::MAX, |_| known);
        tail_next = self.newest_of(active, tail_next - 1, seen)? + 1;
        let is_rolled = meta
            .good()
            .is_some_and(|meta| meta.applied.segment > active);
        let mut session = Session {
            journal: self,
            active,
            bytes: tail.bytes,
            reach: tail.reach,
            next_seq: tail_next.max(known + 1),
            is_sealed: is_rolled || known >= tail_next,
            unannotated: meta.good().map_or(0, |meta| meta.unannotated),
            phases: meta
                .good()
                .map(|meta| (*meta.phases).clone())
                .unwrap_or_default(),
            index: None,
            files: Files::First,
            kept_aside: Vec::new(),
            is_unproven: meta.good().is_some_and(Meta::is_unproven),
            lost: meta
                .good()
                .map_or_else(Lost::unknown, |meta| (*meta.lost).clone()),
            indexed_to: meta.good().map_or(0, |meta| meta.indexed_to),
            index_made: meta.good().map_or(0, |meta| meta.index_made),
            reserved_to: meta.good().map_or(0, |meta| meta.reserved_to),
            recorded_to: 0,
            signed,
            guard,
        };
        session.doubt_list(meta, known.max(tail_next - 1));
        match meta.good() {
            Some(_) if known < tail_next => self.was_looked_at(),
            Some(meta) if known >= meta.next_seq => session.doubt_index(known),
            _ => {}
        }
        Ok((session, tail, tail_next))
    }

    /// A store without segments: new, or a clone that brought its checkpoints along.
    fn first_seq(&self, meta: &MetaFound) -> Result<u64, JournalError> {
        let newest = checkpoint::listed(self.disk(), &self.layout)?
            .last()
            .copied();
        let archived = segments::archived(self.disk(), &self.layout)?;
        let behind_archive = archived.last().copied().unwrap_or(0);
        let known = self.seen_to(self.seen_beside()?, meta)? + 1;
        Ok(known.max(newest.unwrap_or(0) + 1).max(behind_archive + 1))
    }

    /// The seq after the last record that counts, wherever it is.
    pub(crate) fn next_after(&self, segments: &[u64], tail: &Tail) -> Result<u64, JournalError> {
        let active = segments.last().copied().unwrap_or(1);
        if let Some(last) = tail.last_seq {
            return Ok((last + 1).max(active));
        }
        for earlier in segments.iter().rev().skip(1) {
            let tail = segments::tail(self.disk(), &self.layout, *earlier, None)?;
            if let Some(last) = tail.last_seq {
                return Ok((last + 1).max(active));
            }
        }
        Ok(active)
    }
}

/// An empty segment whose name survives (JN-18).
fn create_segment(journal: &Journal, first_seq: u64) -> Result<(), JournalError> {
    let path = journal.layout.segment(first_seq);
    let events = journal.layout.events();
    journal.disk().create(&path).at(&path)?;
    journal.disk().sync_dir(&events).at(&events)
}

impl Session<'_> {
    fn recover(
        &mut self,
        meta: &MetaFound,
        tail: &Tail,
        tail_next: u64,
    ) -> Result<(), JournalError> {
        let journal = self.journal;
        let marker = self.unsynced_marker()?;
        let steps = decide(self.found(meta, tail, tail_next, marker.is_some()));
        let path = journal.layout.segment(self.active);
        if steps.sync_segment && journal.settings.sync {
            let applied = meta
                .good()
                .filter(|m| m.survives(journal.boot().as_deref()));
            let applied = applied.map(|m| m.applied);
            let proven = applied.filter(|applied| applied.segment == self.active);
            journal.disk().sync(&path).map_err(|source| {
                // Whoever wrote it died before its sync: this was the only one that could have told.
                self.mark_unsynced(proven.map_or(0, |applied| applied.byte));
                let path = path.clone();
                JournalError::SyncFailed { path, source }
            })?;
        }
        if let Some(marker) = marker.filter(|_| steps.append_again) {
            self.append_again(&marker)?;
        }
        let repairs = self.repairs(meta, tail, tail_next, steps)?;
        if !repairs.is_empty() {
            // IMPORTANT: a write of its own. What follows must never share a torn write with it.
            let drafts = repairs
                .iter()
                .map(|r| self.meta_draft(r))
                .collect::<Result<Vec<_>, _>>()?;
            self.write(&drafts)?;
        }
        // IMPORTANT: before anything is projected. What a clone brought along is not written over.
        if journal.is_adopting()? {
            return self.adopt();
        }
        let is_left = match steps.reconcile {
            Reconcile::Nothing => true,
            Reconcile::Files => self.files == Files::Behind,
            Reconcile::Gap | Reconcile::Full => false,
        };
        if is_left && !repairs.is_empty() {
            // A reader had brought the files level: what was noted is noted once.
            return self.write_meta(false);
        }
        self.bring_level(meta, steps.reconcile)
    }

    /// A row of the table of [`crate::recovery`].
    pub(crate) fn found(
        &self,
        meta: &MetaFound,
        tail: &Tail,
        tail_next: u64,
        is_unsynced: bool,
    ) -> Found {
        Found {
            meta: match meta {
                MetaFound::Absent => MetaState::Absent,
                MetaFound::Damaged => MetaState::Damaged,
                // The cache itself, or another witness where that was put back with its segment.
                MetaFound::Good(_) if self.next_seq > tail_next => MetaState::Ahead,
                MetaFound::Good(meta) if meta.next_seq < tail_next => MetaState::Behind,
                MetaFound::Good(_) => MetaState::Level,
            },
            is_torn: tail.torn.is_some(),
            is_unsynced,
            is_same_boot: meta
                .good()
                .is_some_and(|m| m.survives(self.journal.boot().as_deref())),
            is_applied: meta.good().is_some_and(|m| m.applied == self.end()),
            is_unproven: self.is_unproven,
        }
    }

    /// The journal's own records about what was found.
    fn repairs(
        &self,
        meta: &MetaFound,
        tail: &Tail,
        tail_next: u64,
        steps: Steps,
    ) -> Result<Vec<MetaPayload>, JournalError> {
        let path = self.journal.layout.segment(self.active);
        let mut repairs = Vec::new();
        if let Some(torn) = tail.torn.clone().filter(|_| steps.note_torn) {
            let length = usize::try_from(torn.end - torn.start).unwrap_or(0);
            let fragment = self
                .journal
                .disk()
                .read_at(&path, torn.start, length)
                .at(&path)?;
            repairs.push(MetaPayload::Note(Note::TornTailAdjudicated {
                segment: segment_name(self.active),
                byte_start: torn.start,
                byte_end: torn.end,
                sha256: blobs::sha256_hex(&fragment),
            }));
        }
        // Noted once, however often it was tried: a cache that cannot be written stays stale (JN-13).
        let is_noted = |meta: &&Meta| tail.repaired == Some(meta.next_seq);
        if let Some(meta) = meta
            .good()
            .filter(|meta| steps.repair_seq && !is_noted(meta))
        {
            repairs.push(MetaPayload::SeqRepair(SeqRepair {
                meta_next_seq: meta.next_seq,
                tail_seq: tail_next - 1,
                repaired_next_seq: tail_next,
            }));
        }
        Ok(repairs)
    }

    pub(crate) fn end(&self) -> Position {
        Position {
            segment: self.active,
            byte: self.bytes,
        }
    }

    pub(crate) fn write_meta(&self, clean: bool) -> Result<(), JournalError> {
        self.write_meta_as(clean, self.journal.mode)
    }

    /// With the mode that the store has from now on: whoever opened it in another one finds out.
    pub(crate) fn write_meta_as(&self, clean: bool, mode: Mode) -> Result<(), JournalError> {
        let journal = self.journal;
        let mut fresh = Meta::new(self.next_seq, self.end(), mode, journal.boot());
        fresh.clean = clean;
        fresh.set_unproven(self.is_unproven);
        fresh.reach = Some(self.reach);
        fresh.unannotated = self.unannotated;
        self.phases.clone_into(&mut fresh.phases);
        self.lost.clone_into(&mut fresh.lost);
        fresh.indexed_to = self.indexed_to;
        fresh.index_made = self.index_made;
        fresh.reserved_to = self.reserved_to;
        meta::write(journal.disk(), &journal.layout, &fresh)
    }

    /// Seals the active segment, behind a checkpoint where one is due, and begins the next.
    pub(crate) fn roll(&mut self) -> Result<(), JournalError> {
        // Its reference goes where a record may go.
        let is_begun = self.leave_sealed()?;
        if self.is_checkpoint_due()? {
            match self.checkpoint() {
                // One is due all the same when that is mended.
                Err(JournalError::Incomplete(_) | JournalError::Newer(_)) => {}
                written => drop(written?),
            }
        }
        if !is_begun {
            self.next_segment()?;
        }
        self.write_meta(false)?;
        // Without it readers look through more.
        let _ = self.sum_up_erased();
        Ok(())
    }

    /// Without a checkpoint, and without a word about what is projected.
    pub(crate) fn next_segment(&mut self) -> Result<(), JournalError> {
        create_segment(self.journal, self.next_seq)?;
        self.active = self.next_seq;
        self.bytes = 0;
        self.reach = 0;
        self.is_sealed = false;
        Ok(())
    }

    /// JN-17: before a write. What is put back later then stands beside what was written meanwhile, and takes nothing from it.
    pub(crate) fn leave_sealed(&mut self) -> Result<bool, JournalError> {
        let is_sealed = self.is_sealed;
        if is_sealed {
            self.next_segment()?;
        }
        Ok(is_sealed)
    }
}
