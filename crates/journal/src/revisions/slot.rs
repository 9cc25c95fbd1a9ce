//! A slot of the revision index, and its header, in bytes.
//!
//! A slot whose checksum is wrong says so; it is never believed. One that is free says that too, and which one it is: a page that
//! came back as zeros is damage, not room.

use sha2::{Digest, Sha256};

use crate::reduce::Head;

pub(super) const MAGIC: &[u8; 8] = b"HDLREV02";
/// Its free slots are zeros. It is read, and the first write makes a new one of it.
pub(super) const MAGIC_OLD: &[u8; 8] = b"HDLREV01";
/// What a free slot is filled with before its number.
const FREE: u8 = 0xF5;
pub(super) const SLOT_BYTES: usize = 48;
pub(super) const SLOT_BYTES_U64: u64 = SLOT_BYTES as u64;
const KEY_BYTES: usize = 16;
const DELETED: u32 = 1;
const DIVERGENT: u32 = 2;
const UNPROVEN: u32 = 4;

const _: () = assert!(KEY_BYTES + 8 + 8 + 4 + 4 + 4 + 4 == SLOT_BYTES);

pub(super) type Key = [u8; KEY_BYTES];

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

    /// It has seen more of the entity than the journal has. What is gone by the very record that the journal has whole was erased there: an
    /// older copy of its segment was put back (RD-06).
    pub(crate) fn is_ahead_of(&self, head: &Head) -> bool {
        let is_erased = self.head.is_deleted && !head.is_deleted && self.head.seq == head.seq;
        self.head.rev > head.rev || is_erased && self.head.rev == head.rev
    }

    /// As the journal has it, with what an older index knew of its file; one that was ahead stays (never regress).
    pub(super) fn unproven(head: Head, before: Option<Self>) -> Self {
        match before {
            Some(kept) if kept.is_ahead_of(&head) => kept,
            before => Self {
                head,
                is_divergent: before.is_none_or(|kept| kept.is_divergent),
                document: before.map_or(0, |kept| kept.document),
                is_unproven: true,
            },
        }
    }
}

pub(super) fn key(item_type: &str, item_id: &str) -> Key {
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

pub(super) fn home(key: &Key, capacity: u64) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&key[..8]);
    u64::from_le_bytes(first) & (capacity - 1)
}

pub(super) fn encode(key: &Key, kept: &Kept) -> [u8; SLOT_BYTES] {
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
pub(super) fn free(at: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [FREE; SLOT_BYTES];
    slot[SLOT_BYTES - 8..].copy_from_slice(&at.to_le_bytes());
    slot
}

pub(super) enum Slot {
    Empty,
    Full(Key, Kept),
    Bad,
}

pub(super) fn decode(slot: &[u8], at: u64, is_old: bool) -> Slot {
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

pub(super) fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

pub(super) fn long(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

pub(super) fn header(capacity: u64, count: u64, newest: u64, made: u64) -> [u8; SLOT_BYTES] {
    let mut header = [0; SLOT_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&capacity.to_le_bytes());
    header[16..24].copy_from_slice(&count.to_le_bytes());
    header[24..32].copy_from_slice(&newest.to_le_bytes());
    header[32..40].copy_from_slice(&made.to_le_bytes());
    let crc = crc32c::crc32c(&header[..44]);
    header[44..].copy_from_slice(&crc.to_le_bytes());
    header
}
