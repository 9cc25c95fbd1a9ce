//! A disk in memory that knows what was synced: the power can be cut after every operation.
//!
//! It is harsher than a disk: what was not synced may be lost, kept, torn, holed or reordered, per write
//! and per name, as the test says. Deterministic.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::image::{Crash, Draw, Inode, NameOp, apply, concerns, content, put};
use super::memory_files::{MemAppender, MemLock, MemReader, MemRoom};
use super::{Appender, Disk, Entry, LockGuard, Reader};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    Create,
    Append,
    Write,
    WriteAt,
    Sync,
    SyncDir,
    Rename,
    Remove,
    CreateDir,
}

/// What the disk does wrong, once, at the operation of that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The machine stops: this operation and all later ones fail.
    Stop,
    /// An append takes this many bytes and no more.
    Short(usize),
    /// The operation fails; a failed sync forgets what it should have synced.
    Error(io::ErrorKind),
}

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    name_ops: Vec<NameOp>,
    pub(super) last_append: Option<usize>,
    pub(super) locked: BTreeSet<PathBuf>,
    ops: u64,
    faults: BTreeMap<u64, Fault>,
    is_stopped: bool,
    fails_syncs: bool,
    trace: Option<Vec<(Op, PathBuf)>>,
    network: Option<&'static str>,
}

#[derive(Debug, Clone, Default)]
pub struct MemDisk(Arc<Mutex<State>>);

impl MemDisk {
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operations that changed something so far.
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    pub fn fault_at(&self, op: u64, fault: Fault) {
        self.state().faults.insert(op, fault);
    }

    /// From now on every sync fails, or none.
    pub fn fail_syncs(&self, fails: bool) {
        self.state().fails_syncs = fails;
    }

    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// From now on it says that it lies on this kind of network.
    pub fn lie_on(&self, network: &'static str) {
        self.state().network = Some(network);
    }

    pub fn start_trace(&self) {
        self.state().trace = Some(Vec::new());
    }

    pub fn take_trace(&self) -> Vec<(Op, PathBuf)> {
        self.state().trace.take().unwrap_or_default()
    }

    /// How long the last append was that is not yet synced.
    pub fn last_append_bytes(&self) -> usize {
        let state = self.state();
        let inode = state.last_append.map(|ino| &state.inodes[ino]);
        inode
            .and_then(|i| i.pending.last())
            .map_or(0, |w| w.1.len())
    }

    /// A copy that shares nothing, as it is now: names, data, what is synced and what is not.
    #[must_use]
    pub fn fork(&self) -> Self {
        let mut state = self.state().clone();
        state.locked.clear();
        state.faults.clear();
        state.is_stopped = false;
        Self(Arc::new(Mutex::new(state)))
    }

    /// The disk that a machine finds after the crash.
    #[must_use]
    pub fn crash(&self, how: &Crash) -> Self {
        let before = self.state();
        let mut draw = Draw(match how {
            Crash::Random(seed) => *seed,
            _ => 0,
        });
        let mut names = match how {
            Crash::Process | Crash::LoseData | Crash::CutLastAppend(_) | Crash::Hole { .. } => {
                before.names.clone()
            }
            _ => before.durable_names.clone(),
        };
        if let Crash::Random(_) = how {
            for op in &before.name_ops {
                if draw.below(2) == 0 {
                    apply(&mut names, op);
                }
            }
        }
        // A file whose folder was lost is lost.
        let kept = names.clone();
        names.retain(|path, _| {
            path.parent().is_none_or(|p| {
                p.as_os_str().is_empty() || p == Path::new("/") || kept.contains_key(p)
            })
        });
        let mut after = State {
            names: names.clone(),
            durable_names: names,
            ..State::default()
        };
        for (ino, inode) in before.inodes.iter().enumerate() {
            let is_last = before.last_append == Some(ino);
            let data = content(inode, is_last, how, &mut draw);
            after.inodes.push(Inode {
                durable: data.clone(),
                data,
                pending: Vec::new(),
                is_dir: inode.is_dir,
                is_lock: inode.is_lock,
            });
        }
        Self(Arc::new(Mutex::new(after)))
    }

