//! A disk of which one look fails, or all looks at one file: what a machine does that is short of descriptors, or of rights.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle_journal::disk::{Appender, Disk, Entry, LockGuard, MemDisk, Reader};

#[derive(Debug)]
pub struct Failing {
    disk: MemDisk,
    /// The look that fails, counted from 1; 0: none.
    at: u64,
    looks: AtomicU64,
    shut: Option<PathBuf>,
    sealed: Option<PathBuf>,
    measureless: Option<PathBuf>,
}

impl Failing {
    fn over(disk: &MemDisk) -> Self {
        Self {
            disk: disk.clone(),
            at: 0,
            looks: AtomicU64::new(0),
            shut: None,
            sealed: None,
            measureless: None,
        }
    }

    /// The look of that number fails, once.
    pub fn once(disk: &MemDisk, at: u64) -> Arc<Self> {
        Arc::new(Self {
            at,
            ..Self::over(disk)
        })
    }

    /// Nobody may read this one.
    pub fn shut(disk: &MemDisk, path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            shut: Some(path),
            ..Self::over(disk)
        })
    }

    /// Nobody may write below this folder.
    pub fn sealed(disk: &MemDisk, path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            sealed: Some(path),
            ..Self::over(disk)
        })
    }

    /// Nobody is told how long this one is.
    pub fn measureless(disk: &MemDisk, path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            measureless: Some(path),
            ..Self::over(disk)
        })
    }

    /// Whether it came to that look.
    pub fn has_failed(&self) -> bool {
        self.looks.load(Ordering::Relaxed) >= self.at
    }

    fn look(&self, path: &Path) -> io::Result<()> {
        let count = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.at {
            return Err(io::Error::other("too many open files"));
        }
        if self.shut.as_deref() == Some(path) {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        Ok(())
    }

    fn change(&self, path: &Path) -> io::Result<()> {
        match &self.sealed {
            Some(sealed) if path.starts_with(sealed) => {
                Err(io::Error::from(io::ErrorKind::PermissionDenied))
            }
            _ => Ok(()),
        }
    }
}

type Io<T> = io::Result<T>;

impl Disk for Failing {
    fn list(&self, dir: &Path) -> Io<Vec<Entry>> {
        self.look(dir)?;
        self.disk.list(dir)
    }
    fn len(&self, path: &Path) -> Io<Option<u64>> {
        if self.measureless.as_deref() == Some(path) {
            return Err(io::Error::other("no answer"));
        }
        self.disk.len(path)
    }
    fn read(&self, path: &Path, limit: u64) -> Io<Vec<u8>> {
        self.look(path)?;
        self.disk.read(path, limit)
    }
    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> Io<Vec<u8>> {
        self.look(path)?;
        self.disk.read_at(path, offset, bytes)
    }
    super::handed_on!();
    fn open_append(&self, path: &Path) -> Io<Box<dyn Appender>> {
        self.look(path)?;
        self.disk.open_append(path)
    }
    fn open_room(&self, path: &Path, at: u64) -> Io<Box<dyn Appender>> {
        self.look(path)?;
        self.disk.open_room(path, at)
    }
    fn open_read(&self, path: &Path) -> Io<Box<dyn Reader>> {
        self.look(path)?;
        self.disk.open_read(path)
    }
    fn write(&self, path: &Path, bytes: &[u8]) -> Io<()> {
        self.look(path)?;
        self.change(path)?;
        self.disk.write(path, bytes)
    }
    fn write_new(&self, path: &Path, bytes: &[u8]) -> Io<()> {
        self.look(path)?;
        self.change(path)?;
        self.disk.write_new(path, bytes)
    }
    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> Io<()> {
        self.look(path)?;
        self.disk.write_at(path, offset, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> Io<()> {
        self.change(to)?;
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Io<()> {
        self.change(path)?;
        self.disk.remove(path)
    }
}
