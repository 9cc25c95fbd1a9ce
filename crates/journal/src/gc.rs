//! What is no longer needed is parked in `archive/`, never deleted. The floor is the second-newest
//! sound checkpoint: the newest one may turn out to be damaged, and the one before must still do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::checkpoint::{self, Trust};
use crate::error::{At, JournalError};
use crate::format::{checkpoint_name, is_sha256};
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::segments;
use crate::session::Session;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// Replay can begin here; None: two sound checkpoints are needed first, and nothing was moved.
    pub floor_seq: Option<u64>,
    pub segments: u64,
    pub checkpoints: u64,
    pub blobs: u64,
}

impl Journal {
    pub fn gc(&self) -> Result<Collected, JournalError> {
        self.must_be_on()?;
        self.session()?.gc()
    }
}

impl Session<'_> {
    fn gc(&mut self) -> Result<Collected, JournalError> {
        let journal = self.journal;
        let mut sound = Vec::new();
        for head_seq in checkpoint::listed(journal.disk(), &journal.layout)?
            .into_iter()
            .rev()
        {
            if journal.trust(head_seq)? == Trust::Verified {
                sound.push(head_seq);
            }
        }
        let [_, floor, older @ ..] = &sound[..] else {
            return Ok(Collected::default());
        };
        let mut collected = Collected {
            floor_seq: Some(*floor),
            ..Collected::default()
        };
        let live = segments::live(journal.disk(), &journal.layout)?;
        for pair in live.windows(2) {
            // Everything in it is in the floor's checkpoint, and it is not the active one.
            if pair[1] <= floor + 1 {
                let to = journal.layout.archive();
                journal.park_file(&journal.layout.segment(pair[0]), &to)?;
                collected.segments += 1;
            }
        }
        for head_seq in older {
            let from = journal
                .layout
                .checkpoints()
                .join(checkpoint_name(*head_seq));
            journal.park_file(&from, &journal.layout.archived_checkpoints())?;
            collected.checkpoints += 1;
        }
        collected.blobs = journal.park_blobs()?;
        Ok(collected)
    }
}

impl Journal {
    /// Moves a file and syncs both folders: after a crash it is in one of them.
    fn park_file(&self, from: &Path, to: &Path) -> Result<(), JournalError> {
        let name = from.file_name().unwrap_or_default();
        self.disk().create_dir(to).at(to)?;
        if let Some(above) = to.parent() {
            self.disk().sync_dir(above).at(above)?;
        }
        let target: PathBuf = to.join(name);
        self.follow_left([(from, &*target)])?;
        self.disk().rename(from, &target).at(from)?;
        self.disk().sync_dir(to).at(to)?;
        match from.parent() {
            Some(above) => self.disk().sync_dir(above).at(above),
            None => Ok(()),
        }
    }

    /// A blob goes when no live segment and no checkpoint that is left names it (JN-26).
    fn park_blobs(&self) -> Result<u64, JournalError> {
        let mut named = Named::default();
        for first in segments::live(self.disk(), &self.layout)? {
            let bytes = segments::read(self.disk(), &self.layout, first)?;
            scan(&bytes, 0, &mut named);
        }
        // A checkpoint that cannot be read may name anything: then every blob stays.
        for head_seq in self.checkpoints_here()? {
            match self.blobs_of(head_seq) {
                Some(blobs) => named.0.extend(blobs),
                None => return Ok(0),
            }
        }
        let mut parked = 0;
        let folder = self.layout.blobs();
        for shelf in self.disk().list(&folder).at(&folder)? {
            let inside = folder.join(&shelf.name);
            if !shelf.is_dir {
                continue;
            }
            for blob in self.disk().list(&inside).at(&inside)? {
                if is_sha256(&blob.name) && !named.0.contains(&blob.name) {
                    self.park_file(&inside.join(&blob.name), &self.layout.archived_blobs())?;
                    parked += 1;
                }
            }
        }
        Ok(parked)
    }
}

#[derive(Default)]
struct Named(BTreeSet<String>);

impl<'a> Sink<'a> for Named {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for blob in batch
            .iter()
            .filter_map(|counted| counted.record.payload_ref.as_ref())
        {
            self.0.insert(blob.sha256.as_str().to_owned());
        }
    }

    fn damage(&mut self, _: Damage) {}
}
