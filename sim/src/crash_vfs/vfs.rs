//! The door between SQLite and the disk: translates calls, decides nothing.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use sqlite_plugin::flags::{
    AccessFlags, CreateMode, LockLevel, OpenKind, OpenMode, OpenOpts, ShmLockMode,
};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::{Vfs, VfsHandle, VfsResult};

use super::disk::Device;
use super::files::Disk;
use super::register::{Slot, lock};

const SECTOR_BYTES: i32 = 4096;

pub(crate) struct CrashVfs {
    slot: Slot,
}

impl CrashVfs {
    pub(crate) fn new(slot: Slot) -> CrashVfs {
        CrashVfs { slot }
    }

    fn disk(&self) -> VfsResult<Arc<Disk>> {
        lock(&self.slot).clone().ok_or(vars::SQLITE_CANTOPEN)
    }
}

/// An open file. It keeps its disk, so a name that was lent on cannot confuse it.
pub(crate) struct OpenFile {
    disk: Arc<Disk>,
    inode: usize,
    number: u64,
    readonly: bool,
    /// As SQLite's own Unix VFS does: the first sync of a journal or log also syncs its folder.
    names_at_next_sync: bool,
    delete_on_close: Option<String>,
}

impl VfsHandle for OpenFile {
    fn readonly(&self) -> bool {
        self.readonly
    }

    fn in_memory(&self) -> bool {
        false
    }
}

impl Vfs for CrashVfs {
    type Handle = OpenFile;

    fn open(&self, path: Option<&str>, opts: OpenOpts) -> VfsResult<OpenFile> {
        let disk = self.disk()?;
        let (readonly, create) = match opts.mode() {
            OpenMode::ReadOnly => (true, false),
            OpenMode::ReadWrite { create } => (false, create != CreateMode::None),
        };
        let kind = opts.kind();
        let is_journal = matches!(
            kind,
            OpenKind::MainJournal | OpenKind::SuperJournal | OpenKind::Wal
        );
        let mut state = disk.lock();
        if let (OpenKind::Wal, Some(path)) = (&kind, path) {
            state.drop_cache(path);
        }
        // On a real disk heddle-sqlite makes the database file itself and syncs the folder at once.
        let inode = state.open(path, create, kind == OpenKind::MainDb)?;
        let number = state.handle_number();
        drop(state);
        Ok(OpenFile {
            inode,
            number,
            readonly,
            names_at_next_sync: is_journal && create,
            delete_on_close: path.filter(|_| opts.delete_on_close()).map(str::to_owned),
            disk,
        })
    }

    fn delete(&self, path: &str) -> VfsResult<()> {
        self.disk()?.lock().delete(path)
    }

    fn access(&self, path: &str, _flags: AccessFlags) -> VfsResult<bool> {
        Ok(self.disk()?.lock().exists(path))
    }

    fn file_size(&self, file: &mut OpenFile) -> VfsResult<usize> {
        file.disk.lock().size(file.inode)
    }

    fn truncate(&self, file: &mut OpenFile, size: usize) -> VfsResult<()> {
        file.disk.lock().truncate(file.inode, size)
    }

    fn write(&self, file: &mut OpenFile, offset: usize, data: &[u8]) -> VfsResult<usize> {
        file.disk.lock().write(file.inode, offset, data)
    }

    fn read(&self, file: &mut OpenFile, offset: usize, data: &mut [u8]) -> VfsResult<usize> {
        file.disk.lock().read(file.inode, offset, data)
    }

    fn lock(&self, file: &mut OpenFile, level: LockLevel) -> VfsResult<()> {
        file.disk.lock().locks(file.inode).lock(file.number, level)
    }

    fn unlock(&self, file: &mut OpenFile, level: LockLevel) -> VfsResult<()> {
        file.disk
            .lock()
            .locks(file.inode)
            .unlock(file.number, level);
        Ok(())
    }

    fn check_reserved_lock(&self, file: &mut OpenFile) -> VfsResult<bool> {
        Ok(file.disk.lock().locks(file.inode).is_reserved())
    }

    fn sync(&self, file: &mut OpenFile) -> VfsResult<()> {
        let names = file.names_at_next_sync;
        file.disk.lock().sync(file.inode, names)?;
        file.names_at_next_sync = false;
        Ok(())
    }

    fn close(&self, file: OpenFile) -> VfsResult<()> {
        let mut state = file.disk.lock();
        state.close(file.inode, file.number);
        match &file.delete_on_close {
            Some(path) => state.delete(path),
            None => Ok(()),
        }
    }

    fn sector_size(&self, _file: &mut OpenFile) -> VfsResult<i32> {
        Ok(SECTOR_BYTES)
    }

    /// IMPORTANT: never the crate's default, which promises atomic, ordered writes. SQLite believes it
    /// and leaves syncs out.
    fn device_characteristics(&self, file: &mut OpenFile) -> VfsResult<i32> {
        Ok(match file.disk.device {
            Device::Plain => 0,
            Device::PowersafeOverwrite => vars::SQLITE_IOCAP_POWERSAFE_OVERWRITE,
        })
    }

    fn shm_map(
        &self,
        file: &mut OpenFile,
        region_idx: usize,
        region_size: usize,
        extend: bool,
    ) -> VfsResult<Option<NonNull<u8>>> {
        let mut state = file.disk.lock();
        state
            .shm(file.inode)
            .map(file.number, region_idx, region_size, extend)
    }

    fn shm_lock(
        &self,
        file: &mut OpenFile,
        offset: u32,
        count: u32,
        mode: ShmLockMode,
    ) -> VfsResult<()> {
        let first = usize::try_from(offset).map_err(|_| vars::SQLITE_IOERR_SHMLOCK)?;
        let count = usize::try_from(count).map_err(|_| vars::SQLITE_IOERR_SHMLOCK)?;
        let mut state = file.disk.lock();
        state.shm(file.inode).lock(file.number, first, count, mode)
    }

    fn shm_barrier(&self, _file: &mut OpenFile) {
        fence(Ordering::SeqCst);
    }

    fn shm_unmap(&self, file: &mut OpenFile, _delete: bool) -> VfsResult<()> {
        file.disk.lock().shm(file.inode).unmap(file.number);
        Ok(())
    }
}
