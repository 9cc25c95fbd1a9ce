//! Requests that carry an id of their caller's: the same again gets the first one's receipt, another one is refused.
//!
//! The record that answered a request names it, so the journal itself is what knows. `requests.idx` says in which segment to
//! look: a table of fixed slots, brought level from the place where it stopped when the next such request comes. It is a
//! cache. A place that the segments do not confirm is not believed, a slot is no answer before its record was read, and
//! without the file every segment is read once.

use std::collections::HashMap;
use std::ops::Range;

use heddle_core::canonical::canonicalize;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::action::ActionClass;
use crate::batch::Written;
use crate::blobs::sha256_hex;
use crate::error::{At, JournalError};
use crate::format::{CRC_OPEN, CRC_SUFFIX_BYTES, REQUEST_ID_BYTES_MAX};
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, filled_len, scan};
use crate::meta::Position;
use crate::mutate::{Change, Plan, Receipt, Request};
use crate::reduce::Head;
use crate::revisions::{Kept, Revisions};
use crate::segments;
use crate::session::Session;
use crate::unbroken::Run;

/// What the slots of the table are of; none of these is an item type.
const REQUEST: &str = "#request";
/// Level up to here, as this boot knows it.
const LEVEL: &str = "#level";
/// Level up to here whatever the machine lost.
const SYNCED: &str = "#synced";

/// The newest record of the journal when the table was brought level: one that knows of more than there is tells of a loss.
pub(crate) const NEWEST: &str = "#newest";

/// A request's name, and what tells another request of that name from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) sha256: String,
}

impl Key {
    /// Who asks is not part of it: an agent that begins anew under another name must not record twice.
    pub(crate) fn of(id: &str, change: &Change) -> Result<Self, JournalError> {
        let request = json!([
            change.item_type,
            change.item_id,
            change.action,
            change.document,
            change.summary,
        ]);
        Self::of_request(id, &request)
    }

    /// The same of whatever a caller asked for.
    pub(crate) fn of_request(id: &str, request: &Value) -> Result<Self, JournalError> {
        let is_plain = !id.chars().any(char::is_control);
        if !is_plain || !(1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) {
            return Err(JournalError::Refused(format!(
                "the id of a request has 1 to {REQUEST_ID_BYTES_MAX} bytes of text without control characters"
            )));
        }
        let text = canonicalize(request).map_err(JournalError::refused)?;
        Ok(Self {
            id: id.to_owned(),
            sha256: sha256_hex(&text),
        })
    }

    fn reused(&self, why: String) -> JournalError {
        let id = self.id.clone();
        JournalError::RequestReused { id, why }
    }
}

/// What becomes of a request that was planned, or need not be.
pub(crate) enum Admitted {
    Planned {
        slots: Range<usize>,
        writer: String,
    },
    /// Another one of this very batch is the same.
    Again {
        slots: Range<usize>,
        writer: String,
    },
    Answered(Receipt),
}

impl Admitted {
    pub(crate) fn receipts(&self, plan: &Plan, written: Option<&Written>) -> Vec<Receipt> {
        let again = |receipt: Receipt| Receipt {
            duplicate: true,
            ..receipt
        };
        match self {
            Self::Planned { slots, writer } => plan.receipts(slots.clone(), writer, written),
            Self::Again { slots, writer } => {
                let receipts = plan.receipts(slots.clone(), writer, written);
                receipts.into_iter().map(again).collect()
            }
            Self::Answered(receipt) => vec![again(receipt.clone())],
        }
    }
}

/// A request of the batch that is being planned.
pub(crate) struct Keyed {
    sha256: String,
    slots: Range<usize>,
    writer: String,
}

/// The record that answered a request.
pub(crate) struct Answered {
    sha256: Option<String>,
    seq: u64,
    receipt: Receipt,
    /// What it recorded, where that stands in its line.
    pub(crate) document: Option<Value>,
}

