//! The handle of a test on one crash disk.

use std::sync::Arc;

use super::damage::Damage;
use super::faults::Times;
use super::files::Disk;
use super::op::Op;
use super::register::Registration;
use super::replay::{Files, Replay};

/// What the disk promises to SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Nothing at all; SQLite then pads its log to whole sectors.
    Plain,
    /// Bytes beside a write are safe: what SQLite assumes of every real disk under Linux, and so the
    /// code path that runs in production.
    PowersafeOverwrite,
}

impl Device {
    pub const ALL: [Device; 2] = [Device::Plain, Device::PowersafeOverwrite];
}

/// An in-memory disk under its own VFS name. Give [`CrashDisk::vfs`] to the options of a database.
///
/// Stop the databases on it before it is dropped: its name may then go to another disk.
#[must_use]
pub struct CrashDisk {
    /// IMPORTANT: before the registration, which counts on being the last to know the disk.
    disk: Arc<Disk>,
    registration: Registration,
}

impl CrashDisk {
    /// An empty disk.
    pub fn new(device: Device) -> CrashDisk {
        CrashDisk::with_files(device, Files::new())
    }

    pub(crate) fn with_files(device: Device, files: Files) -> CrashDisk {
        let disk = Arc::new(Disk::new(device, files));
        CrashDisk {
            registration: Registration::of(Arc::clone(&disk)),
            disk,
        }
    }

    /// The name under which SQLite knows this disk.
    pub fn vfs(&self) -> String {
        self.registration.name().to_owned()
    }

    /// Puts a note into the log.
    pub fn mark(&self, text: impl Into<String>) {
        self.disk.lock().log.push(Op::marker(text.into()));
    }

    /// How many operations were done, which is the index of the next one.
    pub fn index(&self) -> usize {
        self.disk.lock().log.len()
    }

    /// All operations so far.
    pub fn log(&self) -> Vec<Op> {
        self.disk.lock().log.clone()
    }

    /// From the operation with this index on nothing works any more.
    pub fn cut_power_at(&self, index: usize) {
        self.disk.lock().faults.cut_power_at(index);
    }

    /// The first sync at or after this index fails, or every one from there on.
    pub fn fail_sync_at(&self, index: usize, times: Times) {
        self.disk.lock().faults.fail_sync_at(index, times);
    }

    /// The first write at or after this index fails, or every one from there on.
    pub fn fail_write_at(&self, index: usize, times: Times) {
        self.disk.lock().faults.fail_write_at(index, times);
    }

    /// A log that is opened again is read from the cache, given-up pages included: what would happen
    /// without the care that heddle-sqlite takes.
    pub fn keep_cache(&self) {
        self.disk.lock().keeps_cache = true;
    }

    /// Bytes that all files together may take; `None` lifts the limit.
    pub fn limit_space(&self, bytes: Option<usize>) {
        self.disk.lock().faults.space_bytes = bytes;
    }

    pub fn used_bytes(&self) -> usize {
        self.disk.lock().used_bytes()
    }

    /// The disk after a power cut now.
    pub fn image(&self, damage: Damage, seed: u64) -> CrashDisk {
        let mut replay = self.replay();
        replay.advance_to(replay.len());
        replay.image(damage, seed)
    }

    /// The disk after a power cut at any index of what was done so far.
    pub fn replay(&self) -> Replay {
        Replay::new(self.disk.device, &self.disk.start, self.log())
    }
}
