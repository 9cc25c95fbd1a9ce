//! Uploads of the oracle: rows in a list, until they are accepted one after the other.

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId, OpId};

use super::super::error::StorageError;
use super::super::rows::NewMessage;
use super::super::uploads::{
    Outcome, Todo, Upload, UploadEnd, UploadPart, UploadVerdict, Uploads, begun, committed, staged,
};
use super::MemoryStorage;

impl Uploads for MemoryStorage {
    async fn begin_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        now: WallMs,
    ) -> Result<UploadVerdict, StorageError> {
        self.on(mesh, |tables| {
            let kept = tables.uploads.get(&by).map(|(upload, _)| *upload);
            Ok(match begun(kept, id, now) {
                Todo::Answer(verdict) => verdict,
                Todo::Keep(fresh) => {
                    tables.uploads.insert(by, (fresh, Vec::new()));
                    UploadVerdict::Through(fresh.through)
                }
            })
        })
    }

    async fn stage_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        part: UploadPart,
    ) -> Result<UploadVerdict, StorageError> {
        self.on(mesh, |tables| {
            let kept = tables.uploads.get(&by).map(|(upload, _)| *upload);
            Ok(match staged(kept, id, &part) {
                Todo::Answer(verdict) => verdict,
                Todo::Keep(next) => {
                    if let Some((upload, rows)) = tables.uploads.get_mut(&by) {
                        *upload = next;
                        rows.extend(part.rows);
                    }
                    UploadVerdict::Through(next.through)
                }
            })
        })
    }

    async fn commit_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        end: UploadEnd,
    ) -> Result<UploadVerdict, StorageError> {
        self.on(mesh, |tables| {
            let kept = tables.uploads.get(&by).map(|(upload, _)| *upload);
            let upload = match committed(kept, id, &end) {
                Ok(upload) => upload,
                Err(verdict) => return Ok(verdict),
            };
            let rows = tables.uploads.remove(&by).unwrap_or((upload, Vec::new())).1;
            let next = HistoryId {
                epoch: tables.epoch,
                seq: tables.next_seq,
            };
            let mut outcome = Outcome::default();
            for row in &rows {
                let message = NewMessage {
                    sender_name: end.sender_name.clone(),
                    accepted_at: end.at,
                    expires_at: end.expires_at,
                    ..row.clone()
                };
                outcome.add(&[tables.accept(message)]);
                if outcome.is_barred() {
                    tables.uploads.insert(by, (upload, rows));
                    return Ok(UploadVerdict::Barred);
                }
            }
            let shown = outcome.shown(next);
            let done = Upload {
                shown: Some(shown),
                touched_at: end.at,
                ..upload
            };
            tables.uploads.insert(by, (done, Vec::new()));
            Ok(UploadVerdict::Committed(shown))
        })
    }

    async fn sweep_uploads(&self, mesh: MeshId, before: WallMs) -> Result<usize, StorageError> {
        self.on(mesh, |tables| {
            let is_open = |upload: &Upload| upload.shown.is_none();
            let was = tables.uploads.len();
            tables
                .uploads
                .retain(|_, (upload, _)| !is_open(upload) || upload.touched_at >= before);
            Ok(was - tables.uploads.len())
        })
    }
}
