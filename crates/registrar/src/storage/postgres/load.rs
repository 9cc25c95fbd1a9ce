//! Reads the rows of a key, each in a statement of its own moment, and makes facts of them.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use tokio_postgres::Row;
use ulid::Ulid;

use super::tx::Tx;
use crate::authority::NonceHash;
use crate::binding::{LogicalKey, ReplayKey};
use crate::facts::{Facts, NonceFacts};
use crate::kept::{Beside, Kept, StepCells};
use crate::rows::{
    AuditRow, CallRow, ConsumeRow, DecisionRow, EnvelopeRow, RegistrationRow, StepRow,
};
use crate::storage::contract::{ListPage, ListPlace, LoggedLine, Reached, Seen};
use crate::storage::error::StorageError;
use crate::storage::stored;

type Answer<T> = Result<T, StorageError>;

const ENVELOPES: &str = "
    SELECT logical_request_key, canonical_operation, canonical_target, deployed_artifact_hash, run_id,
           envelope_id, replay_key, requested_by, requested_at, expires_at
    FROM effect_envelope WHERE mesh_id = $1 AND logical_request_key = $2 ORDER BY seq";

const ENVELOPE: &str = "
    SELECT logical_request_key, canonical_operation, canonical_target, deployed_artifact_hash, run_id,
           envelope_id, replay_key, requested_by, requested_at, expires_at
    FROM effect_envelope WHERE mesh_id = $1 AND envelope_id = $2";

const DECISIONS: &str = "
    SELECT d.envelope_id, d.seq, d.ruling, d.nonce_hash, d.purpose, d.not_before, d.expires_at,
           d.decided_by, d.decided_at, d.digest, d.digest IS NULL AND EXISTS (
               SELECT 1 FROM effect_undigested u WHERE u.mesh_id = d.mesh_id AND u.table_name = 'effect_decision'
                  AND u.row_id = d.envelope_id AND u.seq = d.seq)
    FROM effect_decision d JOIN effect_envelope e USING (mesh_id, envelope_id)
    WHERE d.mesh_id = $1 AND e.logical_request_key = $2 ORDER BY d.envelope_id, d.seq";

const DECISIONS_OF: &str = "
    SELECT envelope_id, seq, ruling, nonce_hash, purpose, not_before, expires_at, decided_by, decided_at,
           digest, digest IS NULL AND EXISTS (SELECT 1 FROM effect_undigested u
               WHERE u.mesh_id = d.mesh_id AND table_name = 'effect_decision' AND row_id = envelope_id
                 AND u.seq = d.seq)
    FROM effect_decision d WHERE mesh_id = $1 AND envelope_id = $2 ORDER BY seq";

const GRANTED: &str = "
    SELECT envelope_id FROM effect_decision WHERE mesh_id = $1 AND nonce_hash = $2";

const USED: &str = "
    SELECT EXISTS (SELECT 1 FROM effect_consume WHERE mesh_id = $1 AND authorization_nonce_hash = $2)
        OR EXISTS (SELECT 1 FROM effect_step WHERE mesh_id = $1 AND nonce_hash = $2)";

const CONSUMED: &str = "
    SELECT logical_request_key, canonical_operation, canonical_target, deployed_artifact_hash, run_id,
           owner_or_approval_binding, replay_key, authorization_nonce_hash, attempt_id, consumed_at,
           horizon_until
    FROM effect_consume WHERE mesh_id = $1 AND logical_request_key = $2";

const REGISTRATION: &str = "
    SELECT registration_id, receipt, registered_at, digest,
           digest IS NULL AND EXISTS (SELECT 1 FROM effect_undigested u WHERE u.mesh_id = r.mesh_id
               AND table_name = 'effect_registration' AND row_id = logical_request_key)
    FROM effect_registration r WHERE mesh_id = $1 AND logical_request_key = $2";

const STEPS: &str = "
    SELECT round, body, attempt_id, nonce_hash, taken_by, taken_at, digest,
           digest IS NULL AND EXISTS (SELECT 1 FROM effect_undigested u WHERE u.mesh_id = s.mesh_id
               AND table_name = 'effect_step' AND row_id = logical_request_key AND u.seq = s.seq)
    FROM effect_step s WHERE mesh_id = $1 AND logical_request_key = $2 ORDER BY seq";

