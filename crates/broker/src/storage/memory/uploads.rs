//! Uploads of the oracle: rows in a list, until they are accepted one after the other.

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId, OpId};

use super::super::error::StorageError;
use super::super::left_out::LeftOut;
use super::super::rows::NewMessage;
use super::super::uploads::{
    DISCARD_ROWS_AT_ONCE, Outcome, Todo, Upload, UploadEnd, UploadPart, UploadVerdict, Uploads,
    begun, committed, fence, staged, takes_more,
};
use super::MemoryStorage;
use super::tables::Tables;

/// The upload of a member as the SQL finds it.
fn find(tables: &Tables, by: MemberId) -> Option<Upload> {
    let (upload, rows) = tables.uploads.get(&by)?;
    Some(Upload {
        has_rows: !rows.is_empty(),
        ..*upload
    })
}

/// How many of the staged rows a step of a commit takes.
fn step(rows: &[NewMessage]) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for row in rows {
        if !takes_more(count, bytes) {
            break;
        }
        count += 1;
        bytes += row.envelope.len();
    }
    count
}

fn commit(
    tables: &mut Tables,
    by: MemberId,
    id: OpId,
    end: &UploadEnd,
) -> Result<UploadVerdict, StorageError> {
    let upload = match committed(find(tables, by), id, end) {
        Ok(upload) => upload,
        Err(verdict) => return Ok(verdict),
    };
    let rows = tables.uploads.get(&by).map(|(_, rows)| rows.as_slice());
    let rows = rows.unwrap_or_default();
    let count = step(rows);
    let (has_more, taken) = (rows.len() > count, rows.get(..count).unwrap_or_default());
    let taken = taken.to_vec();
    let next = HistoryId {
        epoch: tables.epoch,
        seq: tables.next_seq,
    };
    let Ok(fence) = fence(tables.snapshot, (id, by), next, has_more) else {
        return Ok(UploadVerdict::Waits);
    };
    let mut outcome = Outcome::of(upload.shown);
    for row in taken {
        let message = NewMessage {
            is_heard: upload.shown.is_some(),
            sender_name: end.sender_name.clone(),
            accepted_at: end.at,
            expires_at: end.expires_at,
            ..row
        };
        let id = message.id.clone();
        outcome.add([&id], &[tables.accept(message)]);
        if outcome.is_barred() {
            return Ok(UploadVerdict::Barred);
        }
    }
    let shown = outcome.shown(next);
    let before = tables.left_out.remove(&by).unwrap_or_default();
    let all = before.and(outcome.left_out().clone());
    tables.left_out.insert(by, all);
    tables.snapshot = fence.or(tables.snapshot);
    if let Some((kept, rows)) = tables.uploads.get_mut(&by) {
        rows.drain(..count);
        *kept = Upload {
            shown: Some(shown),
            touched_at: end.at,
            ..upload
        };
    }
    Ok(if has_more {
        UploadVerdict::Going
    } else {
        UploadVerdict::Committed(shown)
    })
}

impl Uploads for MemoryStorage {
    async fn begin_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        now: WallMs,
    ) -> Result<UploadVerdict, StorageError> {
        self.on(mesh, |tables| {
            Ok(match begun(find(tables, by), id, now) {
                Todo::Answer(verdict) => verdict,
                Todo::Keep(fresh) => {
                    if let Some((kept, rows)) = tables.uploads.get_mut(&by) {
                        rows.drain(..rows.len().min(DISCARD_ROWS_AT_ONCE));
                        if !rows.is_empty() {
                            *kept = fresh.discarded();
                            return Ok(UploadVerdict::Going);
                        }
                    }
                    tables.left_out.remove(&by);
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
            Ok(match staged(find(tables, by), id, &part) {
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
        self.on(mesh, |tables| commit(tables, by, id, &end))
    }

    async fn ending_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
    ) -> Result<Option<(OpId, u64)>, StorageError> {
        self.on(mesh, |tables| {
            let ending = find(tables, by).filter(Upload::is_ending);
            Ok(ending.map(|upload| (upload.id, upload.through)))
        })
    }

    async fn upload_left_out(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
    ) -> Result<LeftOut, StorageError> {
        self.on(mesh, |tables| {
            let is_this = find(tables, by).is_some_and(|upload| upload.id == id);
            let kept = tables.left_out.get(&by).filter(|_| is_this);
            Ok(kept.cloned().unwrap_or_default())
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
