//! The kernel lock on a home (C17): one daemon, and the second one learns who holds it.
//!
//! The lock is released by the kernel when its holder dies, so there is nothing to steal and no
//! pid to guess about. What stands in the file is for people.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
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
            pid => write!(f, "process {pid} since {}", self.since),
        }
    }
}

#[derive(Debug)]
pub(crate) struct HomeLock {
    /// Held for its lock only.
    _file: File,
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
        let mut waited = Duration::ZERO;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if waited < PATIENCE => {
                    std::thread::sleep(LOOK_EVERY);
                    waited += LOOK_EVERY;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held(read_holder(&mut file)));
                }
                Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
            }
        }
        let holder = Holder {
            pid: std::process::id(),
            since: since.to_owned(),
        };
        write_holder(&mut file, &holder).map_err(LockError::Io)?;
        Ok(Self { _file: file })
    }
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
    let mut file = crate::home::open_plain(path).ok()?;
    match file.try_lock_shared() {
        Ok(()) => None,
        Err(_) => Some(read_holder(&mut file)),
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
}
