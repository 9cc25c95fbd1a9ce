//! A little room on the disk that is kept for the way back: giving payloads back needs to write, too (L-12).
//!
//! A file that holds nothing. It goes when a full disk stands in the way of recovery, and comes again when
//! there is room. Losing it costs nothing but that help.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

/// Enough for the log of a few prunes.
const BYTES_MAX: u64 = 512 << 10;
/// Of what is free, it takes this part at most.
const PART: u64 = 12;

pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("disk.reserve")
}

/// Makes it where it is missing. Blocks for a moment.
pub(super) fn keep(folder: &Path, free: u64) -> io::Result<()> {
    let path = path(folder);
    if path.symlink_metadata().is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    let bytes = BYTES_MAX.min(free / PART);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let made = options.open(&path).and_then(|file| fill(&file, bytes));
    if made.is_err() {
        // Half of it would only be in the way.
        let _ = std::fs::remove_file(&path);
    }
    made
}

/// With blocks of its own: a hole keeps no room.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}

/// Gives the room away; true where there was some.
pub(super) fn release(folder: &Path) -> bool {
    std::fs::remove_file(path(folder)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_takes_a_small_part_and_comes_and_goes() {
        let folder = tempfile::TempDir::new().unwrap();
        assert!(!release(folder.path()));
        keep(folder.path(), 1200).unwrap();
        let length = || std::fs::metadata(path(folder.path())).unwrap().len();
        assert_eq!(length(), 100);
        keep(folder.path(), 1 << 40).unwrap();
        assert_eq!(length(), 100, "it was there already");
        assert!(release(folder.path()));
        keep(folder.path(), 1 << 40).unwrap();
        assert_eq!(length(), BYTES_MAX);
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path(folder.path()))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