/// As a number that this program reads, whatever a disk has made of one of them; a sum of numbers is a longer one.
const WRITTEN: &str = "
    SELECT least(coalesce(sum(row_count), 0), 9223372036854775807)::bigint
    FROM effect_tally WHERE mesh_id = $1 AND logical_request_key = $2";

const WITHOUT: &str = "SELECT count(*) FROM effect_undigested";

const KEYS: &str = "
    SELECT mesh_id, logical_request_key FROM effect_envelope
    UNION SELECT mesh_id, logical_request_key FROM effect_consume
    UNION SELECT mesh_id, logical_request_key FROM effect_tally";

/// Effects are rare: to count them is cheap. A number of the sequence would leave holes.
const REACHED: &str = "
    SELECT (SELECT count(*) FROM effect_consume) + (SELECT count(*) FROM effect_step)
         + (SELECT count(*) FROM effect_decision),
           (SELECT replay_key FROM effect_consume ORDER BY consumed_at DESC LIMIT 1),
           $1::bytea IS NULL OR EXISTS (SELECT 1 FROM effect_consume WHERE replay_key = $1),
           (SELECT seq FROM effect_chain ORDER BY seq DESC LIMIT 1),
           (SELECT digest FROM effect_chain ORDER BY seq DESC LIMIT 1),
           (SELECT seal FROM effect_chain WHERE seal IS NOT NULL ORDER BY seq DESC LIMIT 1),
           (SELECT digest FROM effect_chain WHERE seq = $2)";

const KEY_OF: &str = "
    SELECT logical_request_key FROM effect_envelope WHERE mesh_id = $1 AND envelope_id = $2
    UNION SELECT logical_request_key FROM effect_registration WHERE mesh_id = $1 AND registration_id = $2
    UNION SELECT logical_request_key FROM effect_consume WHERE mesh_id = $1 AND attempt_id = $2
    UNION SELECT logical_request_key FROM effect_step WHERE mesh_id = $1 AND attempt_id = $2
    UNION SELECT logical_request_key FROM effect_audit WHERE mesh_id = $1 AND attempt_id = $2
    ORDER BY 1 LIMIT 1";

const CALL: &str = "
    SELECT fingerprint, logical_request_key, called_at
    FROM effect_call WHERE mesh_id = $1 AND caller = $2 AND call_id = $3";

