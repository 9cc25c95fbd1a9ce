//! Walks the log of a run and says, at any index, what the disk would hold after a power cut there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::damage::{Damage, survivors};
use super::disk::{CrashDisk, Device};
use super::inode::Inode;
use super::op::{Op, What};
use super::rng::Rng;

/// Names and contents of the files of a disk.
pub(crate) type Files = BTreeMap<Arc<str>, Vec<u8>>;

/// A position in the log of a run. It only moves forward.
pub struct Replay {
    device: Device,
    ops: Vec<Op>,
    done: usize,
    inodes: Vec<Inode>,
    synced_names: BTreeMap<Arc<str>, usize>,
    /// Names given and taken since the folder was last synced.
    renamed: Vec<(Arc<str>, Option<usize>)>,
}

impl Replay {
    pub(crate) fn new(device: Device, start: &Files, ops: Vec<Op>) -> Replay {
        let mut replay = Replay {
            device,
            ops,
            done: 0,
            inodes: Vec::new(),
            synced_names: BTreeMap::new(),
            renamed: Vec::new(),
        };
        for (inode, (path, bytes)) in start.iter().enumerate() {
            replay.synced_names.insert(Arc::clone(path), inode);
            replay.inodes.push(Inode::with_bytes(bytes));
        }
        replay
    }

    /// The number of entries in the log; a power cut at this index is one after the end of the run.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Goes on until `index` operations are done. The one with that index is not.
    pub fn advance_to(&mut self, index: usize) {
        while self.done < index.min(self.ops.len()) {
            let op = self.ops[self.done].clone();
            self.done += 1;
            self.apply(op);
        }
    }

    /// Texts of the markers that were set so far.
    pub fn markers(&self) -> impl Iterator<Item = &str> {
        self.ops[..self.done].iter().filter_map(Op::as_marker)
    }

    /// The disk after a power cut here.
    pub fn image(&self, damage: Damage, seed: u64) -> CrashDisk {
        let mut rng = Rng::new(seed ^ (self.done as u64) << 20);
        let mut files = Files::new();
        for (path, inode) in self.names(damage, &mut rng) {
            let file = &self.inodes[inode];
            let last = self.done.checked_sub(1).map(|at| &self.ops[at]);
            let holds_last = last.is_some_and(|op| op.inode == inode);
            let bytes = survivors(
                damage,
                self.device,
                &mut rng,
                file.synced(),
                &file.unsynced(),
                holds_last,
            );
            files.insert(path, bytes);
        }
        CrashDisk::with_files(self.device, files)
    }

    fn names(&self, damage: Damage, rng: &mut Rng) -> BTreeMap<Arc<str>, usize> {
        let mut names = self.synced_names.clone();
        if damage == Damage::LoseUnsynced {
            return names;
        }
        let all = matches!(damage, Damage::KeepUnsynced | Damage::TearLastWrite);
        // What happened to one name happened in order; different names know no order.
        let mut behind = BTreeSet::new();
        for (path, inode) in &self.renamed {
            if !all && rng.coin() {
                behind.insert(path);
            }
            if !behind.contains(path) {
                rename(&mut names, path, *inode);
            }
        }
        names
    }

    fn apply(&mut self, op: Op) {
        match op.what {
            What::Create { durable } => {
                self.inodes.resize_with(op.inode + 1, Inode::default);
                self.renamed.push((Arc::clone(&op.path), Some(op.inode)));
                if durable {
                    self.synced_names.insert(op.path, op.inode);
                }
            }
            What::Write { offset, data } => self.inodes[op.inode].write(offset, &data),
            What::Truncate { size } => self.inodes[op.inode].truncate(size),
            What::Sync { names } => {
                self.inodes[op.inode].sync();
                if names {
                    for (path, inode) in self.renamed.drain(..) {
                        rename(&mut self.synced_names, &path, inode);
                    }
                }
            }
            What::FailedSync => self.inodes[op.inode].give_up(),
            What::DropCache => self.inodes[op.inode].drop_cache(),
            What::Delete => self.renamed.push((op.path, None)),
            What::Marker(_) => {}
        }
    }
}

fn rename(names: &mut BTreeMap<Arc<str>, usize>, path: &Arc<str>, inode: Option<usize>) {
    match inode {
        Some(inode) => names.insert(Arc::clone(path), inode),
        None => names.remove(path),
    };
}
