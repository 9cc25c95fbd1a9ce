//! The journal of a store that is turned off, moved whole to `backups/`; a crash in the middle of that is put right first.
//!
//! The way is written down before the mode changes, and taken away when every file has arrived. Whoever opens the store
//! and finds it there ends the move before anything else: forward where the mode is off, else back. So nobody ever takes
//! a part of a journal for all of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::backup::above;
use crate::action::Mode;
use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::segment_seq;
use crate::journal::Journal;

/// How the name of a parked journal ends.
pub(super) const ROLLED_BACK: &str = "-rolled-back";
const VERSION: u8 = 1;
const PARKING_BYTES_MAX: u64 = 4096;
const LOCK_SLEEP: Duration = Duration::from_millis(1);

/// Where the files are on their way to.
#[derive(Debug, Serialize, Deserialize)]
struct Parking {
    v: u8,
    to: String,
}

impl Journal {
    /// Under the lock, and before the mode changes: from now on a crash cannot leave a part behind.
    pub(super) fn announce_parking(&self) -> Result<(), JournalError> {
        let parking = Parking {
            v: VERSION,
            to: format!("{}{ROLLED_BACK}", self.world.ids.ulid()),
        };
        // The files are what remains, and nothing would write them again.
        let entities = self.layout.entities();
        self.disk().sync_all(&entities).at(&entities)?;
        let path = self.layout.parking();
        let bytes = serde_json::to_vec(&parking).map_err(JournalError::refused)?;
        replace(self.disk(), &path, &bytes, true).at(&path)
    }

    /// Whether somebody began to park this journal, and has not ended.
    pub(crate) fn is_parking(&self) -> Result<bool, JournalError> {
        let path = self.layout.parking();
        Ok(self.disk().len(&path).at(&path)?.is_some())
    }

    /// For whoever opens the store and holds no lock yet.
    pub(crate) fn wait_and_end_parking(&self) -> Result<(), JournalError> {
        let path = self.layout.lock();
        let mut waited = Duration::ZERO;
        let _guard = loop {
            match self.disk().try_lock(&path).at(&path)? {
                Some(guard) => break guard,
                None if waited >= self.settings.lock_wait => return Err(self.busy(waited)),
                None => {}
            }
            std::thread::sleep(LOCK_SLEEP);
            waited += LOCK_SLEEP;
        };
        self.end_parking(self.mode_now()?).map(drop)
    }

    /// Under the lock: ends what was announced. Where the journal lies now; None where nothing was announced.
    pub(crate) fn end_parking(&self, mode: Mode) -> Result<Option<PathBuf>, JournalError> {
        let path = self.layout.parking();
        let bytes = read_if_there(self.disk(), &path, PARKING_BYTES_MAX).at(&path)?;
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let target = self.layout.backups().join(self.parked_name(&bytes)?);
        let root = self.layout.root();
        if mode == Mode::Off {
            self.disk().create_dir(&target).at(&target)?;
            self.move_all(&self.parkable()?, root, &target)?;
        } else {
            // Nothing was moved yet, or git has brought the mode of before back.
            let parked = self.files_below(&target)?;
            self.check_free(&parked, &target)?;
            self.move_all(&parked, &target, root)?;
        }
        self.forget_signature()?;
        // IMPORTANT: last, when every file has arrived for good.
        self.disk().remove(&path).at(&path)?;
        let events = self.layout.events();
        self.disk().sync_dir(&events).at(&events)?;
        Ok(Some(target))
    }

    fn parked_name(&self, bytes: &[u8]) -> Result<String, JournalError> {
        let parking: Option<Parking> = serde_json::from_slice(bytes).ok();
        let name = parking.filter(|parking| parking.v == VERSION);
        let name = name.map(|parking| parking.to).filter(|to| {
            to.ends_with(ROLLED_BACK) && Path::new(to).file_name() == Some(to.as_ref())
        });
        name.ok_or_else(|| JournalError::Damaged {
            path: self.layout.parking(),
            reason: format!(
                "a `heddle journal rollback --to off` was cut here, and this does not say where the journal went; a newer heddle may have written it. Otherwise move the files of the newest backups/*{ROLLED_BACK}/events/ back to events/, and this file away"
            ),
        })
    }

    /// IMPORTANT: a segment is never written over, whoever brought it.
    fn check_free(&self, parked: &[PathBuf], target: &Path) -> Result<(), JournalError> {
        for path in parked {
            let place = path
                .strip_prefix(target)
                .map(|p| self.layout.root().join(p));
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(place) = place.ok().filter(|_| name.and_then(segment_seq).is_some()) else {
                continue;
            };
            if self.disk().len(&place).at(&place)?.is_some() {
                return Err(JournalError::Damaged {
                    path: self.layout.parking(),
                    reason: format!(
                        "a `heddle journal rollback --to off` was cut here, and {} has come back while it lies in {} too; move the one that is not wanted away",
                        place.display(),
                        path.display()
                    ),
                });
            }
        }
        Ok(())
    }

    /// Each to the same place below another folder; done when all names have changed for good.
    fn move_all(&self, files: &[PathBuf], from: &Path, to: &Path) -> Result<(), JournalError> {
        let inside = |path: &'_ PathBuf| path.strip_prefix(from).ok().map(Path::to_owned);
        let mut moved: Vec<PathBuf> = files.iter().filter_map(inside).collect();
        // IMPORTANT: folders first, for good. A name that survives in one that does not is lost.
        for folder in folders_of(&moved, to) {
            self.disk().create_dir(&folder).at(&folder)?;
        }
        self.sync_folders(&moved, &[to])?;
        let pairs: Vec<_> = moved.iter().map(|p| (from.join(p), to.join(p))).collect();
        self.follow_left(pairs.iter().map(|(old, new)| (&**old, &**new)))?;
        for path in &moved {
            let (old, new) = (from.join(path), to.join(path));
            self.disk().rename(&old, &new).at(&old)?;
        }
        // Also what a run before this one has moved.
        let there = self.files_below(&to.join("events"))?;
        moved.extend(
            there
                .iter()
                .filter_map(|path| path.strip_prefix(to).ok().map(Path::to_owned)),
        );
        self.sync_folders(&moved, &[to, from])
    }

    fn sync_folders(&self, files: &[PathBuf], tops: &[&Path]) -> Result<(), JournalError> {
        let mut folders = BTreeSet::from([self.layout.backups(), self.layout.events()]);
        for top in tops {
            let all = folders_of(files, top);
            folders.extend(all.iter().flat_map(|f| above(f, self.layout.root())));
        }
        for folder in &folders {
            match self.disk().sync_dir(folder) {
                // Where nothing came from.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                synced => synced.at(folder)?,
            }
        }
        Ok(())
    }

    /// Everything of the journal but its lock, which somebody may wait for, what says that it is on its way, and what a redaction has left:
    /// turning the journal off is no way to forget that.
    pub(super) fn parkable(&self) -> Result<Vec<PathBuf>, JournalError> {
        let mut files = self.files_below(&self.layout.events())?;
        let layout = &self.layout;
        let stay = [
            layout.lock(),
            layout.parking(),
            layout.leftovers(),
            layout.redact_job(),
        ];
        files.retain(|path| !stay.contains(path));
        Ok(files)
    }
}

fn folders_of(files: &[PathBuf], top: &Path) -> BTreeSet<PathBuf> {
    let folders = files.iter().filter_map(|path| path.parent());
    folders.map(|folder| top.join(folder)).collect()
}
