//! Cells of either database back into our types. Bad data is an error that names its place.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;

use super::contract::{ListPage, ListPlace, ListedEffect};
use super::error::StorageError;
use crate::authority::NonceHash;
use crate::binding::{Effect, LogicalKey, ReplayKey};
use crate::chain::{Link, Seal};
use crate::facts::{Envelope, Facts, NonceFacts};
use crate::kept::{self, Beside, Bound, StepCells};
use crate::rows::{
    DecisionRow, EnvelopeRow, Grant, Purpose, RegistrationRow, Ruling, Step, StepRow,
};
use crate::tally;

fn bad(what: &'static str) -> StorageError {
    StorageError::Corrupt(format!("{what} cannot be read"))
}

/// The cells of an effect, in the order of every table that has them.
pub(super) fn effect(cells: [String; 5]) -> Result<Effect, StorageError> {
    let [key, operation, target, artifact, run] = cells;
    Effect::stored(&key, &operation, &target, &artifact, &run)
        .map_err(|error| StorageError::Corrupt(error.to_string()))
}

pub(super) fn replay_key(bytes: &[u8]) -> Result<ReplayKey, StorageError> {
    ReplayKey::from_slice(bytes).ok_or_else(|| bad("a replay key"))
}

pub(super) fn fingerprint(bytes: &[u8]) -> Result<[u8; 32], StorageError> {
    bytes.try_into().map_err(|_| bad("a fingerprint"))
}

/// A link of the chain: its number and its digest.
pub(super) fn link((seq, digest): (i64, Vec<u8>)) -> Result<Link, StorageError> {
    let digest = digest.try_into().map_err(|_| bad("a link"))?;
    let seq = u64::try_from(seq).map_err(|_| bad("a link"))?;
    Ok(Link { seq, digest })
}

pub(super) fn seal(bytes: &[u8]) -> Result<Seal, StorageError> {
    bytes.try_into().map(Seal).map_err(|_| bad("a seal"))
}

pub(super) fn nonce(bytes: &[u8]) -> Result<NonceHash, StorageError> {
    NonceHash::from_slice(bytes).ok_or_else(|| bad("a nonce hash"))
}

pub(super) fn ruling(text: &str) -> Result<Ruling, StorageError> {
    Ruling::parse(text).ok_or_else(|| bad("a ruling"))
}

fn step(text: &str) -> Result<Step, StorageError> {
    serde_json::from_str(text).map_err(|_| bad("a step"))
}

/// A step out of its cells, if they are what was written; those of before there were digests are taken as they are.
pub(super) fn compared_step(
    (mesh, key, of): (MeshId, &LogicalKey, Option<&ReplayKey>),
    cells: StepCells<'_>,
    beside: Beside<'_>,
) -> Result<Step, StorageError> {
    if beside.differs(|| of.map(|of| kept::of_step(mesh, of, cells))) {
        return Err(StorageError::Changed {
            key: key.to_string(),
            what: "what is known of its run",
        });
    }
    step(cells.body)
}

/// The same of a registration.
pub(super) fn compare_registration(
    (mesh, of): (MeshId, Option<&ReplayKey>),
    row: &RegistrationRow,
    beside: Beside<'_>,
) -> Result<(), StorageError> {
    let cells = (
        row.registration_id.as_str(),
        row.receipt.as_str(),
        row.registered_at,
    );
    if beside.differs(|| of.map(|of| kept::of_registration(mesh, of, cells))) {
        return Err(StorageError::Changed {
            key: row.key.to_string(),
            what: "its registration",
        });
    }
    Ok(())
}

/// The same of a word about a request: one that was taken back must not be the last again, nor that of one request be
/// another one's.
pub(super) fn compare_decision(
    (mesh, key): (MeshId, &LogicalKey),
    row: DecisionRow,
    beside: Beside<'_>,
) -> Result<DecisionRow, StorageError> {
    if beside.differs(|| Some(kept::of_decision(mesh, &row))) {
        return Err(StorageError::Changed {
            key: key.to_string(),
            what: "what was said about its approval",
        });
    }
    Ok(row)
}

/// Rows that belong to nothing any more, each with the table that it is in, the key that it has now and its mesh.
pub(super) const ORPHANS: &str = "
    SELECT s.logical_request_key, 'effect_step', s.mesh_id FROM effect_step s WHERE NOT EXISTS (
        SELECT 1 FROM effect_registration r
        WHERE r.mesh_id = s.mesh_id AND r.logical_request_key = s.logical_request_key)
    UNION SELECT r.logical_request_key, 'effect_registration', r.mesh_id FROM effect_registration r WHERE NOT EXISTS (
        SELECT 1 FROM effect_consume c
        WHERE c.mesh_id = r.mesh_id AND c.logical_request_key = r.logical_request_key)
    UNION SELECT d.envelope_id, 'effect_decision', d.mesh_id FROM effect_decision d WHERE NOT EXISTS (
        SELECT 1 FROM effect_envelope e WHERE e.mesh_id = d.mesh_id AND e.envelope_id = d.envelope_id)
    ORDER BY 1, 2";

/// Rows that were written and are not there, of all keys. One that came damaged never had them.
pub(super) const GONE: &str = "
    SELECT CAST(coalesce(sum(written - found), 0) AS BIGINT) FROM (
        SELECT sum(written) AS written, sum(found) AS found FROM (
            SELECT mesh_id, logical_request_key, 0 AS found,
                CASE WHEN row_count < 1099511627776 THEN row_count ELSE 1099511627776 END AS written FROM effect_tally
            UNION ALL SELECT mesh_id, logical_request_key, 1, 0 FROM effect_envelope
            UNION ALL SELECT mesh_id, logical_request_key, 1, 0
                FROM effect_decision JOIN effect_envelope USING (mesh_id, envelope_id)
            UNION ALL SELECT mesh_id, logical_request_key, 1, 0 FROM effect_consume
            UNION ALL SELECT mesh_id, logical_request_key, 1, 0 FROM effect_registration
            UNION ALL SELECT mesh_id, logical_request_key, 1, 0 FROM effect_step
        ) AS every GROUP BY mesh_id, logical_request_key
    ) AS counted WHERE written > found AND written < 1099511627776";

