//! One file as the disk has it and as the system's cache shows it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::damage::{Change, put};

/// The pages in which a system caches files.
const PAGE_BYTES: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    /// What survives every power cut.
    synced: Vec<u8>,
    /// What a read returns.
    cached: Vec<u8>,
    /// What the next sync makes durable.
    changes: Vec<Change>,
    /// What a failed sync gave up. It may be on the disk; no later sync brings it there.
    given_up: Vec<Change>,
    given_up_pages: BTreeSet<usize>,
}

impl Inode {
    pub(crate) fn with_bytes(bytes: &[u8]) -> Inode {
        Inode {
            synced: bytes.to_vec(),
            cached: bytes.to_vec(),
            ..Inode::default()
        }
    }

    pub(crate) fn cached(&self) -> &[u8] {
        &self.cached
    }

    pub(crate) fn synced(&self) -> &[u8] {
        &self.synced
    }

    /// All changes that may or may not be on the disk, oldest first.
    pub(crate) fn unsynced(&self) -> Vec<&Change> {
        self.given_up.iter().chain(&self.changes).collect()
    }

    pub(crate) fn write(&mut self, offset: usize, data: &Arc<[u8]>) {
        put(&mut self.cached, offset, data);
        let (mut first, mut end) = (offset, offset + data.len());
        let touched = first / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let stale: Vec<usize> = self.given_up_pages.range(touched).copied().collect();
        for page in stale {
            // The write makes the whole cached page dirty again, with what had been given up in it.
            self.given_up_pages.remove(&page);
            first = first.min(page * PAGE_BYTES);
            end = end.max(((page + 1) * PAGE_BYTES).min(self.cached.len()));
        }
        let data = if end - first == data.len() {
            Arc::clone(data)
        } else {
            Arc::from(&self.cached[first..end])
        };
        self.changes.push(Change::Write {
            offset: first,
            data,
        });
    }

    pub(crate) fn truncate(&mut self, size: usize) {
        self.cached.truncate(size);
        self.given_up_pages.split_off(&size.div_ceil(PAGE_BYTES));
        self.changes.push(Change::Truncate { size });
    }

    pub(crate) fn sync(&mut self) {
        for change in self.changes.drain(..) {
            change.apply(&mut self.synced);
        }
        self.given_up.clear();
    }

    /// A sync failed: its pages stay readable and count as clean.
    pub(crate) fn give_up(&mut self) {
        for change in &self.changes {
            if let Change::Write { offset, data } = change {
                let end = (offset + data.len()).div_ceil(PAGE_BYTES);
                self.given_up_pages.extend(offset / PAGE_BYTES..end);
            }
        }
        self.given_up.append(&mut self.changes);
    }

    /// Clean pages leave the cache, and reads see what is on the disk. Of what had been given up that is
    /// nothing: the worst case, and from now on the only one.
    pub(crate) fn drop_cache(&mut self) {
        for page in std::mem::take(&mut self.given_up_pages) {
            let first = page * PAGE_BYTES;
            let end = (first + PAGE_BYTES).min(self.cached.len());
            let on_disk = self.synced.get(first..).unwrap_or_default();
            let kept = on_disk.len().min(end.saturating_sub(first));
            if let Some(cached) = self.cached.get_mut(first..end) {
                cached[..kept].copy_from_slice(&on_disk[..kept]);
                cached[kept..].fill(0);
            }
        }
        self.given_up.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Inode;
    use std::sync::Arc;

    fn write(file: &mut Inode, offset: usize, byte: u8, length: usize) {
        file.write(offset, &Arc::from(vec![byte; length]));
    }

    #[test]
    fn a_later_sync_does_not_bring_back_what_a_failed_one_gave_up() {
        let mut file = Inode::default();
        write(&mut file, 0, 1, 4096);
        file.sync();
        write(&mut file, 4096, 2, 8192);
        file.give_up();
        write(&mut file, 12_288, 3, 4096);
        file.sync();
        assert_eq!(file.cached()[4096..12_288], [2; 8192]);
        assert_eq!(file.synced()[4096..12_288], [0; 8192]);
        assert_eq!(file.synced()[12_288..], [3; 4096]);
        file.drop_cache();
        assert_eq!(file.cached(), file.synced());
    }

    #[test]
    fn a_page_that_is_written_again_takes_its_given_up_bytes_along() {
        let mut file = Inode::default();
        write(&mut file, 0, 1, 4096);
        file.give_up();
        write(&mut file, 100, 2, 1);
        file.sync();
        assert_eq!(file.synced(), file.cached());
        assert_eq!(file.synced()[99..102], [1, 2, 1]);
    }
}
