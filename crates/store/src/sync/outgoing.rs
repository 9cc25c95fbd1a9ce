//! Ops on their way to the broker: in outbox order, one transmission at a time, never dead by age.
//!
//! Taking an op writes nothing: it is `pending` until the broker has it, and passes through `inflight` in
//! the transaction that settles it. A crash between the two sends it once more, and B0 knows its id.
//! IMPORTANT: only rows whose commit was synced are seen here (LF-05), because a reader sees no other.

use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::drain::RowMove;
use heddle_core::ids::{ClientMessageId, HistoryId, MeshId, RowId};
use heddle_core::names::AgentName;
use heddle_core::op::is_sealed_as;
use heddle_core::sync::{OpMove, pauses_mesh};
use rusqlite::{Connection, Row, ToSql, params};

use crate::cells::{Cells, history_cells};
use crate::error::StoreError;
use crate::outbox::{NEVER, ms_up, note_attempt};
use crate::store::Store;

/// An op that may be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueOp {
    pub arrival: i64,
    pub row: RowId,
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    pub payload: Vec<u8>,
    /// Refusals of this very op; the network's faults are not among them (C40).
    pub attempts: u32,
    pub enqueued_at: WallMs,
}

/// What became of one op that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpSettle {
    pub arrival: i64,
    pub row: RowId,
    pub attempts: u32,
    pub next: OpMove,
    /// When this try began.
    pub begun: WallMs,
    /// When its outcome was known.
    pub at: WallMs,
    /// After a refusal: when to try again.
    pub due: Duration,
}

pub(crate) const DUE_OPS: &str = "
    SELECT o.arrival, o.row_id, o.agent, o.client_message_id, o.payload, o.attempts, o.enqueued_at,
        o.wire_fingerprint
    FROM op_outbox q JOIN outbox o ON o.arrival = q.arrival
    WHERE q.mesh_id = ?1 AND q.due_mono_ms <= ?2 AND q.arrival > ?4
    ORDER BY q.arrival LIMIT ?3";

// Of a publish that is uploaded: everything before its last op, whenever it is due.
pub(crate) const UPLOAD_OPS: &str = "
    SELECT o.arrival, o.row_id, o.agent, o.client_message_id, o.payload, o.attempts, o.enqueued_at,
        o.wire_fingerprint
    FROM op_outbox q JOIN outbox o ON o.arrival = q.arrival
    WHERE q.mesh_id = ?1 AND q.arrival > ?2 AND q.arrival <= coalesce((
        SELECT sent_through FROM mesh_publish WHERE mesh_id = ?1), 9223372036854775807)
    ORDER BY q.arrival LIMIT ?3";

// Two statements for one move: a row leaves `pending` through `inflight` only (OB-09).
pub(crate) const CONFIRM_INFLIGHT: &str =
    "UPDATE outbox SET status = 'inflight' WHERE arrival = ?1 AND status = 'pending'";

pub(crate) const CONFIRM_DONE: &str = "
    UPDATE outbox SET status = 'done', last_error = NULL, delivered_at = ?2,
        broker_message_id = ?3, history_epoch = ?4, history_seq = ?5
    WHERE arrival = ?1 AND status = 'inflight'";

pub(crate) const UNQUEUE_OP: &str = "DELETE FROM op_outbox WHERE mesh_id = ?1 AND arrival = ?2";

pub(crate) const REFUSED: &str = "
    UPDATE outbox SET attempts = attempts + 1, last_error = ?2
    WHERE arrival = ?1 AND status = 'pending'";

pub(crate) const PUT_OFF: &str =
    "UPDATE op_outbox SET due_mono_ms = ?3 WHERE mesh_id = ?1 AND arrival = ?2";

const SAY_WHY: &str = "UPDATE outbox SET last_error = ?2 WHERE arrival = ?1 AND status = 'pending'";

const PAUSE: &str = "UPDATE mesh SET sync_paused = 1 WHERE mesh_id = ?1";

