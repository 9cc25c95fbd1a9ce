//! What a crash leaves of an in-memory disk: the unsynced, lost, kept, torn, holed or reordered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a crash leaves of the unsynced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crash {
    /// The process died, the machine did not: all of it.
    Process,
    /// Nothing.
    LoseAll,
    /// All names, no data.
    LoseData,
    /// All data, no names.
    LoseNames,
    /// All, but the last append ends after this many bytes.
    CutLastAppend(usize),
    /// All, but this sector (of 512 or 4096 bytes) of the last append is as it was before: zeros where there was none.
    Hole { sector_bytes: u64, index: u64 },
    /// Each write and each name by a draw of its own: kept, lost, or cut at a sector.
    Random(u64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    pub(super) data: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Offset, bytes, and whether the file was emptied first.
    pub(super) pending: Vec<(u64, Vec<u8>, bool)>,
    pub(super) is_dir: bool,
    pub(super) is_lock: bool,
}

#[derive(Debug, Clone)]
pub(super) enum NameOp {
    Link(PathBuf, usize),
    Rename(PathBuf, PathBuf, usize),
    Unlink(PathBuf),
}

pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).checked_rem(bound).unwrap_or(0)
    }
}

pub(super) fn content(inode: &Inode, is_last: bool, how: &Crash, draw: &mut Draw) -> Vec<u8> {
    let mut data = inode.durable.clone();
    let count = inode.pending.len();
    for (index, (offset, bytes, truncates)) in inode.pending.iter().enumerate() {
        let is_last_write = is_last && index + 1 == count;
        let mut bytes = bytes.clone();
        match how {
            Crash::LoseAll | Crash::LoseData => continue,
            Crash::CutLastAppend(at) if is_last_write => bytes.truncate(*at),
            Crash::Hole {
                sector_bytes,
                index,
            } if is_last_write => {
                punch(&mut bytes, *offset, *sector_bytes, *index, &data);
            }
            Crash::Random(_) => match draw.below(4) {
                0 => continue,
                1 => {
                    let keep = usize::try_from(draw.below(bytes.len() as u64 + 1)).unwrap_or(0);
                    bytes.truncate(keep);
                }
                2 => {
                    let sectors = (bytes.len() as u64).div_ceil(512) + 1;
                    punch(&mut bytes, *offset, 512, draw.below(sectors), &data);
                }
                _ => {}
            },
            _ => {}
        }
        put(&mut data, *offset, &bytes, *truncates);
    }
    data
}

/// Takes one sector of a write back, aligned as the file is.
fn punch(bytes: &mut [u8], offset: u64, sector_bytes: u64, index: u64, before: &[u8]) {
    let first = offset / sector_bytes + index;
    let from = (first * sector_bytes).saturating_sub(offset);
    let to = ((first + 1) * sector_bytes).saturating_sub(offset);
    let clip = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    let (from, to) = (clip(from), clip(to));
    let base = usize::try_from(offset).unwrap_or(usize::MAX);
    for (at, byte) in bytes[from..to].iter_mut().enumerate() {
        *byte = before.get(base + from + at).copied().unwrap_or(0);
    }
}

pub(super) fn put(data: &mut Vec<u8>, offset: u64, bytes: &[u8], truncates: bool) {
    let offset = usize::try_from(offset).unwrap_or(0);
    if truncates {
        data.clear();
    }
    if bytes.is_empty() {
        return;
    }
    if data.len() < offset + bytes.len() {
        data.resize(offset + bytes.len(), 0);
    }
    data[offset..offset + bytes.len()].copy_from_slice(bytes);
}

pub(super) fn apply(names: &mut BTreeMap<PathBuf, usize>, op: &NameOp) {
    match op {
        NameOp::Link(path, ino) => {
            names.insert(path.clone(), *ino);
        }
        NameOp::Rename(from, to, ino) => {
            names.remove(from);
            names.insert(to.clone(), *ino);
        }
        NameOp::Unlink(path) => {
            names.remove(path);
        }
    }
}

pub(super) fn concerns(op: &NameOp, dir: &Path) -> bool {
    match op {
        NameOp::Link(path, _) | NameOp::Unlink(path) => path.parent() == Some(dir),
        NameOp::Rename(from, to, _) => from.parent() == Some(dir) || to.parent() == Some(dir),
    }
}
