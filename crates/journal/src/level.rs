//! A reader brings the projections level: under the lock, from the journal, and without one record.
//!
//! What a crash left at the journal's end is noted by the next writer (JN-10, JN-13); the cache stays such that
//! it will find it.

use crate::disk::LockGuard;
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::meta::{self, MetaFound};
use crate::read::Freshness;
use crate::recovery::{Reconcile, decide};
use crate::segments;
use crate::session::{Files, Session};

/// Whether files and index are level with the journal, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Yes,
    /// Somebody else holds the lock.
    Busy,
    /// A writer must come first, or a person: a reader only looks.
    NotOurs,
}

impl Journal {
    /// Brings the projections level if nobody else is at it. False: look with [`Journal::observe`].
    pub fn level(&self) -> Result<bool, JournalError> {
        Ok(self.level_with(Files::First)? == Level::Yes)
    }

    /// The same; who shows one entity need not wait for the files of all the others.
    pub(crate) fn level_with(&self, files: Files) -> Result<Level, JournalError> {
        match self.freshness()? {
            Freshness::Fresh => return Ok(Level::Yes),
            Freshness::Indexed if files == Files::Behind => return Ok(Level::Yes),
            Freshness::Indexed | Freshness::Behind(_) => {}
        }
        let has_segments = !segments::live(self.disk(), &self.layout)?.is_empty();
        if !has_segments || self.is_unadopted()? {
            return Ok(Level::NotOurs);
        }
        let path = self.layout.lock();
        let Some(guard) = self.disk().try_lock(&path).at(&path)? else {
            return Ok(Level::Busy);
        };
        if self.redact_job()?.is_some() {
            // The one exception: an erasure that has begun is ended by whoever comes first.
            return self.begin(guard, files).map(|_| Level::Yes);
        }
        self.level_under(guard, files)
    }

    pub(crate) fn tell_aside(&self, mut names: Vec<String>) {
        if let Ok(mut all) = self.aside.lock() {
            all.append(&mut names);
        }
    }

    /// Names, below `quarantine/`, of what this reader moved aside while it brought files level; once each.
    pub fn take_kept_aside(&self) -> Vec<String> {
        self.aside
            .lock()
            .map_or(Vec::new(), |mut all| std::mem::take(&mut *all))
    }

    fn level_under(&self, guard: Box<dyn LockGuard>, files: Files) -> Result<Level, JournalError> {
        let unsynced = self.layout.unsynced();
        if self.disk().len(&unsynced).at(&unsynced)?.is_some() {
            // What may not be on the disk is written again first, and that is a writer's.
            return Ok(Level::NotOurs);
        }
        let meta = meta::read(self.disk(), &self.layout)?;
        if meta.good().is_none_or(|meta| meta.mode != self.mode) {
            self.check_mode()?;
        }
        let live = segments::live(self.disk(), &self.layout)?;
        let (mut session, tail, tail_next) = self.at_end(guard, &live, &meta)?;
        session.files = files;
        if tail.is_newer || session.next_seq > tail_next {
            // The journal's end is lost, or not to be understood: what the files hold may be newer, and a reader tells.
            return Ok(Level::NotOurs);
        }
        if let Some(clean) = meta.good().filter(|meta| meta.clean) {
            meta::soil(self.disk(), &self.layout, clean, self.boot())?;
        }
        let mut steps = decide(session.found(&meta, &tail, tail_next, false));
        if session.revisions().is_none() || self.is_any_back(&session.lost)? {
            // The cache is level, and the index is not, or there is more than the cache has seen.
            steps.reconcile = Reconcile::Full;
            steps.sync_segment = true;
        }
        if let Some(meta) = meta.good() {
            // IMPORTANT: as it was. A cache that is behind is the next writer's to find and to note.
            session.next_seq = meta.next_seq;
        }
        if steps.sync_segment && self.settings.sync {
            let path = self.layout.segment(session.active);
            let synced = self.disk().sync(&path);
            synced.map_err(|source| JournalError::SyncFailed { path, source })?;
        }
        session.bring_level(&meta, steps.reconcile)?;
        self.tell_aside(std::mem::take(&mut session.kept_aside));
        Ok(Level::Yes)
    }
}

impl Session<'_> {
    pub(crate) fn bring_level(
        &mut self,
        meta: &MetaFound,
        how: Reconcile,
    ) -> Result<(), JournalError> {
        match self.compare(meta, how) {
            // A file or a folder that this user has no right to keeps nobody from recording: whoever has it compares the files, and verify
            // names this one. Of any other failure nobody knows what it would do to the next write.
            Err(error) if is_no_right(&error) => match how {
                Reconcile::Files if self.is_unproven => Ok(()),
                _ => self.reconcile_index(),
            },
            compared => compared,
        }
    }

    fn compare(&mut self, meta: &MetaFound, how: Reconcile) -> Result<(), JournalError> {
        match how {
            Reconcile::Nothing => Ok(()),
            Reconcile::Gap => match meta.good() {
                Some(meta) if self.reconcile_gap(meta)? => self.write_meta(false),
                _ => self.reconcile_due(),
            },
            Reconcile::Files if self.files == Files::Behind => Ok(()),
            Reconcile::Files => self.reconcile_full(),
            Reconcile::Full => self.reconcile_due(),
        }
    }
}

fn is_no_right(error: &JournalError) -> bool {
    matches!(error, JournalError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
}
