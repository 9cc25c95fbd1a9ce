//! What the index of a log (`-shm`) says of how far the log went, when nobody is left who wrote it.
//!
//! SQLite makes it anew from the log whenever a file is opened, so that it says nothing of a log that lost its end. But
//! between the end of a process and the next opening it still says how far that process had come. It is memory shared
//! through a file: after a start of the machine it may be of any time, so it is believed in the same one only, which is
//! noted on the file itself.

use std::path::Path;

use super::checksum::{Order, Sum};

const FORMAT: u32 = 3_007_000;
const COPY_BYTES: usize = 48;
const BACKFILL_AT: usize = 2 * COPY_BYTES;
pub(super) const BYTES: usize = BACKFILL_AT + 4;
/// Connections share a lock on it for as long as they are open.
const OPEN_LOCK: u64 = 128;
#[cfg(target_os = "linux")]
const NOTE: &str = "user.heddle.boot";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How far a log had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) salts: [u8; 8],
    /// Frames that were committed.
    pub(super) committed: u32,
    /// Of these, how many are in the file already.
    pub(super) moved: u32,
}

impl Reached {
    /// Whether a log of these salts was begun after the one that is spoken of: the first of them counts how often.
    pub(super) fn is_before(&self, salts: [u8; 8]) -> bool {
        let count = |salts: [u8; 8]| u32::from_be_bytes([salts[0], salts[1], salts[2], salts[3]]);
        let later = count(salts).wrapping_sub(count(self.salts));
        (1..=u32::MAX / 2).contains(&later)
    }
}

/// `None` where nobody can tell: neither of the two copies is whole, or nothing was committed since the log began anew.
pub(super) fn read(bytes: &[u8; BYTES]) -> Option<Reached> {
    // The second is written first: where they differ and both are whole, the first says what was said to everybody.
    let (first, second) = (&bytes[..COPY_BYTES], &bytes[COPY_BYTES..BACKFILL_AT]);
    let copy = [first, second].into_iter().find(|copy| is_whole(copy))?;
    let mut salts = [0; 8];
    salts.copy_from_slice(&copy[32..40]);
    let reached = Reached {
        salts,
        committed: native(copy, 16),
        moved: native(bytes, BACKFILL_AT),
    };
    (reached.committed > 0).then_some(reached)
}

fn is_whole(copy: &[u8]) -> bool {
    let order = if cfg!(target_endian = "big") {
        Order::Big
    } else {
        Order::Little
    };
    let said = Sum {
        first: native(copy, 40),
        second: native(copy, 44),
    };
    native(copy, 0) == FORMAT && copy[12] == 1 && Sum::default().over(order, &copy[..40]) == said
}

fn native(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

/// Notes which start of the machine an index belongs to. Where that is not to be had, nothing is lost but the look.
pub(crate) fn note_boot(index: &Path) {
    #[cfg(target_os = "linux")]
    if let Some(boot) = boot() {
        use rustix::fs::{XattrFlags, lsetxattr};
        let _ = lsetxattr(index, NOTE, &boot, XattrFlags::empty());
    }
    #[cfg(not(target_os = "linux"))]
    let _ = index;
}

/// Whether it was made in this start of the machine.
pub(super) fn is_of_this_boot(index: &Path) -> bool {
    #[cfg(target_os = "linux")]
    if let Some(boot) = boot() {
        let mut noted = vec![0; boot.len() + 1];
        return rustix::fs::lgetxattr(index, NOTE, noted.as_mut_slice())
            .is_ok_and(|length| noted.get(..length) == Some(boot.as_slice()));
    }
    let _ = (index, BOOT_ID);
    false
}

#[cfg(target_os = "linux")]
fn boot() -> Option<Vec<u8>> {
    std::fs::read(BOOT_ID).ok().filter(|boot| !boot.is_empty())
}

/// Whether another process has the database open. IMPORTANT: only for who has it open nowhere in this process: to close
/// the index gives up every lock that its process has on it.
pub(super) fn is_in_use(index: &std::fs::File) -> bool {
    use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
    let asked = Flock {
        start: OPEN_LOCK,
        length: 1,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    // Who cannot tell leaves it alone.
    fcntl_getlk(index, &asked).map_or(true, |holder| holder.is_some())
}
