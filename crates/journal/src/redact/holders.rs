//! Which items hold a document of some kind, in any of their versions: the newest is not the only one that keeps a secret.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::checkpoint::{self, MANIFEST_BYTES_MAX};
use crate::error::{At, JournalError};
use crate::journal::Journal;

impl Journal {
    /// Ids of the items of a type of which a record or a checkpoint, here or in a backup, still has a document that `holds`.
    /// Also of those that were changed or deleted since.
    pub(crate) fn holders(
        &self,
        of_type: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<BTreeSet<String>, JournalError> {
        let mut ids = BTreeSet::new();
        let is_held = |payload: Option<&str>, blob: Option<&str>| {
            let inline = payload.and_then(|text| serde_json::from_str(text).ok());
            let document = inline.or_else(|| self.blob_document(blob?));
            document.is_some_and(|document| holds(&document))
        };
        self.each_record(|_, record, _| {
            let blob = record.payload_ref.as_ref().map(|blob| blob.sha256.as_str());
            let payload = record.payload.map(serde_json::value::RawValue::get);
            if let Some(id) = record.item_id.as_ref().map(crate::record::Text::as_str)
                && record.item_type.as_str() == of_type
                && !ids.contains(id)
                && is_held(payload, blob)
            {
                ids.insert(id.to_owned());
            }
        })?;
        // A clone has no records of what its checkpoints brought.
        for layout in self.layouts()? {
            for path in self.checkpoint_files(&layout)? {
                let bytes = self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path)?;
                let Ok(manifest) = checkpoint::parse(&bytes) else {
                    continue;
                };
                for entity in &manifest.entities {
                    let blob = entity.payload_ref.as_ref().map(|blob| blob.sha256.as_str());
                    let payload = entity.payload.map(serde_json::value::RawValue::get);
                    let id = entity.item_id.as_str();
                    if entity.item_type.as_str() == of_type
                        && !ids.contains(id)
                        && is_held(payload, blob)
                    {
                        ids.insert(id.to_owned());
                    }
                }
            }
        }
        Ok(ids)
    }
}
