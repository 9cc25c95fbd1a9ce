//! The revision index: `(item type, item id) → head`, one file of fixed slots, constant time at any size.
//!
//! A cache beside the projections (C43). A slot whose checksum is wrong says so; it is never believed. One that is free says that
//! too, and which one it is: a page that came back as zeros is damage, not room.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::disk::{Disk, Reader, replace};
use crate::error::{At, JournalError};
use crate::reduce::Head;

const MAGIC: &[u8; 8] = b"HDLREV02";
/// Its free slots are zeros. It is read, and the first write makes a new one of it.
const MAGIC_OLD: &[u8; 8] = b"HDLREV01";
/// What a free slot is filled with before its number.
const FREE: u8 = 0xF5;
const SLOT_BYTES: usize = 48;
const SLOT_BYTES_U64: u64 = SLOT_BYTES as u64;
const KEY_BYTES: usize = 16;
const CAPACITY_MIN: u64 = 64;
const CAPACITY_MAX: u64 = 1 << 28;
/// Slots read at once while probing.
const PROBE_SLOTS: u64 = 8;
/// A question by itself costs a call, as much as reading so many bytes.
const HOLD_BYTES_EACH: usize = 2 << 10;
const DELETED: u32 = 1;
const DIVERGENT: u32 = 2;
const UNPROVEN: u32 = 4;

const _: () = assert!(KEY_BYTES + 8 + 8 + 4 + 4 + 4 + 4 == SLOT_BYTES);

type Key = [u8; KEY_BYTES];

/// A head as the index keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub head: Head,
    /// Its newest payload could not be read; the projection stayed where it was (JN-34).
    pub is_divergent: bool,
    /// CRC-32C of the document that was projected, without its ephemeral fields; 0: not known.
    pub document: u32,
    /// Its file was not compared since this was taken from the journal: nobody reads it. The two before speak of the
    /// file as an index before this one knew it.
    pub is_unproven: bool,
}

impl Kept {
    /// Nothing is known of its file.
    pub fn of(head: Head) -> Self {
        Self {
            head,
            is_divergent: false,
            document: 0,
            is_unproven: false,
        }
    }

    /// As the journal has it, with what an older index knew of its file; one that was ahead stays (never regress).
    fn unproven(head: Head, before: Option<Self>) -> Self {
        match before {
            Some(kept) if kept.head.rev > head.rev => kept,
            before => Self {
                head,
                is_divergent: before.is_none_or(|kept| kept.is_divergent),
                document: before.map_or(0, |kept| kept.document),
                is_unproven: true,
            },
        }
    }
}

#[derive(Debug)]
pub struct Revisions<'d> {
    disk: &'d dyn Disk,
    path: PathBuf,
    file: Box<dyn Reader>,
    capacity: u64,
    count: u64,
    /// All of it, where many are asked for; what is put goes to the file alone, and ends it.
    held: Option<Vec<u8>>,
    /// A file that takes its place is synced first.
    is_lasting: bool,
    /// Of [`MAGIC_OLD`].
    is_old: bool,
    /// The newest record that was ever put into it, by its header: an older copy of this file has an older one.
    newest: u64,
}

fn key(item_type: &str, item_id: &str) -> Key {
    let mut hash = Sha256::new();
    hash.update(item_type.as_bytes());
    hash.update([0]);
    hash.update(item_id.as_bytes());
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&hash.finalize()[..KEY_BYTES]);
    // A key of zeros would be an empty slot.
    key[KEY_BYTES - 1] |= 1;
    key
}

fn home(key: &Key, capacity: u64) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&key[..8]);
    u64::from_le_bytes(first) & (capacity - 1)
}

fn encode(key: &Key, kept: &Kept) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..16].copy_from_slice(key);
    slot[16..24].copy_from_slice(&kept.head.rev.to_le_bytes());
    slot[24..32].copy_from_slice(&kept.head.seq.to_le_bytes());
    slot[32..36].copy_from_slice(&kept.head.crc.to_le_bytes());
    let deleted = if kept.head.is_deleted { DELETED } else { 0 };
    let divergent = if kept.is_divergent { DIVERGENT } else { 0 };
    let unproven = if kept.is_unproven { UNPROVEN } else { 0 };
    slot[36..40].copy_from_slice(&(deleted | divergent | unproven).to_le_bytes());
    slot[40..44].copy_from_slice(&kept.document.to_le_bytes());
    let crc = crc32c::crc32c(&slot[..44]);
    slot[44..].copy_from_slice(&crc.to_le_bytes());
    slot
}

