//! Who took over what another store has erased since: records of ours that say the same, written when it had come here.
//!
//! They are this store's own, so no erasure of another's reaches them; a person is told.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::JournalError;
use crate::journal::Journal;

use super::needles::Needles;

/// What is erased because its origin did.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    pub(crate) documents: Vec<Value>,
    /// The first record here that brought any of it.
    pub(crate) since: Option<u64>,
    /// Those records, which go themselves.
    pub(crate) seqs: BTreeSet<u64>,
}

impl Withdrawn {
    pub(crate) fn add(&mut self, seq: u64, document: Option<Value>) {
        self.since = Some(self.since.map_or(seq, |since| since.min(seq)));
        self.seqs.insert(seq);
        self.documents.extend(document);
    }
}

impl Journal {
    /// IMPORTANT: before anything is erased. Afterwards nobody knows what to look for.
    pub(crate) fn taken_over(&self, withdrawn: &Withdrawn) -> Result<Vec<String>, JournalError> {
        let Some(since) = withdrawn.since else {
            return Ok(Vec::new());
        };
        let mut needles = Needles::default();
        for document in &withdrawn.documents {
            needles.document(document);
        }
        let matcher = needles.matcher()?;
        // What was said here before it came was taken over from nobody.
        let mut known: BTreeSet<String> = BTreeSet::new();
        let mut holders: BTreeMap<u64, (String, BTreeSet<String>)> = BTreeMap::new();
        self.each_record(|_, record, line| {
            if withdrawn.seqs.contains(&record.seq) || record.redacted.is_some() {
                return;
            }
            let mut found = matcher.found(line);
            let blob = record.payload_ref.as_ref();
            if let Some(document) = blob.and_then(|blob| self.blob_document(blob.sha256.as_str())) {
                found.extend(matcher.found(document.to_string().as_bytes()));
            }
            if record.seq < since {
                known.extend(found);
            } else if !found.is_empty() {
                holders.insert(record.seq, (super::survey::name_of(record), found));
            }
        })?;
        let is_news = |(_, (_, found)): &(u64, (String, BTreeSet<String>))| {
            found.iter().any(|text| !known.contains(text))
        };
        let all = holders.into_iter().filter(is_news);
        Ok(all
            .map(|(_, (name, _))| name)
            .take(super::ALSO_IN_MAX)
            .collect())
    }
}
