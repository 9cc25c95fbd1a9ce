//! A local change of a shared mesh becomes an outbox row, in the savepoint that makes it (LF-12).

use heddle_core::clock::WallMs;
use heddle_core::envelope::{EnvelopeKind, LOG_REF, Priority};
use heddle_core::ids::{ClientMessageId, IdKey, MeshId, OpId, Party, RowId};
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

pub(crate) const IS_QUEUED: &str = "SELECT 1 FROM outbox WHERE id_key = ?1";

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
    // Both begin with the time, so rows of ops and of messages stand in the same order.
    let row = RowId(Ulid::from_bytes(op.stamp.op.to_bytes()));
    queue_as(connection, mesh, sender, op, (op.stamp.op, row), now)?;
    Ok(())
}

/// A row of before the mesh was published, under the id that is derived from it (C21). Its bytes' length;
/// none where it is on its way already.
pub(crate) fn queue_published(
    connection: &Connection,
    mesh: MeshId,
    sender: &Party,
    op: &DataOp,
    now: WallMs,
) -> Result<Option<usize>, StoreError> {
    let id = op.published_id(mesh);
    let text = client_id(id)?;
    let key = IdKey::of(mesh, sender, &text);
    if connection.prepare_cached(IS_QUEUED)?.exists([key.0])? {
        return Ok(None);
    }
    // At the row's own time among the others.
    let time = u64::try_from(op.at.0).unwrap_or(0);
    let random = u128::from_be_bytes(id.to_bytes());
    let row = RowId(Ulid::from_parts(time, random));
    queue_as(connection, mesh, sender, op, (id, row), now).map(Some)
}

fn client_id(id: OpId) -> Result<ClientMessageId, StoreError> {
    ClientMessageId::parse(&id.to_string()).map_err(|error| unsealed(&error))
}

fn unsealed(why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("an op cannot be sealed: {why}"))
}

fn queue_as(
    connection: &Connection,
    mesh: MeshId,
    sender: &Party,
    op: &DataOp,
    (id, row): (OpId, RowId),
    now: WallMs,
) -> Result<usize, StoreError> {
    let sealed = seal(op).map_err(|error| unsealed(&error))?;
    let id = client_id(id)?;
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
    Ok(sealed.payload.len())
}
