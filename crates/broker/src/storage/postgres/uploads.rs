//! Uploads in SQL: a head for each member, and its staged rows, in the mesh's line.

use std::sync::Arc;

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId, OpId, Party};
use tokio_postgres::Row;

use super::super::error::StorageError;
use super::super::left_out::LeftOut;
use super::super::rows::{NewMessage, SendId};
use super::super::seen::Seen;
use super::super::uploads::{
    COMMIT_BYTES_AT_ONCE, COMMIT_ROWS_AT_ONCE, DISCARD_ROWS_AT_ONCE, DISCARDED, Outcome, Shown,
    Todo, Upload, UploadEnd, UploadPart, UploadVerdict, Uploads, begun, committed, fence, staged,
};
use super::PostgresStorage;
use super::accept::{Undo, accept};
use super::columns::{Columns, integer, member_key, mesh_key, message_key, rows as limit};
use super::error::JobError;
use super::history;
use super::snapshots;
use super::sql::{execute, query, query_opt};

const FIND: &str = "
SELECT snapshot_id, through, row_count, byte_count, touched_at,
    EXISTS (SELECT 1 FROM snapshot_row WHERE mesh_id = $1 AND member_id = $2),
    first_epoch, first_seq, shown_count
FROM snapshot_upload WHERE mesh_id = $1 AND member_id = $2";

const KEEP: &str = "
INSERT INTO snapshot_upload (mesh_id, member_id, snapshot_id, through, row_count, byte_count,
    touched_at, first_epoch, first_seq, shown_count)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (mesh_id, member_id) DO UPDATE SET snapshot_id = excluded.snapshot_id,
    through = excluded.through, row_count = excluded.row_count, byte_count = excluded.byte_count,
    touched_at = excluded.touched_at, first_epoch = excluded.first_epoch,
    first_seq = excluded.first_seq, shown_count = excluded.shown_count,
    left_out = CASE WHEN excluded.first_epoch IS NULL THEN '' ELSE snapshot_upload.left_out END";

const LEFT_OUT: &str = "
SELECT left_out FROM snapshot_upload
WHERE mesh_id = $1 AND member_id = $2 AND snapshot_id = $3";

const LEAVE_OUT: &str = "
UPDATE snapshot_upload SET left_out = $4
WHERE mesh_id = $1 AND member_id = $2 AND snapshot_id = $3";

const STAGE: &str = "
INSERT INTO snapshot_row (mesh_id, member_id, position, sender_agent, client_message_id,
    wire_fingerprint, broker_message_id, envelope)
SELECT $1, $2, n.* FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::bytea[],
    $8::text[]) AS n";

// The first row whatever it weighs, then as many as there is room for behind those before.
const STAGED: &str = "
SELECT position, sender_agent, client_message_id, wire_fingerprint, broker_message_id, envelope
FROM (SELECT *, sum(octet_length(envelope)) OVER (ORDER BY position) - octet_length(envelope)
        AS bytes_before
    FROM (SELECT * FROM snapshot_row WHERE mesh_id = $1 AND member_id = $2
        ORDER BY position LIMIT $3) AS page) AS weighed
WHERE bytes_before < $4 ORDER BY position";

const TAKE: &str = "
DELETE FROM snapshot_row WHERE mesh_id = $1 AND member_id = $2 AND position <= $3";

// Positions have no holes: so many of them are so many rows.
const DISCARD: &str = "
DELETE FROM snapshot_row WHERE mesh_id = $1 AND member_id = $2 AND position < $3 + (
    SELECT min(position) FROM snapshot_row WHERE mesh_id = $1 AND member_id = $2)";

const LEFT: &str = "
SELECT 1 FROM snapshot_row WHERE mesh_id = $1 AND member_id = $2 AND position > $3 LIMIT 1";

const ABANDONED: &str = "
SELECT member_id FROM snapshot_upload
WHERE mesh_id = $1 AND first_epoch IS NULL AND touched_at < $2";

const FORGET: &str = "DELETE FROM snapshot_upload WHERE mesh_id = $1 AND member_id = $2";

