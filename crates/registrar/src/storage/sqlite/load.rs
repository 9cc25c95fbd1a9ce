//! Reads the rows of a key, all in one snapshot, and makes facts of them.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::authority::NonceHash;
use crate::binding::{LogicalKey, ReplayKey};
use crate::facts::{Facts, NonceFacts};
use crate::kept::{Beside, StepCells};
use crate::rows::{
    AuditRow, CallRow, ConsumeRow, DecisionRow, EnvelopeRow, RegistrationRow, StepRow,
};
use crate::storage::contract::{ListPage, ListPlace, LoggedLine};
use crate::storage::error::StorageError;
use crate::storage::stored;

type Answer<T> = Result<T, StorageError>;

const ENVELOPES: &str = "
    SELECT logical_request_key, canonical_operation, canonical_target, deployed_artifact_hash, run_id,
           envelope_id, replay_key, requested_by, requested_at, expires_at
    FROM effect_envelope WHERE mesh_id = ?1 AND logical_request_key = ?2 ORDER BY seq";

const ENVELOPE: &str = "
    SELECT logical_request_key, canonical_operation, canonical_target, deployed_artifact_hash, run_id,
           envelope_id, replay_key, requested_by, requested_at, expires_at
    FROM effect_envelope WHERE mesh_id = ?1 AND envelope_id = ?2";

const DECISIONS: &str = "
    SELECT envelope_id, seq, ruling, nonce_hash, purpose, not_before, expires_at, decided_by, decided_at,
           digest, digest IS NULL AND EXISTS (SELECT 1 FROM effect_undigested u
               WHERE u.mesh_id = d.mesh_id AND table_name = 'effect_decision' AND row_id = envelope_id
                 AND u.seq = d.seq)
    FROM effect_decision d WHERE mesh_id = ?1 AND envelope_id = ?2 ORDER BY seq";

const GRANTED: &str = "
    SELECT envelope_id FROM effect_decision WHERE mesh_id = ?1 AND nonce_hash = ?2";

const USED: &str = "
    SELECT EXISTS (SELECT 1 FROM effect_consume WHERE authorization_nonce_hash = ?1)
        OR EXISTS (SELECT 1 FROM effect_step WHERE nonce_hash = ?1)";

const CONSUMED: &str = "
    SELECT logical_request_key, canonical_operation, canonical_target, deployed_artifact_hash, run_id,
           owner_or_approval_binding, replay_key, authorization_nonce_hash, attempt_id, consumed_at,
           horizon_until
    FROM effect_consume WHERE mesh_id = ?1 AND logical_request_key = ?2";

const REGISTRATION: &str = "
    SELECT registration_id, receipt, registered_at, digest,
           digest IS NULL AND EXISTS (SELECT 1 FROM effect_undigested u WHERE u.mesh_id = r.mesh_id
               AND table_name = 'effect_registration' AND row_id = logical_request_key)
    FROM effect_registration r WHERE mesh_id = ?1 AND logical_request_key = ?2";

const STEPS: &str = "
    SELECT round, body, attempt_id, nonce_hash, taken_by, taken_at, digest,
           digest IS NULL AND EXISTS (SELECT 1 FROM effect_undigested u WHERE u.mesh_id = s.mesh_id
               AND table_name = 'effect_step' AND row_id = logical_request_key AND u.seq = s.seq)
    FROM effect_step s WHERE mesh_id = ?1 AND logical_request_key = ?2 ORDER BY seq";

/// As a sum that cannot run over, whatever a disk has made of a number.
const WRITTEN: &str = "
    SELECT CAST(total(row_count) AS INTEGER) FROM effect_tally WHERE mesh_id = ?1 AND logical_request_key = ?2";

const KEY_OF: &str = "
    SELECT logical_request_key FROM effect_envelope WHERE mesh_id = ?1 AND envelope_id = ?2
    UNION SELECT logical_request_key FROM effect_registration WHERE mesh_id = ?1 AND registration_id = ?2
    UNION SELECT logical_request_key FROM effect_consume WHERE mesh_id = ?1 AND attempt_id = ?2
    UNION SELECT logical_request_key FROM effect_step WHERE mesh_id = ?1 AND attempt_id = ?2
    UNION SELECT logical_request_key FROM effect_audit WHERE mesh_id = ?1 AND attempt_id = ?2
    ORDER BY 1 LIMIT 1";

