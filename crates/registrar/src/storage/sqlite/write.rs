//! New rows into tables. There is no other way to write here than to append.

use heddle_core::ids::MeshId;
use rusqlite::{Connection, params};

use crate::kept::{self, Bound};
use crate::rows::{
    AuditRow, CallRow, ConsumeRow, DecisionRow, EnvelopeRow, RegistrationRow, Row, StepRow,
};
use crate::storage::error::StorageError;
use crate::storage::stored;

type Answer = Result<(), StorageError>;

const ENVELOPE: &str = "
    INSERT INTO effect_envelope (mesh_id, envelope_id, logical_request_key, canonical_operation,
        canonical_target, deployed_artifact_hash, run_id, replay_key, requested_by, requested_at, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

const DECISION: &str = "
    INSERT INTO effect_decision (mesh_id, envelope_id, seq, ruling, nonce_hash, purpose, not_before,
        expires_at, decided_by, decided_at, digest)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

pub(super) const CONSUME: &str = "
    INSERT INTO effect_consume (mesh_id, logical_request_key, replay_key, canonical_operation,
        canonical_target, deployed_artifact_hash, owner_or_approval_binding, run_id,
        authorization_nonce_hash, attempt_id, consumed_at, horizon_until)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

pub(super) const REGISTRATION: &str = "
    INSERT INTO effect_registration (mesh_id, logical_request_key, registration_id, receipt, registered_at,
        digest)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const STEP: &str = "
    INSERT INTO effect_step (mesh_id, logical_request_key, round, step, attempt_id, nonce_hash, body,
        taken_by, taken_at, digest)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const CALL: &str = "
    INSERT INTO effect_call (mesh_id, caller, call_id, fingerprint, logical_request_key, called_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const AUDIT: &str = "
    INSERT INTO effect_audit (mesh_id, logical_request_key, attempt_id, event, code, detail, noted_by, noted_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

pub(super) fn insert(connection: &Connection, of: MeshId, row: &Row, bound: Bound) -> Answer {
    let mesh = of.0.to_bytes();
    match row {
        Row::Envelope(row) => envelope(connection, mesh, row),
        Row::Decision(row) => decision(connection, of, row),
        Row::Consume(row) => consume(connection, mesh, row),
        Row::Registration(row) => registration(connection, of, row, bound),
        Row::Step(row) => step(connection, of, row, bound),
        Row::Call(row) => call(connection, mesh, row),
    }
}

fn call(connection: &Connection, mesh: [u8; 16], row: &CallRow) -> Answer {
    connection.prepare_cached(CALL)?.execute(params![
        mesh,
        row.caller,
        row.id,
        row.fingerprint,
        row.key.as_str(),
        row.at.0,
    ])?;
    Ok(())
}

fn envelope(connection: &Connection, mesh: [u8; 16], row: &EnvelopeRow) -> Answer {
    connection.prepare_cached(ENVELOPE)?.execute(params![
        mesh,
        row.envelope_id,
        row.effect.key.as_str(),
        row.effect.operation,
        row.effect.target,
        row.effect.artifact_hash,
        row.effect.run_id,
        row.replay_key.0,
        row.requested_by,
        row.requested_at.0,
        row.expires_at.0,
    ])?;
    Ok(())
}

fn decision(connection: &Connection, mesh: MeshId, row: &DecisionRow) -> Answer {
    connection.prepare_cached(DECISION)?.execute(params![
        mesh.0.to_bytes(),
        row.envelope_id,
        row.seq,
        row.ruling.as_str(),
        row.grant.map(|grant| grant.nonce.0),
        row.grant.map(|grant| grant.purpose.as_str()),
        row.grant.map(|grant| grant.not_before.0),
        row.grant.map(|grant| grant.expires_at.0),
        row.by,
        row.at.0,
        kept::of_decision(mesh, row),
    ])?;
    Ok(())
}

fn consume(connection: &Connection, mesh: [u8; 16], row: &ConsumeRow) -> Answer {
    connection.prepare_cached(CONSUME)?.execute(params![
        mesh,
        row.effect.key.as_str(),
        row.replay_key.0,
        row.effect.operation,
        row.effect.target,
        row.effect.artifact_hash,
        row.approval,
        row.effect.run_id,
        row.nonce.0,
        row.attempt_id,
        row.consumed_at.0,
        row.horizon_until.0,
    ])?;
    Ok(())
}

fn registration(
    connection: &Connection,
    mesh: MeshId,
    row: &RegistrationRow,
    bound: Bound,
) -> Answer {
    connection.prepare_cached(REGISTRATION)?.execute(params![
        mesh.0.to_bytes(),
        row.key.as_str(),
        row.registration_id,
        row.receipt,
        row.registered_at.0,
        stored::written_registration(mesh, row, bound),
    ])?;
    Ok(())
}

fn step(connection: &Connection, mesh: MeshId, row: &StepRow, bound: Bound) -> Answer {
    let (body, digest) = stored::written_step(mesh, row, bound)?;
    connection.prepare_cached(STEP)?.execute(params![
        mesh.0.to_bytes(),
        row.key.as_str(),
        row.round,
        row.step.column(),
        row.attempt_id,
        row.nonce.map(|nonce| nonce.0),
        body,
        row.by,
        row.at.0,
        digest,
    ])?;
    Ok(())
}

pub(super) fn audit(connection: &Connection, mesh: MeshId, row: &AuditRow) -> Answer {
    connection.prepare_cached(AUDIT)?.execute(params![
        mesh.0.to_bytes(),
        row.key,
        row.attempt_id,
        row.event,
        row.code,
        row.detail,
        row.by,
        row.at.0,
    ])?;
    Ok(())
}