/// Which upload.
#[derive(Clone, Copy)]
struct Which {
    mesh: MeshId,
    by: MemberId,
    id: OpId,
}

async fn find<C: GenericClient>(tx: &C, which: Which) -> Result<Option<Upload>, JobError> {
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
        has_rows: columns.flag()?,
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

async fn left_out<C: GenericClient>(client: &C, which: Which) -> Result<LeftOut, JobError> {
    let (mesh, by, id) = (
        mesh_key(which.mesh),
        member_key(which.by),
        which.id.to_string(),
    );
    let Some(row) = query_opt(client, LEFT_OUT, &[&mesh, &by, &id]).await? else {
        return Ok(LeftOut::default());
    };
    let text = Columns::of(&row).text()?;
    let why = || JobError::BadRow(format!("left_out of the upload {}", which.id));
    LeftOut::of_text(&text).ok_or_else(why)
}

/// Beside those of the steps before.
async fn leave_out(tx: &Transaction<'_>, which: Which, more: &LeftOut) -> Result<(), JobError> {
    if more.is_empty() {
        return Ok(());
    }
    let all = left_out(tx, which).await?.and(more.clone()).to_text();
    let (mesh, by, id) = (
        mesh_key(which.mesh),
        member_key(which.by),
        which.id.to_string(),
    );
    execute(tx, LEAVE_OUT, &[&mesh, &by, &id, &all]).await?;
    Ok(())
}

async fn has_rows_behind(
    tx: &Transaction<'_>,
    which: Which,
    position: i64,
) -> Result<bool, JobError> {
    let key = (mesh_key(which.mesh), member_key(which.by));
    let found = query_opt(tx, LEFT, &[&key.0, &key.1, &position]).await?;
    Ok(found.is_some())
}

/// Throws some staged rows away; true while there are more.
async fn discard(tx: &Transaction<'_>, which: Which) -> Result<bool, JobError> {
    let key = (mesh_key(which.mesh), member_key(which.by));
    let count = limit(DISCARD_ROWS_AT_ONCE);
    execute(tx, DISCARD, &[&key.0, &key.1, &count]).await?;
    has_rows_behind(tx, which, -1).await
}

async fn begin(tx: &Transaction<'_>, which: Which, now: WallMs) -> Result<UploadVerdict, JobError> {
    match begun(find(tx, which).await?, which.id, now) {
        Todo::Answer(verdict) => Ok(verdict),
        Todo::Keep(fresh) if discard(tx, which).await? => {
            keep(tx, which, &fresh.discarded()).await?;
            Ok(UploadVerdict::Going)
        }
        Todo::Keep(fresh) => {
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
    (end, seen): (&UploadEnd, &Seen),
) -> Result<UploadVerdict, JobError> {
    let upload = match committed(find(tx, which).await?, which.id, end) {
        Ok(upload) => upload,
        Err(verdict) => return Ok(verdict),
    };
    let next = history::next(tx, which.mesh).await?;
    seen.check(which.mesh, next)?;
    let (through, messages) = page(tx, which, end, upload.shown.is_some()).await?;
    let has_more = has_rows_behind(tx, which, through).await?;
    let open = snapshots::find(tx, which.mesh).await?;
    let Ok(fence) = fence(open, (which.id, which.by), next, has_more) else {
        return Ok(UploadVerdict::Waits);
    };
    let mut outcome = Outcome::of(upload.shown);
    let list: Vec<&NewMessage> = messages.iter().collect();
    if !list.is_empty() {
        let accepted = accept(tx, which.mesh, &list, Undo::Group).await?;
        outcome.add(messages.iter().map(|one| &one.id), &accepted);
    }
    if outcome.is_barred() {
        return Ok(UploadVerdict::Barred);
    }
    let key = (mesh_key(which.mesh), member_key(which.by));
    execute(tx, TAKE, &[&key.0, &key.1, &through]).await?;
    snapshots::keep(tx, which.mesh, fence).await?;
    let shown = outcome.shown(next);
    let done = Upload {
        shown: Some(shown),
        touched_at: end.at,
        ..upload
    };
    keep(tx, which, &done).await?;
    // Behind the head, which empties it for an upload that is not shown yet.
    leave_out(tx, which, outcome.left_out()).await?;
    Ok(if has_more {
        UploadVerdict::Going
    } else {
        UploadVerdict::Committed(shown)
    })
}

/// The next staged rows as messages of now, and the position of the last of them.
async fn page(
    tx: &Transaction<'_>,
    which: Which,
    end: &UploadEnd,
    is_heard: bool,
) -> Result<(i64, Vec<NewMessage>), JobError> {
    let key = (mesh_key(which.mesh), member_key(which.by));
    let (rows, bytes) = (limit(COMMIT_ROWS_AT_ONCE), limit(COMMIT_BYTES_AT_ONCE));
    let found = query(tx, STAGED, &[&key.0, &key.1, &rows, &bytes]).await?;
    let (mut through, mut messages) = (-1, Vec::with_capacity(found.len()));
    for row in &found {
        let (position, message) = message(row, which, end)?;
        through = integer(position);
        messages.push(NewMessage {
            is_heard,
            ..message
        });
    }
    Ok((through, messages))
}

/// A staged row as a message of now, and its position.
fn message(row: &Row, which: Which, end: &UploadEnd) -> Result<(u64, NewMessage), JobError> {
    let mut columns = Columns::of(row);
    let position = columns.number()?;
    let sender = Party {
        member: which.by,
        agent: columns.agent()?,
    };
    let id = SendId::new(which.mesh, sender, columns.client_message_id()?);
    let fingerprint = columns.fingerprint()?;
    let broker_message_id = columns.broker_message_id()?;
    let message = end.message(id, fingerprint, broker_message_id, columns.envelope()?);
    Ok((position, message))
}

/// Throws some rows of abandoned uploads away: how many uploads ended now, and whether there is more to do.
async fn sweep(
    tx: &Transaction<'_>,
    mesh: MeshId,
    before: WallMs,
) -> Result<(usize, bool), JobError> {
    let abandoned = query(tx, ABANDONED, &[&mesh_key(mesh), &before.0]).await?;
    let (mut count, mut has_more) = (0, false);
    for row in &abandoned {
        let by = Columns::of(row).member()?;
        let id = DISCARDED;
        let which = Which { mesh, by, id };
        let Some(upload) = find(tx, which).await? else {
            continue;
        };
        count += usize::from(upload.id != DISCARDED);
        if discard(tx, which).await? {
            keep(tx, which, &upload.discarded()).await?;
            has_more = true;
        } else {
            execute(tx, FORGET, &[&mesh_key(mesh), &member_key(by)]).await?;
        }
    }
    Ok((count, has_more))
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
        let lines = Arc::clone(&self.lines);
        self.write(mesh, (which, end, lines), |tx, (which, end, lines)| {
            Box::pin(commit(tx, *which, (end, lines.seen())))
        })
        .await
    }

    async fn ending_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
    ) -> Result<Option<(OpId, u64)>, StorageError> {
        let client = self.reader().await?;
        let id = DISCARDED;
        let found = find(&client, Which { mesh, by, id }).await?;
        let ending = found.filter(Upload::is_ending);
        Ok(ending.map(|upload| (upload.id, upload.through)))
    }

    async fn upload_left_out(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
    ) -> Result<LeftOut, StorageError> {
        let client = self.reader().await?;
        Ok(left_out(&client, Which { mesh, by, id }).await?)
    }

    async fn sweep_uploads(&self, mesh: MeshId, before: WallMs) -> Result<usize, StorageError> {
        let mut count = 0;
        loop {
            let swept = self.write(mesh, (mesh, before), |tx, &(mesh, before)| {
                Box::pin(sweep(tx, mesh, before))
            });
            let (ended, has_more) = swept.await?;
            count += ended;
            if !has_more {
                return Ok(count);
            }
        }
    }
}