const CALL: &str = "
    SELECT fingerprint, logical_request_key, called_at
    FROM effect_call WHERE mesh_id = ?1 AND caller = ?2 AND call_id = ?3";

/// Those of which nothing is left but their number come last.
const LIST: &str = "
    SELECT logical_request_key, max(asked_at) AS last_at FROM (
        SELECT logical_request_key, requested_at AS asked_at FROM effect_envelope WHERE mesh_id = ?1
        UNION ALL SELECT logical_request_key, 0 FROM effect_tally WHERE mesh_id = ?1)
    GROUP BY logical_request_key
    HAVING ?3 IS NULL OR last_at < ?3 OR (last_at = ?3 AND logical_request_key > CAST(?4 AS TEXT))
    ORDER BY last_at DESC, logical_request_key LIMIT ?2";

const LOG: &str = "
    SELECT seq, logical_request_key, attempt_id, event, code, detail, noted_by, noted_at
    FROM effect_audit WHERE mesh_id = ?1 AND (?2 IS NULL OR logical_request_key = ?2)
        AND (?4 IS NULL OR seq < ?4)
    ORDER BY seq DESC LIMIT ?3";

pub(super) fn facts(
    connection: &Connection,
    mesh: MeshId,
    key: &LogicalKey,
    nonce: Option<NonceHash>,
) -> Answer<Facts> {
    read_facts(connection, mesh, key, nonce).map_err(|error| error.of_key(key))
}

fn read_facts(
    connection: &Connection,
    mesh: MeshId,
    key: &LogicalKey,
    nonce: Option<NonceHash>,
) -> Answer<Facts> {
    let id = mesh.0.to_bytes();
    let rows = collect(connection, ENVELOPES, params![id, key.as_str()], envelope)?;
    let mut decisions = Vec::new();
    for row in &rows {
        decisions.extend(decisions_of(connection, (mesh, key), &row.envelope_id)?);
    }
    let nonce = match nonce {
        None => None,
        Some(nonce) => nonce_facts(connection, (mesh, key), nonce)?,
    };
    let consumed = collect(connection, CONSUMED, params![id, key.as_str()], consumed)?;
    let consumed = consumed.into_iter().next();
    let of = consumed.as_ref().map(|row| row.replay_key);
    let registration = collect(connection, REGISTRATION, params![id, key.as_str()], |row| {
        let found = registration_row(key, row, 0)?;
        let digest: Option<Vec<u8>> = row.get(3)?;
        let beside = Beside::of(digest.as_deref(), row.get(4)?);
        stored::compare_registration((mesh, of.as_ref()), &found, beside)?;
        Ok(found)
    })?;
    let steps = collect(connection, STEPS, params![id, key.as_str()], |row| {
        let digest: Option<Vec<u8>> = row.get(6)?;
        let beside = Beside::of(digest.as_deref(), row.get(7)?);
        step_row((mesh, key, of.as_ref()), row, beside)
    })?;
    let facts = Facts {
        envelopes: stored::envelopes(rows, decisions),
        nonce,
        consumed,
        registration: registration.into_iter().next(),
        steps,
        call: None,
    };
    let written = connection
        .prepare_cached(WRITTEN)?
        .query_row(params![id, key.as_str()], |row| row.get(0))?;
    stored::whole(key, facts, written)
}