/// Those of which nothing is left but their number come last.
const LIST: &str = "
    SELECT logical_request_key, max(asked_at) AS last_at FROM (
        SELECT logical_request_key, requested_at AS asked_at FROM effect_envelope WHERE mesh_id = $1
        UNION ALL SELECT logical_request_key, 0 FROM effect_tally WHERE mesh_id = $1) AS asked
    GROUP BY logical_request_key
    HAVING $3::bigint IS NULL OR max(asked_at) < $3
        OR (max(asked_at) = $3 AND logical_request_key COLLATE \"C\" > $4)
    ORDER BY last_at DESC, logical_request_key COLLATE \"C\" LIMIT $2";

const LOG: &str = "
    SELECT seq, logical_request_key, attempt_id, event, code, detail, noted_by, noted_at
    FROM effect_audit WHERE mesh_id = $1 AND ($2::text IS NULL OR logical_request_key = $2)
        AND ($4::bigint IS NULL OR seq < $4)
    ORDER BY seq DESC LIMIT $3";

/// IMPORTANT: the nonce's use is read before the consumption. Each statement sees its own moment, and both
/// are one row: read the other way round, a key consumed in between would look free with a used nonce.
pub(super) async fn facts(
    transaction: &Tx<'_>,
    mesh: MeshId,
    key: &LogicalKey,
    nonce: Option<NonceHash>,
) -> Answer<Facts> {
    let read = read_facts(transaction, mesh, key, nonce).await;
    read.map_err(|error| error.of_key(key))
}

async fn read_facts(
    transaction: &Tx<'_>,
    mesh: MeshId,
    key: &LogicalKey,
    nonce: Option<NonceHash>,
) -> Answer<Facts> {
    let id = mesh.0.to_bytes().to_vec();
    // IMPORTANT: first, for the same reason: what was written until now is found by every later statement.
    let written = transaction
        .query_one(WRITTEN, &[&id, &key.as_str()])
        .await?
        .try_get(0)?;
    let nonce = match nonce {
        None => None,
        Some(nonce) => nonce_facts(transaction, (mesh, key), nonce).await?,
    };
    let rows = transaction.query(ENVELOPES, &[&id, &key.as_str()]).await?;
    let envelopes: Answer<Vec<_>> = rows.iter().map(envelope).collect();
    let rows = transaction.query(DECISIONS, &[&id, &key.as_str()]).await?;
    let decisions: Answer<Vec<_>> = rows.iter().map(|row| decision((mesh, key), row)).collect();
    let consumed_row = transaction
        .query_opt(CONSUMED, &[&id, &key.as_str()])
        .await?;
    let consumed = consumed_row.as_ref().map(consumed).transpose()?;
    let (registration, steps) = match &consumed {
        // Somebody may register it this moment: what is read from here on would be of after these facts.
        None => (None, Vec::new()),
        Some(row) => registered(transaction, (mesh, key, Some(&row.replay_key))).await?,
    };
    let facts = Facts {
        envelopes: stored::envelopes(envelopes?, decisions?),
        nonce,
        consumed,
        registration,
        steps,
        call: None,
    };
    stored::whole(key, facts, written)
}

/// What was written with the consumption, and after it.
async fn registered(
    transaction: &Tx<'_>,
    whose: Whose<'_>,
) -> Answer<(Option<RegistrationRow>, Vec<StepRow>)> {
    let (id, key) = (whose.0.0.to_bytes().to_vec(), whose.1.as_str());
    let registration = transaction.query_opt(REGISTRATION, &[&id, &key]).await?;
    let registration = registration.map(|row| registration_row(whose, &row));
    let steps = transaction.query(STEPS, &[&id, &key]).await?;
    let steps: Answer<Vec<_>> = steps.iter().map(|row| step_row(whose, row)).collect();
    Ok((registration.transpose()?, steps?))
}

fn effect_cells(row: &Row) -> Answer<[String; 5]> {
    Ok([
        row.try_get(0)?,
        row.try_get(1)?,
        row.try_get(2)?,
        row.try_get(3)?,
        row.try_get(4)?,
    ])
}

fn envelope(row: &Row) -> Answer<EnvelopeRow> {
    let found = EnvelopeRow {
        effect: stored::effect(effect_cells(row)?)?,
        envelope_id: row.try_get(5)?,
        replay_key: stored::replay_key(row.try_get(6)?)?,
        requested_by: row.try_get(7)?,
        requested_at: WallMs(row.try_get(8)?),
        expires_at: WallMs(row.try_get(9)?),
    };
    stored::compare_binding((&found.effect, &found.envelope_id), found.replay_key)?;
    Ok(found)
}

fn decision(whose: (MeshId, &LogicalKey), row: &Row) -> Answer<DecisionRow> {
    let cells = (
        row.try_get(3)?,
        row.try_get(4)?,
        row.try_get(5)?,
        row.try_get(6)?,
    );
    let found = DecisionRow {
        envelope_id: row.try_get(0)?,
        seq: row.try_get(1)?,
        ruling: stored::ruling(row.try_get(2)?)?,
        grant: stored::grant(cells)?,
        by: row.try_get(7)?,
        at: WallMs(row.try_get(8)?),
    };
    let beside = Beside::of(row.try_get(9)?, row.try_get(10)?);
    stored::compare_decision(whose, found, beside)
}

fn consumed(row: &Row) -> Answer<ConsumeRow> {
    let found = ConsumeRow {
        effect: stored::effect(effect_cells(row)?)?,
        approval: row.try_get(5)?,
        replay_key: stored::replay_key(row.try_get(6)?)?,
        nonce: stored::nonce(row.try_get(7)?)?,
        attempt_id: row.try_get(8)?,
        consumed_at: WallMs(row.try_get(9)?),
        horizon_until: WallMs(row.try_get(10)?),
    };
    stored::compare_binding((&found.effect, &found.approval), found.replay_key)?;
    Ok(found)
}

type Whose<'a> = (MeshId, &'a LogicalKey, Option<&'a ReplayKey>);

fn registration_row((mesh, key, of): Whose<'_>, row: &Row) -> Answer<RegistrationRow> {
    let found = RegistrationRow {
        key: key.clone(),
        registration_id: row.try_get(0)?,
        receipt: row.try_get(1)?,
        registered_at: WallMs(row.try_get(2)?),
    };
    let beside = Beside::of(row.try_get(3)?, row.try_get(4)?);
    stored::compare_registration((mesh, of), &found, beside)?;
    Ok(found)
}

fn step_row(whose: Whose<'_>, row: &Row) -> Answer<StepRow> {
    let nonce: Option<&[u8]> = row.try_get(3)?;
    let cells = StepCells {
        round: row.try_get(0)?,
        attempt_id: row.try_get(2)?,
        nonce,
        body: row.try_get(1)?,
        at: WallMs(row.try_get(5)?),
    };
    let beside = Beside::of(row.try_get(6)?, row.try_get(7)?);
    Ok(StepRow {
        key: whose.1.clone(),
        round: cells.round,
        step: stored::compared_step(whose, cells, beside)?,
        attempt_id: cells.attempt_id.to_owned(),
        nonce: nonce.map(stored::nonce).transpose()?,
        by: row.try_get(4)?,
        at: cells.at,
    })
}

/// Whether every effect is as it was written. One after another: what a command has printed may be long.
pub(super) async fn kept(transaction: &Tx<'_>) -> Answer<Kept> {
    let mut found = Kept::default();
    let without: i64 = transaction.query_one(WITHOUT, &[]).await?.try_get(0)?;
    found.without = u64::try_from(without).unwrap_or(0);
    for row in transaction.query(KEYS, &[]).await? {
        let bytes: [u8; 16] = row
            .try_get::<_, &[u8]>(0)?
            .try_into()
            .map_err(|_| StorageError::Corrupt("a mesh's id".into()))?;
        let mesh = MeshId(Ulid::from_bytes(bytes));
        let text: &str = row.try_get(1)?;
        let read = match key(text) {
            Ok(key) => facts(transaction, mesh, &key, None).await.map(drop),
            Err(error) => Err(error),
        };
        found.effects += 1;
        match read {
            Err(error) if error.is_damage() => found.changed.push(error.about(text)),
            read => read?,
        }
    }
    for row in transaction.query(stored::ORPHANS, &[]).await? {
        let (key, table): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        found.changed.push(stored::orphan(&key, &table));
    }
    let links = transaction.query_one(stored::LINKS_GONE, &[]).await?;
    found.changed.extend(stored::links_gone(links.try_get(0)?));
    Ok(found)
}

async fn nonce_facts(
    transaction: &Tx<'_>,
    (of, key): (MeshId, &LogicalKey),
    nonce: NonceHash,
) -> Answer<Option<NonceFacts>> {
    let mesh = &of.0.to_bytes().to_vec();
    let hash = nonce.0.to_vec();
    let Some(granted) = transaction.query_opt(GRANTED, &[mesh, &hash]).await? else {
        return Ok(None);
    };
    let id: String = granted.try_get(0)?;
    let rows = transaction.query(ENVELOPE, &[mesh, &id]).await?;
    let envelopes: Vec<_> = rows.iter().map(envelope).collect::<Answer<_>>()?;
    // The nonce may have been granted for another key.
    let key = envelopes.first().map_or(key, |row| &row.effect.key);
    let rows = transaction.query(DECISIONS_OF, &[mesh, &id]).await?;
    let decisions: Answer<Vec<_>> = rows.iter().map(|row| decision((of, key), row)).collect();
    let is_used = transaction
        .query_one(USED, &[mesh, &hash])
        .await?
        .try_get(0)?;
    let decisions = decisions?;
    let found = stored::envelopes(envelopes, decisions).into_iter().next();
    Ok(found.and_then(|envelope| stored::nonce_facts(envelope, nonce, is_used)))
}

pub(super) async fn call(
    transaction: &Tx<'_>,
    mesh: MeshId,
    caller: &str,
    id: &str,
) -> Answer<Option<CallRow>> {
    let mesh = mesh.0.to_bytes().to_vec();
    let found = transaction.query_opt(CALL, &[&mesh, &caller, &id]).await?;
    let call = found.map(|row| {
        Ok(CallRow {
            caller: caller.to_owned(),
            id: id.to_owned(),
            fingerprint: stored::fingerprint(row.try_get(0)?)?,
            key: key(row.try_get(1)?)?,
            at: WallMs(row.try_get(2)?),
        })
    });
    call.transpose()
}

fn key(text: &str) -> Answer<LogicalKey> {
    LogicalKey::parse(text).map_err(|error| StorageError::Corrupt(error.to_string()))
}

pub(super) async fn key_of(
    transaction: &Tx<'_>,
    mesh: MeshId,
    of: &str,
) -> Answer<Option<LogicalKey>> {
    let id = mesh.0.to_bytes().to_vec();
    let found = transaction.query_opt(KEY_OF, &[&id, &of]).await?;
    found.map(|row| key(row.try_get(0)?)).transpose()
}

/// The key that an envelope is about.
pub(super) async fn key_of_envelope(
    transaction: &Tx<'_>,
    mesh: MeshId,
    id: &str,
) -> Answer<Option<LogicalKey>> {
    let mesh = mesh.0.to_bytes().to_vec();
    let found = transaction.query_opt(ENVELOPE, &[&mesh, &id]).await?;
    found.map(|row| key(row.try_get(0)?)).transpose()
}

pub(super) async fn list(
    transaction: &Tx<'_>,
    mesh: MeshId,
    after: Option<&ListPlace>,
    limit: usize,
) -> Answer<ListPage> {
    let id = mesh.0.to_bytes().to_vec();
    let one_more = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let at = after.map(|place| place.last_at.0);
    let behind = after.map(|place| String::from_utf8_lossy(&place.key));
    let rows = transaction
        .query(LIST, &[&id, &one_more, &at, &behind])
        .await?;
    let places = rows.iter().map(|row| {
        let key: &str = row.try_get(0)?;
        Ok(ListPlace {
            last_at: WallMs(row.try_get(1)?),
            key: key.as_bytes().to_vec(),
        })
    });
    Ok(stored::page(places.collect::<Answer<_>>()?, limit))
}

pub(super) async fn log(
    transaction: &Tx<'_>,
    mesh: MeshId,
    key: Option<&LogicalKey>,
    (before, limit): (Option<i64>, usize),
) -> Answer<Vec<LoggedLine>> {
    let id = mesh.0.to_bytes().to_vec();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let key = key.map(LogicalKey::as_str);
    let rows = transaction
        .query(LOG, &[&id, &key, &limit, &before])
        .await?;
    let lines = rows.iter().map(|row| {
        Ok(LoggedLine {
            seq: row.try_get(0)?,
            row: AuditRow {
                key: row.try_get(1)?,
                attempt_id: row.try_get(2)?,
                event: row.try_get(3)?,
                code: row.try_get(4)?,
                detail: row.try_get(5)?,
                by: row.try_get(6)?,
                at: WallMs(row.try_get(7)?),
            },
        })
    });
    lines.collect()
}

pub(super) async fn reached(transaction: &Tx<'_>, seen: Seen) -> Answer<Reached> {
    let last = seen.last.filter(|_| seen.link.is_none());
    let last = last.map(|key| key.0.to_vec());
    let seq = seen
        .link
        .map(|link| i64::try_from(link.seq).unwrap_or(i64::MAX));
    // One statement sees one moment: the link is of no other one than the rows.
    let row = transaction.query_one(REACHED, &[&last, &seq]).await?;
    let has_last: bool = row.try_get(2)?;
    let (rows, last): (i64, Option<Vec<u8>>) = (row.try_get(0)?, row.try_get(1)?);
    let head: (Option<i64>, Option<Vec<u8>>) = (row.try_get(3)?, row.try_get(4)?);
    let head = head.0.zip(head.1);
    let (seal, at): (Option<&[u8]>, Option<&[u8]>) = (row.try_get(5)?, row.try_get(6)?);
    let has_link = seen.link.is_none_or(|link| at == Some(&link.digest));
    let rows = u64::try_from(rows).unwrap_or(0);
    let gone: i64 = if rows < seen.rows {
        transaction.query_one(stored::GONE, &[]).await?.try_get(0)?
    } else {
        0
    };
    Ok(Reached {
        rows,
        gone: u64::try_from(gone).unwrap_or(0),
        last: last.map(|bytes| stored::replay_key(&bytes)).transpose()?,
        link: head.map(stored::link).transpose()?,
        seal: seal.map(stored::seal).transpose()?,
        has_seen: has_last && has_link,
    })
}
