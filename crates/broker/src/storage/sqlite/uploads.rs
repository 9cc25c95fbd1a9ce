//! Uploads in SQL: a head for each member, its staged rows, and the migration that makes their tables.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId, OpId, Party};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::error::StorageError;
use super::super::rows::{NewMessage, SendId};
use super::super::uploads::{
    COMMIT_ROWS_AT_ONCE, Outcome, Shown, Todo, Upload, UploadEnd, UploadPart, UploadVerdict,
    Uploads, begun, committed, staged,
};
use super::SqliteStorage;
use super::accept::accept;
use super::columns::{Columns, integer, member_key, mesh_key, message_key};
use super::error::JobError;
use super::history::Line;

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

const FIND: &str = "
SELECT snapshot_id, through, row_count, byte_count, touched_at, first_epoch, first_seq, shown_count
FROM snapshot_upload WHERE mesh_id = ?1 AND member_id = ?2";

const KEEP: &str = "
INSERT INTO snapshot_upload (mesh_id, member_id, snapshot_id, through, row_count, byte_count,
    touched_at, first_epoch, first_seq, shown_count)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (mesh_id, member_id) DO UPDATE SET snapshot_id = excluded.snapshot_id,
    through = excluded.through, row_count = excluded.row_count, byte_count = excluded.byte_count,
    touched_at = excluded.touched_at, first_epoch = excluded.first_epoch,
    first_seq = excluded.first_seq, shown_count = excluded.shown_count";

const STAGE: &str = "
INSERT INTO snapshot_row (mesh_id, member_id, position, sender_agent, client_message_id,
    wire_fingerprint, broker_message_id, envelope)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const STAGED: &str = "
SELECT sender_agent, client_message_id, wire_fingerprint, broker_message_id, envelope
FROM snapshot_row WHERE mesh_id = ?1 AND member_id = ?2 AND position >= ?3
ORDER BY position LIMIT ?4";

const CLEAR: &str = "DELETE FROM snapshot_row WHERE mesh_id = ?1 AND member_id = ?2";

const ABANDONED: &str = "
SELECT member_id FROM snapshot_upload
WHERE mesh_id = ?1 AND first_epoch IS NULL AND touched_at < ?2";

const FORGET: &str = "DELETE FROM snapshot_upload WHERE mesh_id = ?1 AND member_id = ?2";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[FIND, KEEP, STAGE, STAGED, CLEAR, ABANDONED, FORGET];

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
            };
            if row.get::<_, Option<i64>>(5)?.is_some() {
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

    fn clear(&self) -> Result<(), JobError> {
        let key = params![mesh_key(self.mesh), member_key(self.by)];
        self.connection.prepare_cached(CLEAR)?.execute(key)?;
        Ok(())
    }

    fn begin(&self, id: OpId, now: WallMs) -> Result<UploadVerdict, JobError> {
        match begun(self.find()?, id, now) {
            Todo::Answer(verdict) => Ok(verdict),
            Todo::Keep(fresh) => {
                self.clear()?;
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
        let (mut outcome, mut position) = (Outcome::default(), 0_u64);
        while position < upload.row_count {
            let messages = self.page(position, end)?;
            let Some(length) = u64::try_from(messages.len()).ok().filter(|len| *len > 0) else {
                break;
            };
            outcome.add(&accept(self.connection, self.mesh, &messages)?);
            if outcome.is_barred() {
                return Ok(UploadVerdict::Barred);
            }
            position += length;
        }
        self.clear()?;
        let shown = outcome.shown(next);
        self.keep(&Upload {
            shown: Some(shown),
            touched_at: end.at,
            ..upload
        })?;
        Ok(UploadVerdict::Committed(shown))
    }

    /// Staged rows from a position on, as messages of now.
    fn page(&self, from: u64, end: &UploadEnd) -> Result<Vec<NewMessage>, JobError> {
        let limit = i64::try_from(COMMIT_ROWS_AT_ONCE).unwrap_or(i64::MAX);
        let key = params![
            mesh_key(self.mesh),
            member_key(self.by),
            integer(from),
            limit
        ];
        let mut statement = self.connection.prepare_cached(STAGED)?;
        let rows = statement.query_map(key, |row| {
            let mut columns = Columns::of(row);
            let sender = Party {
                member: self.by,
                agent: columns.agent()?,
            };
            let id = SendId::new(self.mesh, sender, columns.client_message_id()?);
            let fingerprint = columns.fingerprint()?;
            let broker_message_id = columns.broker_message_id()?;
            Ok(end.message(id, fingerprint, broker_message_id, columns.text()?.into()))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
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

    async fn sweep_uploads(&self, mesh: MeshId, before: WallMs) -> Result<usize, StorageError> {
        self.write(mesh, move |connection| {
            let mut statement = connection.prepare_cached(ABANDONED)?;
            let found = statement.query_map(params![mesh_key(mesh), before.0], |row| {
                Columns::of(row).member()
            })?;
            let abandoned: Vec<MemberId> = found.collect::<rusqlite::Result<_>>()?;
            for by in &abandoned {
                let room = Room {
                    connection,
                    mesh,
                    by: *by,
                };
                room.clear()?;
                let key = params![mesh_key(mesh), member_key(*by)];
                connection.prepare_cached(FORGET)?.execute(key)?;
            }
            Ok(abandoned.len())
        })
        .await
    }
}