    /// Changes bytes behind everybody's back: bit rot, a stale copy, an edit by hand.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut state = self.state();
        let Some(ino) = state.names.get(path).copied() else {
            return false;
        };
        let inode = &mut state.inodes[ino];
        change(&mut inode.data);
        inode.durable = inode.data.clone();
        inode.pending.clear();
        true
    }

    /// Every file with its bytes, but for locks.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state();
        let files = state
            .names
            .iter()
            .map(|(path, ino)| (path, &state.inodes[*ino]));
        files
            .filter(|(_, inode)| !inode.is_dir && !inode.is_lock)
            .map(|(path, inode)| (path.clone(), inode.data.clone()))
            .collect()
    }
}

impl State {
    /// Counts an operation; a fault may end it here. An append may be told to be short.
    pub(super) fn step(&mut self, op: Op, path: &Path) -> io::Result<Option<usize>> {
        if self.is_stopped {
            return Err(io::Error::other("the machine has stopped"));
        }
        self.ops += 1;
        if let Some(trace) = &mut self.trace {
            trace.push((op, path.to_owned()));
        }
        let is_sync = matches!(op, Op::Sync | Op::SyncDir);
        let forever = Fault::Error(io::ErrorKind::Other);
        let fault = (self.fails_syncs && is_sync).then_some(forever);
        match self.faults.remove(&self.ops).or(fault) {
            Some(Fault::Short(bytes)) if op == Op::Append => Ok(Some(bytes)),
            None | Some(Fault::Short(_)) => Ok(None),
            Some(Fault::Error(kind)) => {
                if op == Op::Sync
                    && let Some(ino) = self.names.get(path).copied()
                {
                    // The dirty pages are marked clean and never written: a later sync confirms nothing.
                    self.inodes[ino].pending.clear();
                }
                Err(io::Error::from(kind))
            }
            Some(Fault::Stop) => {
                self.is_stopped = true;
                Err(io::Error::other("the machine stops"))
            }
        }
    }

    pub(super) fn piece(&self, ino: usize, offset: u64, bytes: usize) -> Vec<u8> {
        let data = &self.inodes[ino].data;
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(data.len());
        let to = from.saturating_add(bytes).min(data.len());
        data[from..to].to_vec()
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let found = self.names.get(path).copied();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn parent_exists(&self, path: &Path) -> io::Result<()> {
        path.parent()
            .map_or(Ok(()), |parent| self.find(parent).map(drop))
    }

    fn link(&mut self, path: &Path, is_dir: bool) -> usize {
        let ino = self.inodes.len();
        self.inodes.push(Inode {
            is_dir,
            ..Inode::default()
        });
        let op = NameOp::Link(path.to_owned(), ino);
        apply(&mut self.names, &op);
        self.name_ops.push(op);
        ino
    }

    /// The text of a lock is no operation of its own: nothing waits for it, and a power cut may take it.
    pub(super) fn sign(&mut self, path: &Path, text: &[u8]) {
        if self.is_stopped || self.parent_exists(path).is_err() {
            return;
        }
        let ino = match self.names.get(path).copied() {
            Some(ino) => ino,
            None => self.link(path, false),
        };
        self.inodes[ino].is_lock = true;
        if self.inodes[ino].data != text {
            self.store(ino, 0, text, true);
        }
    }

    pub(super) fn signed(&self, path: &Path) -> Vec<u8> {
        let ino = self.names.get(path);
        ino.map_or(Vec::new(), |ino| self.inodes[*ino].data.clone())
    }

    pub(super) fn store(&mut self, ino: usize, offset: u64, bytes: &[u8], truncates: bool) {
        let inode = &mut self.inodes[ino];
        put(&mut inode.data, offset, bytes, truncates);
        inode.pending.push((offset, bytes.to_vec(), truncates));
    }

    pub(super) fn settle(&mut self, ino: usize) {
        let inode = &mut self.inodes[ino];
        for (offset, bytes, truncates) in inode.pending.drain(..) {
            put(&mut inode.durable, offset, &bytes, truncates);
        }
    }
}

impl Disk for MemDisk {
    fn network_name(&self, _: &Path) -> Option<&'static str> {
        self.state().network
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state();
        let inside = state
            .names
            .iter()
            .filter(|(path, _)| path.parent() == Some(dir));
        let entries = inside.filter_map(|(path, ino)| {
            Some(Entry {
                name: path.file_name()?.to_str()?.to_owned(),
                is_dir: state.inodes[*ino].is_dir,
            })
        });
        Ok(entries.collect())
    }

