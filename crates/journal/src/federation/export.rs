//! A slice of this store's own records, without what is nobody else's business.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::action::ActionClass;
use crate::erased::Ids;
use crate::error::JournalError;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::notes::RedactedId;
use crate::record::{Record, Text};
use crate::registry::TypeClass;
use crate::replay::Body;
use crate::seen::{Again, Seen};
use crate::segments;

use super::origin::Renew;
use super::privacy::Privacy;
use super::provenance::{Lineage, Provenance};
use super::slice::{self, Header, SLICE_VERSION, SliceRecord};
use super::{applied_in, candidate, provenance_of};

/// Of the documents in one slice.
const SLICE_TEXT_BYTES: usize = 64 << 20;
const WITHHELD_SHOWN_MAX: usize = 20;

/// What shall be exported.
#[derive(Debug, Clone)]
pub struct ExportAsk {
    /// Records after this seq.
    pub since: u64,
    pub limit: usize,
    /// These types only; none named means all.
    pub types: Vec<String>,
    pub renew: Renew,
}

#[derive(Debug, Clone, Serialize)]
pub struct Exported {
    pub origin_id: String,
    pub origin_epoch: u64,
    pub seq_range: [u64; 2],
    pub records: u64,
    /// Users, pids and absolute paths that were taken out.
    pub stripped: u64,
    /// Records that could not go, and why.
    pub withheld: Vec<String>,
    pub redacted: u64,
    /// The limit was reached: ask again with `since` at the end of the range.
    pub more: bool,
    pub bytes: u64,
    pub sha256: String,
    #[serde(skip)]
    pub slice: Vec<u8>,
}

impl Journal {
    /// Everything in it is on the disk before it leaves.
    pub fn export_slice(&self, ask: &ExportAsk) -> Result<Exported, JournalError> {
        // Taking the lock syncs what a dead writer left; what comes after it is the next slice's.
        let session = self.session()?;
        let origin = session.origin(ask.renew)?;
        let head = session.next_seq - 1;
        drop(session);
        if ask.since > head {
            return Err(JournalError::Refused(format!(
                "this journal ends at seq {head}: nothing comes after {}",
                ask.since
            )));
        }
        let repository = self.layout.root().parent().unwrap_or(Path::new("/"));
        let tops = self.disk().list(Path::new("/")).unwrap_or_default();
        let mut exporter = Exporter {
            journal: self,
            ask,
            head,
            privacy: Privacy::new(repository, tops.into_iter().map(|entry| entry.name)),
            provenance: HashMap::new(),
            seen: Seen::default(),
            erased: self.erased_or_doomed()?,
            records: Vec::new(),
            redacted: Vec::new(),
            withheld: BTreeSet::new(),
            last: head,
            text_bytes: 0,
            more: false,
        };
        for first in self.all_segments()? {
            let bytes = segments::read(self.disk(), &self.layout, first)?;
            scan(&bytes, 0, &mut exporter);
        }
        let header = Header {
            heddle_slice: SLICE_VERSION,
            origin_id: origin.origin_id.clone(),
            origin_epoch: origin.origin_epoch,
            seq_range: [ask.since + 1, exporter.last],
            records: exporter.records.len() as u64,
            redacted: exporter.redacted,
        };
        let slice = slice::encode(&header, &exporter.records).map_err(JournalError::Refused)?;
        Ok(Exported {
            origin_id: header.origin_id,
            origin_epoch: header.origin_epoch,
            seq_range: header.seq_range,
            records: header.records,
            stripped: exporter.privacy.stripped,
            withheld: exporter
                .withheld
                .into_iter()
                .take(WITHHELD_SHOWN_MAX)
                .collect(),
            redacted: header.redacted.len() as u64,
            more: exporter.more,
            bytes: slice.len() as u64,
            sha256: crate::blobs::sha256_hex(&slice),
            slice,
        })
    }
}

struct Exporter<'j> {
    journal: &'j Journal,
    ask: &'j ExportAsk,
    head: u64,
    privacy: Privacy,
    /// By type and id: what the newest image here was built on.
    provenance: HashMap<(String, String), Provenance>,
    seen: Seen,
    /// What a note calls erased; an old copy of its segment may have brought it back.
    erased: Ids,
    records: Vec<SliceRecord>,
    redacted: Vec<RedactedId>,
    withheld: BTreeSet<String>,
    last: u64,
    text_bytes: usize,
    more: bool,
}

