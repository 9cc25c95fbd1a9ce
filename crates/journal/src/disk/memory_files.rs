//! The open files of a disk in memory: appenders, readers, locks.

use std::io;
use std::path::PathBuf;

use super::memory::{MemDisk, Op};
use super::{Appender, LockGuard, Reader, not_blank};
use crate::lines::is_blank;

#[derive(Debug)]
pub(super) struct MemAppender {
    pub(super) disk: MemDisk,
    pub(super) path: PathBuf,
    pub(super) ino: usize,
}

impl Appender for MemAppender {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        let short = state.step(Op::Append, &self.path)?;
        let written = short.unwrap_or(bytes.len()).min(bytes.len());
        let end = state.inodes[self.ino].data.len() as u64;
        state.store(self.ino, end, &bytes[..written], false);
        state.last_append = Some(self.ino);
        Ok(written)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.step(Op::Sync, &self.path)?;
        state.settle(self.ino);
        Ok(())
    }
}

/// The lock is on the file itself.
#[derive(Debug)]
pub(super) struct MemRoom {
    pub(super) lock: MemLock,
    pub(super) ino: usize,
    pub(super) at: u64,
}

impl Appender for MemRoom {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.lock.disk.state();
        if !is_blank(&state.piece(self.ino, self.at, bytes.len())) {
            return Err(not_blank());
        }
        let short = state.step(Op::Append, &self.lock.path)?;
        let written = short.unwrap_or(bytes.len()).min(bytes.len());
        state.store(self.ino, self.at, &bytes[..written], false);
        state.last_append = Some(self.ino);
        self.at += written as u64;
        Ok(written)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.lock.disk.state();
        state.step(Op::Sync, &self.lock.path)?;
        state.settle(self.ino);
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct MemReader {
    pub(super) disk: MemDisk,
    pub(super) ino: usize,
}

impl Reader for MemReader {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.state().inodes[self.ino].data.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        Ok(self.disk.state().piece(self.ino, offset, bytes))
    }
}

#[derive(Debug)]
pub(super) struct MemLock {
    pub(super) disk: MemDisk,
    pub(super) path: PathBuf,
}

impl LockGuard for MemLock {
    fn sign(&mut self, text: &str) -> io::Result<()> {
        self.disk.state().sign(&self.path, text.as_bytes());
        Ok(())
    }

    fn signed(&self) -> io::Result<Vec<u8>> {
        Ok(self.disk.state().signed(&self.path))
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.disk.state().locked.remove(&self.path);
    }
}
