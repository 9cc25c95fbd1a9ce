//! An inbox that was lost with a damaged file, or with the newer one of two: which meshes must be asked again, and
//! what came back.
//!
//! The mark is made in the transaction that leaves the rows behind, and the place to go on from moves with
//! the rows that came: a crash anywhere asks for at most one page twice, and what is there already stays.

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, IdKey, MeshId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::cells::history_cells;
use crate::error::StoreError;
use crate::inbox::cursor::{last_arrival, read_cursor};
use crate::inbox::receive::{RAISE_CURSOR, store_item};
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

pub(crate) const MOVE_LOST: &str = "
    UPDATE inbox_lost SET cursor = ?2, is_over = ?3, recovered = recovered + ?4, gone = gone + ?5
    WHERE mesh_id = ?1";

const PASS_HOOKS: &str = "
    UPDATE inbox_state SET hooks_through = ?2 WHERE hooks_through = ?1";

pub(crate) const ASK_AGAIN: &str = "
    INSERT INTO inbox_lost (mesh_id) VALUES (?1)
    ON CONFLICT (mesh_id) DO UPDATE SET cursor = NULL, is_over = 0, recovered = 0, gone = 0";

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

    /// The broker gave more than is here: all that it still holds is to be asked for.
    pub async fn inbox_ask_again(&self, mesh: MeshId) -> Result<(), StoreError> {
        self.write(move |connection| {
            let mut statement = connection.prepare_cached(ASK_AGAIN)?;
            statement.execute([mesh.0.to_bytes()])?;
            Ok(())
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
                let received = store_item(connection, mesh, key, &item.row)?;
                if let Some(arrival) = received.arrival() {
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
            // The cursor is what this home has heard of: it rises to what came back.
            let highest = page.iter().map(|item| item.row.history_id).max();
            let highest = highest.max(Some(read_cursor(connection, mesh)?));
            let (epoch, seq) = history_cells(highest.unwrap_or(HistoryId::ZERO));
            let mesh = mesh.0.to_bytes();
            connection
                .prepare_cached(RAISE_CURSOR)?
                .execute(params![mesh, epoch, seq, count])?;
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
