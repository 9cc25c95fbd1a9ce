//! Who uses which hash right now: a blob that is about to be named is never taken away.
//!
//! A share holds its hash from before the rename until its transaction has run; the sweep takes the
//! right to remove a hash, and gets it only while nobody holds it. Both are values: dropping one, on
//! whatever path, gives it back. One process owns the folder, so memory is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use heddle_core::file::ContentHash;

use super::beneath::lock;

#[derive(Debug, Default, Clone)]
pub(super) struct Holds {
    desk: Arc<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    table: Mutex<Table>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    held: BTreeMap<ContentHash, usize>,
    removing: BTreeSet<ContentHash>,
}

/// Keeps a blob from being taken away.
#[derive(Debug)]
pub struct Hold {
    hash: ContentHash,
    desk: Arc<Desk>,
}

/// The right to take a blob away.
#[derive(Debug)]
pub(crate) struct Removing {
    hash: ContentHash,
    desk: Arc<Desk>,
}

impl Holds {
    /// Waits while the blob is just being taken away, which is short.
    pub(super) fn hold(&self, hash: ContentHash) -> Hold {
        let mut table = lock(&self.desk.table);
        while table.removing.contains(&hash) {
            let waited = self.desk.freed.wait(table);
            table = waited.unwrap_or_else(PoisonError::into_inner);
        }
        *table.held.entry(hash).or_default() += 1;
        Hold {
            hash,
            desk: Arc::clone(&self.desk),
        }
    }

    pub(super) fn try_remove(&self, hash: ContentHash) -> Option<Removing> {
        let mut table = lock(&self.desk.table);
        if table.held.contains_key(&hash) || !table.removing.insert(hash) {
            return None;
        }
        Some(Removing {
            hash,
            desk: Arc::clone(&self.desk),
        })
    }
}

impl Removing {
    pub(crate) fn hash(&self) -> ContentHash {
        self.hash
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = lock(&self.desk.table);
        if let Some(count) = table.held.get_mut(&self.hash) {
            *count -= 1;
            if *count == 0 {
                table.held.remove(&self.hash);
            }
        }
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        lock(&self.desk.table).removing.remove(&self.hash);
        self.desk.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c22_what_is_held_is_not_removed_and_what_is_being_removed_is_waited_for() {
        let holds = Holds::default();
        let (a, b) = (ContentHash::of(b"a"), ContentHash::of(b"b"));
        let (first, second) = (holds.hold(a), holds.hold(a));
        assert!(holds.try_remove(a).is_none());
        assert!(holds.try_remove(b).is_some());
        drop(first);
        assert!(holds.try_remove(a).is_none());
        drop(second);
        let removing = holds.try_remove(a).unwrap();
        assert!(holds.try_remove(a).is_none(), "one at a time");
        let waiting = holds.clone();
        let sharer = std::thread::spawn(move || drop(waiting.hold(a)));
        drop(removing);
        sharer.join().unwrap();
        assert!(lock(&holds.desk.table).held.is_empty());
    }
}
