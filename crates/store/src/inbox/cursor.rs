//! How far a mesh's history has been received, and how far the inbox has grown.

use heddle_core::ids::{HistoryId, MeshId};
use rusqlite::{Connection, OptionalExtension};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

pub(crate) const CURSOR: &str = "
    SELECT mesh_id, history_epoch, history_seq FROM delivery WHERE mesh_id = ?1";

// Not the highest row that is left: a place is never given twice, even when its row is gone.
pub(crate) const LAST_ARRIVAL: &str = "SELECT seq FROM sqlite_sequence WHERE name = 'inbox'";

impl Store {
    /// Where the broker shall go on; [`HistoryId::ZERO`] before the first delivery.
    pub async fn delivery_cursor(&self, mesh: MeshId) -> Result<HistoryId, StoreError> {
        self.read(move |connection| read_cursor(connection, mesh))
            .await
    }

    /// The last place that was given in the order of arrival; 0 before the first item.
    pub async fn last_arrival(&self) -> Result<i64, StoreError> {
        self.read(last_arrival).await
    }
}

pub(crate) fn last_arrival(connection: &Connection) -> Result<i64, StoreError> {
    let last = connection
        .prepare_cached(LAST_ARRIVAL)?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(0))
}

pub(crate) fn read_cursor(connection: &Connection, mesh: MeshId) -> Result<HistoryId, StoreError> {
    let mut statement = connection.prepare_cached(CURSOR)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    let Some(row) = rows.next()? else {
        return Ok(HistoryId::ZERO);
    };
    let mut cells = Cells::of("delivery", row);
    cells.ulid()?;
    cells.history()
}