impl Session<'_> {
    /// Plans a request, unless it was answered before. Nothing of it is planned where it is refused.
    pub(crate) fn admit(
        &mut self,
        plan: &mut Plan,
        request: &Request,
    ) -> Result<Admitted, JournalError> {
        if let Some(key) = &request.key {
            if let Some(keyed) = plan.keyed.get(&key.id) {
                if keyed.sha256 != key.sha256 {
                    return Err(key.reused("another request of this moment has it".to_owned()));
                }
                return Ok(Admitted::Again {
                    slots: keyed.slots.clone(),
                    writer: keyed.writer.clone(),
                });
            }
            if let Some(answered) = self.answered(key)? {
                return Ok(Admitted::Answered(answered.receipt));
            }
        }
        let start = plan.slots.len();
        plan.add(self, request)?;
        let slots = start..plan.slots.len();
        if let Some(Key { id, sha256 }) = request.key.clone() {
            let keyed = Keyed {
                sha256,
                slots: slots.clone(),
                writer: request.writer.clone(),
            };
            plan.keyed.insert(id, keyed);
        }
        Ok(Admitted::Planned {
            slots,
            writer: request.writer.clone(),
        })
    }

    /// The answer to a request of before; an error where its id was another's.
    pub(crate) fn answered(&self, key: &Key) -> Result<Option<Answered>, JournalError> {
        let mut level = self.level_requests()?;
        let found = match level.table.get(REQUEST, &key.id) {
            // A slot that cannot be believed: the segments are asked.
            Err(JournalError::Damaged { .. }) => {
                level = self.read_requests()?;
                level.table.get(REQUEST, &key.id)?
            }
            found => found?,
        };
        let answered = match found {
            Some(kept) => self.journal.answer_in(kept.head.rev, &key.id)?,
            None => None,
        };
        let Some(answered) = answered else {
            // IMPORTANT: an id is never free again, also not where the record that has it is lost.
            self.must_be_new(key, level.missing, found.map(|kept| kept.head.seq))?;
            // The same where a record that this build does not understand may have it.
            self.must_know_all()?;
            return Ok(None);
        };
        match &answered.sha256 {
            Some(sha256) if *sha256 == key.sha256 => Ok(Some(answered)),
            Some(_) => Err(key.reused(format!(
                "it was used for another request, recorded as seq {}",
                answered.seq
            ))),
            None => Err(key.reused(format!(
                "what it was used for, seq {}, was erased",
                answered.seq
            ))),
        }
    }

    /// The table, level with the journal's end.
    fn level_requests(&self) -> Result<Level<'_>, JournalError> {
        let journal = self.journal;
        let table = Revisions::open(journal.disk(), &journal.layout.requests());
        let begun = match table {
            Some(table) => journal.stopped_at(&table)?.map(|from| (table, from)),
            None => None,
        };
        let Some((table, from)) = begun else {
            return self.read_requests();
        };
        match self.bring_on(table.lasting(), from) {
            Err(JournalError::Damaged { .. }) => self.read_requests(),
            brought => brought,
        }
    }

    /// From a place on; what was read is read once.
    fn bring_on<'s>(
        &'s self,
        mut table: Revisions<'s>,
        from: Position,
    ) -> Result<Level<'s>, JournalError> {
        let journal = self.journal;
        let found = self.requests_from(from, None)?;
        let missing = self.missing_in(&found.run)?;
        for (id, (segment, seq)) in found.first {
            let before = table.get(REQUEST, &id)?;
            let is_known = match before {
                None => false,
                // Of a record that a power cut took, or of one that stands twice: the first that is there counts.
                Some(kept) => {
                    (kept.head.rev, kept.head.seq) == (segment, seq)
                        || journal.answer_in(kept.head.rev, &id)?.is_some()
                }
            };
            if !is_known {
                table.put(REQUEST, &id, slot(segment, seq, 0))?;
            }
        }
        if !missing.is_empty() {
            // IMPORTANT: level only up to where it was. Whoever comes next must meet the loss as well.
            return Ok(Level { table, missing });
        }
        let path = journal.layout.requests();
        if from.segment != self.active {
            // IMPORTANT: synced before it is said. From here on a power cut costs no more than the active segment.
            journal.disk().sync(&path).at(&path)?;
            table.put(SYNCED, "", slot(self.active, 0, 0))?;
        }
        self.put_level(&mut table, found.run.last(), found.end)?;
        Ok(Level { table, missing })
    }

    /// Every segment there is, into a new table.
    fn read_requests(&self) -> Result<Level<'_>, JournalError> {
        let journal = self.journal;
        let first = journal.all_segments()?.first().copied();
        let begin = Position {
            segment: first.unwrap_or(self.active),
            byte: 0,
        };
        let found = self.requests_from(begin, Some(Run::behind(0)))?;
        let missing = self.missing_in(&found.run)?;
        let mut entries: Vec<(&str, &str, Kept)> = found
            .first
            .iter()
            .map(|(id, (segment, seq))| (REQUEST, id.as_str(), slot(*segment, *seq, 0)))
            .collect();
        if missing.is_empty() {
            entries.push((SYNCED, "", slot(self.active, 0, 0)));
        }
        let path = journal.layout.requests();
        let mut table = Revisions::build_lasting(journal.disk(), &path, &entries)?;
        if missing.is_empty() {
            self.put_level(&mut table, found.run.last(), found.end)?;
        }
        Ok(Level { table, missing })
    }

    fn put_level(
        &self,
        table: &mut Revisions<'_>,
        last: u64,
        end: Option<(Position, u32)>,
    ) -> Result<(), JournalError> {
        let newest = slot(self.active, last, 0);
        if table
            .get(NEWEST, "")?
            .is_none_or(|before| before.head.seq < newest.head.seq)
        {
            table.put(NEWEST, "", newest)?;
        }
        // A machine that cannot tell its boots begins at what was synced.
        if let (Some((at, crc)), Some(boot)) = (end, self.journal.boot()) {
            let level = slot(at.segment, at.byte, crc);
            if table.get(LEVEL, &boot)? != Some(level) {
                table.put(LEVEL, &boot, level)?;
            }
        }
        Ok(())
    }

    /// The requests of the records from a place to the journal's end. Which seq stands before it is looked up where nobody says.
    fn requests_from(&self, from: Position, run: Option<Run>) -> Result<Found, JournalError> {
        let journal = self.journal;
        let run = match run {
            Some(run) => run,
            None => journal.run_at(from)?,
        };
        let mut found = Found {
            run,
            ..Found::default()
        };
        let all = journal.all_segments()?;
        for first in all.into_iter().filter(|first| *first >= from.segment) {
            let skip = if first == from.segment { from.byte } else { 0 };
            let bytes = if first == self.active {
                let path = journal.layout.segment(first);
                let wanted = usize::try_from(self.bytes.saturating_sub(skip)).unwrap_or(0);
                journal.disk().read_at(&path, skip, wanted).at(&path)?
            } else {
                let mut bytes = segments::read(journal.disk(), &journal.layout, first)?;
                let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(bytes.len());
                bytes.split_off(skip)
            };
            found.segment = first;
            scan(&bytes, skip, &mut found);
            // The end is that of a whole batch: whoever took the lock has put right what a crash left there.
            if let Some((length, crc)) = last_crc(&bytes) {
                let byte = skip + length;
                let segment = first;
                found.end = Some((Position { segment, byte }, crc));
            }
        }
        Ok(found)
    }
}

