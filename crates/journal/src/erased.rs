//! Which records were erased on request: what every reader must know before it prints a line (RD-06).
//!
//! Each redaction leaves a note in the journal, behind the record that it is about. `erased.json` sums up the notes of
//! sealed segments, so that a reader looks for others in the rest only. It is a cache: without it, or where it is damaged,
//! every segment is looked through; an older copy of it only makes the rest longer.

use std::collections::BTreeSet;

use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::blobs::sha256_hex;
use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::notes::{MetaPayload, Note};
use crate::revisions::Revisions;
use crate::segments;
use crate::session::Session;

const LIST_BYTES_MAX: u64 = 64 << 20;
const LIST_VERSION: u8 = 1;
/// In every line of such a note; a line that holds it need not be one.
const MARK: &[u8] = b"\"kind\":\"redaction\"";

/// Seq and writer.
pub(crate) type Ids = BTreeSet<(u64, String)>;

#[derive(Debug, Serialize, Deserialize)]
struct List {
    v: u8,
    /// The notes of the segments before this one are summed up.
    segment: u64,
    ids: Ids,
    sha256: String,
}

impl List {
    fn new(segment: u64, ids: Ids) -> Result<Self, JournalError> {
        let sha256 = seal(segment, &ids)?;
        Ok(Self {
            v: LIST_VERSION,
            segment,
            ids,
            sha256,
        })
    }
}

fn seal(segment: u64, ids: &Ids) -> Result<String, JournalError> {
    let text = serde_json::to_vec(&(segment, ids)).map_err(JournalError::refused)?;
    Ok(sha256_hex(&text))
}

impl Journal {
    /// Of all records that a note calls erased, whether their lines still are or not.
    pub(crate) fn erased(&self) -> Result<Ids, JournalError> {
        let (segment, ids) = self.erased_list()?;
        self.erased_from(segment, u64::MAX, ids)
    }

    /// For who shows records: what a redaction that has begun is about to erase counts as erased.
    pub(crate) fn erased_or_doomed(&self) -> Result<Ids, JournalError> {
        let mut ids = self.erased()?;
        if let Some(job) = self.redact_job()? {
            let doomed = job.records.into_iter().chain(job.unnamed);
            ids.extend(doomed.map(|erased| (erased.seq, erased.writer)));
        }
        Ok(ids)
    }

    /// A note says that the record which the index calls the newest of an entity was erased: index and file are of before.
    pub(crate) fn is_noted_as_erased(
        &self,
        item_type: &str,
        item_id: &str,
    ) -> Result<bool, JournalError> {
        let index = Revisions::open(self.disk(), &self.layout.revisions());
        let kept = index.and_then(|index| index.get(item_type, item_id).ok().flatten());
        let Some(kept) = kept.filter(|kept| !kept.head.is_deleted) else {
            return Ok(false);
        };
        let seq = kept.head.seq;
        Ok(self.erased()?.iter().any(|(erased, _)| *erased == seq))
    }

    /// Whether its newest record is a delete, as the journal itself says. What was erased is none: nobody recorded that it should go.
    pub fn is_deleted(&self, item_type: &str, item_id: &str) -> bool {
        let (Ok(rebuilt), Ok(erased)) = (self.rebuild(0), self.erased()) else {
            return false;
        };
        let entity = rebuilt.replay.get(item_type, item_id);
        entity.is_some_and(|entity| {
            let head = &entity.head;
            head.is_deleted && !erased.iter().any(|(seq, _)| *seq == head.seq)
        })
    }

    /// What is summed up, and where the rest begins.
    fn erased_list(&self) -> Result<(u64, Ids), JournalError> {
        let path = self.layout.erased();
        // One that cannot be read costs time, and nothing else.
        let bytes = read_if_there(self.disk(), &path, LIST_BYTES_MAX)
            .ok()
            .flatten();
        let list = bytes.and_then(|bytes| serde_json::from_slice::<List>(&bytes).ok());
        let Some(list) = list.filter(|list| list.v == LIST_VERSION) else {
            return Ok((0, Ids::new()));
        };
        if seal(list.segment, &list.ids)? != list.sha256 {
            return Ok((0, Ids::new()));
        }
        Ok((list.segment, list.ids))
    }

    fn erased_from(&self, from: u64, to: u64, ids: Ids) -> Result<Ids, JournalError> {
        let mut notes = Notes(ids);
        let all = self.all_segments()?.into_iter();
        for first in all.filter(|first| (from..to).contains(first)) {
            let bytes = segments::read(self.disk(), &self.layout, first)?;
            if memmem::find(&bytes, MARK).is_some() {
                scan(&bytes, 0, &mut notes);
            }
        }
        Ok(notes.0)
    }
}

impl Session<'_> {
    /// The notes of sealed segments; whoever does it need not, so a failure is no failure of anything else.
    pub(crate) fn sum_up_erased(&self) -> Result<(), JournalError> {
        let journal = self.journal;
        let (from, ids) = journal.erased_list()?;
        if from >= self.active {
            return Ok(());
        }
        let ids = journal.erased_from(from, self.active, ids)?;
        let list = List::new(self.active, ids)?;
        let bytes = serde_json::to_vec(&list).map_err(JournalError::refused)?;
        let path = journal.layout.erased();
        replace(journal.disk(), &path, &bytes, true).at(&path)
    }
}

struct Notes(Ids);

impl<'a> Sink<'a> for Notes {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for record in batch.iter().map(|counted| &counted.record) {
            let payload = record.payload.map(RawValue::get);
            if let Some(MetaPayload::Note(Note::Redaction { redacted, .. })) =
                payload.and_then(|text| MetaPayload::parse(record.action, text))
            {
                let ids = redacted.into_iter().map(|id| (id.seq, id.writer));
                self.0.extend(ids);
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}
