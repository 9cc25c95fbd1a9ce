//! Who remembers how far the journal was, beside its segments: each of these files is written behind the records that it speaks of.
//!
//! Any of them may be an older copy that somebody put back, so the one that has seen most counts: a loss is told, and no seq is given a
//! second time, as long as one of them is as it was. The text of the lock is the last to be written and the cheapest to read.

use crate::checkpoint;
use crate::error::{At, JournalError};
use crate::format::SEQ_MAX;
use crate::journal::Journal;
use crate::meta::{self, MetaFound};
use crate::requests::NEWEST;
use crate::revisions::Revisions;
use crate::segments;
use crate::session::Session;

const LOCK_BYTES_MAX: usize = 256;
/// The owner's line is filled up with blanks to this, so that the text is written in place and keeps its length.
const OWNER_BYTES: usize = 63;
const SEQ_WORD: &str = "seq ";

/// What the lock says while it is held and after: its owner, for people, and the last seq that an owner has seen.
pub(crate) fn signature(owner: &str, seq: u64) -> String {
    let line = format!("{SEQ_WORD}{seq:020}");
    let crc = crc32c::crc32c(line.as_bytes());
    format!("{owner:<OWNER_BYTES$}\n{line} {crc:08x}\n")
}

/// 0 where nothing sound is said: an older build signs with its owner alone.
pub(crate) fn signed_seq(text: &[u8]) -> u64 {
    let said = || -> Option<u64> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let (line, crc) = lines.nth(1)?.rsplit_once(' ')?;
        let is_sound = u32::from_str_radix(crc, 16).ok()? == crc32c::crc32c(line.as_bytes());
        let seq = line.strip_prefix(SEQ_WORD)?.parse().ok()?;
        (is_sound && seq <= SEQ_MAX).then_some(seq)
    };
    said().unwrap_or(0)
}

/// Who signed it, for people.
pub(crate) fn signed_owner(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let owner = text.lines().next().unwrap_or_default().trim();
    (!owner.is_empty()).then(|| owner.to_owned())
}

impl Journal {
    /// The text of a lock, without waiting for it; empty where nobody ever held it.
    pub(crate) fn lock_text(&self, lock: &std::path::Path) -> Vec<u8> {
        self.disk()
            .read_at(lock, 0, LOCK_BYTES_MAX)
            .unwrap_or_default()
    }

    /// What is asked of before every write: two small reads, whatever the size of the store.
    pub(crate) fn seen_at_once(&self, signed: u64) -> u64 {
        signed.max(self.indexed_to())
    }

    /// What the header of the revision index says.
    fn indexed_to(&self) -> u64 {
        let index = Revisions::open(self.disk(), &self.layout.revisions());
        let newest = index.map_or(0, |index| index.newest());
        if newest > SEQ_MAX { 0 } else { newest }
    }

    /// The newest record that the table of requests knows of; 0 without one.
    fn requested_to(&self) -> u64 {
        let table = Revisions::open(self.disk(), &self.layout.requests());
        let newest = table.and_then(|table| table.get(NEWEST, "").ok().flatten());
        let seq = newest.map_or(0, |newest| newest.head.seq);
        if seq > SEQ_MAX { 0 } else { seq }
    }

    /// All but `meta.json` and the checkpoints. IMPORTANT: asked before those and before the segments, or what is written meanwhile looks like
    /// a loss.
    pub(crate) fn seen_beside(&self) -> Result<u64, JournalError> {
        let signed = signed_seq(&self.lock_text(&self.layout.lock()));
        let read = self.readers_to()?;
        Ok(signed
            .max(self.indexed_to())
            .max(self.reserved_to())
            .max(self.requested_to())
            .max(read))
    }

    /// The same with the checkpoints, which may be all that is left of the later state; or what costs next to nothing where all of them
    /// were asked before and knew of no loss.
    pub(crate) fn seen_now(&self) -> Result<u64, JournalError> {
        if !self.is_looked_at() {
            let beside = self.seen_beside()?;
            let checkpoints = checkpoint::listed(self.disk(), &self.layout)?;
            return self.witnessed(beside, &checkpoints, 0);
        }
        let signed = signed_seq(&self.lock_text(&self.layout.lock()));
        Ok(signed.max(self.indexed_to()))
    }

    pub(crate) fn seen(&self) -> Result<u64, JournalError> {
        let beside = self.seen_beside()?;
        let meta = meta::read(self.disk(), &self.layout)?;
        self.seen_to(beside, &meta)
    }

