//! A local change of a shared mesh becomes an outbox row, in the savepoint that makes it (LF-12).

use heddle_core::clock::WallMs;
use heddle_core::envelope::{EnvelopeKind, LOG_REF, Priority};
use heddle_core::ids::{ClientMessageId, IdKey, MeshId, Party, RowId};
use heddle_core::op::{DataOp, seal};
use rusqlite::{Connection, OptionalExtension, params};
use ulid::Ulid;

use crate::error::StoreError;
use crate::outbox::{OP_DUE, note_sender};

pub(crate) const IS_SHARED: &str = "SELECT kind <> 'personal' FROM mesh WHERE mesh_id = ?1";

pub(crate) const INSERT_OP: &str = "
    INSERT INTO outbox (
        row_id, id_key, mesh_id, member_id, agent, client_message_id, request_fingerprint,
        wire_fingerprint, status, due_mono_ms, kind, to_address, mentions, priority, enqueued_at,
        payload
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 'pending', ?8, ?9, ?10, '[]', ?11, ?12, ?13)";

pub(crate) const QUEUE_OP: &str = "INSERT INTO op_outbox (mesh_id, arrival) VALUES (?1, ?2)";

/// Ops of a personal mesh go nowhere.
pub(crate) fn is_shared(connection: &Connection, mesh: MeshId) -> Result<bool, StoreError> {
    let shared = connection
        .prepare_cached(IS_SHARED)?
        .query_row([mesh.0.to_bytes()], |row| row.get(0))
        .optional()?;
    Ok(shared.unwrap_or(false))
}

/// Exactly one row for one op: its id is the op's, and an id is used once.
pub(crate) fn queue(
    connection: &Connection,
    mesh: MeshId,
    sender: &Party,
    op: &DataOp,
    now: WallMs,
) -> Result<(), StoreError> {
    let bad = |why: String| StoreError::Corrupt(format!("an op cannot be sealed: {why}"));
    let sealed = seal(op).map_err(|error| bad(error.to_string()))?;
    let id = ClientMessageId::parse(&op.stamp.op.to_string());
    let id = id.map_err(|error| bad(error.to_string()))?;
    // Both begin with the time, so rows of ops and of messages stand in the same order.
    let row = RowId(Ulid::from_bytes(op.stamp.op.to_bytes()));
    note_sender(connection, mesh, sender)?;
    connection.prepare_cached(INSERT_OP)?.execute(params![
        row.0.to_bytes(),
        IdKey::of(mesh, sender, &id).0,
        mesh.0.to_bytes(),
        sender.member.0.to_bytes(),
        sender.agent.as_str(),
        id.as_str(),
        sealed.wire_fingerprint.0,
        OP_DUE,
        EnvelopeKind::Op.as_str(),
        format!("log:{LOG_REF}"),
        Priority::Next.as_str(),
        now.0,
        sealed.payload,
    ])?;
    let arrival = connection.last_insert_rowid();
    connection
        .prepare_cached(QUEUE_OP)?
        .execute(params![mesh.0.to_bytes(), arrival])?;
    Ok(())
}
