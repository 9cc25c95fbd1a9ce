//! Taking a slice in: read whole and checked first, then chunk by chunk, each one lock, one batch, one sync.
//!
//! A crash between two chunks leaves a prefix that is recorded as such; the same slice again goes on behind it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::error::JournalError;
use crate::journal::Journal;
use crate::notes::{FederationApply, MetaPayload, RedactedId};
use crate::redact::{Remains, Target, Withdrawn};
use crate::registry::TypeClass;
use crate::session::Session;

use super::candidate::{self, CANDIDATE};
use super::history::History;
use super::origin::Renew;
use super::plan::{Plan, Ready};
use super::slice::{self, Header, Slice, SliceRecord};
use super::{foreign_id, owner_of};

const CHUNK_TEXT_BYTES: usize = 2 << 20;
/// Ids of erased records in one record of the journal.
const ERASED_IDS_MAX: usize = 2000;
/// No honest origin is so far ahead of us; a forged one would burn the counter.
const REV_AHEAD_MAX: u64 = 1 << 20;
const REFUSED_SHOWN_MAX: usize = 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    pub origin_id: String,
    pub origin_epoch: u64,
    pub seq_range: [u64; 2],
    /// Records that became the newest of their entity here.
    pub applied: u64,
    /// Records that were here already.
    pub known: u64,
    /// Records that lost against what is here.
    pub lost: u64,
    /// Candidates with both images; `heddle journal show candidate ID` shows one.
    pub conflicts: Vec<String>,
    /// Records that were left out, as asked.
    pub refused: Vec<String>,
    /// Records that their origin erased and candidates that had an image of one, which are erased here now.
    pub erased: u64,
    /// Locks that were taken.
    pub chunks: u64,
    /// What of it is left in this store.
    #[serde(flatten)]
    pub left: Remains,
    /// Records of this store's own that say some of what was erased, and were written after it had come here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taken_over: Vec<String>,
}

impl Journal {
    /// All of a slice, or nothing where it is not sound.
    pub fn import_slice(
        &self,
        bytes: &[u8],
        leave_out_bad: bool,
    ) -> Result<Imported, JournalError> {
        self.must_be_on()?;
        let slice = slice::decode(bytes).map_err(|reason| {
            JournalError::Refused(format!(
                "the slice is refused, nothing was taken in: {reason}"
            ))
        })?;
        if self
            .origin()?
            .is_some_and(|own| own.origin_id == slice.header.origin_id)
        {
            return Err(JournalError::refused(
                "this is a slice of this very store; if it comes from a copy of it, run \
                 `heddle journal export-slice --new-origin --out FILE` there and import that",
            ));
        }
        let (ready, bad) = self.ready(&slice);
        if !bad.is_empty() && !leave_out_bad {
            return Err(refused(&bad));
        }
        let mut told = Imported {
            origin_id: slice.header.origin_id.clone(),
            origin_epoch: slice.header.origin_epoch,
            seq_range: slice.header.seq_range,
            refused: bad.iter().map(|(_, reason)| reason.clone()).collect(),
            ..Imported::default()
        };
        let left_out: Vec<u64> = bad.iter().map(|(seq, _)| *seq).collect();
        self.take_in(&slice, &ready, &left_out, &mut told)?;
        self.erase_as_told(&slice, &mut told)?;
        Ok(told)
    }