impl Store {
    /// Ops that may be sent now, in outbox order (LF-02); none of a mesh that is paused. As many as
    /// both bounds allow, and at least one if there is one.
    pub async fn due_ops(
        &self,
        mesh: MeshId,
        now: Duration,
        items_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<DueOp>, StoreError> {
        self.due_ops_behind(mesh, 0, now, items_max, bytes_max)
            .await
    }

    /// Of those behind an arrival.
    pub async fn due_ops_behind(
        &self,
        mesh: MeshId,
        after: i64,
        now: Duration,
        items_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<DueOp>, StoreError> {
        let (ops, damaged) = self
            .read(move |connection| {
                if super::head::read(connection, mesh)?.paused {
                    return Ok((Vec::new(), Vec::new()));
                }
                let now_ms = i64::try_from(now.as_millis()).unwrap_or(NEVER - 1);
                let mesh = mesh.0.to_bytes();
                let which = params![mesh, now_ms, limit(items_max), after];
                some(connection, DUE_OPS, which, bytes_max)
            })
            .await?;
        for (arrival, why) in damaged {
            tracing::error!(
                arrival,
                why,
                "an op in the outbox is damaged and waits apart"
            );
            let put_off = move |connection: &Connection| {
                connection.prepare_cached(PUT_OFF)?.execute(params![
                    mesh.0.to_bytes(),
                    arrival,
                    NEVER
                ])?;
                connection
                    .prepare_cached(SAY_WHY)?
                    .execute(params![arrival, why])?;
                Ok(())
            };
            self.write(put_off).await?;
        }
        Ok(ops)
    }

    /// Ops of a publish behind a cursor, which is the arrival of the last one that the broker has laid aside.
    /// One that is damaged is passed over: it waits for its turn in the ordinary way.
    pub async fn upload_ops(
        &self,
        mesh: MeshId,
        after: u64,
        items_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<DueOp>, StoreError> {
        self.read(move |connection| {
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let which = params![mesh.0.to_bytes(), after, limit(items_max)];
            Ok(some(connection, UPLOAD_OPS, which, bytes_max)?.0)
        })
        .await
    }

    /// Writes what became of ops. True if one of them has paused its mesh.
    pub async fn settle_ops(&self, mesh: MeshId, moves: Vec<OpSettle>) -> Result<bool, StoreError> {
        let is_counted = |settle: &OpSettle| matches!(settle.next, OpMove::Refused { .. });
        let must_last = moves.iter().any(is_counted);
        let job = move |connection: &Connection| {
            let mut paused = false;
            for settle in &moves {
                paused |= settle_one(connection, mesh, settle)?;
            }
            // Once for all of them: they come with rising places.
            if let Some(furthest) = moves.iter().filter_map(place_of).max() {
                crate::outbox::reached(connection, mesh, furthest)?;
            }
            Ok(paused)
        };
        if must_last {
            self.write(job).await
        } else {
            // Lost marks only send an op once more, and the broker knows its id.
            self.write_relaxed(job).await
        }
    }
}

type Due = (Vec<DueOp>, Vec<(i64, String)>);

fn limit(items_max: usize) -> i64 {
    i64::try_from(items_max.max(1)).unwrap_or(i64::MAX)
}

/// As many as both bounds allow, and at least one if there is one; and those that cannot be read.
fn some(
    connection: &Connection,
    sql: &str,
    which: &[&dyn ToSql],
    bytes_max: usize,
) -> Result<Due, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(which)?;
    let (mut ops, mut damaged, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    while let Some(row) = rows.next()? {
        match read_op(row) {
            Ok(op) => {
                bytes = bytes.saturating_add(op.payload.len());
                if bytes > bytes_max && !ops.is_empty() {
                    break;
                }
                ops.push(op);
            }
            Err(StoreError::Corrupt(why)) => damaged.push((row.get(0)?, why)),
            Err(error) => return Err(error),
        }
    }
    Ok((ops, damaged))
}

fn read_op(row: &Row<'_>) -> Result<DueOp, StoreError> {
    let mut cells = Cells::of("outbox", row);
    let op = DueOp {
        arrival: cells.get()?,
        row: RowId(cells.ulid()?),
        agent: cells.parsed(AgentName::parse)?,
        client_message_id: cells.parsed(ClientMessageId::parse)?,
        payload: cells.get()?,
        attempts: cells.get()?,
        enqueued_at: cells.wall()?,
    };
    // A disk that changed a letter of it must not have the last word: everybody else would keep what nobody wrote.
    if !is_sealed_as(&op.payload, cells.fingerprint()?) {
        let why = "damaged: its bytes are not those of the change that was made, so it is not sent; `heddle down` and `heddle doctor --repair` send what its row holds in its place";
        return Err(StoreError::Corrupt(why.to_owned()));
    }
    Ok(op)
}

fn place_of(settle: &OpSettle) -> Option<HistoryId> {
    match settle.next {
        OpMove::Done { history_id, .. } => Some(history_id),
        OpMove::Refused { .. } | OpMove::Wait { .. } => None,
    }
}

fn settle_one(
    connection: &Connection,
    mesh: MeshId,
    settle: &OpSettle,
) -> Result<bool, StoreError> {
    match &settle.next {
        OpMove::Done {
            broker_message_id,
            history_id,
        } => {
            let id = Some(broker_message_id.0.to_bytes());
            confirm(connection, mesh, settle.arrival, settle.at, id, *history_id)?;
            Ok(false)
        }
        OpMove::Wait { .. } => Ok(false),
        OpMove::Refused { error } => {
            let moved = connection
                .prepare_cached(REFUSED)?
                .execute(params![settle.arrival, error])?;
            if moved == 0 {
                return Ok(false);
            }
            let number = settle.attempts.saturating_add(1);
            let words = RowMove::Dead {
                reason: error.clone(),
            };
            note_attempt(
                connection,
                settle.row,
                number,
                settle.begun,
                words.outcome(),
            )?;
            connection.prepare_cached(PUT_OFF)?.execute(params![
                mesh.0.to_bytes(),
                settle.arrival,
                ms_up(settle.due)
            ])?;
            if pauses_mesh(number) {
                connection
                    .prepare_cached(PAUSE)?
                    .execute([mesh.0.to_bytes()])?;
                return Ok(true);
            }
            Ok(false)
        }
    }
}

/// The broker has it, whether it said so or the op came back through the log. True if that was news.
pub(super) fn confirm(
    connection: &Connection,
    mesh: MeshId,
    arrival: i64,
    at: WallMs,
    broker_message_id: Option<[u8; 16]>,
    place: HistoryId,
) -> Result<bool, StoreError> {
    let (epoch, seq) = history_cells(place);
    let moved = connection
        .prepare_cached(CONFIRM_INFLIGHT)?
        .execute([arrival])?;
    if moved == 1 {
        let cells = params![arrival, at.0, broker_message_id, epoch, seq];
        connection.prepare_cached(CONFIRM_DONE)?.execute(cells)?;
    }
    connection
        .prepare_cached(UNQUEUE_OP)?
        .execute(params![mesh.0.to_bytes(), arrival])?;
    Ok(moved == 1)
}