fn collect<T>(
    connection: &Connection,
    sql: &'static str,
    params: impl rusqlite::Params,
    mut read: impl FnMut(&Row<'_>) -> Answer<T>,
) -> Answer<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn effect_cells(row: &Row<'_>) -> Answer<[String; 5]> {
    Ok([
        row.get(0)?,
        row.get(1)?,
        row.get(2)?,
        row.get(3)?,
        row.get(4)?,
    ])
}

pub(super) fn envelope(row: &Row<'_>) -> Answer<EnvelopeRow> {
    let found = EnvelopeRow {
        effect: stored::effect(effect_cells(row)?)?,
        envelope_id: row.get(5)?,
        replay_key: stored::replay_key(&row.get::<_, Vec<u8>>(6)?)?,
        requested_by: row.get(7)?,
        requested_at: WallMs(row.get(8)?),
        expires_at: WallMs(row.get(9)?),
    };
    stored::compare_binding((&found.effect, &found.envelope_id), found.replay_key)?;
    Ok(found)
}

pub(super) fn consumed(row: &Row<'_>) -> Answer<ConsumeRow> {
    let found = ConsumeRow {
        effect: stored::effect(effect_cells(row)?)?,
        approval: row.get(5)?,
        replay_key: stored::replay_key(&row.get::<_, Vec<u8>>(6)?)?,
        nonce: stored::nonce(&row.get::<_, Vec<u8>>(7)?)?,
        attempt_id: row.get(8)?,
        consumed_at: WallMs(row.get(9)?),
        horizon_until: WallMs(row.get(10)?),
    };
    stored::compare_binding((&found.effect, &found.approval), found.replay_key)?;
    Ok(found)
}

/// From this column on.
pub(super) fn registration_row(
    key: &LogicalKey,
    row: &Row<'_>,
    from: usize,
) -> Answer<RegistrationRow> {
    Ok(RegistrationRow {
        key: key.clone(),
        registration_id: row.get(from)?,
        receipt: row.get(from + 1)?,
        registered_at: WallMs(row.get(from + 2)?),
    })
}

pub(super) fn step_row(
    whose: (MeshId, &LogicalKey, Option<&ReplayKey>),
    row: &Row<'_>,
    beside: Beside<'_>,
) -> Answer<StepRow> {
    let (body, attempt_id): (String, String) = (row.get(1)?, row.get(2)?);
    let (round, at) = (row.get(0)?, WallMs(row.get(5)?));
    let nonce: Option<Vec<u8>> = row.get(3)?;
    let cells = StepCells {
        round,
        attempt_id: &attempt_id,
        nonce: nonce.as_deref(),
        body: &body,
        at,
    };
    Ok(StepRow {
        key: whose.1.clone(),
        round,
        step: stored::compared_step(whose, cells, beside)?,
        attempt_id,
        nonce: nonce.map(|bytes| stored::nonce(&bytes)).transpose()?,
        by: row.get(4)?,
        at,
    })
}

fn decisions_of(
    connection: &Connection,
    (mesh, key): (MeshId, &LogicalKey),
    envelope_id: &str,
) -> Answer<Vec<DecisionRow>> {
    let id = mesh.0.to_bytes();
    collect(connection, DECISIONS, params![id, envelope_id], |row| {
        let digest: Option<Vec<u8>> = row.get(9)?;
        let beside = Beside::of(digest.as_deref(), row.get(10)?);
        stored::compare_decision((mesh, key), decision(row)?, beside)
    })
}

/// Nothing is compared.
pub(super) fn decision(row: &Row<'_>) -> Answer<DecisionRow> {
    Ok(DecisionRow {
        envelope_id: row.get(0)?,
        seq: row.get(1)?,
        ruling: stored::ruling(&row.get::<_, String>(2)?)?,
        grant: stored::grant((row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?))?,
        by: row.get(7)?,
        at: WallMs(row.get(8)?),
    })
}

fn nonce_facts(
    connection: &Connection,
    (mesh, key): (MeshId, &LogicalKey),
    nonce: NonceHash,
) -> Answer<Option<NonceFacts>> {
    let id = mesh.0.to_bytes();
    let granted: Option<String> = connection
        .prepare_cached(GRANTED)?
        .query_row(params![id, nonce.0], |row| row.get(0))
        .optional()?;
    let Some(envelope_id) = granted else {
        return Ok(None);
    };
    let rows = collect(connection, ENVELOPE, params![id, envelope_id], envelope)?;
    // The nonce may have been granted for another key.
    let key = rows.first().map_or(key, |row| &row.effect.key);
    let decisions = decisions_of(connection, (mesh, key), &envelope_id)?;
    let is_used = connection
        .prepare_cached(USED)?
        .query_row(params![nonce.0], |row| row.get(0))?;
    let found = stored::envelopes(rows, decisions).into_iter().next();
    Ok(found.and_then(|envelope| stored::nonce_facts(envelope, nonce, is_used)))
}

pub(super) fn call(
    connection: &Connection,
    mesh: MeshId,
    caller: &str,
    id: &str,
) -> Answer<Option<CallRow>> {
    let with = params![mesh.0.to_bytes(), caller, id];
    let found = collect(connection, CALL, with, |row| {
        Ok(CallRow {
            caller: caller.to_owned(),
            id: id.to_owned(),
            fingerprint: stored::fingerprint(&row.get::<_, Vec<u8>>(0)?)?,
            key: key(&row.get::<_, String>(1)?)?,
            at: WallMs(row.get(2)?),
        })
    })?;
    Ok(found.into_iter().next())
}

/// A text as it lies there. What a disk has made no text of is shown with the sign for that, and hides nothing else.
pub(super) fn text(row: &Row<'_>, column: usize) -> Result<String, rusqlite::Error> {
    let bytes = row.get_ref(column)?.as_bytes()?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// A line of the log, from this column on. It decides nothing, so it is shown as it lies there.
pub(super) fn audit_row(row: &Row<'_>, from: usize) -> Answer<AuditRow> {
    Ok(AuditRow {
        key: text(row, from)?,
        attempt_id: text(row, from + 1)?,
        event: text(row, from + 2)?,
        code: text(row, from + 3)?,
        detail: text(row, from + 4)?,
        by: text(row, from + 5)?,
        at: WallMs(row.get(from + 6)?),
    })
}

fn key(text: &str) -> Answer<LogicalKey> {
    LogicalKey::parse(text).map_err(|error| StorageError::Corrupt(error.to_string()))
}

pub(super) fn key_of(
    connection: &Connection,
    mesh: MeshId,
    of: &str,
) -> Answer<Option<LogicalKey>> {
    let id = mesh.0.to_bytes();
    let found: Option<String> = connection
        .prepare_cached(KEY_OF)?
        .query_row(params![id, of], |row| row.get(0))
        .optional()?;
    found.as_deref().map(key).transpose()
}

/// The key that an envelope is about.
pub(super) fn key_of_envelope(
    connection: &Connection,
    mesh: MeshId,
    id: &str,
) -> Answer<Option<LogicalKey>> {
    let with = params![mesh.0.to_bytes(), id];
    let found = collect(connection, ENVELOPE, with, |row| {
        key(&row.get::<_, String>(0)?)
    })?;
    Ok(found.into_iter().next())
}

pub(super) fn list(
    connection: &Connection,
    mesh: MeshId,
    after: Option<&ListPlace>,
    limit: usize,
) -> Answer<ListPage> {
    let one_more = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let (at, behind) = (
        after.map(|place| place.last_at.0),
        after.map(|place| &place.key),
    );
    let with = params![mesh.0.to_bytes(), one_more, at, behind];
    let places = collect(connection, LIST, with, |row| {
        Ok(ListPlace {
            last_at: WallMs(row.get(1)?),
            key: row.get_ref(0)?.as_bytes().unwrap_or_default().to_vec(),
        })
    })?;
    Ok(stored::page(places, limit))
}

pub(super) fn log(
    connection: &Connection,
    mesh: MeshId,
    key: Option<&LogicalKey>,
    (before, limit): (Option<i64>, usize),
) -> Answer<Vec<LoggedLine>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let key = key.map(LogicalKey::as_str);
    collect(
        connection,
        LOG,
        params![mesh.0.to_bytes(), key, limit, before],
        |row| {
            Ok(LoggedLine {
                seq: row.get(0)?,
                row: audit_row(row, 1)?,
            })
        },
    )
}
