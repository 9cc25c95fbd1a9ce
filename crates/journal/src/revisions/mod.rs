//! The revision index: `(item type, item id) → head`, one file of fixed slots, constant time at any size.
//!
//! A cache beside the projections (C43): `slot` is its bytes, `build` lays out a whole one, this file asks and puts.

mod build;
mod slot;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, Reader};
use crate::error::{At, JournalError};
pub(crate) use slot::Kept;
use slot::{
    Key, MAGIC, MAGIC_OLD, SLOT_BYTES, SLOT_BYTES_U64, Slot, decode, encode, header, home, key,
    long, word,
};

const CAPACITY_MAX: u64 = 1 << 28;
/// Slots read at once while probing.
const PROBE_SLOTS: u64 = 8;
/// A question by itself costs a call, as much as reading so many bytes.
const HOLD_BYTES_EACH: usize = 2 << 10;

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
    /// Which of all indexes that took each other's place: a later one has a larger number. 0: its build gave none.
    made: u64,
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
            made: long(&bytes[32..40]),
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

    /// Every slot is sound: what it does not know was never projected.
    pub fn is_readable(&self) -> bool {
        self.count == 0 || self.all().is_ok()
    }

    /// What its header says; `meta.json` knows it too, and is written behind it.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether this is the index that the cache speaks of, or a later one. IMPORTANT: not by its newest record alone. A redaction changes what
    /// it says of older ones.
    pub fn is_as_new_as(&self, newest: u64, made: u64) -> bool {
        self.newest >= newest && (self.newest > newest || self.made >= made)
    }

    pub fn made(&self) -> u64 {
        self.made
    }

    /// Which one this is, once it is in its place.
    pub fn set_made(&mut self, made: u64) -> Result<(), JournalError> {
        self.made = made;
        self.held = None;
        let header = header(self.capacity, self.count, self.newest, made);
        self.disk.write_at(&self.path, 0, &header).at(&self.path)
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
            *self = Self::lay_out(self.disk, &self.path, entries, self.is_lasting, self.made)?;
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
            let header = header(self.capacity, self.count, newest, self.made);
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
    use super::slot::free;
    use super::*;
    use crate::disk::MemDisk;
    use crate::reduce::Head;

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
