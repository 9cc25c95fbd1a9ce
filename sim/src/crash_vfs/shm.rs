//! The shared memory of one database in WAL mode: its regions and its eight locks.
//!
//! It is memory: a power cut takes it, and so does the end of its last user.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sqlite_plugin::flags::ShmLockMode;
use sqlite_plugin::vars;
use sqlite_plugin::vfs::VfsResult;

const LOCK_COUNT: usize = 8;
/// SQLite asks for regions of this size and no other.
const REGION_BYTES: usize = 32 * 1024;
const REGION_WORDS: usize = REGION_BYTES / size_of::<AtomicU64>();

/// Atomics, because SQLite writes to them from several threads through the pointers it was given.
type Region = Arc<[AtomicU64; REGION_WORDS]>;

#[derive(Debug, Default)]
pub(crate) struct Shm {
    regions: Vec<Region>,
    users: BTreeSet<u64>,
    locks: [ShmLock; LOCK_COUNT],
}

#[derive(Debug, Default)]
struct ShmLock {
    shared: BTreeSet<u64>,
    exclusive: Option<u64>,
}

impl Shm {
    /// The region stays where it is until the last user has left.
    #[expect(
        clippy::large_stack_arrays,
        reason = "built one by one on the heap, regions are the dearest part of a crash"
    )]
    pub(crate) fn map(
        &mut self,
        user: u64,
        index: usize,
        region_bytes: usize,
        extend: bool,
    ) -> VfsResult<Option<NonNull<u8>>> {
        if region_bytes != REGION_BYTES {
            return Err(vars::SQLITE_IOERR_SHMSIZE);
        }
        self.users.insert(user);
        if index >= self.regions.len() && !extend {
            return Ok(None);
        }
        while self.regions.len() <= index {
            self.regions
                .push(Arc::new([const { AtomicU64::new(0) }; REGION_WORDS]));
        }
        let region = self.regions[index].as_ptr();
        Ok(NonNull::new(region.cast_mut().cast::<u8>()))
    }

    pub(crate) fn unmap(&mut self, user: u64) {
        self.users.remove(&user);
        for lock in &mut self.locks {
            lock.shared.remove(&user);
            if lock.exclusive == Some(user) {
                lock.exclusive = None;
            }
        }
        if self.users.is_empty() {
            self.regions.clear();
        }
    }

    pub(crate) fn lock(
        &mut self,
        user: u64,
        first: usize,
        count: usize,
        mode: ShmLockMode,
    ) -> VfsResult<()> {
        let locks = self
            .locks
            .get_mut(first..first.saturating_add(count))
            .ok_or(vars::SQLITE_IOERR_SHMLOCK)?;
        let free = locks.iter().all(|lock| {
            let others_read = lock.shared.iter().any(|&reader| reader != user);
            let other_writes = lock.exclusive.is_some_and(|writer| writer != user);
            match mode {
                ShmLockMode::LockShared => !other_writes,
                ShmLockMode::LockExclusive => !other_writes && !others_read,
                ShmLockMode::UnlockShared | ShmLockMode::UnlockExclusive => true,
            }
        });
        if !free {
            return Err(vars::SQLITE_BUSY);
        }
        for lock in locks {
            match mode {
                ShmLockMode::LockShared => {
                    lock.shared.insert(user);
                }
                ShmLockMode::LockExclusive => lock.exclusive = Some(user),
                ShmLockMode::UnlockShared => {
                    lock.shared.remove(&user);
                }
                ShmLockMode::UnlockExclusive => lock.exclusive = None,
            }
        }
        Ok(())
    }
}