impl Journal {
    /// Where a table stopped; None where nothing that it says of that is true any more.
    fn stopped_at(&self, table: &Revisions<'_>) -> Result<Option<Position>, JournalError> {
        let level = match self.boot() {
            Some(boot) => table.get(LEVEL, &boot),
            None => Ok(None),
        };
        for place in [level, table.get(SYNCED, "")] {
            // A damaged slot on the way: the table is made anew.
            let Ok(Some(Kept { head, .. })) = place else {
                continue;
            };
            let at = Position {
                segment: head.rev,
                byte: head.seq,
            };
            if self.is_confirmed(at, head.crc)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// What stands before a place, live or archived.
    fn run_at(&self, at: Position) -> Result<Run, JournalError> {
        if at.byte == 0 {
            return Ok(Run::behind(at.segment.saturating_sub(1)));
        }
        let path = self.segment_path(at.segment)?;
        let last = segments::last_before(self.disk(), &path, at.byte)?;
        Ok(Run::behind(last.unwrap_or(0)))
    }

    /// Whether the record of this checksum still ends there. A segment that was put back, cut or rewritten says no.
    fn is_confirmed(&self, at: Position, crc: u32) -> Result<bool, JournalError> {
        if self.all_segments()?.binary_search(&at.segment).is_err() {
            return Ok(false);
        }
        let Some(start) = at.byte.checked_sub(CRC_SUFFIX_BYTES as u64) else {
            return Ok(at.byte == 0);
        };
        let path = self.segment_path(at.segment)?;
        let bytes = self
            .disk()
            .read_at(&path, start, CRC_SUFFIX_BYTES)
            .at(&path)?;
        Ok(last_crc(&bytes) == Some((CRC_SUFFIX_BYTES as u64, crc)))
    }

    /// The first record of a segment that answers a request of this id.
    fn answer_in(&self, segment: u64, id: &str) -> Result<Option<Answered>, JournalError> {
        if self.all_segments()?.binary_search(&segment).is_err() {
            return Ok(None);
        }
        let bytes = segments::read(self.disk(), &self.layout, segment)?;
        let mut wanted = Wanted {
            mode: self.mode,
            id,
            found: None,
        };
        scan(&bytes, 0, &mut wanted);
        Ok(wanted.found)
    }
}

/// Three numbers in a slot of the table.
fn slot(segment: u64, number: u64, crc: u32) -> Kept {
    Kept::of(Head {
        rev: segment,
        seq: number,
        crc,
        is_deleted: false,
    })
}

/// Up to where these bytes are filled, and the checksum that they end with; None where they end with none.
fn last_crc(bytes: &[u8]) -> Option<(u64, u32)> {
    let filled = &bytes[..filled_len(bytes)];
    let suffix = filled.get(filled.len().checked_sub(CRC_SUFFIX_BYTES)?..)?;
    let digits = suffix.strip_prefix(CRC_OPEN)?.strip_suffix(b"\"}")?;
    let digits = std::str::from_utf8(digits).ok()?;
    let crc = u32::from_str_radix(digits, 16).ok()?;
    Some((filled.len() as u64, crc))
}

/// The table, and what is missing of the journal behind the place up to which it was level.
struct Level<'d> {
    table: Revisions<'d>,
    missing: Vec<[u64; 2]>,
}

/// By id: segment and seq of the first record that answers it.
#[derive(Default)]
struct Found {
    segment: u64,
    run: Run,
    first: HashMap<String, (u64, u64)>,
    end: Option<(Position, u32)>,
}

impl<'a> Sink<'a> for Found {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for record in batch.iter().map(|counted| &counted.record) {
            self.run.meet(record.seq);
            if let Some(request) = &record.request {
                let place = (self.segment, record.seq);
                let id = request.id.as_str().to_owned();
                self.first.entry(id).or_insert(place);
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}

struct Wanted<'w> {
    mode: crate::action::Mode,
    id: &'w str,
    found: Option<Answered>,
}

impl<'a> Sink<'a> for Wanted<'_> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        let mut named = batch
            .iter()
            .map(|counted| &counted.record)
            .filter(|record| {
                let request = record.request.as_ref();
                request.is_some_and(|request| request.id.as_str() == self.id)
            });
        if self.found.is_some() {
            return;
        }
        self.found = named.next().map(|record| {
            // The journal's own note says that nothing was to be recorded.
            let is_recorded = record.action.class(self.mode) != ActionClass::JournalMeta;
            let request = record.request.as_ref();
            let sha256 = request.and_then(|request| request.sha256.as_ref());
            let text = record.payload.filter(|_| is_recorded).map(RawValue::get);
            Answered {
                sha256: sha256.map(|sha256| sha256.as_str().to_owned()),
                seq: record.seq,
                document: text.and_then(|text| serde_json::from_str(text).ok()),
                receipt: Receipt {
                    seq: is_recorded.then_some(record.seq),
                    writer: record.writer.as_str().to_owned(),
                    entity_rev: record.entity_rev,
                    batch: is_recorded.then(|| record.batch.id.as_str().to_owned()),
                    duplicate: false,
                },
            }
        });
    }

    fn damage(&mut self, _: Damage) {}
}
