//! Uploads in SQL: a head for each member, its staged rows, and the migration that makes their tables.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId, OpId, Party};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::error::StorageError;
use super::super::left_out::LeftOut;
use super::super::rows::{NewMessage, SendId};
use super::super::uploads::{
    COMMIT_ROWS_AT_ONCE, DISCARD_ROWS_AT_ONCE, DISCARDED, Outcome, Shown, Todo, Upload, UploadEnd,
    UploadPart, UploadVerdict, Uploads, begun, committed, fence, staged, takes_more,
};
use super::SqliteStorage;
use super::accept::accept;
use super::columns::{Columns, integer, member_key, mesh_key, message_key};
use super::error::JobError;
use super::history::Line;
use super::snapshots;

pub(super) const SCHEMA: &str = "
CREATE TABLE snapshot_upload (
    mesh_id BLOB NOT NULL REFERENCES mesh (mesh_id),
    member_id BLOB NOT NULL CHECK (length(member_id) = 16),
    snapshot_id TEXT NOT NULL,
    -- The sender's cursor: everything up to here is staged.
    through INTEGER NOT NULL CHECK (through >= 0),
    row_count INTEGER NOT NULL CHECK (row_count >= 0),
    byte_count INTEGER NOT NULL CHECK (byte_count >= 0),
    touched_at INTEGER NOT NULL,
    -- Null while it is open; then where its first op is, and how many there are.
    first_epoch INTEGER,
    first_seq INTEGER CHECK ((first_seq IS NULL) = (first_epoch IS NULL)),
    shown_count INTEGER CHECK ((shown_count IS NULL) = (first_epoch IS NULL)),
    PRIMARY KEY (mesh_id, member_id)
) STRICT, WITHOUT ROWID;

-- In no table that anybody reads, until all of them become ops at once (LF-34).
CREATE TABLE snapshot_row (
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 0),
    sender_agent TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    wire_fingerprint BLOB NOT NULL CHECK (length(wire_fingerprint) = 32),
    broker_message_id BLOB NOT NULL CHECK (length(broker_message_id) = 16),
    envelope TEXT NOT NULL,
    PRIMARY KEY (mesh_id, member_id, position)
) STRICT, WITHOUT ROWID;
";

/// What its commit could not take: nothing, or how many rows and their names.
pub(super) const LEFT_OUT_SCHEMA: &str =
    "ALTER TABLE snapshot_upload ADD COLUMN left_out TEXT NOT NULL DEFAULT '';";

const FIND: &str = "
SELECT snapshot_id, through, row_count, byte_count, touched_at,
    EXISTS (SELECT 1 FROM snapshot_row WHERE mesh_id = ?1 AND member_id = ?2),
    first_epoch, first_seq, shown_count
FROM snapshot_upload WHERE mesh_id = ?1 AND member_id = ?2";

const KEEP: &str = "
INSERT INTO snapshot_upload (mesh_id, member_id, snapshot_id, through, row_count, byte_count,
    touched_at, first_epoch, first_seq, shown_count)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (mesh_id, member_id) DO UPDATE SET snapshot_id = excluded.snapshot_id,
    through = excluded.through, row_count = excluded.row_count, byte_count = excluded.byte_count,
    touched_at = excluded.touched_at, first_epoch = excluded.first_epoch,
    first_seq = excluded.first_seq, shown_count = excluded.shown_count,
    left_out = CASE WHEN excluded.first_epoch IS NULL THEN '' ELSE snapshot_upload.left_out END";

const LEFT_OUT: &str = "
SELECT left_out FROM snapshot_upload
WHERE mesh_id = ?1 AND member_id = ?2 AND snapshot_id = ?3";

const LEAVE_OUT: &str = "
UPDATE snapshot_upload SET left_out = ?4
WHERE mesh_id = ?1 AND member_id = ?2 AND snapshot_id = ?3";

const STAGE: &str = "
INSERT INTO snapshot_row (mesh_id, member_id, position, sender_agent, client_message_id,
    wire_fingerprint, broker_message_id, envelope)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const STAGED: &str = "
