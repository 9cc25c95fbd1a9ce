//! A blob that is gone or holds other bytes is put back from whatever copy of it proves to be one: by its hash.

use crate::blobs;
use crate::error::JournalError;
use crate::format::{BLOB_BYTES_MAX, is_sha256};
use crate::journal::Journal;
use crate::replay::{Body, Replay, Unknown};
use crate::text::to_text;

impl Journal {
    /// Blobs of entities, past revisions included: from the archive, a backup, or the file of the entity. How many were put back.
    pub(crate) fn heal_blobs(&self, replay: &Replay<Unknown>) -> Result<u64, JournalError> {
        let mut healed = 0;
        for (item_type, item_id, entity) in replay.entities() {
            let Body::Blob { sha256, .. } = &entity.body else {
                continue;
            };
            let is_sound = blobs::get(self.disk(), &self.layout, sha256).is_ok();
            if is_sound || !is_sha256(sha256) {
                continue;
            }
            if let Some(bytes) = self.copy_of_blob(item_type, item_id, sha256)? {
                blobs::put(self.disk(), &self.layout, &bytes)?;
                healed += 1;
            }
        }
        // Of past revisions nobody shows anything, and the history is whole again all the same.
        for lost in self.lost_contents(replay)? {
            let copy = self.copy_of_blob(&lost.item_type, &lost.item_id, &lost.sha256)?;
            if let Some(bytes) = copy.filter(|_| is_sha256(&lost.sha256)) {
                blobs::put(self.disk(), &self.layout, &bytes)?;
                healed += 1;
            }
        }
        Ok(healed)
    }

    fn copy_of_blob(
        &self,
        item_type: &str,
        item_id: &str,
        sha256: &str,
    ) -> Result<Option<Vec<u8>>, JournalError> {
        for layout in self.layouts()? {
            for path in [layout.blob(sha256), layout.archived_blobs().join(sha256)] {
                let bytes = self.disk().read(&path, BLOB_BYTES_MAX as u64).ok();
                if let Some(bytes) = bytes.filter(|bytes| blobs::sha256_hex(bytes) == sha256) {
                    return Ok(Some(bytes));
                }
            }
        }
        let filed = self.projection(item_type, item_id)?.and_then(Result::ok);
        let text = filed.map(|document| to_text(&document).into_bytes());
        Ok(text.filter(|text| blobs::sha256_hex(text) == sha256))
    }
}
