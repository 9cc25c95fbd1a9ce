//! Uploads in SQL: a head for each member, and its staged rows, in the mesh's line.

use deadpool_postgres::Transaction;
use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId, OpId, Party};
use tokio_postgres::Row;

use super::super::error::StorageError;
use super::super::rows::{NewMessage, SendId};
use super::super::uploads::{
    COMMIT_ROWS_AT_ONCE, Outcome, Shown, Todo, Upload, UploadEnd, UploadPart, UploadVerdict,
    Uploads, begun, committed, staged,
};
use super::PostgresStorage;
use super::accept::{Undo, accept};
use super::columns::{Columns, integer, member_key, mesh_key, message_key, rows as limit};
use super::error::JobError;
use super::history;
use super::sql::{count, execute, query, query_opt};

const FIND: &str = "
SELECT snapshot_id, through, row_count, byte_count, touched_at, first_epoch, first_seq, shown_count
FROM snapshot_upload WHERE mesh_id = $1 AND member_id = $2";

const KEEP: &str = "
INSERT INTO snapshot_upload (mesh_id, member_id, snapshot_id, through, row_count, byte_count,
    touched_at, first_epoch, first_seq, shown_count)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (mesh_id, member_id) DO UPDATE SET snapshot_id = excluded.snapshot_id,
    through = excluded.through, row_count = excluded.row_count, byte_count = excluded.byte_count,
    touched_at = excluded.touched_at, first_epoch = excluded.first_epoch,
    first_seq = excluded.first_seq, shown_count = excluded.shown_count";

const STAGE: &str = "
INSERT INTO snapshot_row (mesh_id, member_id, position, sender_agent, client_message_id,
    wire_fingerprint, broker_message_id, envelope)
SELECT $1, $2, n.* FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::bytea[],
    $8::text[]) AS n";

const STAGED: &str = "
SELECT sender_agent, client_message_id, wire_fingerprint, broker_message_id, envelope
FROM snapshot_row WHERE mesh_id = $1 AND member_id = $2 AND position >= $3
ORDER BY position LIMIT $4";

const CLEAR: &str = "DELETE FROM snapshot_row WHERE mesh_id = $1 AND member_id = $2";

const SWEEP: &str = "
WITH abandoned AS (
    DELETE FROM snapshot_upload
    WHERE mesh_id = $1 AND first_epoch IS NULL AND touched_at < $2 RETURNING member_id),
gone AS (
    DELETE FROM snapshot_row r USING abandoned a
    WHERE r.mesh_id = $1 AND r.member_id = a.member_id)
SELECT member_id FROM abandoned";

/// Which upload.
#[derive(Clone, Copy)]
struct Which {
    mesh: MeshId,
    by: MemberId,
    id: OpId,
}

async fn find(tx: &Transaction<'_>, which: Which) -> Result<Option<Upload>, JobError> {
    let key = (mesh_key(which.mesh), member_key(which.by));
    let Some(row) = query_opt(tx, FIND, &[&key.0, &key.1]).await? else {
        return Ok(None);
    };
    let mut columns = Columns::of(&row);
    let mut upload = Upload {
        id: columns.op()?,
        through: columns.number()?,
        row_count: columns.number()?,
        byte_count: columns.number()?,
        touched_at: columns.wall()?,
        shown: None,
    };
    if !columns.is_missing()? {
        upload.shown = Some(Shown {
            first: columns.history_id()?,
            row_count: columns.number()?,
        });
    }
    Ok(Some(upload))
}

async fn keep(tx: &Transaction<'_>, which: Which, upload: &Upload) -> Result<(), JobError> {
    let shown = upload.shown;
    let key = (mesh_key(which.mesh), member_key(which.by));
    let first = shown.map(|shown| (integer(shown.first.epoch), integer(shown.first.seq)));
    execute(
        tx,
        KEEP,
        &[
            &key.0,
            &key.1,
            &upload.id.to_string(),
            &integer(upload.through),
            &integer(upload.row_count),
            &integer(upload.byte_count),
            &upload.touched_at.0,
            &first.map(|first| first.0),
            &first.map(|first| first.1),
            &shown.map(|shown| integer(shown.row_count)),
        ],
    )
    .await?;
    Ok(())
}

async fn clear(tx: &Transaction<'_>, which: Which) -> Result<(), JobError> {
    let key = (mesh_key(which.mesh), member_key(which.by));
    execute(tx, CLEAR, &[&key.0, &key.1]).await?;
    Ok(())
}

async fn begin(tx: &Transaction<'_>, which: Which, now: WallMs) -> Result<UploadVerdict, JobError> {
    match begun(find(tx, which).await?, which.id, now) {
        Todo::Answer(verdict) => Ok(verdict),
        Todo::Keep(fresh) => {
            clear(tx, which).await?;
            keep(tx, which, &fresh).await?;
            Ok(UploadVerdict::Through(fresh.through))
        }
    }
}

