//! The end of the active segment: one append, one sync, and blank room for those that come next.

use crate::error::{At, JournalError};
use crate::session::Session;

impl Session<'_> {
    /// Never tried again on the same handle: the next session opens anew and validates the tail.
    pub(crate) fn append(&mut self, buffer: &[u8]) -> Result<(), JournalError> {
        let clock = &self.journal.world.clock;
        let path = self.journal.layout.segment(self.active);
        let begun = clock.mono();
        let disk = self.journal.disk();
        let opened = if self.reach > self.bytes {
            disk.open_room(&path, self.bytes)
        } else {
            disk.open_append(&path)
        };
        let mut file = opened.at(&path)?;
        let written = file.append(buffer).at(&path)?;
        if written != buffer.len() {
            return Err(JournalError::ShortWrite {
                path,
                written,
                wanted: buffer.len(),
            });
        }
        self.reach = self.reach.max(self.bytes + written as u64);
        let appended = clock.mono();
        if self.journal.settings.sync {
            file.sync().map_err(|source| {
                self.disown(buffer);
                JournalError::SyncFailed { path, source }
            })?;
        }
        self.phases.append.note(appended.saturating_sub(begun));
        let synced = clock.mono().saturating_sub(appended);
        self.phases.sync.note(synced);
        Ok(())
    }

    /// Blank room behind a segment that grows, so that the next sync has no new length to write down. After the answer,
    /// and nobody's loss where it fails: newlines count for nothing.
    pub(crate) fn make_room(&mut self) {
        let (journal, settings) = (self.journal, &self.journal.settings);
        let wanted = self.bytes.min(settings.room_bytes_max);
        let is_due = settings.sync && self.bytes >= settings.room_from_bytes;
        if !is_due || self.reach - self.bytes >= wanted / 4 {
            return;
        }
        let (disk, path) = (journal.disk(), journal.layout.segment(self.active));
        if journal.is_on_network() {
            return;
        }
        let missing = usize::try_from(self.bytes + wanted - self.reach).unwrap_or(0);
        if let Ok(mut file) = disk.open_append(&path)
            && let Ok(written) = file.append(&vec![b'\n'; missing])
        {
            self.reach += written as u64;
            // Where it fails, the next sync writes the length down, as it would without any room.
            let _ = file.sync();
        }
    }
}
