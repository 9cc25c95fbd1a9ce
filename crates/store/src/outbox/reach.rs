//! How far this home has seen a mesh's history: by what it received, by the log, and by the answers to its own sends.
//!
//! A broker that has not come so far is an earlier copy of itself. Its places must not be given out twice, and what it
//! has lost is looked for (`lost`).

use heddle_core::ids::{HistoryId, MeshId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::cells::{Cells, count_cell, history_cells};
use crate::error::StoreError;
use crate::inbox::read_cursor;
use crate::store::Store;
use crate::sync::read_head;

pub(crate) const READ: &str = "
    SELECT mesh_id, history_epoch, history_seq, looked_epoch FROM outbox_reach WHERE mesh_id = ?1";

pub(crate) const REACHED: &str = "
    INSERT INTO outbox_reach (mesh_id, history_epoch, history_seq, looked_epoch) VALUES (?1, ?2, ?3, 0)
    ON CONFLICT (mesh_id) DO UPDATE SET history_epoch = excluded.history_epoch,
        history_seq = excluded.history_seq";

pub(crate) const LOOKED: &str = "
    INSERT INTO outbox_reach (mesh_id, history_epoch, history_seq, looked_epoch) VALUES (?1, 0, 0, ?2)
    ON CONFLICT (mesh_id) DO UPDATE SET looked_epoch = excluded.looked_epoch";

pub(crate) const SINCE: &str = "SELECT since_arrival FROM outbox_reach WHERE mesh_id = ?1";

// Another broker has another history.
pub(crate) const MOVED_AWAY: &str = "
    INSERT INTO outbox_reach (mesh_id, history_epoch, history_seq, looked_epoch, since_arrival)
    VALUES (?1, 0, 0, 0, ?2)
    ON CONFLICT (mesh_id) DO UPDATE SET history_epoch = 0, history_seq = 0, since_arrival = excluded.since_arrival";

impl Store {
    /// Rows behind this arrival are what the broker of now has answered.
    pub async fn lost_since(&self, mesh: MeshId) -> Result<i64, StoreError> {
        self.read(move |connection| answered_since(connection, mesh))
            .await
    }

    /// The mesh moves to another broker, which has lost nothing of what the one before was told.
    pub async fn reach_anew(&self, mesh: MeshId) -> Result<(), StoreError> {
        self.write(move |connection| {
            let newest: Option<i64> = connection
                .prepare_cached(super::age::NEWEST_ROW)?
                .query_row([], |row| row.get(0))?;
            connection
                .prepare_cached(MOVED_AWAY)?
                .execute(params![mesh.0.to_bytes(), newest.unwrap_or(0)])?;
            Ok(())
        })
        .await
    }

    /// The newest place of the mesh's history that this home has heard of.
    pub async fn history_seen(&self, mesh: MeshId) -> Result<HistoryId, StoreError> {
        self.read(move |connection| {
            let head = read_head(connection, mesh)?;
            let epoch = HistoryId {
                epoch: head.broker_epoch,
                seq: 0,
            };
            let delivered = read_cursor(connection, mesh)?;
            let (answered, _) = read(connection, mesh)?;
            Ok(delivered.max(head.log).max(answered).max(epoch))
        })
        .await
    }

    /// Up to this epoch of the broker, messages that it had lost were looked for.
    pub async fn lost_looked(&self, mesh: MeshId) -> Result<u64, StoreError> {
        self.read(move |connection| Ok(read(connection, mesh)?.1))
            .await
    }

    /// Everything that the broker had lost when this epoch began is noted.
    pub async fn set_lost_looked(&self, mesh: MeshId, epoch: u64) -> Result<(), StoreError> {
        self.write(move |connection| {
            connection
                .prepare_cached(LOOKED)?
                .execute(params![mesh.0.to_bytes(), count_cell(epoch)?])?;
            Ok(())
        })
        .await
    }
}

/// The same as a part of something else.
pub(crate) fn answered_since(connection: &Connection, mesh: MeshId) -> Result<i64, StoreError> {
    let since = connection
        .prepare_cached(SINCE)?
        .query_row([mesh.0.to_bytes()], |row| row.get(0));
    Ok(since.optional()?.unwrap_or(0))
}

fn read(connection: &Connection, mesh: MeshId) -> Result<(HistoryId, u64), StoreError> {
    let mut statement = connection.prepare_cached(READ)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    let Some(row) = rows.next()? else {
        return Ok((HistoryId::ZERO, 0));
    };
    let mut cells = Cells::of("outbox_reach", row);
    cells.ulid()?;
    Ok((cells.history()?, cells.count()?))
}

/// The broker has answered with this place.
pub(crate) fn reached(
    connection: &Connection,
    mesh: MeshId,
    place: HistoryId,
) -> Result<(), StoreError> {
    if place > read(connection, mesh)?.0 {
        let (epoch, seq) = history_cells(place);
        connection
            .prepare_cached(REACHED)?
            .execute(params![mesh.0.to_bytes(), epoch, seq])?;
    }
    Ok(())
}