    /// The last seq that was there, as the cache and what lies beside it know.
    pub(crate) fn seen_to(&self, beside: u64, meta: &MetaFound) -> Result<u64, JournalError> {
        let cached = match meta.good() {
            Some(meta) => meta.next_seq - 1,
            None => self.remembered_to(),
        };
        Ok(cached.max(beside).max(self.given_at_most(meta)?))
    }

    /// The same with the checkpoints of this store, above `head`; `head` where none has seen more.
    pub(crate) fn witnessed(
        &self,
        seen: u64,
        checkpoints: &[u64],
        head: u64,
    ) -> Result<u64, JournalError> {
        let mut last = seen.max(head);
        let above = checkpoints.iter().rev().take_while(|seq| **seq > last);
        // The newest that is ours decides.
        for head_seq in above {
            if self.is_own_checkpoint(*head_seq)? {
                last = *head_seq;
                break;
            }
        }
        Ok(last)
    }

    /// Where no segment is left and nothing knows exactly how far they went: the store's own name says up to where seqs may have been given.
    fn given_at_most(&self, meta: &MetaFound) -> Result<u64, JournalError> {
        let signed = signed_seq(&self.lock_text(&self.layout.lock()));
        if meta.good().is_some() || signed > 0 {
            return Ok(0);
        }
        let is_gone = segments::live(self.disk(), &self.layout)?.is_empty();
        Ok(if is_gone { self.given_to() } else { 0 })
    }

    /// For a writer, once for each store that it opens: every witness there is.
    pub(crate) fn witnessed_by_all(
        &self,
        meta: &MetaFound,
        head: u64,
    ) -> Result<u64, JournalError> {
        let seen = self.seen_to(self.seen_beside()?, meta)?;
        let checkpoints = checkpoint::listed(self.disk(), &self.layout)?;
        self.witnessed(seen, &checkpoints, head)
    }

    pub(crate) fn signature(&self, seq: u64) -> String {
        let owner = format!("pid {} writer {}", std::process::id(), self.writer);
        signature(&owner, seq)
    }

    /// A journal that begins anew owes nothing to the one that was parked.
    pub(crate) fn forget_signature(&self) -> Result<(), JournalError> {
        let path = self.layout.lock();
        if self
            .disk()
            .len(&path)
            .at(&path)?
            .is_some_and(|length| length > 0)
        {
            self.disk().write(&path, b"").at(&path)?;
            self.disk().sync(&path).at(&path)?;
        }
        Ok(())
    }
}

impl Session<'_> {
    /// `meta.json` was put back with its segment, so the index that it vouches for may be an older copy as well.
    pub(crate) fn doubt_index(&mut self, known: u64) {
        // Of what is lost it may not know the revisions.
        self.lost.index |= self.journal.indexed_to() < known;
    }

    /// `meta.json` is gone, or has seen less than there was, in the segment or by another witness: an older list of reservations may
    /// lie beside it, and what was reserved since is not in that.
    pub(crate) fn doubt_list(&mut self, meta: &MetaFound, newest: u64) {
        let since = meta.good().map_or(newest, |meta| meta.next_seq);
        if newest >= since && self.journal.reserved_to() < since {
            self.reserved_to = newest;
        }
    }

    /// The last thing that a session does: what it has seen is remembered by the lock that it gives back.
    fn sign_off(&mut self) {
        // Not the next seq alone: where the end is not to be understood, or a name is wrong, that is only a guess.
        if self.recorded_to > self.signed {
            let text = self.journal.signature(self.recorded_to);
            // Without it the other witnesses are those that there were before.
            let _ = self.guard.sign(&text);
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.sign_off();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_read_and_a_flipped_bit_says_nothing_else() {
        let text = signature("pid 12 writer w_12-0a0b0c0d0e0f", 4711);
        assert_eq!(signed_seq(text.as_bytes()), 4711);
        assert_eq!(text.len(), signature("pid 1 writer w", SEQ_MAX).len());
        let owner = signed_owner(text.as_bytes()).unwrap();
        assert_eq!(owner, "pid 12 writer w_12-0a0b0c0d0e0f");
        for bit in 0..text.len() * 8 {
            let mut other = text.clone().into_bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!([0, 4711].contains(&signed_seq(&other)), "bit {bit}");
        }
        assert_eq!(signed_seq(b"pid 12 writer w_12-0a0b0c0d0e0f\n"), 0);
        assert_eq!(signed_seq(b""), 0);
        assert_eq!(
            signed_owner(b"pid 7 writer w\n").as_deref(),
            Some("pid 7 writer w")
        );
        assert_eq!(signed_owner(b""), None);
    }
}
