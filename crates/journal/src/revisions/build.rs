//! A whole revision index laid out at once: from the journal, and over what an older one knows.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::Revisions;
use super::slot::{Kept, Key, SLOT_BYTES, encode, free, header, home, key};
use crate::disk::{Disk, replace};
use crate::error::{At, JournalError};
use crate::reduce::Head;

const CAPACITY_MIN: u64 = 64;

impl<'d> Revisions<'d> {
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
        Self::lay_out(disk, path, keyed, false, 0)
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
        Self::lay_out(disk, path, keyed, true, 0)
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
        Self::lay_out(disk, path, keyed, false, 0)
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
        Self::lay_out(disk, path, keyed, false, 0)
    }

    pub(super) fn lay_out(
        disk: &'d dyn Disk,
        path: &Path,
        entries: Vec<(Key, Kept)>,
        is_lasting: bool,
        made: u64,
    ) -> Result<Self, JournalError> {
        let count = entries.len() as u64;
        let capacity = (count * 4).next_power_of_two().max(CAPACITY_MIN);
        let slots = usize::try_from(capacity + 1).map_err(JournalError::refused)?;
        let mut bytes = vec![0; slots * SLOT_BYTES];
        let newest = entries.iter().map(|(_, kept)| kept.head.seq).max();
        let newest = newest.unwrap_or(0);
        bytes[..SLOT_BYTES].copy_from_slice(&header(capacity, count, newest, made));
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
            made,
        })
    }
}
