//! A disk that counts what is read: the bytes and the calls.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle_journal::disk::{Appender, Disk, Entry, LockGuard, MemDisk, Reader};

#[derive(Debug)]
pub struct Counting {
    disk: MemDisk,
    read: Arc<Count>,
}

#[derive(Debug, Default)]
struct Count {
    bytes: AtomicU64,
    calls: AtomicU64,
}

impl Count {
    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counting {
    pub fn over(disk: &MemDisk) -> Arc<Self> {
        Arc::new(Self {
            disk: disk.clone(),
            read: Arc::default(),
        })
    }

    /// Calls and bytes since this was asked last.
    pub fn told(&self) -> (u64, u64) {
        let calls = self.read.calls.swap(0, Ordering::Relaxed);
        (calls, self.read.bytes.swap(0, Ordering::Relaxed))
    }

    fn count(&self, bytes: usize) {
        self.read.add(bytes);
    }
}

#[derive(Debug)]
struct CountingReader(Box<dyn Reader>, Arc<Count>);

impl Reader for CountingReader {
    fn length(&self) -> Io<u64> {
        self.0.length()
    }
    fn read_at(&self, offset: u64, bytes: usize) -> Io<Vec<u8>> {
        let bytes = self.0.read_at(offset, bytes)?;
        self.1.add(bytes.len());
        Ok(bytes)
    }
}

type Io<T> = std::io::Result<T>;

impl Disk for Counting {
    fn list(&self, dir: &Path) -> Io<Vec<Entry>> {
        let found = self.disk.list(dir)?;
        self.count(found.len());
        Ok(found)
    }
    fn len(&self, path: &Path) -> Io<Option<u64>> {
        self.count(0);
        self.disk.len(path)
    }
    fn read(&self, path: &Path, limit: u64) -> Io<Vec<u8>> {
        let bytes = self.disk.read(path, limit)?;
        self.count(bytes.len());
        Ok(bytes)
    }
    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> Io<Vec<u8>> {
        let bytes = self.disk.read_at(path, offset, bytes)?;
        self.count(bytes.len());
        Ok(bytes)
    }
    super::handed_on!();
    fn open_append(&self, path: &Path) -> Io<Box<dyn Appender>> {
        self.disk.open_append(path)
    }
    fn open_room(&self, path: &Path, at: u64) -> Io<Box<dyn Appender>> {
        self.disk.open_room(path, at)
    }
    fn open_read(&self, path: &Path) -> Io<Box<dyn Reader>> {
        self.count(0);
        let file = self.disk.open_read(path)?;
        Ok(Box::new(CountingReader(file, self.read.clone())))
    }
    fn write(&self, path: &Path, bytes: &[u8]) -> Io<()> {
        self.disk.write(path, bytes)
    }
    fn write_new(&self, path: &Path, bytes: &[u8]) -> Io<()> {
        self.disk.write_new(path, bytes)
    }
    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> Io<()> {
        self.disk.write_at(path, offset, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> Io<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Io<()> {
        self.disk.remove(path)
    }
}