    /// Which records can be taken in, and why the others cannot.
    fn ready<'s>(&self, slice: &'s Slice) -> (Vec<Ready<'s>>, Vec<(u64, String)>) {
        let mut ready = Vec::new();
        let mut bad = Vec::new();
        for record in &slice.records {
            match self.ready_one(&slice.header.origin_id, record) {
                Ok(one) => ready.push(one),
                Err(reason) => {
                    let (t, id) = (&record.item_type, &record.item_id);
                    bad.push((
                        record.seq,
                        format!("{t} {id} (seq {}): {reason}", record.seq),
                    ));
                }
            }
        }
        (ready, bad)
    }

    fn ready_one<'s>(&self, origin_id: &str, record: &'s SliceRecord) -> Result<Ready<'s>, String> {
        let (item_type, item_id) = (record.item_type.as_str(), record.item_id.as_str());
        if self.registry.get(item_type).is_none() {
            return Err(
                "its type is unknown here; bring its .heddle/schemas/ file first".to_owned(),
            );
        }
        let class = self.registry.class(item_type);
        let here = match class {
            TypeClass::Singleton => return Err("there is one of it in every store".to_owned()),
            TypeClass::Execution if owner_of(item_id).is_some() => {
                return Err("it belongs to another origin".to_owned());
            }
            TypeClass::Execution => {
                foreign_id(origin_id, item_id).ok_or("its id is too long to be shown here")?
            }
            TypeClass::Memory if candidate::is_one(item_type, item_id) => {
                return Err("conflict candidates are made here, not elsewhere".to_owned());
            }
            TypeClass::Memory => item_id.to_owned(),
        };
        let document = record.payload.clone();
        let document = document.map(|document| self.registry.load(item_type, document));
        let document = document.transpose().map_err(|error| error.to_string())?;
        let text_bytes = document.as_ref().map_or(0, |d| d.to_string().len());
        if text_bytes > crate::format::BLOB_BYTES_MAX {
            return Err("its document is too large".to_owned());
        }
        Ok(Ready {
            record,
            item_id: here,
            class,
            document,
            text_bytes,
        })
    }

    fn take_in(
        &self,
        slice: &Slice,
        ready: &[Ready<'_>],
        left_out: &[u64],
        told: &mut Imported,
    ) -> Result<(), JournalError> {
        let header = &slice.header;
        let key = |one: &Ready<'_>| (one.record.item_type.clone(), one.item_id.clone());
        let wanted: BTreeSet<_> = ready.iter().map(key).collect();
        let mut history: Option<History> = None;
        let mut from = header.seq_range[0];
        let chunks = chunks(ready, self.settings.chunk_records);
        let count = chunks.len();
        for (index, chunk) in chunks.into_iter().enumerate() {
            let last = chunk.last().map_or(0, |one| one.record.seq);
            let is_last = index + 1 == count;
            let range = [
                from,
                if is_last {
                    header.seq_range[1].max(last)
                } else {
                    last
                },
            ];
            from = range[1] + 1;
            let mut session = self.session()?;
            if session.bytes >= self.settings.roll_bytes {
                session.roll()?;
            }
            let known = match history.take() {
                Some(history) => history.advance(&session, header)?,
                None => {
                    let own = session.origin(Renew::No)?;
                    let fresh = History::open(&session, &own, header, wanted.clone())?;
                    check_against(&fresh, slice, ready)?;
                    fresh
                }
            };
            let inside: Vec<u64> = left_out
                .iter()
                .copied()
                .filter(|seq| (range[0]..=range[1]).contains(seq))
                .collect();
            session.chunk(slice, &known, chunk, range, &inside, told)?;
            history = Some(known);
            told.chunks += 1;
        }
        Ok(())
    }

    /// C15: what its origin erased is erased here, and never taken in again.
    fn erase_as_told(&self, slice: &Slice, told: &mut Imported) -> Result<(), JournalError> {
        let header = &slice.header;
        if header.redacted.is_empty() {
            return Ok(());
        }
        let mut session = self.session()?;
        let own = session.origin(Renew::No)?;
        let history = History::open(&session, &own, header, BTreeSet::new())?;
        let taken = history
            .replay
            .federated
            .of(&header.origin_id, header.origin_epoch);
        let is_new = |id: &&RedactedId| !taken.is_some_and(|taken| taken.erased.contains(&id.seq));
        let news: Vec<RedactedId> = header.redacted.iter().filter(is_new).cloned().collect();
        // IMPORTANT: first that they never come again, then that they go.
        for ids in news.chunks(ERASED_IDS_MAX) {
            let apply = FederationApply {
                seq_range: [0, 0],
                redacted: ids.to_vec(),
                ..empty_apply(slice)
            };
            let draft = session.meta_draft(&MetaPayload::FederationApply(apply))?;
            session.write(&[draft])?;
        }
        if !news.is_empty() {
            session.write_meta(false)?;
        }
        let mut targets: Vec<Target> = Vec::new();
        let erased: BTreeSet<u64> = header.redacted.iter().map(|id| id.seq).collect();
        for seq in &erased {
            let held = history.taken(*seq).filter(|taken| taken.has_content);
            targets.extend(held.map(|taken| Target::Seq(taken.local_seq)));
        }
        let candidates = self.candidates_of(slice, &erased)?;
        let withdrawn = self.withdrawn(slice, &erased, &targets, &candidates)?;
        told.taken_over = self.taken_over(&withdrawn)?;
        for id in candidates {
            targets.push(Target::Item {
                item_type: Some(CANDIDATE.to_owned()),
                item_id: id,
            });
        }
        told.erased = targets.len() as u64;
        drop(session);
        for target in targets {
            let reason = format!("erased by its origin {}", header.origin_id);
            let redacted = self.redact(&target, &reason)?;
            told.left.add(&redacted.left);
        }
        Ok(())
    }

    /// Conflict candidates that hold, or held before somebody changed or closed them, an image of an erased record.
    fn candidates_of(
        &self,
        slice: &Slice,
        erased: &BTreeSet<u64>,
    ) -> Result<BTreeSet<String>, JournalError> {
        let mut ids = self.holders(CANDIDATE, |document| {
            erased_images(document, &slice.header, erased)
                .next()
                .is_some()
        })?;
        ids.retain(|id| candidate::is_one(CANDIDATE, id));
        Ok(ids)
    }

    /// What goes: the records that were taken in, and of the candidates the images of their origin.
    fn withdrawn(
        &self,
        slice: &Slice,
        erased: &BTreeSet<u64>,
        taken: &[Target],
        candidates: &BTreeSet<String>,
    ) -> Result<Withdrawn, JournalError> {
        let mut withdrawn = Withdrawn::default();
        self.each_record(|_, record, _| {
            let id = record.item_id.as_ref().map_or("", |id| id.as_str());
            let is_candidate = record.item_type.as_str() == CANDIDATE && candidates.contains(id);
            let is_taken = taken.contains(&Target::Seq(record.seq));
            if !is_candidate && !is_taken {
                return;
            }
            let inline = record.payload.map(serde_json::value::RawValue::get);
            let blob = record.payload_ref.as_ref().map(|blob| blob.sha256.as_str());
            let document = inline.and_then(|text| serde_json::from_str(text).ok());
            let document = document.or_else(|| self.blob_document(blob?));
            let document = document.unwrap_or_default();
            withdrawn.add(record.seq, is_taken.then(|| document.clone()));
            for image in erased_images(&document, &slice.header, erased) {
                withdrawn.add(record.seq, Some(image["document"].clone()));
            }
        })?;
        Ok(withdrawn)
    }
}