impl Exporter<'_> {
    fn own(&mut self, record: &Record<'_>) {
        let mode = self.journal.mode;
        let class = record.action.class(mode);
        let is_state = class == ActionClass::Tombstone || record.has_payload();
        let (Some(id), Some(rev)) = (&record.item_id, record.entity_rev) else {
            return;
        };
        let (item_type, item_id) = (record.item_type.as_str(), id.as_str());
        if self.journal.registry.class(item_type) == TypeClass::Singleton
            || candidate::is_one(item_type, item_id)
        {
            return;
        }
        let is_erased = || {
            let id = (record.seq, record.writer.as_str().to_owned());
            !self.erased.is_empty() && self.erased.contains(&id)
        };
        if record.redacted.is_some() || is_erased() {
            self.redacted.push(RedactedId {
                seq: record.seq,
                writer: Privacy::writer(record.writer.as_str()),
            });
            return;
        }
        let key = (item_type.to_owned(), item_id.to_owned());
        let before = self.provenance.remove(&key).and_then(|p| p.after_own());
        let lineage = before
            .as_ref()
            .map_or_else(Lineage::new, |p| p.lineage.clone());
        self.provenance.extend(before.map(|before| (key, before)));
        let is_wanted = self.ask.types.is_empty() || self.ask.types.iter().any(|t| t == item_type);
        if !is_state || record.seq <= self.ask.since || !is_wanted || self.more {
            return;
        }
        if self.records.len() >= self.ask.limit || self.text_bytes >= SLICE_TEXT_BYTES {
            self.more = true;
            self.last = record.seq - 1;
            return;
        }
        match self.travelling(record, item_type, item_id, rev, lineage) {
            Ok(travelling) => self.records.push(travelling),
            Err(reason) => {
                let shown = format!("{item_type} {item_id} (seq {}): {reason}", record.seq);
                self.withheld.insert(shown);
            }
        }
    }

    fn travelling(
        &mut self,
        record: &Record<'_>,
        item_type: &str,
        item_id: &str,
        rev: u64,
        lineage: Lineage,
    ) -> Result<SliceRecord, String> {
        let body = match (record.payload, &record.payload_ref) {
            (Some(payload), _) => Some(Body::Inline(RawValue::get(payload).into())),
            (None, Some(blob)) => Some(Body::Blob {
                sha256: blob.sha256.as_str().into(),
                bytes: blob.bytes,
            }),
            (None, None) => None,
        };
        let payload = match &body {
            None => None,
            Some(body) => {
                let document = self.journal.document(item_type, body)?;
                let document = self.privacy.document(document);
                self.text_bytes += document.to_string().len();
                // Without what was taken out it must still be of its type, or nobody could take it in.
                let loaded = self.journal.registry.load(item_type, document);
                Some(loaded.map_err(|e| format!("without its private parts: {e}"))?)
            }
        };
        let user = record.user.as_ref().map(Text::as_str);
        let summary = record.summary.as_ref();
        Ok(SliceRecord {
            seq: record.seq,
            writer: Privacy::writer(record.writer.as_str()),
            agent: Privacy::agent(record.agent.as_str(), user),
            action: record.action,
            item_type: item_type.to_owned(),
            item_id: item_id.to_owned(),
            entity_rev: rev,
            base_rev: Some(rev - 1),
            lineage,
            summary: summary.map(|text| self.privacy.text(text.as_str()).into_owned()),
            payload,
        })
    }
}

impl<'a> Sink<'a> for Exporter<'_> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        let applied = applied_in(batch);
        for counted in batch {
            let record = &counted.record;
            let (seq, writer) = (record.seq, record.writer.as_str());
            if seq > self.head || self.seen.note(seq, writer, counted.crc) == Again::Identical {
                continue;
            }
            match &applied {
                None => self.own(record),
                // What others wrote is theirs to export; what was built on it must be known.
                Some(applied) => {
                    if let (Some(head), Some(id)) = (applied.head_of(record), &record.item_id) {
                        let key = (record.item_type.as_str().to_owned(), id.as_str().to_owned());
                        let provenance = provenance_of(&applied.apply, head);
                        self.provenance.insert(key, provenance);
                    }
                }
            }
        }
    }

    /// What does not count was never written; verify counts it.
    fn damage(&mut self, _: Damage) {}
}
