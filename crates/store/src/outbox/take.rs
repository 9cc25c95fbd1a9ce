//! Taking rows for transmission: pending to inflight, so that no two transmissions meet (DR-01).

use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, MeshId, RowId};
use heddle_core::names::AgentName;
use rusqlite::{Connection, Row, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

/// A row that was taken: whoever took it owes it a `settle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRow {
    pub row: RowId,
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    pub payload: Vec<u8>,
    pub attempts: u32,
    pub enqueued_at: WallMs,
}

pub(crate) const DUE: &str = "
    SELECT arrival, row_id, agent, client_message_id, payload, attempts, enqueued_at
    FROM outbox
    WHERE mesh_id = ?1 AND status = 'pending' AND due_mono_ms <= ?2
    ORDER BY due_mono_ms, arrival
    LIMIT ?3";

pub(crate) const ONE: &str = "
    SELECT arrival, row_id, agent, client_message_id, payload, attempts, enqueued_at
    FROM outbox
    WHERE row_id = ?1 AND status = 'pending'";

// One statement for all: a statement of its own for each row costs half as much again.
pub(crate) const MARK_INFLIGHT: &str = "
    UPDATE outbox SET status = 'inflight' WHERE arrival IN (SELECT value FROM json_each(?1))";

pub(crate) const NEXT_DUE: &str = "
    SELECT due_mono_ms FROM outbox
    WHERE mesh_id = ?1 AND status = 'pending'
    ORDER BY due_mono_ms
    LIMIT 1";

impl Store {
    /// The rows that are due at `now`, longest due first, then in order of arrival. As many as both
    /// bounds allow, and at least one if there is one.
    pub async fn take_due(
        &self,
        mesh: MeshId,
        now: Duration,
        items_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<DueRow>, StoreError> {
        self.write_relaxed(move |connection| {
            let due = read_due(connection, mesh, now, items_max, bytes_max)?;
            let (arrivals, taken): (Vec<i64>, Vec<DueRow>) = due.into_iter().unzip();
            mark_inflight(connection, &arrivals)?;
            Ok(taken)
        })
        .await
    }

    /// Exactly this row, due or not; `None` if it is not pending.
    pub async fn take_one(&self, row: RowId) -> Result<Option<DueRow>, StoreError> {
        self.write_relaxed(move |connection| {
            let mut statement = connection.prepare_cached(ONE)?;
            let mut rows = statement.query([row.0.to_bytes()])?;
            let Some((arrival, taken)) = rows.next()?.map(read_due_row).transpose()? else {
                return Ok(None);
            };
            mark_inflight(connection, &[arrival])?;
            Ok(Some(taken))
        })
        .await
    }

    /// When the next row of the mesh is due; `None` if none waits.
    pub async fn next_due(&self, mesh: MeshId) -> Result<Option<Duration>, StoreError> {
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(NEXT_DUE)?;
            let mut rows = statement.query([mesh.0.to_bytes()])?;
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let due_ms: i64 = row.get(0)?;
            Ok(Some(Duration::from_millis(
                u64::try_from(due_ms).unwrap_or(0),
            )))
        })
        .await
    }
}

fn mark_inflight(connection: &Connection, arrivals: &[i64]) -> Result<(), StoreError> {
    let listed: Vec<String> = arrivals.iter().map(ToString::to_string).collect();
    connection
        .prepare_cached(MARK_INFLIGHT)?
        .execute([format!("[{}]", listed.join(","))])?;
    Ok(())
}

fn read_due(
    connection: &Connection,
    mesh: MeshId,
    now: Duration,
    items_max: usize,
    bytes_max: usize,
) -> Result<Vec<(i64, DueRow)>, StoreError> {
    let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    let limit = i64::try_from(items_max.max(1)).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(DUE)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), now_ms, limit])?;
    let mut due = Vec::new();
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        let (arrival, row) = read_due_row(row)?;
        bytes = bytes.saturating_add(row.payload.len());
        if bytes > bytes_max && !due.is_empty() {
            break;
        }
        due.push((arrival, row));
    }
    Ok(due)
}

fn read_due_row(row: &Row<'_>) -> Result<(i64, DueRow), StoreError> {
    let mut cells = Cells::of("outbox", row);
    Ok((
        cells.get()?,
        DueRow {
            row: RowId(cells.ulid()?),
            agent: cells.parsed(AgentName::parse)?,
            client_message_id: cells.parsed(ClientMessageId::parse)?,
            payload: cells.get()?,
            attempts: cells.get()?,
            enqueued_at: cells.wall()?,
        },
    ))
}