async fn stage(
    tx: &Transaction<'_>,
    which: Which,
    part: &UploadPart,
) -> Result<UploadVerdict, JobError> {
    let kept = find(tx, which).await?;
    let next = match staged(kept, which.id, part) {
        Todo::Answer(verdict) => return Ok(verdict),
        Todo::Keep(next) => next,
    };
    let key = (mesh_key(which.mesh), member_key(which.by));
    let from = kept.map_or(0, |kept| kept.row_count);
    let rows = &part.rows;
    let positions: Vec<i64> = (from..).zip(rows).map(|(at, _)| integer(at)).collect();
    let agents: Vec<&str> = rows
        .iter()
        .map(|row| row.id.sender.agent.as_str())
        .collect();
    let ids = rows.iter().map(|row| row.id.client_message_id.as_str());
    let ids: Vec<&str> = ids.collect();
    let prints: Vec<&[u8]> = rows.iter().map(|row| &row.wire_fingerprint.0[..]).collect();
    let minted = rows.iter().map(|row| message_key(row.broker_message_id));
    let minted: Vec<Vec<u8>> = minted.collect();
    let envelopes: Vec<&str> = rows.iter().map(|row| &*row.envelope).collect();
    execute(
        tx,
        STAGE,
        &[
            &key.0, &key.1, &positions, &agents, &ids, &prints, &minted, &envelopes,
        ],
    )
    .await?;
    keep(tx, which, &next).await?;
    Ok(UploadVerdict::Through(next.through))
}

async fn commit(
    tx: &Transaction<'_>,
    which: Which,
    end: &UploadEnd,
) -> Result<UploadVerdict, JobError> {
    let upload = match committed(find(tx, which).await?, which.id, end) {
        Ok(upload) => upload,
        Err(verdict) => return Ok(verdict),
    };
    let next = history::next(tx, which.mesh).await?;
    let key = (mesh_key(which.mesh), member_key(which.by));
    let most = limit(COMMIT_ROWS_AT_ONCE);
    let (mut outcome, mut position) = (Outcome::default(), 0_u64);
    while position < upload.row_count {
        let from = integer(position);
        let page = query(tx, STAGED, &[&key.0, &key.1, &from, &most]).await?;
        let read = |row| message(row, which, end);
        let messages: Vec<NewMessage> = page.iter().map(read).collect::<Result<_, _>>()?;
        let Some(length) = u64::try_from(messages.len()).ok().filter(|len| *len > 0) else {
            break;
        };
        let list: Vec<&NewMessage> = messages.iter().collect();
        outcome.add(&accept(tx, which.mesh, &list, Undo::Group).await?);
        if outcome.is_barred() {
            return Ok(UploadVerdict::Barred);
        }
        position += length;
    }
    clear(tx, which).await?;
    let shown = outcome.shown(next);
    let done = Upload {
        shown: Some(shown),
        touched_at: end.at,
        ..upload
    };
    keep(tx, which, &done).await?;
    Ok(UploadVerdict::Committed(shown))
}

/// A staged row as a message of now.
fn message(row: &Row, which: Which, end: &UploadEnd) -> Result<NewMessage, JobError> {
    let mut columns = Columns::of(row);
    let sender = Party {
        member: which.by,
        agent: columns.agent()?,
    };
    let id = SendId::new(which.mesh, sender, columns.client_message_id()?);
    let fingerprint = columns.fingerprint()?;
    let broker_message_id = columns.broker_message_id()?;
    Ok(end.message(id, fingerprint, broker_message_id, columns.envelope()?))
}

impl Uploads for PostgresStorage {
    async fn begin_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        now: WallMs,
    ) -> Result<UploadVerdict, StorageError> {
        let which = Which { mesh, by, id };
        self.write(mesh, (which, now), |tx, &(which, now)| {
            Box::pin(begin(tx, which, now))
        })
        .await
    }

    async fn stage_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        part: UploadPart,
    ) -> Result<UploadVerdict, StorageError> {
        let which = Which { mesh, by, id };
        self.write(mesh, (which, part), |tx, (which, part)| {
            Box::pin(stage(tx, *which, part))
        })
        .await
    }

    async fn commit_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        end: UploadEnd,
    ) -> Result<UploadVerdict, StorageError> {
        let which = Which { mesh, by, id };
        self.write(mesh, (which, end), |tx, (which, end)| {
            Box::pin(commit(tx, *which, end))
        })
        .await
    }

    async fn sweep_uploads(&self, mesh: MeshId, before: WallMs) -> Result<usize, StorageError> {
        self.write(mesh, (mesh, before), |tx, &(mesh, before)| {
            Box::pin(async move {
                let key = mesh_key(mesh);
                let swept = query(tx, SWEEP, &[&key, &before.0]).await?;
                Ok(count(u64::try_from(swept.len()).unwrap_or(u64::MAX)))
            })
        })
        .await
    }
}