SELECT position, sender_agent, client_message_id, wire_fingerprint, broker_message_id, envelope
FROM snapshot_row WHERE mesh_id = ?1 AND member_id = ?2 ORDER BY position LIMIT ?3";

const TAKE: &str = "
DELETE FROM snapshot_row WHERE mesh_id = ?1 AND member_id = ?2 AND position <= ?3";

const FIRST: &str = "
SELECT min(position) FROM snapshot_row WHERE mesh_id = ?1 AND member_id = ?2";

const LEFT: &str = "
SELECT 1 FROM snapshot_row WHERE mesh_id = ?1 AND member_id = ?2 AND position > ?3 LIMIT 1";

const ABANDONED: &str = "
SELECT member_id FROM snapshot_upload
WHERE mesh_id = ?1 AND first_epoch IS NULL AND touched_at < ?2";

const FORGET: &str = "DELETE FROM snapshot_upload WHERE mesh_id = ?1 AND member_id = ?2";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    FIND, KEEP, LEFT_OUT, LEAVE_OUT, STAGE, STAGED, TAKE, FIRST, LEFT, ABANDONED, FORGET,
];

/// One member's upload, in the writer's transaction.
struct Room<'c> {
    connection: &'c Connection,
    mesh: MeshId,
    by: MemberId,
}

