//! The running disk: names, contents, log and faults behind one lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlite_plugin::flags::LockLevel;
use sqlite_plugin::vars;
use sqlite_plugin::vfs::VfsResult;

use super::disk::Device;
use super::faults::Faults;
use super::inode::Inode;
use super::locks::FileLocks;
use super::op::{Op, What};
use super::replay::Files;
use super::shm::Shm;

pub(crate) struct Disk {
    pub(crate) device: Device,
    /// What the disk held when it was switched on.
    pub(crate) start: Files,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    names: BTreeMap<Arc<str>, usize>,
    files: Vec<File>,
    pub(crate) log: Vec<Op>,
    pub(crate) faults: Faults,
    pub(crate) keeps_cache: bool,
    handle_count: u64,
}

#[derive(Default)]
struct File {
    path: Arc<str>,
    inode: Inode,
    locks: FileLocks,
    shm: Shm,
    open_count: usize,
}

impl Disk {
    pub(crate) fn new(device: Device, start: Files) -> Disk {
        let mut state = State::default();
        for (inode, (path, bytes)) in start.iter().enumerate() {
            state.names.insert(Arc::clone(path), inode);
            state.files.push(File {
                path: Arc::clone(path),
                inode: Inode::with_bytes(bytes),
                ..File::default()
            });
        }
        Disk {
            device,
            start,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn handle_number(&mut self) -> u64 {
        self.handle_count += 1;
        self.handle_count
    }

    /// Fails once the power is off.
    pub(crate) fn power(&self) -> VfsResult<()> {
        self.faults.power(self.log.len())
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.names.contains_key(path)
    }

    /// The file of that name, made now if need be. A file without a name is in nobody's way.
    pub(crate) fn open(
        &mut self,
        path: Option<&str>,
        create: bool,
        durable: bool,
    ) -> VfsResult<usize> {
        self.power()?;
        let known = path.and_then(|path| self.names.get(path)).copied();
        let inode = match known {
            Some(inode) => inode,
            None if create => self.create(path, durable),
            None => return Err(vars::SQLITE_CANTOPEN),
        };
        self.files[inode].open_count += 1;
        Ok(inode)
    }

    fn create(&mut self, path: Option<&str>, durable: bool) -> usize {
        let inode = self.files.len();
        let name: Arc<str> = Arc::from(path.unwrap_or_default());
        self.files.push(File {
            path: Arc::clone(&name),
            ..File::default()
        });
        if path.is_some() {
            self.names.insert(name, inode);
        }
        self.record(inode, What::Create { durable });
        inode
    }

    pub(crate) fn close(&mut self, inode: usize, handle: u64) {
        let file = &mut self.files[inode];
        file.open_count = file.open_count.saturating_sub(1);
        file.shm.unmap(handle);
        file.locks.unlock(handle, LockLevel::Unlocked);
    }

    /// Drops a log from the cache if nobody has it open, as heddle-sqlite does on a real disk before it
    /// opens a database.
    pub(crate) fn drop_cache(&mut self, path: &str) {
        let Some(&inode) = self.names.get(path) else {
            return;
        };
        let file = &mut self.files[inode];
        if file.open_count == 0 && !self.keeps_cache {
            file.inode.drop_cache();
            self.record(inode, What::DropCache);
        }
    }

    pub(crate) fn delete(&mut self, path: &str) -> VfsResult<()> {
        self.power()?;
        let inode = self
            .names
            .remove(path)
            .ok_or(vars::SQLITE_IOERR_DELETE_NOENT)?;
        self.record(inode, What::Delete);
        Ok(())
    }

    pub(crate) fn size(&self, inode: usize) -> VfsResult<usize> {
        self.power()?;
        Ok(self.bytes(inode).len())
    }

    pub(crate) fn read(&self, inode: usize, offset: usize, into: &mut [u8]) -> VfsResult<usize> {
        self.power()?;
        let available = self.bytes(inode).get(offset..).unwrap_or_default();
        let length = available.len().min(into.len());
        into[..length].copy_from_slice(&available[..length]);
        Ok(length)
    }

    pub(crate) fn write(&mut self, inode: usize, offset: usize, data: &[u8]) -> VfsResult<usize> {
        self.power()?;
        if self.faults.write_fails(self.log.len()) {
            return Err(vars::SQLITE_IOERR_WRITE);
        }
        let end = offset + data.len();
        let growth = end.saturating_sub(self.bytes(inode).len());
        if let Some(space) = self.faults.space_bytes
            && growth > 0
            && self.used_bytes() + growth > space
        {
            return Err(vars::SQLITE_FULL);
        }
        let length = data.len();
        let data = Arc::from(data);
        self.files[inode].inode.write(offset, &data);
        self.record(inode, What::Write { offset, data });
        Ok(length)
    }

    pub(crate) fn truncate(&mut self, inode: usize, size: usize) -> VfsResult<()> {
        self.power()?;
        self.files[inode].inode.truncate(size);
        self.record(inode, What::Truncate { size });
        Ok(())
    }

    pub(crate) fn sync(&mut self, inode: usize, names: bool) -> VfsResult<()> {
        self.power()?;
        if self.faults.sync_fails(self.log.len()) {
            self.files[inode].inode.give_up();
            self.record(inode, What::FailedSync);
            return Err(vars::SQLITE_IOERR_FSYNC);
        }
        self.files[inode].inode.sync();
        self.record(inode, What::Sync { names });
        Ok(())
    }

    pub(crate) fn locks(&mut self, inode: usize) -> &mut FileLocks {
        &mut self.files[inode].locks
    }

    pub(crate) fn shm(&mut self, inode: usize) -> &mut Shm {
        &mut self.files[inode].shm
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.names
            .values()
            .map(|&inode| self.bytes(inode).len())
            .sum()
    }

    fn bytes(&self, inode: usize) -> &[u8] {
        self.files[inode].inode.cached()
    }

    fn record(&mut self, inode: usize, what: What) {
        self.log.push(Op {
            path: Arc::clone(&self.files[inode].path),
            inode,
            what,
        });
    }
}
