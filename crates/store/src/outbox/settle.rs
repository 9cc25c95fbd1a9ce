//! The end of a transmission: done, dead, or once more.

use std::time::Duration;

use heddle_core::age::MAX_AGE_UNKNOWN;
use heddle_core::clock::WallMs;
use heddle_core::drain::{COMMITTED, RowMove, Waits};
use heddle_core::ids::{BrokerMessageId, HistoryId, MeshId, RowId};
use rusqlite::{Connection, params};
use ulid::Ulid;

use crate::cells::history_cells;
use crate::error::StoreError;
use crate::outbox::attempts;
use crate::outbox::parked::NEVER;
use crate::outbox::row::{OutboxRow, read_rows_shown, select_row};
use crate::store::Store;

/// What became of one row that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    pub row: RowId,
    /// As they stood on the row when it was taken.
    pub attempts: u32,
    pub next: RowMove,
    /// When this try began.
    pub begun: WallMs,
    /// When its outcome was known.
    pub at: WallMs,
    /// For a retry: when, on the monotonic clock of this process. One for the next window keeps the due time it had.
    pub due: Duration,
}

pub(crate) const DONE: &str = "
    UPDATE outbox SET status = 'done', attempts = attempts + 1, last_error = NULL,
        delivered_at = ?2, broker_message_id = ?3, history_epoch = ?4, history_seq = ?5
    WHERE row_id = ?1 AND status = 'inflight'";

// A last look found at the broker what had been given up here.
pub(crate) const DEAD_IS_DONE: &str = "
    UPDATE outbox SET status = 'done', attempts = attempts + 1, last_error = NULL,
        delivered_at = ?2, broker_message_id = ?3, history_epoch = ?4, history_seq = ?5
    WHERE row_id = ?1 AND status = 'dead'";

pub(crate) const DEAD: &str = "
    UPDATE outbox SET status = 'dead', attempts = attempts + 1, last_error = ?2
    WHERE row_id = ?1 AND status = 'inflight'";

pub(crate) const RETRY: &str = "
    UPDATE outbox SET status = 'pending', attempts = attempts + 1, last_error = ?2,
        due_mono_ms = ?3
    WHERE row_id = ?1 AND status = 'inflight'";

// The budget of the mesh is used up, or the broker can keep nothing: the mesh waits, and the row keeps its place in the line.
pub(crate) const RETRY_IN_PLACE: &str = "
    UPDATE outbox SET status = 'pending', attempts = attempts + 1, last_error = ?2
    WHERE row_id = ?1 AND status = 'inflight'";

pub(crate) const DEAD_UNKNOWN: &str = select_row!(
    without_payload,
    "FROM outbox WHERE status = 'dead' AND arrival > ?1 AND mesh_id = ?2
        AND substr(last_error, 1, length(?3)) = ?3 ORDER BY arrival LIMIT ?4"
);

pub(crate) const DEAD_REASON: &str =
    "UPDATE outbox SET last_error = ?2 WHERE row_id = ?1 AND status = 'dead'";

pub(crate) const MESH_OF: &str = "SELECT mesh_id FROM outbox WHERE row_id = ?1";

// Nothing was sent, so nothing is counted.
pub(crate) const PARK: &str = "
    UPDATE outbox SET status = 'pending', last_error = ?2, due_mono_ms = ?3
    WHERE row_id = ?1 AND status = 'inflight'";

impl Store {
    /// Writes the moves of rows of one mesh in one transaction. One for a row that is not in flight is left out
    /// and logged: it came too late, and must not take the others along.
    pub async fn settle(&self, moves: Vec<Settle>) -> Result<(), StoreError> {
        // A row that is dead is never sent again (OB-13): that must not be forgotten. The other marks
        // may be: the row is sent once more, and the broker knows its id.
        let is_final = moves
            .iter()
            .any(|settle| matches!(settle.next, RowMove::Dead { .. }));
        let job = move |connection: &Connection| {
            let mut late = Vec::new();
            let mut far: Option<(HistoryId, RowId)> = None;
            for settle in moves {
                if settle_one(connection, &settle)? == 0 {
                    late.push(settle.row);
                } else if let RowMove::Done { history_id, .. } = settle.next
                    && far.is_none_or(|(place, _)| history_id > place)
                {
                    far = Some((history_id, settle.row));
                }
            }
            // One note for all of them: how far the broker's history has come.
            if let Some((place, row)) = far {
                note_reached(connection, row, place)?;
            }
            Ok(late)
        };
        let late: Vec<RowId> = if is_final {
            self.write(job).await?
        } else {
            self.write_relaxed(job).await?
        };
        for row in late {
            tracing::warn!(%row, "a verdict for an outbox row that is not in flight was ignored");
        }
        Ok(())
    }

