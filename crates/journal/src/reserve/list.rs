//! `events/reserved.json`: the ids of the reservations that hold. A cache with a checksum; where it is damaged the journal is asked.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::disk::{Disk, read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::SEQ_MAX;
use crate::journal::Journal;
use crate::layout::Layout;
use crate::meta;
use crate::segments;
use crate::stamp::{self, Stamp};

const LIST_BYTES_MAX: u64 = 4 << 20;
/// With a checksum.
const LIST_VERSION: u8 = 2;
/// Of builds that wrote none.
const BARE_LIST_VERSION: u8 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct List {
    v: u8,
    ids: BTreeSet<String>,
    /// The last record of the journal when this was written.
    #[serde(default)]
    seq: u64,
}

impl List {
    fn of(ids: BTreeSet<String>, seq: u64) -> Self {
        let v = LIST_VERSION;
        Self { v, ids, seq }
    }

    fn bytes(&self) -> Result<Vec<u8>, JournalError> {
        stamp::stamped(self)
    }

    /// None where it is damaged: then the journal is asked. A flipped bit neither frees a path nor invents a record.
    fn read(bytes: &[u8]) -> Option<Self> {
        let list = serde_json::from_slice::<Self>(bytes).ok()?;
        let is_sound = match stamp::look(bytes) {
            Stamp::Sound => true,
            Stamp::Absent => list.v == BARE_LIST_VERSION,
            Stamp::Wrong => false,
        };
        (is_sound && list.seq <= SEQ_MAX).then_some(list)
    }
}

impl Journal {
    /// The ids of all that hold, and of some that do not; None where the list is not to be had, or is an older copy.
    pub(super) fn listed_claims(&self) -> Result<Option<BTreeSet<String>>, JournalError> {
        let beside = self.seen_now()?;
        let meta = meta::read(self.disk(), &self.layout)?;
        // Where the cache is an older copy, only a list that was written behind it is none.
        // Where it is gone, nothing says that the list is not one: only the newest record of all is certainly known to it.
        let known = meta.good().map_or(beside, |meta| match meta.next_seq {
            next_seq if beside >= next_seq => meta.reserved_to.max(next_seq),
            _ => meta.reserved_to,
        });
        let list = self.reserved_list()?;
        Ok(list.filter(|list| list.seq >= known).map(|list| list.ids))
    }

    fn reserved_list(&self) -> Result<Option<List>, JournalError> {
        let path = self.layout.reserved();
        let list = read_if_there(self.disk(), &path, LIST_BYTES_MAX).at(&path)?;
        Ok(list.and_then(|bytes| List::read(&bytes)))
    }

    /// The newest record that there certainly was when somebody reserved something; 0 without a list. A clone has none.
    pub(crate) fn reserved_to(&self) -> u64 {
        let Ok(Some(list)) = self.reserved_list() else {
            return 0;
        };
        // A segment is made before the list is written. Where there is none, whatever was in it is gone.
        let is_gone = !list.ids.is_empty() && self.all_segments().is_ok_and(|all| all.is_empty());
        list.seq.max(u64::from(is_gone))
    }

    /// With the seq that the list has from then on.
    pub(super) fn put_reserved(
        &self,
        ids: BTreeSet<String>,
        seq: u64,
    ) -> Result<u64, JournalError> {
        let path = self.layout.reserved();
        let before = self.reserved_list()?;
        if let Some(list) = before.filter(|list| list.ids == ids) {
            return Ok(list.seq);
        }
        let bytes = List::of(ids, seq).bytes()?;
        replace(self.disk(), &path, &bytes, true).at(&path)?;
        Ok(seq)
    }
}

/// Of a store in which nothing is reserved yet; one that is there stays.
pub(crate) fn begin_list(disk: &dyn Disk, layout: &Layout) -> Result<(), JournalError> {
    let path = layout.reserved();
    let is_new = segments::live(disk, layout)?.is_empty()
        && checkpoint::listed(disk, layout)?.is_empty()
        && disk.len(&path).at(&path)?.is_none();
    if is_new {
        let bytes = List::of(BTreeSet::new(), 0).bytes()?;
        replace(disk, &path, &bytes, false).at(&path)?;
    }
    Ok(())
}