/// Links that are not there, though later ones are.
pub(super) const LINKS_GONE: &str = "SELECT coalesce(max(seq), 0) - count(*) FROM effect_chain";

/// The same, in words; none where none is gone.
pub(super) fn links_gone(count: i64) -> Option<String> {
    (count > 0).then(|| format!("the chain: {count} of its links are gone from the store"))
}

/// One of them, in words.
pub(super) fn orphan(key: &str, table: &str) -> String {
    format!(
        "{key}: a row of {table} belongs to no effect: what it is about was changed after it was written"
    )
}

/// Whether nothing is missing of what is known of a key: neither by what came after it, nor by the number of the rows that
/// were `written` of it when the rest was read, or before.
pub(super) fn whole(key: &LogicalKey, facts: Facts, written: i64) -> Result<Facts, StorageError> {
    if written >= tally::DAMAGED {
        return Err(StorageError::CameDamaged {
            key: key.to_string(),
        });
    }
    if let Some(what) = facts.lost() {
        return Err(StorageError::Changed {
            key: key.to_string(),
            what,
        });
    }
    match tally::gone(&facts, written) {
        0 => Ok(facts),
        count => Err(StorageError::Gone {
            key: key.to_string(),
            count,
        }),
    }
}

/// Whether the fields of a request, or of what was consumed, are those that its replay key was made of.
pub(super) fn compare_binding(
    (effect, approval): (&Effect, &str),
    replay_key: ReplayKey,
) -> Result<(), StorageError> {
    if effect.replay_key(approval) == replay_key {
        return Ok(());
    }
    Err(StorageError::Changed {
        key: effect.key.to_string(),
        what: "what it was asked for",
    })
}

/// What is written beside a step, and its text.
pub(super) fn written_step(
    mesh: MeshId,
    row: &StepRow,
    bound: Bound,
) -> Result<(String, Option<[u8; 32]>), StorageError> {
    let body = step_text(&row.step)?;
    let nonce = row.nonce.map(|nonce| nonce.0);
    let digest = bound.or_else(|of| {
        let cells = StepCells {
            round: row.round,
            attempt_id: &row.attempt_id,
            nonce: nonce.as_ref().map(<[u8; 32]>::as_slice),
            body: &body,
            at: row.at,
        };
        kept::of_step(mesh, of, cells)
    });
    Ok((body, digest))
}

/// What is written beside a registration.
pub(super) fn written_registration(
    mesh: MeshId,
    row: &RegistrationRow,
    bound: Bound,
) -> Option<[u8; 32]> {
    let cells = (
        row.registration_id.as_str(),
        row.receipt.as_str(),
        row.registered_at,
    );
    bound.or_else(|of| kept::of_registration(mesh, of, cells))
}

fn step_text(step: &Step) -> Result<String, StorageError> {
    serde_json::to_string(step).map_err(|error| StorageError::Refused(error.to_string()))
}

/// The four cells of a grant: all there, or none.
pub(super) type GrantCells = (Option<Vec<u8>>, Option<String>, Option<i64>, Option<i64>);

pub(super) fn grant(cells: GrantCells) -> Result<Option<Grant>, StorageError> {
    match cells {
        (None, None, None, None) => Ok(None),
        (Some(hash), Some(purpose), Some(from), Some(until)) => Ok(Some(Grant {
            nonce: nonce(&hash)?,
            purpose: Purpose::parse(&purpose).ok_or_else(|| bad("a purpose"))?,
            not_before: WallMs(from),
            expires_at: WallMs(until),
        })),
        _ => Err(bad("a grant")),
    }
}

/// Envelopes with their decisions, both oldest first.
pub(super) fn envelopes(rows: Vec<EnvelopeRow>, decisions: Vec<DecisionRow>) -> Vec<Envelope> {
    let mut envelopes: Vec<Envelope> = rows
        .into_iter()
        .map(|row| Envelope {
            row,
            decisions: Vec::new(),
        })
        .collect();
    for decision in decisions {
        let mut found = envelopes.iter_mut();
        if let Some(envelope) = found.find(|e| e.row.envelope_id == decision.envelope_id) {
            envelope.decisions.push(decision);
        }
    }
    envelopes
}

/// The grant of this nonce among what was said of its envelope.
pub(super) fn nonce_facts(
    envelope: Envelope,
    hash: NonceHash,
    is_used: bool,
) -> Option<NonceFacts> {
    let grants = envelope
        .decisions
        .iter()
        .filter_map(|decision| decision.grant);
    let grant = grants.into_iter().find(|grant| grant.nonce == hash)?;
    Some(NonceFacts {
        envelope,
        grant,
        is_used,
    })
}
/// A page of what was found, which is one more than it has where there is more. What is no key any more does not hide the
/// others, and is passed over.
pub(super) fn page(mut found: Vec<ListPlace>, limit: usize) -> ListPage {
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().cloned().filter(|_| has_more);
    let effects = found.into_iter().filter_map(|place| {
        let key = LogicalKey::parse(std::str::from_utf8(&place.key).ok()?).ok()?;
        let last_at = place.last_at;
        Some(ListedEffect { key, last_at })
    });
    ListPage {
        effects: effects.collect(),
        next,
    }
}