    fn len(&self, path: &Path) -> io::Result<Option<u64>> {
        let state = self.state();
        let ino = state.names.get(path);
        Ok(ino.map(|ino| state.inodes[*ino].data.len() as u64))
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let state = self.state();
        let data = &state.inodes[state.find(path)?].data;
        if data.len() as u64 > limit {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(data.clone())
    }

    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let state = self.state();
        let ino = state.find(path)?;
        Ok(state.piece(ino, offset, bytes))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let mut missing = Vec::new();
        for dir in path.ancestors() {
            if dir.as_os_str().is_empty() || dir == Path::new("/") || state.names.contains_key(dir)
            {
                break;
            }
            missing.push(dir.to_owned());
        }
        for dir in missing.into_iter().rev() {
            state.step(Op::CreateDir, &dir)?;
            state.link(&dir, true);
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::Create, path)?;
        state.parent_exists(path)?;
        if state.names.contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        state.link(path, false);
        Ok(())
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn Appender>> {
        let ino = self.state().find(path)?;
        Ok(Box::new(MemAppender {
            disk: self.clone(),
            path: path.to_owned(),
            ino,
        }))
    }

    fn open_room(&self, path: &Path, at: u64) -> io::Result<Box<dyn Appender>> {
        let mut state = self.state();
        let ino = state.find(path)?;
        if !state.locked.insert(path.to_owned()) {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        Ok(Box::new(MemRoom {
            lock: MemLock {
                disk: self.clone(),
                path: path.to_owned(),
            },
            ino,
            at,
        }))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn Reader>> {
        let ino = self.state().find(path)?;
        let disk = self.clone();
        Ok(Box::new(MemReader { disk, ino }))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::Write, path)?;
        state.parent_exists(path)?;
        let ino = match state.names.get(path).copied() {
            Some(ino) => ino,
            None => state.link(path, false),
        };
        state.store(ino, 0, bytes, true);
        Ok(())
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::Write, path)?;
        state.parent_exists(path)?;
        if state.names.contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let ino = state.link(path, false);
        state.store(ino, 0, bytes, false);
        Ok(())
    }

    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::WriteAt, path)?;
        let ino = state.find(path)?;
        state.store(ino, offset, bytes, false);
        Ok(())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::Sync, path)?;
        let ino = state.find(path)?;
        state.settle(ino);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::SyncDir, path)?;
        let state = &mut *state;
        let ops = std::mem::take(&mut state.name_ops);
        for op in ops {
            if concerns(&op, path) {
                apply(&mut state.durable_names, &op);
            } else {
                state.name_ops.push(op);
            }
        }
        Ok(())
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::SyncDir, path)?;
        for ino in 0..state.inodes.len() {
            state.settle(ino);
        }
        state.durable_names = state.names.clone();
        state.name_ops.clear();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::Rename, to)?;
        state.parent_exists(to)?;
        let ino = state.find(from)?;
        let op = NameOp::Rename(from.to_owned(), to.to_owned(), ino);
        apply(&mut state.names, &op);
        state.name_ops.push(op);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Op::Remove, path)?;
        state.find(path)?;
        let op = NameOp::Unlink(path.to_owned());
        apply(&mut state.names, &op);
        state.name_ops.push(op);
        Ok(())
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        let mut state = self.state();
        if state.is_stopped {
            return Err(io::Error::other("the machine has stopped"));
        }
        if !state.locked.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemLock {
            disk: self.clone(),
            path: path.to_owned(),
        })))
    }
}
