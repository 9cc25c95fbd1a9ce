//! The snapshot of a mesh in SQL: one row, and the migration that makes its table.

use heddle_core::ids::{MemberId, MeshId, OpId};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::error::StorageError;
use super::super::snapshots::{
    Kept, OpenSnapshot, SnapshotVerdict, Snapshots, before, begun, committed,
};
use super::SqliteStorage;
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;
use super::history::Line;

pub(super) const SCHEMA: &str = "
CREATE TABLE log_snapshot (
    mesh_id BLOB NOT NULL PRIMARY KEY REFERENCES mesh (mesh_id),
    snapshot_id TEXT NOT NULL,
    member_id BLOB NOT NULL CHECK (length(member_id) = 16),
    -- The last place that everybody may read while it is open.
    behind_epoch INTEGER NOT NULL,
    behind_seq INTEGER NOT NULL CHECK (behind_seq >= 0),
    is_open INTEGER NOT NULL CHECK (is_open = 0 OR is_open = 1)
) STRICT, WITHOUT ROWID;
";

const FIND: &str = "
SELECT snapshot_id, member_id, behind_epoch, behind_seq, is_open FROM log_snapshot
WHERE mesh_id = ?1";

const KEEP: &str = "
INSERT INTO log_snapshot (mesh_id, snapshot_id, member_id, behind_epoch, behind_seq, is_open)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (mesh_id) DO UPDATE SET snapshot_id = excluded.snapshot_id,
    member_id = excluded.member_id, behind_epoch = excluded.behind_epoch,
    behind_seq = excluded.behind_seq, is_open = excluded.is_open";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[FIND, KEEP];

pub(super) fn find(connection: &Connection, mesh: MeshId) -> Result<Option<Kept>, JobError> {
    let mut statement = connection.prepare_cached(FIND)?;
    let found = statement.query_row([mesh_key(mesh)], |row| {
        let mut columns = Columns::of(row);
        let text = columns.text()?;
        let id: OpId = text.parse().map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
        })?;
        let by = columns.member()?;
        let behind = columns.history_id()?;
        Ok(Kept {
            id,
            open: OpenSnapshot { by, behind },
            is_open: columns.flag()?,
        })
    });
    Ok(found.optional()?)
}

pub(super) fn keep(
    connection: &Connection,
    mesh: MeshId,
    kept: Option<Kept>,
) -> Result<(), JobError> {
    let Some(Kept { id, open, is_open }) = kept else {
        return Ok(());
    };
    connection.prepare_cached(KEEP)?.execute(params![
        mesh_key(mesh),
        id.to_string(),
        member_key(open.by),
        integer(open.behind.epoch),
        integer(open.behind.seq),
        is_open,
    ])?;
    Ok(())
}

impl Snapshots for SqliteStorage {
    async fn begin_snapshot(
        &self,
        mesh: MeshId,
        id: OpId,
        by: MemberId,
    ) -> Result<SnapshotVerdict, StorageError> {
        self.write(mesh, move |c| {
            let line = Line::of(c, mesh)?.ok_or(StorageError::UnknownMesh(mesh))?;
            let end = before(line.next());
            let (verdict, kept) = begun(find(c, mesh)?, id, by, end);
            keep(c, mesh, kept)?;
            Ok(verdict)
        })
        .await
    }

    async fn commit_snapshot(
        &self,
        mesh: MeshId,
        id: OpId,
        by: MemberId,
    ) -> Result<SnapshotVerdict, StorageError> {
        self.write(mesh, move |c| {
            let (verdict, kept) = committed(find(c, mesh)?, id, by);
            keep(c, mesh, kept)?;
            Ok(verdict)
        })
        .await
    }

    async fn open_snapshot(&self, mesh: MeshId) -> Result<Option<OpenSnapshot>, StorageError> {
        self.read(mesh, move |c| {
            let open = find(c, mesh)?.filter(|kept| kept.is_open);
            Ok(open.map(|kept| kept.open))
        })
        .await
    }
}