/// Of a candidate.
fn erased_images<'d>(
    document: &'d Value,
    header: &Header,
    erased: &BTreeSet<u64>,
) -> impl Iterator<Item = &'d Value> {
    let is_erased = move |image: &&Value| {
        image["origin_id"] == header.origin_id.as_str()
            && image["origin_epoch"] == header.origin_epoch
            && image["origin_seq"]
                .as_u64()
                .is_some_and(|seq| erased.contains(&seq))
    };
    document["images"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(is_erased)
}

impl Session<'_> {
    fn chunk(
        &mut self,
        slice: &Slice,
        history: &History,
        chunk: &[Ready<'_>],
        seq_range: [u64; 2],
        left_out: &[u64],
        told: &mut Imported,
    ) -> Result<(), JournalError> {
        let mut plan = Plan::default();
        for ready in chunk {
            plan.add(self.journal, history, &slice.header, ready)?;
        }
        told.known += plan.known;
        told.lost += plan.lost;
        if !plan.is_news {
            return Ok(());
        }
        told.applied += plan.heads.len() as u64;
        told.conflicts.extend(plan.conflicts.iter().cloned());
        let apply = FederationApply {
            seq_range,
            applied: plan.heads.len() as u64,
            conflicts: plan.conflicts.len() as u64,
            heads: plan.heads.clone(),
            left_out: left_out.to_vec(),
            ..empty_apply(slice)
        };
        let first = self.meta_draft(&MetaPayload::FederationApply(apply))?;
        let written = self.write(&plan.into_drafts(first))?;
        self.apply(&written)?;
        self.write_meta(false)
    }
}

fn empty_apply(slice: &Slice) -> FederationApply {
    FederationApply {
        origin_id: slice.header.origin_id.clone(),
        origin_epoch: slice.header.origin_epoch,
        seq_range: [0, 0],
        applied: 0,
        conflicts: 0,
        slice_sha256: slice.sha256.clone(),
        heads: Vec::new(),
        left_out: Vec::new(),
        redacted: Vec::new(),
    }
}

/// What only this store can know of a forged or forked slice. Before anything of it is taken in.
fn check_against(
    history: &History,
    slice: &Slice,
    ready: &[Ready<'_>],
) -> Result<(), JournalError> {
    for one in ready {
        let (record, id) = (one.record, &one.item_id);
        if history
            .taken(record.seq)
            .is_some_and(|taken| taken.writer != record.writer)
        {
            return Err(JournalError::Refused(format!(
                "seq {} of {} is another record than the one that was taken in: that store was restored from a copy; \
                 run `heddle journal export-slice --new-epoch --out FILE` there and import that",
                record.seq, slice.header.origin_id
            )));
        }
        let rev = history.rev(&record.item_type, id);
        if record.entity_rev > rev.saturating_add(REV_AHEAD_MAX) {
            return Err(JournalError::Refused(format!(
                "the slice is refused, nothing was taken in: revision {} of {} {id} cannot be; here it is at {rev}",
                record.entity_rev, record.item_type
            )));
        }
    }
    Ok(())
}

fn refused(bad: &[(u64, String)]) -> JournalError {
    let shown: Vec<&str> = bad
        .iter()
        .take(REFUSED_SHOWN_MAX)
        .map(|(_, reason)| reason.as_str())
        .collect();
    JournalError::Refused(format!(
        "{} records of the slice cannot be taken in, and none was; mend that or pass --leave-out-bad:\n  {}",
        bad.len(),
        shown.join("\n  ")
    ))
}

/// A few records and a few megabytes each: nobody waits long for the lock.
fn chunks<'r, 's>(ready: &'r [Ready<'s>], records: usize) -> Vec<&'r [Ready<'s>]> {
    let mut all = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for (index, one) in ready.iter().enumerate() {
        let is_full = index - start >= records || bytes + one.text_bytes > CHUNK_TEXT_BYTES;
        if is_full && index > start {
            all.push(&ready[start..index]);
            start = index;
            bytes = 0;
        }
        bytes += one.text_bytes;
    }
    if start < ready.len() {
        all.push(&ready[start..]);
    }
    all
}
