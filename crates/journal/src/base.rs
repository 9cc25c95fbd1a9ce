//! The checkpoint that a clone began with. Its own records stand on it, and git may take it away: another clone's `gc` moves its old
//! checkpoints where git does not look, and the commit deletes them for everybody. So a clone keeps a copy where git takes nothing.

use std::path::PathBuf;

use crate::checkpoint::{self, MANIFEST_BYTES_MAX};
use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::{checkpoint_name, checkpoint_seq};
use crate::gaps::Gaps;
use crate::journal::Journal;

impl Journal {
    /// The last seq before the first record of this store; None where it began with the first of all.
    fn before_first(&self) -> Result<Option<u64>, JournalError> {
        let first = self.all_segments()?.first().copied();
        Ok(first.filter(|first| *first > 1).map(|first| first - 1))
    }

    /// Head seqs of the checkpoints that there are, rising, the one that is kept included.
    pub(crate) fn checkpoints_here(&self) -> Result<Vec<u64>, JournalError> {
        let mut all = checkpoint::listed(self.disk(), &self.layout)?;
        if let Some(before) = self.before_first()? {
            let folder = self.layout.archived_checkpoints();
            let entries = self.disk().list(&folder).at(&folder)?;
            let names = entries.iter().filter_map(|e| checkpoint_seq(&e.name));
            all.extend(names.filter(|seq| *seq <= before).max());
            all.sort_unstable();
            all.dedup();
        }
        Ok(all)
    }

    fn kept_manifest(&self, head_seq: u64) -> Result<Option<Vec<u8>>, JournalError> {
        let path = self.kept_path(head_seq);
        read_if_there(self.disk(), &path, MANIFEST_BYTES_MAX).at(&path)
    }

    fn kept_path(&self, head_seq: u64) -> PathBuf {
        let folder = self.layout.archived_checkpoints();
        folder.join(checkpoint_name(head_seq))
    }

    /// The bytes of a checkpoint: those that git has, unless they are gone or of another store than the ones that were kept. (Those of
    /// the same store may differ: it has erased something since.)
    pub(crate) fn manifest_bytes(&self, head_seq: u64) -> Result<Vec<u8>, JournalError> {
        let path = self.layout.checkpoint(head_seq);
        let Some(held) = read_if_there(self.disk(), &path, MANIFEST_BYTES_MAX).at(&path)? else {
            let path = self.kept_path(head_seq);
            return self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path);
        };
        match self.kept_manifest(head_seq)? {
            Some(kept) if !is_of_one_store(&held, &kept) => Ok(kept),
            _ => Ok(held),
        }
    }

    /// Puts the copy aside: before the first write of a clone, and whenever everything is compared, for clones of an older build.
    pub(crate) fn keep_base(&self) -> Result<(), JournalError> {
        let is_begun = !self.all_segments()?.is_empty();
        let before = match self.before_first()? {
            Some(before) => before,
            None if is_begun => return Ok(()),
            None => u64::MAX,
        };
        let listed = checkpoint::listed(self.disk(), &self.layout)?;
        for head_seq in listed.into_iter().rev().filter(|seq| *seq <= before) {
            let path = self.layout.checkpoint(head_seq);
            let bytes = self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path)?;
            if checkpoint::parse(&bytes).is_err() {
                continue;
            }
            let kept = self.kept_manifest(head_seq)?;
            if kept.is_none_or(|kept| kept != bytes && is_of_one_store(&bytes, &kept)) {
                let path = self.kept_path(head_seq);
                let folder = self.layout.archived_checkpoints();
                self.disk().create_dir(&folder).at(&folder)?;
                // IMPORTANT: the folders as well. Where a power cut takes them, the copy goes with them.
                for above in [self.layout.archive(), self.layout.events()] {
                    self.disk().sync_dir(&above).at(&above)?;
                }
                replace(self.disk(), &path, &bytes, true).at(&path)?;
            }
            break;
        }
        Ok(())
    }

    /// The checkpoint that this clone began with, where it is gone and what it held with it. `gaps` are those of a rebuild.
    pub(crate) fn lost_base(&self, gaps: &Gaps) -> Result<Option<PathBuf>, JournalError> {
        let Some(before) = self.before_first()? else {
            return Ok(None);
        };
        let is_open = gaps.open().iter().any(|[_, last]| *last == before);
        let is_clone = is_open && self.lost_beginning()?.is_none();
        Ok(is_clone.then(|| self.layout.checkpoint(before)))
    }
}

/// Sound, and written by the same store.
fn is_of_one_store(held: &[u8], kept: &[u8]) -> bool {
    match (checkpoint::parse(held), checkpoint::parse(kept)) {
        (Ok(held), Ok(kept)) => held.origin == kept.origin,
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}