impl Room<'_> {
    fn find(&self) -> Result<Option<Upload>, JobError> {
        let mut statement = self.connection.prepare_cached(FIND)?;
        let key = params![mesh_key(self.mesh), member_key(self.by)];
        let found = statement.query_row(key, |row| {
            let mut columns = Columns::of(row);
            let text = columns.text()?;
            let id: OpId = text.parse().map_err(|error| {
                rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
            })?;
            let mut upload = Upload {
                id,
                through: columns.number()?,
                row_count: columns.number()?,
                byte_count: columns.number()?,
                touched_at: columns.wall()?,
                shown: None,
                has_rows: columns.flag()?,
            };
            if row.get::<_, Option<i64>>(6)?.is_some() {
                upload.shown = Some(Shown {
                    first: columns.history_id()?,
                    row_count: columns.number()?,
                });
            }
            Ok(upload)
        });
        Ok(found.optional()?)
    }

    fn keep(&self, upload: &Upload) -> Result<(), JobError> {
        let shown = upload.shown;
        self.connection.prepare_cached(KEEP)?.execute(params![
            mesh_key(self.mesh),
            member_key(self.by),
            upload.id.to_string(),
            integer(upload.through),
            integer(upload.row_count),
            integer(upload.byte_count),
            upload.touched_at.0,
            shown.map(|shown| integer(shown.first.epoch)),
            shown.map(|shown| integer(shown.first.seq)),
            shown.map(|shown| integer(shown.row_count)),
        ])?;
        Ok(())
    }

    fn left_out(&self, id: OpId) -> Result<LeftOut, JobError> {
        let key = params![mesh_key(self.mesh), member_key(self.by), id.to_string()];
        let mut statement = self.connection.prepare_cached(LEFT_OUT)?;
        let text: Option<String> = statement.query_row(key, |row| row.get(0)).optional()?;
        let kept = LeftOut::of_text(&text.unwrap_or_default());
        kept.ok_or_else(|| {
            let why = "a list of rows that were left out".into();
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, why).into()
        })
    }

    /// Beside those of the steps before.
    fn leave_out(&self, id: OpId, more: &LeftOut) -> Result<(), JobError> {
        if more.is_empty() {
            return Ok(());
        }
        let all = self.left_out(id)?.and(more.clone()).to_text();
        let key = params![
            mesh_key(self.mesh),
            member_key(self.by),
            id.to_string(),
            all
        ];
        self.connection.prepare_cached(LEAVE_OUT)?.execute(key)?;
        Ok(())
    }

    fn has_rows_behind(&self, position: i64) -> Result<bool, JobError> {
        let key = params![mesh_key(self.mesh), member_key(self.by), position];
        Ok(self.connection.prepare_cached(LEFT)?.exists(key)?)
    }

    /// Throws some staged rows away; true while there are more.
    fn discard(&self) -> Result<bool, JobError> {
        let (mesh, by) = (mesh_key(self.mesh), member_key(self.by));
        let mut first = self.connection.prepare_cached(FIRST)?;
        let first: Option<i64> = first.query_row(params![mesh, by], |row| row.get(0))?;
        // Positions have no holes: so many of them are so many rows.
        let count = i64::try_from(DISCARD_ROWS_AT_ONCE).unwrap_or(i64::MAX);
        let through = first.map_or(-1, |first| first.saturating_add(count - 1));
        let key = params![mesh, by, through];
        self.connection.prepare_cached(TAKE)?.execute(key)?;
        self.has_rows_behind(-1)
    }

    fn begin(&self, id: OpId, now: WallMs) -> Result<UploadVerdict, JobError> {
        match begun(self.find()?, id, now) {
            Todo::Answer(verdict) => Ok(verdict),
            Todo::Keep(fresh) if self.discard()? => {
                self.keep(&fresh.discarded())?;
                Ok(UploadVerdict::Going)
            }
            Todo::Keep(fresh) => {
                self.keep(&fresh)?;
                Ok(UploadVerdict::Through(fresh.through))
            }
        }
    }

    fn stage(&self, id: OpId, part: &UploadPart) -> Result<UploadVerdict, JobError> {
        let kept = self.find()?;
        let next = match staged(kept, id, part) {
            Todo::Answer(verdict) => return Ok(verdict),
            Todo::Keep(next) => next,
        };
        let mut insert = self.connection.prepare_cached(STAGE)?;
        for (position, row) in (kept.map_or(0, |kept| kept.row_count)..).zip(&part.rows) {
            insert.execute(params![
                mesh_key(self.mesh),
                member_key(self.by),
                integer(position),
                row.id.sender.agent.as_str(),
                row.id.client_message_id.as_str(),
                row.wire_fingerprint.0,
                message_key(row.broker_message_id),
                row.envelope,
            ])?;
        }
        self.keep(&next)?;
        Ok(UploadVerdict::Through(next.through))
    }

    fn commit(&self, id: OpId, end: &UploadEnd) -> Result<UploadVerdict, JobError> {
        let upload = match committed(self.find()?, id, end) {
            Ok(upload) => upload,
            Err(verdict) => return Ok(verdict),
        };
        let line = Line::of(self.connection, self.mesh)?;
        let next = line.ok_or(StorageError::UnknownMesh(self.mesh))?.next();
        let (through, messages) = self.page(end, upload.shown.is_some())?;
        let has_more = self.has_rows_behind(through)?;
        let open = snapshots::find(self.connection, self.mesh)?;
        let Ok(fence) = fence(open, (id, self.by), next, has_more) else {
            return Ok(UploadVerdict::Waits);
        };
        let mut outcome = Outcome::of(upload.shown);
        let accepted = accept(self.connection, self.mesh, &messages)?;
        outcome.add(messages.iter().map(|one| &one.id), &accepted);
        if outcome.is_barred() {
            return Ok(UploadVerdict::Barred);
        }
        let key = params![mesh_key(self.mesh), member_key(self.by), through];
        self.connection.prepare_cached(TAKE)?.execute(key)?;
        let shown = outcome.shown(next);
        snapshots::keep(self.connection, self.mesh, fence)?;
        self.keep(&Upload {
            shown: Some(shown),
            touched_at: end.at,
            ..upload
        })?;
        // Behind the head, which empties it for an upload that is not shown yet.
        self.leave_out(id, outcome.left_out())?;
        Ok(if has_more {
            UploadVerdict::Going
        } else {
            UploadVerdict::Committed(shown)
        })
    }

    /// The next staged rows as messages of now, and the position of the last of them.
    fn page(&self, end: &UploadEnd, is_heard: bool) -> Result<(i64, Vec<NewMessage>), JobError> {
        let limit = i64::try_from(COMMIT_ROWS_AT_ONCE).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(STAGED)?;
        let key = params![mesh_key(self.mesh), member_key(self.by), limit];
        let mut rows = statement.query(key)?;
        let (mut through, mut bytes, mut messages) = (-1, 0, Vec::new());
        while let Some(row) = rows.next()?.filter(|_| takes_more(messages.len(), bytes)) {
            let mut columns = Columns::of(row);
            through = integer(columns.number()?);
            let sender = Party {
                member: self.by,
                agent: columns.agent()?,
            };
            let id = SendId::new(self.mesh, sender, columns.client_message_id()?);
            let fingerprint = columns.fingerprint()?;
            let broker_message_id = columns.broker_message_id()?;
            let envelope: Box<str> = columns.text()?.into();
            bytes += envelope.len();
            let message = end.message(id, fingerprint, broker_message_id, envelope);
            messages.push(NewMessage {
                is_heard,
                ..message
            });
        }
        Ok((through, messages))
    }
}