    /// Rows of the mesh that died of age while the broker could not be asked, in order of arrival.
    pub async fn dead_of_unknown_outcome(
        &self,
        mesh: MeshId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        self.read(move |connection| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = params![after, mesh.0.to_bytes(), MAX_AGE_UNKNOWN, limit];
            read_rows_shown(connection, DEAD_UNKNOWN, rows)
        })
        .await
    }

    /// Why a row is dead is known better by now.
    pub async fn set_dead_reason(&self, row: RowId, reason: String) -> Result<(), StoreError> {
        self.write(move |connection| {
            let cells = params![row.0.to_bytes(), reason];
            connection.prepare_cached(DEAD_REASON)?.execute(cells)?;
            Ok(())
        })
        .await
    }

    /// A dead row that the broker turns out to hold is done (DR-05); false where it is not dead any more.
    pub async fn settle_dead_as_done(
        &self,
        row: RowId,
        attempts: u32,
        place: (BrokerMessageId, HistoryId),
        at: WallMs,
    ) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let moved = execute_done(connection, DEAD_IS_DONE, (row, at), place)?;
            if moved == 1 {
                note_reached(connection, row, place.1)?;
                let number = attempts.saturating_add(1);
                attempts::note(connection, row, number, at, (COMMITTED, ""))?;
            }
            Ok(moved == 1)
        })
        .await
    }
}

fn note_reached(connection: &Connection, row: RowId, place: HistoryId) -> Result<(), StoreError> {
    let mesh: [u8; 16] = connection
        .prepare_cached(MESH_OF)?
        .query_row([row.0.to_bytes()], |row| row.get(0))?;
    super::reached(connection, MeshId(Ulid::from_bytes(mesh)), place)
}

/// How many rows it moved: one or none.
fn settle_one(connection: &Connection, settle: &Settle) -> Result<usize, StoreError> {
    let row = settle.row.0.to_bytes();
    let moved = match &settle.next {
        RowMove::Done {
            broker_message_id,
            history_id,
        } => {
            let place = (*broker_message_id, *history_id);
            execute_done(connection, DONE, (settle.row, settle.at), place)?
        }
        RowMove::Dead { reason } => connection
            .prepare_cached(DEAD)?
            .execute(params![row, reason])?,
        RowMove::Retry {
            error,
            waits: Waits::Window(_) | Waits::Broker,
        } => connection
            .prepare_cached(RETRY_IN_PLACE)?
            .execute(params![row, error])?,
        RowMove::Retry { error, .. } => {
            connection
                .prepare_cached(RETRY)?
                .execute(params![row, error, ms_up(settle.due)])?
        }
        RowMove::Park { reason } => connection
            .prepare_cached(PARK)?
            .execute(params![row, reason, NEVER])?,
    };
    if moved == 1 {
        note_attempt(connection, settle)?;
    }
    Ok(moved)
}

fn execute_done(
    connection: &Connection,
    sql: &'static str,
    (row, at): (RowId, WallMs),
    (message, place): (BrokerMessageId, HistoryId),
) -> Result<usize, StoreError> {
    let (epoch, seq) = history_cells(place);
    let row = row.0.to_bytes();
    let message = message.0.to_bytes();
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.execute(params![row, at.0, message, epoch, seq])?)
}

/// The usual way, delivered at once, leaves no trace beyond the row itself.
fn note_attempt(connection: &Connection, settle: &Settle) -> Result<(), StoreError> {
    let number = settle.attempts.saturating_add(1);
    match &settle.next {
        RowMove::Park { .. } => Ok(()),
        RowMove::Done { .. } if number == 1 => Ok(()),
        next => attempts::note(connection, settle.row, number, settle.begun, next.outcome()),
    }
}

/// Rounded up: a wait never shrinks (DR-07).
pub(crate) fn ms_up(due: Duration) -> i64 {
    let ms = i64::try_from(due.as_nanos().div_ceil(1_000_000)).unwrap_or(NEVER);
    // Late is not never: that is for parked rows and for ops.
    ms.min(NEVER - 2)
}
