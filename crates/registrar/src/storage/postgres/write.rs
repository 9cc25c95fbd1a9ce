//! New rows into tables. False means that a unique key is taken: somebody else was faster.

use heddle_core::ids::MeshId;

use super::tx::Tx;
use crate::binding::LogicalKey;
use crate::kept::{self, Bound};
use crate::rows::{
    AuditRow, CallRow, ConsumeRow, DecisionRow, EnvelopeRow, RegistrationRow, Row, StepRow,
};
use crate::storage::error::StorageError;
use crate::storage::stored;

type Answer<T> = Result<T, StorageError>;

const ENVELOPE: &str = "
    INSERT INTO effect_envelope (mesh_id, envelope_id, logical_request_key, canonical_operation,
        canonical_target, deployed_artifact_hash, run_id, replay_key, requested_by, requested_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING";

const DECISION: &str = "
    INSERT INTO effect_decision (mesh_id, envelope_id, seq, ruling, nonce_hash, purpose, not_before,
        expires_at, decided_by, decided_at, digest)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING";

pub(super) const CONSUME: &str = "
    INSERT INTO effect_consume (mesh_id, logical_request_key, replay_key, canonical_operation,
        canonical_target, deployed_artifact_hash, owner_or_approval_binding, run_id,
        authorization_nonce_hash, attempt_id, consumed_at, horizon_until)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";

pub(super) const REGISTRATION: &str = "
    INSERT INTO effect_registration (mesh_id, logical_request_key, registration_id, receipt, registered_at,
        digest)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";

const STEP: &str = "
    INSERT INTO effect_step (mesh_id, logical_request_key, round, step, attempt_id, nonce_hash, body,
        taken_by, taken_at, digest)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";

const CALL: &str = "
    INSERT INTO effect_call (mesh_id, caller, call_id, fingerprint, logical_request_key, called_at)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";

const AUDIT: &str = "
    INSERT INTO effect_audit (mesh_id, logical_request_key, attempt_id, event, code, detail, noted_by, noted_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

const LINE_UP: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 7264517))";

/// Waits until no other transaction decides about the approval of this key.
pub(super) async fn line_up(transaction: &Tx<'_>, mesh: MeshId, key: &LogicalKey) -> Answer<()> {
    let line = format!("{mesh}/{key}");
    transaction.execute(LINE_UP, &[&line]).await?;
    Ok(())
}

pub(super) async fn insert(
    transaction: &Tx<'_>,
    of: MeshId,
    row: &Row,
    bound: Bound,
) -> Answer<bool> {
    let mesh = of.0.to_bytes().to_vec();
    match row {
        Row::Envelope(row) => envelope(transaction, mesh, row).await,
        Row::Decision(row) => decision(transaction, of, row).await,
        Row::Consume(row) => consume(transaction, mesh, row).await,
        Row::Registration(row) => registration(transaction, of, row, bound).await,
        Row::Step(row) => step(transaction, of, row, bound).await,
        Row::Call(row) => call(transaction, mesh, row).await,
    }
}

async fn call(tx: &Tx<'_>, mesh: Vec<u8>, row: &CallRow) -> Answer<bool> {
    let written = tx
        .execute(
            CALL,
            &[
                &mesh,
                &row.caller,
                &row.id,
                &row.fingerprint.as_slice(),
                &row.key.as_str(),
                &row.at.0,
            ],
        )
        .await?;
    Ok(written == 1)
}

async fn envelope(tx: &Tx<'_>, mesh: Vec<u8>, row: &EnvelopeRow) -> Answer<bool> {
    let written = tx
        .execute(
            ENVELOPE,
            &[
                &mesh,
                &row.envelope_id,
                &row.effect.key.as_str(),
                &row.effect.operation,
                &row.effect.target,
                &row.effect.artifact_hash,
                &row.effect.run_id,
                &row.replay_key.0.as_slice(),
                &row.requested_by,
                &row.requested_at.0,
                &row.expires_at.0,
            ],
        )
        .await?;
    Ok(written == 1)
}

async fn decision(tx: &Tx<'_>, of: MeshId, row: &DecisionRow) -> Answer<bool> {
    let mesh = of.0.to_bytes().to_vec();
    let digest = kept::of_decision(of, row).to_vec();
    let nonce = row.grant.map(|grant| grant.nonce.0.to_vec());
    let purpose = row.grant.map(|grant| grant.purpose.as_str());
    let from = row.grant.map(|grant| grant.not_before.0);
    let until = row.grant.map(|grant| grant.expires_at.0);
    let written = tx
        .execute(
            DECISION,
            &[
                &mesh,
                &row.envelope_id,
                &row.seq,
                &row.ruling.as_str(),
                &nonce,
                &purpose,
                &from,
                &until,
                &row.by,
                &row.at.0,
                &digest,
            ],
        )
        .await?;
    Ok(written == 1)
}

async fn consume(tx: &Tx<'_>, mesh: Vec<u8>, row: &ConsumeRow) -> Answer<bool> {
    let written = tx
        .execute(
            CONSUME,
            &[
                &mesh,
                &row.effect.key.as_str(),
                &row.replay_key.0.as_slice(),
                &row.effect.operation,
                &row.effect.target,
                &row.effect.artifact_hash,
                &row.approval,
                &row.effect.run_id,
                &row.nonce.0.as_slice(),
                &row.attempt_id,
                &row.consumed_at.0,
                &row.horizon_until.0,
            ],
        )
        .await?;
    Ok(written == 1)
}

async fn registration(
    tx: &Tx<'_>,
    mesh: MeshId,
    row: &RegistrationRow,
    bound: Bound,
) -> Answer<bool> {
    let digest = stored::written_registration(mesh, row, bound).map(|digest| digest.to_vec());
    let mesh = mesh.0.to_bytes().to_vec();
    let written = tx
        .execute(
            REGISTRATION,
            &[
                &mesh,
                &row.key.as_str(),
                &row.registration_id,
                &row.receipt,
                &row.registered_at.0,
                &digest,
            ],
        )
        .await?;
    Ok(written == 1)
}

async fn step(tx: &Tx<'_>, mesh: MeshId, row: &StepRow, bound: Bound) -> Answer<bool> {
    let (body, digest) = stored::written_step(mesh, row, bound)?;
    let digest = digest.map(|digest| digest.to_vec());
    let mesh = mesh.0.to_bytes().to_vec();
    let nonce = row.nonce.map(|nonce| nonce.0.to_vec());
    let written = tx
        .execute(
            STEP,
            &[
                &mesh,
                &row.key.as_str(),
                &row.round,
                &row.step.column(),
                &row.attempt_id,
                &nonce,
                &body,
                &row.by,
                &row.at.0,
                &digest,
            ],
        )
        .await?;
    Ok(written == 1)
}

pub(super) async fn audit(transaction: &Tx<'_>, mesh: MeshId, row: &AuditRow) -> Answer<()> {
    let mesh = mesh.0.to_bytes().to_vec();
    transaction
        .execute(
            AUDIT,
            &[
                &mesh,
                &row.key,
                &row.attempt_id,
                &row.event,
                &row.code,
                &row.detail,
                &row.by,
                &row.at.0,
            ],
        )
        .await?;
    Ok(())
}