/// Throws some rows of abandoned uploads away: how many uploads ended now, and whether there is more to do.
fn sweep(connection: &Connection, mesh: MeshId, before: WallMs) -> Result<(usize, bool), JobError> {
    let mut statement = connection.prepare_cached(ABANDONED)?;
    let key = params![mesh_key(mesh), before.0];
    let found = statement.query_map(key, |row| Columns::of(row).member())?;
    let abandoned: Vec<MemberId> = found.collect::<rusqlite::Result<_>>()?;
    let (mut count, mut has_more) = (0, false);
    for by in abandoned {
        let room = Room {
            connection,
            mesh,
            by,
        };
        let Some(upload) = room.find()? else {
            continue;
        };
        count += usize::from(upload.id != DISCARDED);
        if room.discard()? {
            room.keep(&upload.discarded())?;
            has_more = true;
        } else {
            let key = params![mesh_key(mesh), member_key(by)];
            connection.prepare_cached(FORGET)?.execute(key)?;
        }
    }
    Ok((count, has_more))
}

impl SqliteStorage {
    async fn in_room<F>(
        &self,
        mesh: MeshId,
        by: MemberId,
        step: F,
    ) -> Result<UploadVerdict, StorageError>
    where
        F: FnOnce(&Room<'_>) -> Result<UploadVerdict, JobError> + Send + 'static,
    {
        self.write(mesh, move |connection| {
            step(&Room {
                connection,
                mesh,
                by,
            })
        })
        .await
    }
}

impl Uploads for SqliteStorage {
    async fn begin_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        now: WallMs,
    ) -> Result<UploadVerdict, StorageError> {
        self.in_room(mesh, by, move |room| room.begin(id, now))
            .await
    }

    async fn stage_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        part: UploadPart,
    ) -> Result<UploadVerdict, StorageError> {
        self.in_room(mesh, by, move |room| room.stage(id, &part))
            .await
    }

    async fn commit_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        end: UploadEnd,
    ) -> Result<UploadVerdict, StorageError> {
        self.in_room(mesh, by, move |room| room.commit(id, &end))
            .await
    }

    async fn ending_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
    ) -> Result<Option<(OpId, u64)>, StorageError> {
        self.read(mesh, move |connection| {
            let room = Room {
                connection,
                mesh,
                by,
            };
            let ending = room.find()?.filter(Upload::is_ending);
            Ok(ending.map(|upload| (upload.id, upload.through)))
        })
        .await
    }

    async fn upload_left_out(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
    ) -> Result<LeftOut, StorageError> {
        self.read(mesh, move |connection| {
            let room = Room {
                connection,
                mesh,
                by,
            };
            room.left_out(id)
        })
        .await
    }

    async fn sweep_uploads(&self, mesh: MeshId, before: WallMs) -> Result<usize, StorageError> {
        let mut count = 0;
        loop {
            let swept = self.write(mesh, move |c| sweep(c, mesh, before)).await?;
            count += swept.0;
            if !swept.1 {
                return Ok(count);
            }
        }
    }
}
