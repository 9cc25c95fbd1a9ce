//! The files of a store, one kind after the other, without the job's content. Each step may be done twice.

use std::path::Path;

use crate::checkpoint::MANIFEST_BYTES_MAX;
use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::{BLOB_BYTES_MAX, SEGMENT_BYTES_MAX};
use crate::journal::Journal;
use crate::layout::Layout;
use crate::projection::PROJECTION_BYTES_MAX;

use super::job::Job;
use super::needles::Matcher;
use super::scrub;

pub(super) const PARKED_LOG_BYTES_MAX: u64 = 4 << 30;

const _: () = assert!(BLOB_BYTES_MAX as u64 <= PROJECTION_BYTES_MAX);

impl Journal {
    /// Unlinks, and makes sure that the name stays gone.
    pub(crate) fn erase_file(&self, path: &Path) -> Result<(), JournalError> {
        match self.disk().remove(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.at(path)?,
        }
        match path.parent() {
            Some(folder) => self.disk().sync_dir(folder).at(folder),
            None => Ok(()),
        }
    }

    fn put_back(&self, path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
        replace(self.disk(), path, bytes, true).at(path)
    }

    /// Everything but the segments: from these a second run learns what the first one was after. What cannot be read keeps nobody
    /// from erasing the rest, and is named by the search.
    pub(crate) fn scrub_around(
        &self,
        layout: &Layout,
        job: &Job,
        matcher: &Matcher,
    ) -> Result<(), JournalError> {
        self.scrub_projections(layout, job, matcher)?;
        self.scrub_quarantine(layout, job, matcher)?;
        let log = layout.parked_log();
        if let Ok(Some(bytes)) = read_if_there(self.disk(), &log, PARKED_LOG_BYTES_MAX)
            && let Some(after) = scrub::parked_log(&bytes, job, matcher)
        {
            self.put_back(&log, &after)?;
        }
        // A folder that cannot be looked into is named by the search.
        for path in self.walk(layout.root()).files {
            if is_leftover(layout, &path, self) {
                self.erase_file(&path)?;
            }
        }
        Ok(())
    }

    /// IMPORTANT: behind all that is around them. Of an entity that only checkpoints know, a second run learns from these.
    pub(crate) fn scrub_checkpoints(
        &self,
        layout: &Layout,
        job: &Job,
        matcher: &Matcher,
    ) -> Result<(), JournalError> {
        for path in self.checkpoint_files(layout)? {
            let bytes = self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path)?;
            match scrub::manifest(&bytes, job) {
                Ok(Some((after, _))) => self.put_back(&path, &after)?,
                Err(_) if scrub::is_doomed(&bytes, job, matcher) => self.erase_file(&path)?,
                Ok(None) | Err(_) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn erase_blobs(&self, layout: &Layout, job: &Job) -> Result<(), JournalError> {
        for sha256 in &job.blobs {
            for path in [layout.blob(sha256), layout.archived_blobs().join(sha256)] {
                if self.disk().len(&path).at(&path)?.is_some() {
                    self.erase_file(&path)?;
                }
            }
        }
        Ok(())
    }

    fn scrub_projections(
        &self,
        layout: &Layout,
        job: &Job,
        matcher: &Matcher,
    ) -> Result<(), JournalError> {
        for (item_type, item_id) in &job.entities {
            if self.is_astray_in(layout, item_type)? {
                continue;
            }
            let path = layout.entity(item_type, item_id);
            let is_item = job
                .item
                .as_ref()
                .is_some_and(|(t, id)| (t, id) == (item_type, item_id));
            let is_hit = match read_if_there(self.disk(), &path, PROJECTION_BYTES_MAX) {
                Ok(bytes) => bytes.is_some_and(|bytes| is_item || matcher.is_in(&bytes)),
                Err(_) => is_item,
            };
            if is_hit {
                self.erase_file(&path)?;
            }
        }
        Ok(())
    }

    fn scrub_quarantine(
        &self,
        layout: &Layout,
        job: &Job,
        matcher: &Matcher,
    ) -> Result<(), JournalError> {
        let folder = layout.quarantine();
        for entry in self.disk().list(&folder).at(&folder)? {
            let path = folder.join(&entry.name);
            if entry.is_dir {
                continue;
            }
            let is_item = job
                .item
                .as_ref()
                .is_some_and(|(t, id)| entry.name.starts_with(&format!("{t}.{id}.")));
            let bytes = self.disk().read(&path, PROJECTION_BYTES_MAX);
            if is_item || bytes.is_ok_and(|bytes| matcher.is_anywhere_in(&bytes)) {
                self.erase_file(&path)?;
            }
        }
        Ok(())
    }

    /// The segments, oldest first: the newest record of an entity goes last.
    pub(crate) fn scrub_segments(
        &self,
        layout: &Layout,
        job: &Job,
        matcher: &Matcher,
    ) -> Result<(), JournalError> {
        for path in self.segment_files(layout)? {
            let bytes = self.disk().read(&path, SEGMENT_BYTES_MAX).at(&path)?;
            if let Some(after) = scrub::segment(&bytes, job, matcher)? {
                self.put_back(&path, &after)?;
            }
        }
        Ok(())
    }
}

/// A temporary file of a writer that died, or a request of a process that is gone. Under the lock nobody
/// else writes but those who wait and those who read: their folders are looked at with more care.
fn is_leftover(layout: &Layout, path: &Path, journal: &Journal) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    let is_temporary = name.starts_with('.') && name.strip_suffix(".tmp").is_some();
    let folder = path.parent();
    if folder == Some(&layout.cursors()) {
        return false;
    }
    if folder == Some(&layout.queue()) {
        let owner = path.with_file_name(name.trim_start_matches('.'));
        let id = owner.file_name().and_then(|n| n.to_str()).unwrap_or("");
        let id = id.split('.').next().unwrap_or("");
        let owner = layout.queue().join(format!("{id}.own"));
        let is_alive = journal.disk().len(&owner).ok().flatten().is_some()
            && matches!(journal.disk().try_lock(&owner), Ok(None));
        return !is_alive;
    }
    is_temporary
}