/// A free slot.
fn free(at: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [FREE; SLOT_BYTES];
    slot[SLOT_BYTES - 8..].copy_from_slice(&at.to_le_bytes());
    slot
}

enum Slot {
    Empty,
    Full(Key, Kept),
    Bad,
}

fn decode(slot: &[u8], at: u64, is_old: bool) -> Slot {
    if slot.len() != SLOT_BYTES {
        return Slot::Bad;
    }
    let is_free = if is_old {
        slot.iter().all(|b| *b == 0)
    } else {
        slot[0] == FREE && slot == free(at)
    };
    if is_free {
        return Slot::Empty;
    }
    if crc32c::crc32c(&slot[..44]) != word(&slot[44..48]) {
        return Slot::Bad;
    }
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&slot[..16]);
    let flags = word(&slot[36..40]);
    let kept = Kept {
        head: Head {
            rev: long(&slot[16..24]),
            seq: long(&slot[24..32]),
            crc: word(&slot[32..36]),
            is_deleted: flags & DELETED != 0,
        },
        is_divergent: flags & DIVERGENT != 0,
        document: word(&slot[40..44]),
        is_unproven: flags & UNPROVEN != 0,
    };
    Slot::Full(key, kept)
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn long(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn header(capacity: u64, count: u64, newest: u64) -> [u8; SLOT_BYTES] {
    let mut header = [0; SLOT_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&capacity.to_le_bytes());
    header[16..24].copy_from_slice(&count.to_le_bytes());
    header[24..32].copy_from_slice(&newest.to_le_bytes());
    let crc = crc32c::crc32c(&header[..44]);
    header[44..].copy_from_slice(&crc.to_le_bytes());
    header
}

impl<'d> Revisions<'d> {
    /// None where there is none or where it cannot be believed: rebuild it.
    pub fn open(disk: &'d dyn Disk, path: &Path) -> Option<Self> {
        let file = disk.open_read(path).ok()?;
        let bytes = file.read_at(0, SLOT_BYTES).ok()?;
        let is_old = bytes.len() == SLOT_BYTES && &bytes[..8] == MAGIC_OLD;
        let is_ours = bytes.len() == SLOT_BYTES
            && (&bytes[..8] == MAGIC || is_old)
            && crc32c::crc32c(&bytes[..44]) == word(&bytes[44..48]);
        if !is_ours {
            return None;
        }
        let (capacity, count) = (long(&bytes[8..16]), long(&bytes[16..24]));
        let fits = capacity.is_power_of_two() && capacity <= CAPACITY_MAX && count < capacity;
        let length = file.length().ok()?;
        if !fits || length != (capacity + 1) * SLOT_BYTES_U64 {
            return None;
        }
        let index = Self {
            disk,
            path: path.to_owned(),
            file,
            capacity,
            count,
            held: None,
            is_lasting: false,
            is_old,
            newest: long(&bytes[24..32]),
        };
        // The slots of an old one do not tell of a lost page; its count does.
        let is_whole = |index: &Self| {
            let all = index.all();
            all.is_ok_and(|all| all.len() as u64 >= count)
        };
        (!is_old || is_whole(&index)).then_some(index)
    }

    /// From now on no power cut takes away what was there before the table grew.
    #[must_use]
    pub fn lasting(mut self) -> Self {
        self.is_lasting = true;
        self
    }

    /// A new index in place of whatever was there.
    pub fn build(
        disk: &'d dyn Disk,
        path: &Path,
        entries: &[(&str, &str, Kept)],
    ) -> Result<Self, JournalError> {
        let keyed = entries
            .iter()
            .map(|(t, id, kept)| (key(t, id), *kept))
            .collect();
        Self::lay_out(disk, path, keyed, false)
    }

    /// The same, on the disk when this returns.
    pub fn build_lasting(
        disk: &'d dyn Disk,
        path: &Path,
        entries: &[(&str, &str, Kept)],
    ) -> Result<Self, JournalError> {
        let keyed = entries
            .iter()
            .map(|(t, id, kept)| (key(t, id), *kept))
            .collect();
        Self::lay_out(disk, path, keyed, true)
    }

    /// The same, with what the old index knows beside and is worth keeping: an entity that the journal lost keeps its revision.
    pub fn build_over(
        disk: &'d dyn Disk,
        path: &Path,
        entries: &[(&str, &str, Kept)],
        old: Option<&Self>,
        is_worth: impl Fn(&Kept) -> bool,
    ) -> Result<Self, JournalError> {
        let mut keyed: Vec<(Key, Kept)> = entries
            .iter()
            .map(|(t, id, kept)| (key(t, id), *kept))
            .collect();
        // One that is damaged knows nothing for sure.
        if let Some(Ok(held)) = old
            .map(Self::all)
            .filter(|_| old.is_some_and(|old| old.count > 0))
        {
            let known: HashSet<Key> = keyed.iter().map(|(key, _)| *key).collect();
            let beside = |(key, kept): &(Key, Kept)| !known.contains(key) && is_worth(kept);
            keyed.extend(held.into_iter().filter(beside));
        }
        Self::lay_out(disk, path, keyed, false)
    }

    /// Every slot is sound: what it does not know was never projected.
    pub fn is_readable(&self) -> bool {
        self.count == 0 || self.all().is_ok()
    }

    /// What its header says; `meta.json` knows it too, and is written behind it.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The newest record that it knows: it is written behind them. 0 where that cannot be said.
    pub fn seq_max(&self) -> u64 {
        let limit = (CAPACITY_MAX + 1) * SLOT_BYTES_U64;
        let bytes = self.disk.read(&self.path, limit).unwrap_or_default();
        let seqs = self.slots(&bytes).filter_map(|slot| match slot {
            Slot::Full(_, kept) => Some(kept.head.seq),
            Slot::Empty | Slot::Bad => None,
        });
        seqs.max().unwrap_or(0)
    }

    /// Heads alone, their files not looked at; what the old index knows of these stays with them.
    pub fn build_unproven(
        disk: &'d dyn Disk,
        path: &Path,
        heads: &[(&str, &str, Head)],
        old: Option<&Self>,
    ) -> Result<Self, JournalError> {
        let held = old.filter(|old| old.count > 0).map(Self::all);
        // One that is damaged knows nothing for sure.
        let mut held: HashMap<Key, Kept> = match held {
            Some(Ok(held)) => held.into_iter().collect(),
            Some(Err(_)) | None => HashMap::new(),
        };
        let mut keyed = Vec::with_capacity(heads.len());
        for (item_type, item_id, head) in heads {
            let key = key(item_type, item_id);
            let before = held.remove(&key);
            keyed.push((key, Kept::unproven(*head, before)));
        }
        // An entity that the journal lost keeps its revision.
        keyed.extend(held);
        Self::lay_out(disk, path, keyed, false)
    }

    fn lay_out(
        disk: &'d dyn Disk,
        path: &Path,
        entries: Vec<(Key, Kept)>,
        is_lasting: bool,
    ) -> Result<Self, JournalError> {
        let count = entries.len() as u64;
        let capacity = (count * 4).next_power_of_two().max(CAPACITY_MIN);
        let slots = usize::try_from(capacity + 1).map_err(JournalError::refused)?;
        let mut bytes = vec![0; slots * SLOT_BYTES];
        let newest = entries.iter().map(|(_, kept)| kept.head.seq).max();
        let newest = newest.unwrap_or(0);
        bytes[..SLOT_BYTES].copy_from_slice(&header(capacity, count, newest));
        for (key, kept) in entries {
            let mut at = home(&key, capacity);
            loop {
                let from = usize::try_from(at + 1).unwrap_or(0) * SLOT_BYTES;
                let slot = &mut bytes[from..from + SLOT_BYTES];
                if slot.iter().all(|b| *b == 0) {
                    slot.copy_from_slice(&encode(&key, &kept));
                    break;
                }
                at = (at + 1) & (capacity - 1);
            }
        }
        for (at, slot) in (0..).zip(bytes[SLOT_BYTES..].chunks_mut(SLOT_BYTES)) {
            if slot.iter().all(|b| *b == 0) {
                slot.copy_from_slice(&free(at));
            }
        }
        replace(disk, path, &bytes, is_lasting).at(path)?;
        Ok(Self {
            disk,
            path: path.to_owned(),
            file: disk.open_read(path).at(path)?,
            capacity,
            count,
            held: None,
            is_lasting,
            is_old: false,
            newest,
        })
    }

    /// Err where a slot on the way is damaged.
    pub fn get(&self, item_type: &str, item_id: &str) -> Result<Option<Kept>, JournalError> {
        Ok(self.probe(&key(item_type, item_id))?.1)
    }

    /// The slot of a key, or the free one where it would go.
    fn probe(&self, wanted: &Key) -> Result<(u64, Option<Kept>), JournalError> {
        let mut at = home(wanted, self.capacity);
        let mut looked = 0;
        while looked < self.capacity {
            let run = PROBE_SLOTS.min(self.capacity - at);
            let wanted_bytes = usize::try_from(run).unwrap_or(1) * SLOT_BYTES;
            let offset = (at + 1) * SLOT_BYTES_U64;
            let bytes = match self.held_piece(offset, wanted_bytes) {
                Some(piece) => Cow::Borrowed(piece),
                None => Cow::Owned(self.file.read_at(offset, wanted_bytes).at(&self.path)?),
            };
            for slot in bytes.chunks(SLOT_BYTES) {
                match decode(slot, at, self.is_old) {
                    Slot::Empty => return Ok((at, None)),
                    Slot::Full(key, kept) if key == *wanted => return Ok((at, Some(kept))),
                    Slot::Full(..) => at = (at + 1) & (self.capacity - 1),
                    Slot::Bad => return Err(self.damaged()),
                }
                looked += 1;
            }
            if bytes.is_empty() {
                return Err(self.damaged());
            }
        }
        Err(self.damaged())
    }

    /// One read for many questions, where the file is not much longer than they are.
    pub fn hold(&mut self, questions: usize) {
        let bytes = (self.capacity + 1) * SLOT_BYTES_U64;
        let is_worth_it = bytes <= (questions * HOLD_BYTES_EACH) as u64;
        if is_worth_it && let Ok(length) = usize::try_from(bytes) {
            // What cannot be read so is read slot by slot, and says why.
            self.held = self.file.read_at(0, length).ok();
        }
    }

    fn held_piece(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset).ok()?;
        self.held.as_ref()?.get(from..from + bytes)
    }

    fn damaged(&self) -> JournalError {
        JournalError::Damaged {
            path: self.path.clone(),
            reason: "a slot's checksum is wrong".to_owned(),
        }
    }

    pub fn put(&mut self, item_type: &str, item_id: &str, kept: Kept) -> Result<(), JournalError> {
        let key = key(item_type, item_id);
        self.held = None;
        let (at, before) = self.probe(&key)?;
        let is_full = before.is_none() && (self.count + 1) * 2 > self.capacity;
        if is_full || self.is_old {
            let mut entries = self.all()?;
            entries.retain(|(held, _)| *held != key);
            entries.push((key, kept));
            *self = Self::lay_out(self.disk, &self.path, entries, self.is_lasting)?;
            return Ok(());
        }
        let offset = (at + 1) * SLOT_BYTES_U64;
        self.disk
            .write_at(&self.path, offset, &encode(&key, &kept))
            .at(&self.path)?;
        let newest = self.newest.max(kept.head.seq);
        if before.is_none() || newest > self.newest {
            self.count += u64::from(before.is_none());
            self.newest = newest;
            let header = header(self.capacity, self.count, newest);
            self.disk.write_at(&self.path, 0, &header).at(&self.path)?;
        }
        Ok(())
    }

    fn slots<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = Slot> + use<'b> {
        let is_old = self.is_old;
        let slots = bytes[SLOT_BYTES.min(bytes.len())..].chunks(SLOT_BYTES);
        let numbered = (0..).zip(slots);
        numbered.map(move |(at, slot)| decode(slot, at, is_old))
    }

    fn all(&self) -> Result<Vec<(Key, Kept)>, JournalError> {
        let limit = (CAPACITY_MAX + 1) * SLOT_BYTES_U64;
        let bytes = self.disk.read(&self.path, limit).at(&self.path)?;
        let mut entries = Vec::new();
        for slot in self.slots(&bytes) {
            match slot {
                Slot::Empty => {}
                Slot::Full(key, kept) => entries.push((key, kept)),
                Slot::Bad => return Err(self.damaged()),
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemDisk;

    fn kept(rev: u64) -> Kept {
        Kept {
            head: Head {
                rev,
                seq: rev * 10,
                crc: 7,
                is_deleted: rev.is_multiple_of(3),
            },
            is_divergent: rev.is_multiple_of(5),
            document: 11,
            is_unproven: rev.is_multiple_of(7),
        }
    }

    fn fresh(disk: &MemDisk) -> Revisions<'_> {
        disk.create_dir(Path::new("/e")).unwrap();
        Revisions::build(disk, Path::new("/e/r.idx"), &[]).unwrap()
    }

    #[test]
    fn what_is_put_is_found_through_every_growth() {
        let disk = MemDisk::new();
        let mut index = fresh(&disk);
        for rev in 1..=2000 {
            index.put("plan", &format!("p{rev}"), kept(rev)).unwrap();
        }
        for rev in 1..=2000 {
            index
                .put("plan", &format!("p{rev}"), kept(rev + 1))
                .unwrap();
        }
        let again = Revisions::open(&disk, Path::new("/e/r.idx")).unwrap();
        for rev in 1..=2000 {
            assert_eq!(
                again.get("plan", &format!("p{rev}")).unwrap(),
                Some(kept(rev + 1))
            );
        }
        assert_eq!(again.get("plan", "absent").unwrap(), None);
        assert_eq!(again.get("claim", "p1").unwrap(), None);
    }

    /// As a build before wrote it: free slots are zeros.
    fn age(disk: &MemDisk, path: &Path) {
        disk.tamper(path, |bytes| {
            bytes[..8].copy_from_slice(MAGIC_OLD);
            let crc = crc32c::crc32c(&bytes[..44]);
            bytes[44..48].copy_from_slice(&crc.to_le_bytes());
            for (at, slot) in (0..).zip(bytes[SLOT_BYTES..].chunks_mut(SLOT_BYTES)) {
                if slot == free(at) {
                    slot.fill(0);
                }
            }
        });
    }

    #[test]
    fn an_index_of_before_is_read_told_from_a_damaged_one_and_made_anew_by_the_first_write() {
        let disk = MemDisk::new();
        let path = Path::new("/e/r.idx");
        let mut index = fresh(&disk);
        for rev in 1..=20 {
            index.put("plan", &format!("p{rev}"), kept(rev)).unwrap();
        }
        age(&disk, path);
        let mut old = Revisions::open(&disk, path).unwrap();
        assert_eq!(old.get("plan", "p7").unwrap(), Some(kept(7)));
        assert_eq!(old.get("plan", "p70").unwrap(), None);
        let damaged = disk.fork();
        damaged.tamper(path, |bytes| {
            let filled = |slot: &&mut [u8]| slot.iter().any(|b| *b != 0);
            let mut slots = bytes[SLOT_BYTES..].chunks_mut(SLOT_BYTES);
            slots.find(filled).unwrap().fill(0);
        });
        assert!(Revisions::open(&damaged, path).is_none());
        old.put("plan", "p7", kept(8)).unwrap();
        let again = Revisions::open(&disk, path).unwrap();
        assert!(!again.is_old && again.count == 20);
        for rev in 1..=20 {
            let expected = if rev == 7 { 8 } else { rev };
            let held = again.get("plan", &format!("p{rev}")).unwrap();
            assert_eq!(held, Some(kept(expected)));
        }
    }

    #[test]
    fn c43_a_flipped_bit_is_never_believed() {
        let disk = MemDisk::new();
        let path = Path::new("/e/r.idx");
        fresh(&disk).put("plan", "p", kept(4)).unwrap();
        let length = usize::try_from(disk.len(path).unwrap().unwrap()).unwrap();
        for at in 0..length {
            let image = disk.fork();
            image.tamper(path, |bytes| bytes[at] ^= 0x10);
            let told = Revisions::open(&image, path).map(|index| index.get("plan", "p"));
            match told {
                None | Some(Err(_)) => {}
                Some(Ok(found)) => assert_eq!(found, Some(kept(4)), "byte {at}"),
            }
        }
        let image = disk.fork();
        image.tamper(path, |bytes| bytes.truncate(length - 1));
        assert!(Revisions::open(&image, path).is_none());
    }
}
