//! Names of fields that somebody has made up: content, where nobody else has such a field. The names that a type, the format or the records
//! of others use as well are nobody's.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;
use serde_json::Value;

use crate::checkpoint::{self, MANIFEST_BYTES_MAX};
use crate::error::{At, JournalError};
use crate::journal::Journal;

use super::job::Job;
use super::needles::Needles;
use super::survey;

/// Of the small files beside the records: lists, the mode, the copies. Those of records are read from them.
const OWN: &[&str] = &[
    "backup",
    "format",
    "journal",
    "leftovers",
    "schema_version",
    "segments",
    "short_in",
    "unfinished",
];

/// Names of all fields of a document, however deep.
fn names<'v>(value: &'v Value, all: &mut BTreeSet<&'v str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| names(item, all)),
        Value::Object(fields) => {
            for (name, field) in fields {
                all.insert(name);
                names(field, all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Journal {
    /// Searches for the names that only the target has. Whether it has any is asked of the registry first, for the rest reads everything.
    pub(super) fn take_own_names(
        &self,
        job: &Job,
        kept_blobs: &BTreeSet<String>,
        needles: &mut Needles,
    ) -> Result<(), JournalError> {
        let mut own = needles.take_fields();
        own.retain(|name| !OWN.contains(&name.as_str()) && !self.registry.names_field(name));
        if own.is_empty() {
            return Ok(());
        }
        let quoted = own.iter().map(|name| format!("\"{name}\""));
        let any = AhoCorasick::new(quoted).map_err(JournalError::refused)?;
        let mut used = BTreeSet::new();
        let mut take = |bytes: &[u8], is_target: bool| {
            if !any.is_match(bytes) {
                return;
            }
            let Ok(mut line) = serde_json::from_slice::<Value>(bytes) else {
                return;
            };
            if is_target && let Some(fields) = line.as_object_mut() {
                // What is left of it is the envelope.
                fields.remove("payload");
            }
            let mut all = BTreeSet::new();
            names(&line, &mut all);
            used.extend(all.into_iter().map(str::to_owned));
        };
        self.each_record(|_, record, old| take(old, job.names(record)))?;
        for sha256 in kept_blobs {
            if let Some(document) = self.blob_document(sha256) {
                take(document.to_string().as_bytes(), false);
            }
        }
        for layout in self.layouts()? {
            for path in self.checkpoint_files(&layout)? {
                let bytes = self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path)?;
                let Ok(manifest) = checkpoint::parse(&bytes) else {
                    continue;
                };
                for entity in &manifest.entities {
                    let text = entity.payload.map_or("", |text| text.get());
                    if !survey::is_hit(job, entity) {
                        take(text.as_bytes(), false);
                    }
                }
            }
        }
        for name in own.difference(&used) {
            needles.text(name);
        }
        Ok(())
    }
}
