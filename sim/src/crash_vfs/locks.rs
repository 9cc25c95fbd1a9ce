//! SQLite's five lock levels on one file, between the connections of this process.

use std::collections::BTreeSet;

use sqlite_plugin::flags::LockLevel;
use sqlite_plugin::vars;
use sqlite_plugin::vfs::VfsResult;

/// Who holds what; holders are handle numbers.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    shared: BTreeSet<u64>,
    reserved: Option<u64>,
    pending: Option<u64>,
    exclusive: Option<u64>,
}

impl FileLocks {
    pub(crate) fn lock(&mut self, holder: u64, level: LockLevel) -> VfsResult<()> {
        let other = |lock: Option<u64>| lock.is_some_and(|held| held != holder);
        match level {
            LockLevel::Unlocked => {}
            LockLevel::Shared => {
                if other(self.pending) || other(self.exclusive) {
                    return Err(vars::SQLITE_BUSY);
                }
                self.shared.insert(holder);
            }
            LockLevel::Reserved => {
                if other(self.reserved) || other(self.pending) || other(self.exclusive) {
                    return Err(vars::SQLITE_BUSY);
                }
                self.reserved = Some(holder);
            }
            LockLevel::Pending | LockLevel::Exclusive => {
                if other(self.reserved) || other(self.pending) || other(self.exclusive) {
                    return Err(vars::SQLITE_BUSY);
                }
                // Kept even if readers are in the way: no new reader gets in, and those inside leave.
                self.pending = Some(holder);
                if self.shared.iter().any(|&reader| reader != holder) {
                    return Err(vars::SQLITE_BUSY);
                }
                if level == LockLevel::Exclusive {
                    self.exclusive = Some(holder);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn unlock(&mut self, holder: u64, level: LockLevel) {
        for lock in [&mut self.reserved, &mut self.pending, &mut self.exclusive] {
            if *lock == Some(holder) {
                *lock = None;
            }
        }
        if level == LockLevel::Unlocked {
            self.shared.remove(&holder);
        }
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.is_some() || self.pending.is_some() || self.exclusive.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::FileLocks;
    use sqlite_plugin::flags::LockLevel;

    #[test]
    fn two_connections_never_hold_what_excludes_each_other() {
        let mut locks = FileLocks::default();
        assert!(locks.lock(1, LockLevel::Shared).is_ok());
        assert!(locks.lock(2, LockLevel::Shared).is_ok());
        assert!(locks.lock(1, LockLevel::Reserved).is_ok());
        assert!(locks.lock(2, LockLevel::Reserved).is_err());
        assert!(locks.lock(1, LockLevel::Exclusive).is_err());
        assert!(locks.lock(3, LockLevel::Shared).is_err());
        locks.unlock(2, LockLevel::Unlocked);
        assert!(locks.lock(1, LockLevel::Exclusive).is_ok());
        assert!(locks.lock(2, LockLevel::Shared).is_err());
        locks.unlock(1, LockLevel::Unlocked);
        assert!(!locks.is_reserved());
        assert!(locks.lock(2, LockLevel::Shared).is_ok());
    }
}
