//! What this store is known to have written and the journal no longer holds. Told by every reader, never papered over.
//!
//! Witnesses are the cache, which is written behind the records, and this store's own checkpoints. A checkpoint of
//! another store, which git brought along, witnesses nothing of ours.

use crate::checkpoint;
use crate::error::JournalError;
use crate::journal::Journal;
use crate::meta::{self, MetaFound};
use crate::segments;

impl Journal {
    /// The last seq that a witness has seen, above `head`; `head` where none has seen more.
    pub(crate) fn witnessed(
        &self,
        meta: &MetaFound,
        checkpoints: &[u64],
        head: u64,
    ) -> Result<u64, JournalError> {
        let cached = meta.good().map_or(0, |meta| meta.next_seq - 1);
        let mut last = cached.max(head);
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

    /// Sealed, and written by this very store.
    fn is_own_checkpoint(&self, head_seq: u64) -> Result<bool, JournalError> {
        let own = self.origin().ok().flatten();
        let writer = self.checkpoint_origin(head_seq)?;
        Ok(own.zip(writer).is_some_and(|(own, writer)| {
            (own.origin_id, own.origin_epoch) == (writer.origin_id, writer.origin_epoch)
        }))
    }

    /// The seqs, first and last, that are gone from the journal's end; without a lock and without a write.
    pub(crate) fn lost_tail(&self) -> Result<Option<[u64; 2]>, JournalError> {
        // IMPORTANT: the witnesses first. What is written meanwhile must not look like a loss.
        let meta = meta::read(self.disk(), &self.layout)?;
        let checkpoints = checkpoint::listed(self.disk(), &self.layout)?;
        let live = segments::live(self.disk(), &self.layout)?;
        let Some(active) = live.last() else {
            return Ok(None);
        };
        let tail = segments::tail(self.disk(), &self.layout, *active, None)?;
        let head = self.next_after(&live, &tail)? - 1;
        let last = self.witnessed(&meta, &checkpoints, head)?;
        Ok((last > head).then_some([head + 1, last]))
    }
}
