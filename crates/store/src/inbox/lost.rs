//! An inbox that was lost with a damaged file: which meshes must be asked again, and what came back.
//!
//! The mark is made in the transaction that leaves the rows behind, and the place to go on from moves with
//! the rows that came: a crash anywhere asks for at most one page twice, and what is there already stays.

use heddle_core::clock::WallMs;
use heddle_core::ids::{IdKey, MeshId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::StoreError;
use crate::inbox::cursor::last_arrival;
use crate::inbox::receive::Received;
use crate::inbox::receive::store_item;
use crate::inbox::row::NewInboxRow;
use crate::store::Store;

/// How the asking of one mesh stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostInbox {
    pub mesh: MeshId,
    /// The broker's word for where to go on; `None` at first.
    pub cursor: Option<String>,
    pub is_over: bool,
    /// Messages that came back.
    pub recovered: u64,
    /// Deliveries that the broker knows, but whose bodies are gone there, too.
    pub gone: u64,
}

/// A message that was held once, with how far it had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredRow {
    pub row: NewInboxRow,
    pub shown_at: Option<WallMs>,
    pub acked_at: Option<WallMs>,
}

pub(crate) const LOST: &str = "
    SELECT mesh_id, cursor, is_over, recovered, gone FROM inbox_lost WHERE mesh_id = ?1";

pub(crate) const MARK_LEVELS: &str = "
    UPDATE inbox SET shown_at = ?2, acked_at = ?3 WHERE arrival = ?1";

pub(crate) const COUNT_RECOVERED: &str = "
    INSERT INTO delivery (mesh_id, history_epoch, history_seq, item_count) VALUES (?1, 0, 0, ?2)
    ON CONFLICT (mesh_id) DO UPDATE SET item_count = item_count + excluded.item_count";

pub(crate) const MOVE_LOST: &str = "
    UPDATE inbox_lost SET cursor = ?2, is_over = ?3, recovered = recovered + ?4, gone = gone + ?5
    WHERE mesh_id = ?1";

const PASS_HOOKS: &str = "
    UPDATE inbox_state SET hooks_through = ?2 WHERE hooks_through = ?1";

/// Every mesh of the file has lost its part of the inbox.
pub(crate) fn mark_all(new: &Connection) -> rusqlite::Result<()> {
    new.execute_batch(include_str!("../schema/v11_inbox_lost.sql"))?;
    new.execute_batch("INSERT OR REPLACE INTO inbox_lost (mesh_id) SELECT mesh_id FROM mesh")
}

impl Store {
    /// `None`: nothing of this mesh was ever lost here.
    pub async fn inbox_lost(&self, mesh: MeshId) -> Result<Option<LostInbox>, StoreError> {
        self.read(move |connection| {
            let found = connection
                .prepare_cached(LOST)?
                .query_row([mesh.0.to_bytes()], |row| {
                    Ok(LostInbox {
                        mesh,
                        cursor: row.get(1)?,
                        is_over: row.get(2)?,
                        recovered: u64::from(row.get::<_, u32>(3)?),
                        gone: u64::from(row.get::<_, u32>(4)?),
                    })
                })
                .optional()?;
            Ok(found)
        })
        .await
    }

    /// Keeps a page of what came back, and where to go on; `None` ends it. How many were new here.
    ///
    /// They were delivered long ago: no hook runs for them again.
    pub async fn inbox_recovered(
        &self,
        mesh: MeshId,
        page: Vec<RecoveredRow>,
        gone: u64,
        next: Option<String>,
    ) -> Result<Vec<i64>, StoreError> {
        self.write(move |connection| {
            let before = last_arrival(connection)?;
            let mut arrivals = Vec::new();
            for item in &page {
                let key = IdKey::of(mesh, &item.row.sender, &item.row.client_message_id);
                if let Received::Stored(arrival) = store_item(connection, mesh, key, &item.row)? {
                    let (shown, acked) = (item.shown_at, item.acked_at);
                    connection.prepare_cached(MARK_LEVELS)?.execute(params![
                        arrival,
                        shown.or(acked).map(|at| at.0),
                        acked.map(|at| at.0),
                    ])?;
                    arrivals.push(arrival);
                }
            }
            let count = i64::try_from(arrivals.len()).unwrap_or(i64::MAX);
            let mesh = mesh.0.to_bytes();
            connection
                .prepare_cached(COUNT_RECOVERED)?
                .execute(params![mesh, count])?;
            connection.prepare_cached(MOVE_LOST)?.execute(params![
                mesh,
                next,
                next.is_none(),
                count,
                i64::try_from(gone).unwrap_or(i64::MAX),
            ])?;
            if let Some(last) = arrivals.last() {
                connection
                    .prepare_cached(PASS_HOOKS)?
                    .execute(params![before, last])?;
            }
            Ok(arrivals)
        })
        .await
    }
}
