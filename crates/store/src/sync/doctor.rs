//! What a person may do about an op that does not get through: try it again, drop it, let a mesh go on.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::{Connection, OptionalExtension, params};

use super::head::READ_AGAIN;
use crate::error::StoreError;
use crate::outbox::NEVER;
use crate::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// An own op: it is due now, and its refusals are forgotten.
    Outgoing,
    /// An op from elsewhere: it waits to be applied again.
    Incoming,
    /// An op from elsewhere of which nothing was kept but why: the log is read again for it.
    ReadAgain,
    /// Its stamp is one that no home takes, now or later.
    ForGood,
    /// No op of that id waits for anything.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// An own op: this home keeps the change, the others never get it.
    Outgoing,
    /// An op from elsewhere: the others have the change, this home never gets it.
    Incoming,
    Unknown,
}

const QUEUED: &str = "
    SELECT o.arrival FROM op_outbox q JOIN outbox o ON o.arrival = q.arrival
    WHERE q.mesh_id = ?1 AND o.client_message_id = ?2";

const RETRY_OUT: &str = "UPDATE outbox SET attempts = 0 WHERE arrival = ?1";

const DUE_NOW: &str = "UPDATE op_outbox SET due_mono_ms = 0 WHERE mesh_id = ?1 AND arrival = ?2";

pub(crate) const ABORT_OP: &str = "
    UPDATE outbox SET status = 'aborted', aborted_at = ?2, aborted_by = 'doctor'
    WHERE arrival = ?1 AND status = 'pending'";

pub(crate) const UNQUEUE: &str = "DELETE FROM op_outbox WHERE mesh_id = ?1 AND arrival = ?2";

const RETRY_IN: &str = "
    UPDATE op_inbox SET state = 'waiting'
    WHERE mesh_id = ?1 AND op_id = ?2 AND length(op) > 0
        AND (state = 'quarantined' OR state = 'parked' OR state = 'dropped')";

// Without bytes: refused for its stamp (`own_refused.rs`), or an envelope that this build could not open.
const WITHOUT_BYTES: &str = "
    SELECT ifnull(reason, '') LIKE 'stamp %' FROM op_inbox
    WHERE mesh_id = ?1 AND op_id = ?2 AND state = 'quarantined' AND length(op) = 0";

const FORGET_IN: &str = "
    DELETE FROM op_inbox
    WHERE mesh_id = ?1 AND op_id = ?2 AND state = 'quarantined' AND length(op) = 0";

const DROP_IN: &str = "
    UPDATE op_inbox SET state = 'dropped'
    WHERE mesh_id = ?1 AND op_id = ?2 AND (state = 'quarantined' OR state = 'parked')";

pub(crate) const RELEASE: &str = "UPDATE op_outbox SET due_mono_ms = 0 WHERE mesh_id = ?1";

impl Store {
    pub async fn retry_op(&self, mesh: MeshId, op_id: String) -> Result<Retried, StoreError> {
        self.write(move |connection| {
            if let Some(arrival) = queued(connection, mesh, &op_id)? {
                connection.prepare_cached(RETRY_OUT)?.execute([arrival])?;
                connection
                    .prepare_cached(DUE_NOW)?
                    .execute(params![mesh.0.to_bytes(), arrival])?;
                return Ok(Retried::Outgoing);
            }
            let moved = connection
                .prepare_cached(RETRY_IN)?
                .execute(params![mesh.0.to_bytes(), op_id])?;
            if moved > 0 {
                return Ok(Retried::Incoming);
            }
            without_bytes(connection, mesh, &op_id)
        })
        .await
    }

    pub async fn drop_op(
        &self,
        mesh: MeshId,
        op_id: String,
        now: WallMs,
    ) -> Result<Dropped, StoreError> {
        self.write(move |connection| {
            if let Some(arrival) = queued(connection, mesh, &op_id)? {
                connection
                    .prepare_cached(ABORT_OP)?
                    .execute(params![arrival, now.0])?;
                connection
                    .prepare_cached(UNQUEUE)?
                    .execute(params![mesh.0.to_bytes(), arrival])?;
                return Ok(Dropped::Outgoing);
            }
            let moved = connection
                .prepare_cached(DROP_IN)?
                .execute(params![mesh.0.to_bytes(), op_id])?;
            Ok(if moved > 0 {
                Dropped::Incoming
            } else {
                Dropped::Unknown
            })
        })
        .await
    }

    /// Ends a pause: every op that waits is due now. True if it was paused.
    pub async fn resume_sync(&self, mesh: MeshId) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let resumed = connection
                .prepare_cached(
                    "UPDATE mesh SET sync_paused = 0 WHERE mesh_id = ?1 AND sync_paused = 1",
                )?
                .execute([mesh.0.to_bytes()])?;
            connection
                .prepare_cached(RELEASE)?
                .execute([mesh.0.to_bytes()])?;
            Ok(resumed > 0)
        })
        .await
    }

    /// Own ops that were refused, or cannot be read, and wait, oldest first: id, refusals, last error.
    pub async fn refused_ops(
        &self,
        mesh: MeshId,
        limit: usize,
    ) -> Result<Vec<(String, u32, String)>, StoreError> {
        self.read(move |connection| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(
                "SELECT CAST(o.client_message_id AS BLOB), o.attempts,
                    CAST(coalesce(o.last_error, 'its row cannot be read') AS BLOB)
                 FROM op_outbox q JOIN outbox o ON o.arrival = q.arrival
                 WHERE q.mesh_id = ?1 AND (o.attempts > 0 OR q.due_mono_ms = ?3)
                 ORDER BY q.arrival LIMIT ?2",
            )?;
            // Whatever became of the bytes, the row is named.
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let bounds = params![mesh.0.to_bytes(), limit, NEVER];
            let rows = statement.query_map(bounds, |row| {
                Ok((text(row.get(0)?), row.get(1)?, text(row.get(2)?)))
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }
}

fn queued(connection: &Connection, mesh: MeshId, op_id: &str) -> Result<Option<i64>, StoreError> {
    let found = connection
        .prepare_cached(QUEUED)?
        .query_row(params![mesh.0.to_bytes(), op_id], |row| row.get(0));
    Ok(found.optional()?)
}

/// Of such an op nothing is here that could be applied: the log has it still.
fn without_bytes(
    connection: &Connection,
    mesh: MeshId,
    op_id: &str,
) -> Result<Retried, StoreError> {
    let cells = params![mesh.0.to_bytes(), op_id];
    let found = connection
        .prepare_cached(WITHOUT_BYTES)?
        .query_row(cells, |row| row.get::<_, bool>(0));
    match found.optional()? {
        None => Ok(Retried::Unknown),
        Some(true) => Ok(Retried::ForGood),
        Some(false) => {
            connection.prepare_cached(FORGET_IN)?.execute(cells)?;
            connection
                .prepare_cached(READ_AGAIN)?
                .execute([mesh.0.to_bytes()])?;
            Ok(Retried::ReadAgain)
        }
    }
}
