//! Content of past revisions that lies in blobs: nobody shows it, and it is part of the history all the same.

use std::collections::BTreeMap;

use crate::blobs;
use crate::erased::Ids;
use crate::error::JournalError;
use crate::format::{BLOB_BYTES_MAX, is_sha256};
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::replay::{Body, Replay, Unknown};
use crate::segments;

/// Named in a warning.
const SHOWN_MAX: usize = 5;

/// A blob that a record names and of which no sound copy is where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostContent {
    pub(crate) sha256: String,
    pub(crate) seq: u64,
    pub(crate) item_type: String,
    pub(crate) item_id: String,
}

impl Journal {
    /// JN-24: of records that are not the newest of their entity, which is told as that. What `gc` moved is in the archive.
    pub(crate) fn lost_contents(
        &self,
        replay: &Replay<Unknown>,
    ) -> Result<Vec<LostContent>, JournalError> {
        let mut named = Named {
            erased: self.erased()?,
            all: BTreeMap::new(),
        };
        for first in self.all_segments()? {
            let bytes = segments::read(self.disk(), &self.layout, first)?;
            scan(&bytes, 0, &mut named);
        }
        for (_, _, entity) in replay.entities() {
            if let Body::Blob { sha256, .. } = &entity.body {
                named.all.remove(&**sha256);
            }
        }
        let mut lost: Vec<LostContent> = named.all.into_values().collect();
        lost.retain(|one| !self.is_kept(&one.sha256));
        lost.sort_by_key(|one| one.seq);
        Ok(lost)
    }

    fn is_kept(&self, sha256: &str) -> bool {
        let archived = || {
            let path = self.layout.archived_blobs().join(sha256);
            let bytes = self.disk().read(&path, BLOB_BYTES_MAX as u64);
            bytes.is_ok_and(|bytes| blobs::sha256_hex(&bytes) == sha256)
        };
        is_sha256(sha256) && (blobs::get(self.disk(), &self.layout, sha256).is_ok() || archived())
    }
}

/// For people; none where nothing is lost.
pub(crate) fn warning(lost: &[LostContent]) -> Option<String> {
    let place = |one: &LostContent| format!("{} {} at seq {}", one.item_type, one.item_id, one.seq);
    let shown: Vec<String> = lost.iter().take(SHOWN_MAX).map(place).collect();
    let more = if lost.len() > SHOWN_MAX { ", …" } else { "" };
    (!lost.is_empty()).then(|| {
        format!(
            "the content of {} past revisions is lost with its blob ({}{more}): put .heddle/events/blobs back from another copy, or `heddle journal rebuild` takes it from a backup that has it; `heddle doctor redact --seq N --reason REASON` notes one as gone for good",
            lost.len(),
            shown.join(", ")
        )
    })
}

/// Every blob that a record names, once.
struct Named {
    erased: Ids,
    all: BTreeMap<String, LostContent>,
}

impl<'a> Sink<'a> for Named {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for record in batch.iter().map(|counted| &counted.record) {
            let Some((blob, id)) = record.payload_ref.as_ref().zip(record.item_id.as_ref()) else {
                continue;
            };
            // An old copy of a segment brought it back, and its blob is gone as it should be.
            let by = (record.seq, record.writer.as_str().to_owned());
            if !self.erased.contains(&by) {
                let one = LostContent {
                    sha256: blob.sha256.as_str().to_owned(),
                    seq: record.seq,
                    item_type: record.item_type.as_str().to_owned(),
                    item_id: id.as_str().to_owned(),
                };
                self.all.insert(one.sha256.clone(), one);
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}
