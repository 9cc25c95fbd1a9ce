//! Whether the files that are open still lie where they were opened.
//!
//! Somebody may remove or replace a database under a running process. SQLite goes on with what it has open, and each
//! commit is durable in a file to which no path leads any more: it is gone with the process. So whoever commits looks
//! here before anybody is answered (OB-01), and whoever is idle looks now and then.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::files::{COMPANIONS, with_suffix};

const WHILE_OPEN: &str = "while it was open";
/// The file and its log, the first two of those that are known.
#[cfg(target_os = "linux")]
const HELD: usize = 2;

/// Whether the reason of a poisoned handle, or words about it, say that a file is not in its place.
pub fn is_out_of_place(why: &str) -> bool {
    why.contains(WHILE_OPEN)
}

#[derive(Debug, Default)]
pub(crate) struct Place {
    /// The file and its companions, each as it was found when it was opened.
    known: Vec<(PathBuf, Identity)>,
    /// Those of them that hold what was committed, to ask without a walk along their paths. The index is made anew from the
    /// log, and each descriptor is one that no caller gets (L-14).
    #[cfg(target_os = "linux")]
    held: Vec<std::os::fd::OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

impl Place {
    /// Of a file that is open: its log and its index are there by now.
    pub(crate) fn of(path: &Path) -> Self {
        let companions = COMPANIONS.map(|suffix| with_suffix(path, suffix));
        let found = [path.to_owned()].into_iter().chain(companions);
        let known = found.filter_map(|path| {
            let metadata = path.symlink_metadata().ok()?;
            Some((path, Identity::of(&metadata)))
        });
        let known: Vec<_> = known.collect();
        Self {
            #[cfg(target_os = "linux")]
            held: known
                .iter()
                .take(HELD)
                .filter_map(|(path, _)| hold(path))
                .collect(),
            known,
        }
    }

    /// For whoever commits: cheap where no file has lost its name. One that was only moved is whole; `lost` tells of it soon.
    pub(crate) fn lost_by_a_commit(&self) -> Option<String> {
        #[cfg(target_os = "linux")]
        if self.held.len() == self.known.len().min(HELD)
            && self.held.iter().all(|file| !is_without_name(file))
        {
            return None;
        }
        self.lost()
    }

    /// Which file is not in its place any more, in words. A look that fails says nothing of it.
    pub(crate) fn lost(&self) -> Option<String> {
        self.known.iter().find_map(|(path, identity)| {
            let what = match path.symlink_metadata() {
                Ok(metadata) if Identity::of(&metadata) == *identity => return None,
                Ok(_) => "replaced",
                Err(error) if is_gone(error.kind()) => "removed",
                Err(_) => return None,
            };
            let name = path.file_name().map_or_else(OsString::new, Into::into);
            let name = name.to_string_lossy();
            Some(format!("{name} was {what} {WHILE_OPEN}"))
        })
    }
}

/// IMPORTANT: by its path only. To close any other descriptor of a file drops all POSIX locks that this process has on it.
#[cfg(target_os = "linux")]
fn hold(path: &Path) -> Option<std::os::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).ok()
}

/// IMPORTANT: asks for nothing but the count of names. Whoever asks for times makes the kernel note a finer one at the next write,
/// and each sync then has more to do: a lone send took 1.3 times as long.
#[cfg(target_os = "linux")]
fn is_without_name(file: &std::os::fd::OwnedFd) -> bool {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let asked = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
    asked.is_ok_and(|found| found.stx_nlink == 0)
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_or_a_companion_that_is_removed_replaced_or_moved_with_its_folder_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let path = home.join("data.db");
        let lay = || {
            let _ = fs::remove_dir_all(&home);
            fs::create_dir(&home).unwrap();
            for name in ["data.db", "data.db-wal", "data.db-shm"] {
                fs::write(home.join(name), name).unwrap();
            }
            Place::of(&path)
        };
        let place = lay();
        assert_eq!(place.lost(), None);
        fs::write(&path, "other bytes in the same file").unwrap();
        assert_eq!(place.lost(), None);
        fs::write(home.join("data.db-journal"), "not ours").unwrap();
        assert_eq!(place.lost(), None);
        for name in ["data.db", "data.db-wal", "data.db-shm"] {
            let place = lay();
            let kept = home.join("kept");
            fs::rename(home.join(name), &kept).unwrap();
            let said = place.lost().unwrap();
            assert_eq!(said, format!("{name} was removed while it was open"));
            fs::copy(&kept, home.join(name)).unwrap();
            let said = place.lost().unwrap();
            assert_eq!(said, format!("{name} was replaced while it was open"));
            fs::rename(&kept, home.join(name)).unwrap();
            assert_eq!(place.lost(), None, "it was only away for a moment");
        }
        for name in ["data.db", "data.db-wal"] {
            let place = lay();
            assert_eq!(place.lost_by_a_commit(), None);
            fs::write(home.join("new"), "other").unwrap();
            fs::rename(home.join("new"), home.join(name)).unwrap();
            let said = place.lost_by_a_commit().unwrap();
            assert_eq!(said, format!("{name} was replaced while it was open"));
            fs::remove_file(home.join(name)).unwrap();
            let said = place.lost_by_a_commit().unwrap();
            assert_eq!(said, format!("{name} was removed while it was open"));
        }
        let place = lay();
        fs::rename(&home, folder.path().join("elsewhere")).unwrap();
        assert!(place.lost().unwrap().contains("removed"));
        fs::write(&home, "a file in the place of the folder").unwrap();
        assert!(place.lost().unwrap().contains("removed"));
    }
}
