//! Writing a checkpoint: when one is due, its bytes, and the order of file, reference and cache.

use serde_json::value::RawValue;

use crate::blobs;
use crate::checkpoint::{ManifestEntity, Reference, Rest, listed, sealed};
use crate::disk::replace;
use crate::error::{At, JournalError};
use crate::federation::{Origin, Renew};
use crate::format::{INLINE_PAYLOAD_BYTES_MAX, checkpoint_name};
use crate::journal::Journal;
use crate::newer;
use crate::notes::{CheckpointRef, MetaPayload};
use crate::record::PayloadRef;
use crate::replay::{Body, Replay, Unknown};
use crate::segments;
use crate::session::Session;

type Image = (Option<Box<RawValue>>, Option<(String, u64)>);

impl Journal {
    /// The manifest of a state, migrated to this build's versions, and the blobs that it names.
    fn manifest(
        &self,
        replay: &Replay<Unknown>,
        origin: Option<&Origin>,
        without: &[[u64; 2]],
    ) -> Result<(Vec<u8>, Vec<String>), JournalError> {
        let mut live = Vec::new();
        let mut dead = Vec::new();
        let mut named = Vec::new();
        for (item_type, item_id, entity) in replay.entities() {
            let (inline, blob) = self.image(item_type, &entity.body)?;
            let line = ManifestEntity {
                item_type: item_type.into(),
                item_id: item_id.into(),
                entity_rev: entity.head.rev,
                seq: entity.head.seq,
                crc: entity.head.crc,
                payload: inline.as_deref(),
                payload_ref: blob.as_ref().map(|(sha256, bytes)| PayloadRef {
                    sha256: sha256.as_str().into(),
                    bytes: *bytes,
                }),
                origin: entity.provenance.as_deref().cloned(),
            };
            let line = serde_json::to_string(&line).map_err(JournalError::refused)?;
            if entity.head.is_deleted {
                dead.push(line);
            } else {
                live.push(line);
            }
            named.extend(blob.map(|(sha256, _)| sha256));
        }
        named.sort_unstable();
        named.dedup();
        let rest = Rest {
            blobs: &named,
            federated: &replay.federated,
            origin,
            without,
        };
        let bytes = sealed(replay.head_seq, &live, &dead, &rest)?;
        Ok((bytes, named))
    }

    /// A post-image for a manifest: at this build's version where it can be read, as it was where not.
    fn image(&self, item_type: &str, body: &Body) -> Result<Image, JournalError> {
        let text = match (body, self.document(item_type, body)) {
            (Body::Gone, _) => return Ok((None, None)),
            (_, Ok(document)) => document.to_string(),
            (Body::Inline(text), Err(_)) => text.to_string(),
            (Body::Blob { sha256, bytes }, Err(_)) => {
                return Ok((None, Some((sha256.to_string(), *bytes))));
            }
        };
        if text.len() > INLINE_PAYLOAD_BYTES_MAX {
            let sha256 = blobs::put(self.disk(), &self.layout, text.as_bytes())?;
            return Ok((None, Some((sha256, text.len() as u64))));
        }
        let raw = RawValue::from_string(text).map_err(JournalError::refused)?;
        Ok((Some(raw), None))
    }
}

impl Session<'_> {
    /// At every roll while the state is small, else when as much was recorded since as it holds.
    pub(crate) fn is_checkpoint_due(&self) -> Result<bool, JournalError> {
        let (disk, layout) = (self.journal.disk(), &self.journal.layout);
        let Some(newest) = listed(disk, layout)?.last().copied() else {
            return Ok(true);
        };
        let path = layout.checkpoint(newest);
        let state = disk.len(&path).at(&path)?.unwrap_or(0);
        if state <= self.journal.settings.every_roll_bytes {
            return Ok(true);
        }
        let mut since = 0;
        for first in segments::live(disk, layout)? {
            let path = layout.segment(first);
            let is_behind = first > newest;
            since += disk
                .len(&path)
                .at(&path)?
                .filter(|_| is_behind)
                .unwrap_or(0);
        }
        Ok(since >= state)
    }

    /// Manifest, sync, reference, cache: a crash leaves at most a file that nobody refers to.
    pub(crate) fn checkpoint(&mut self) -> Result<CheckpointRef, JournalError> {
        let journal = self.journal;
        let rebuilt = journal.rebuild(0)?;
        let head_seq = rebuilt.replay.head_seq;
        if let Some(newest) = rebuilt.from
            && head_seq == newest + 1
            && let Reference::Found(reference) = journal.reference(newest)?
        {
            // Nothing but the reference itself came since.
            return Ok(reference);
        }
        let missing = rebuilt.replay.gaps.open();
        if !missing.is_empty() {
            // IMPORTANT: whoever began with it would never look at those records again, not even where they are put back.
            return Err(JournalError::Incomplete(missing));
        }
        if let Some(segment) = newer::segments_of(&rebuilt.replay.damage).first() {
            // IMPORTANT: the same. The newer build would begin with it, and its own records would be without effect.
            return Err(JournalError::Newer(journal.segment_path(*segment)?));
        }
        let origin = self.origin(Renew::No).ok();
        let without = self.given_up(&rebuilt)?;
        let (bytes, named) = journal.manifest(&rebuilt.replay, origin.as_ref(), &without)?;
        let path = journal.layout.checkpoint(head_seq);
        replace(journal.disk(), &path, &bytes, true).at(&path)?;
        let reference = CheckpointRef {
            file: checkpoint_name(head_seq),
            sha256: blobs::sha256_hex(&bytes),
            head_seq,
            entities: rebuilt.replay.live_count(),
            bytes: bytes.len() as u64,
            blobs: named,
        };
        let draft = self.meta_draft(&MetaPayload::CheckpointRef(reference.clone()))?;
        self.write(&[draft])?;
        self.write_meta(false)?;
        Ok(reference)
    }
}

impl Journal {
    /// A checkpoint, and a clean end: whatever boot comes next need not compare every file.
    pub fn checkpoint(&self) -> Result<CheckpointRef, JournalError> {
        self.must_be_on()?;
        let mut session = self.session()?;
        let reference = session.checkpoint()?;
        // Where that cannot be promised, the next boot looks for itself.
        if self.disk().sync_all(self.layout.root()).is_ok() {
            session.write_meta(true)?;
        }
        Ok(reference)
    }
}
