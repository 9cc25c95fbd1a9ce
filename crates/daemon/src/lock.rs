//! The kernel lock on a home (C17): one daemon, and the second one learns who holds it.
//!
//! The lock is released by the kernel when its holder dies, so there is nothing to steal and no
//! pid to guess about. What stands in the file is for people. The folder is locked as well: whoever removes the
//! file lets nobody in.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The kernel needs a moment to take a killed process apart; its lock goes last.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Who holds a home, as it wrote of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Zero when the holder has not written it yet.
    pub pid: u32,
    pub since: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => f.write_str("another process"),
            pid if self.since.is_empty() => write!(f, "process {pid}"),
            pid => write!(f, "process {pid} since {}", self.since),
        }
    }
}

/// Both are held for their locks only.
#[derive(Debug)]
pub(crate) struct HomeLock {
    _file: File,
    /// `None` on a file system that locks no folders.
    _folder: Option<File>,
}

#[derive(Debug)]
pub(crate) enum LockError {
    Held(Holder),
    Io(std::io::Error),
}

impl HomeLock {
    /// Takes the lock on `path`, or says who has it without writing a byte (OB-16).
    pub(crate) fn take(path: &Path, since: &str) -> Result<Self, LockError> {
        let mut file = crate::home::open_private(path).map_err(LockError::Io)?;
        if !lock_in_time(&file).map_err(LockError::Io)? {
            return Err(LockError::Held(read_holder(&mut file)));
        }
        let folder = open_folder(path).map_err(LockError::Io)?;
        let folder = match lock_in_time(&folder) {
            Ok(true) => Some(folder),
            // The file is a new one: somebody has removed the one that the holder has locked.
            Ok(false) => return Err(LockError::Held(holder_of_folder(&folder))),
            Err(error) => {
                tracing::debug!(%error, "this file system locks no folders");
                None
            }
        };
        let holder = Holder {
            pid: std::process::id(),
            since: since.to_owned(),
        };
        write_holder(&mut file, &holder).map_err(LockError::Io)?;
        Ok(Self {
            _file: file,
            _folder: folder,
        })
    }
}

/// Waits for a process that is just being killed, and for one that only looks. False where it is held.
fn lock_in_time(file: &File) -> std::io::Result<bool> {
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if waited < PATIENCE => {
                std::thread::sleep(LOOK_EVERY);
                waited += LOOK_EVERY;
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn open_folder(path: &Path) -> std::io::Result<File> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder),
        _ => File::open("."),
    }
}

/// Who has locked a folder, where the kernel says so; since when is not known.
fn holder_of_folder(folder: &File) -> Holder {
    let pid = folder.metadata().ok().and_then(|metadata| {
        let (device, inode) = (metadata.dev(), metadata.ino());
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let named = format!("{major:02x}:{minor:02x}:{inode}");
        pid_of_lock(&std::fs::read_to_string("/proc/locks").ok()?, &named)
    });
    Holder {
        pid: pid.unwrap_or_default(),
        since: String::new(),
    }
}

/// Of lines such as `3: FLOCK  ADVISORY  WRITE 4711 fe:00:131073 0 EOF`.
fn pid_of_lock(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_ours = words.next() == Some("FLOCK") && words.nth(1) == Some("WRITE");
        let pid = words.next()?.parse().ok()?;
        (is_ours && words.next() == Some(file)).then_some(pid)
    })
}

fn write_holder(file: &mut File, holder: &Holder) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(serde_json::to_string(holder)?.as_bytes())
}

fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    // Unreadable means that it is being written this very moment: held all the same.
    let _ = file.rewind();
    let _ = file.take(4096).read_to_string(&mut text);
    serde_json::from_str(&text).unwrap_or_default()
}

/// Who holds the home now, without touching it; `None` when nobody does.
pub(crate) fn holder(path: &Path) -> Option<Holder> {
    if let Ok(mut file) = crate::home::open_plain(path)
        && file.try_lock_shared().is_err()
    {
        return Some(read_holder(&mut file));
    }
    let folder = open_folder(path).ok()?;
    match folder.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(holder_of_folder(&folder)),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// The same, after giving a process that is just being killed the time to be gone.
pub(crate) fn holder_for_good(path: &Path) -> Option<Holder> {
    let mut waited = Duration::ZERO;
    while holder(path).is_some() && waited < PATIENCE {
        std::thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
    holder(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_16_a_second_taker_learns_who_holds_it_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = HomeLock::take(&path, "now").unwrap();
        let before = std::fs::read(&path).unwrap();
        let Err(LockError::Held(holder)) = HomeLock::take(&path, "later") else {
            unreachable!("a held lock was taken")
        };
        assert_eq!(holder.pid, std::process::id());
        assert_eq!(std::fs::read(&path).unwrap(), before);
        drop(first);
        assert!(super::holder(&path).is_none());
        assert!(HomeLock::take(&path, "later").is_ok());
    }

    #[test]
    fn ob_16_whoever_removes_the_file_of_a_lock_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = HomeLock::take(&path, "now").unwrap();
        std::fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            let found = super::holder(&path).unwrap();
            assert_eq!(found.pid, std::process::id(), "the kernel knows who");
            let Err(LockError::Held(holder)) = HomeLock::take(&path, "later") else {
                unreachable!("a held lock was taken")
            };
            assert_eq!(holder, found);
            assert_eq!(holder.to_string(), format!("process {}", holder.pid));
        }
        drop(first);
        assert!(super::holder(&path).is_none());
        assert!(HomeLock::take(&path, "later").is_ok());
    }

    #[test]
    fn a_pid_is_read_from_the_line_of_its_file_alone() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:7 0 EOF\n\
            2: FLOCK  ADVISORY  READ 12 fe:00:7 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n\
            4: -> FLOCK  ADVISORY  WRITE 14 fe:00:7 0 EOF\n\
            5: FLOCK  ADVISORY  WRITE 15 fe:00:7 0 EOF\n";
        assert_eq!(pid_of_lock(locks, "fe:00:7"), Some(15));
        assert_eq!(pid_of_lock(locks, "fe:00:8"), None);
        assert_eq!(pid_of_lock("", "fe:00:7"), None);
        assert_eq!(pid_of_lock("nonsense\n\n3: FLOCK\n", "fe:00:7"), None);
    }
}
