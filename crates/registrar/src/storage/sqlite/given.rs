//! A mesh that this home gives away: from then on nothing is decided about it here, and what was decided is read out
//! for whoever takes it over.
//!
//! Not part of the contract: a broker gives nothing away.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::{Connection, Row, params};
use ulid::Ulid;

use super::{Sqlite, load};
use crate::binding::LogicalKey;
use crate::carry::Unit;
use crate::kept::KeptDigest;
use crate::rows::{AuditRow, CallRow};
use crate::storage::error::StorageError;
use crate::storage::stored;

type Answer<T> = Result<T, StorageError>;

const GIVEN: &str = "SELECT EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = ?1 AND what = ?2)";
const GIVE: &str = "
    INSERT INTO effect_given (mesh_id, what, noted_at)
    SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = ?1 AND what = ?2)";
const TELL: &str = "told";

/// One kind of unit: how many there are, and which ones, in an order that stays.
struct Shelf {
    count: &'static str,
    select: &'static str,
    read: fn(&Row<'_>) -> Answer<Unit>,
}

/// IMPORTANT: a step after its consumption, a decision after its envelope.
const SHELVES: [Shelf; 6] = [
    Shelf {
        count: "SELECT count(*) FROM effect_consume WHERE mesh_id = ?1",
        select: "
            SELECT c.logical_request_key, c.canonical_operation, c.canonical_target, c.deployed_artifact_hash,
                   c.run_id, c.owner_or_approval_binding, c.replay_key, c.authorization_nonce_hash, c.attempt_id,
                   c.consumed_at, c.horizon_until, r.registration_id, r.receipt, r.registered_at, r.digest, c.mesh_id,
                   (SELECT coalesce(sum(row_count), 0) FROM effect_tally t
                    WHERE t.mesh_id = c.mesh_id AND t.logical_request_key = c.logical_request_key)
                   > 2 + (SELECT count(*) FROM effect_step s
                          WHERE s.mesh_id = c.mesh_id AND s.logical_request_key = c.logical_request_key)
                       + (SELECT count(*) FROM effect_envelope e
                          WHERE e.mesh_id = c.mesh_id AND e.logical_request_key = c.logical_request_key)
                       + (SELECT count(*) FROM effect_decision d JOIN effect_envelope e USING (mesh_id, envelope_id)
                          WHERE e.mesh_id = c.mesh_id AND e.logical_request_key = c.logical_request_key)
            FROM effect_consume c JOIN effect_registration r USING (mesh_id, logical_request_key)
            WHERE c.mesh_id = ?1 ORDER BY c.rowid LIMIT 1 OFFSET ?2",
        read: consumed,
    },
    Shelf {
        count: "SELECT count(*) FROM effect_step WHERE mesh_id = ?1",
        select: "
            SELECT s.round, s.body, s.attempt_id, s.nonce_hash, s.taken_by, s.taken_at, s.logical_request_key,
                   c.replay_key, s.digest, s.mesh_id
            FROM effect_step s JOIN effect_consume c USING (mesh_id, logical_request_key)
            WHERE s.mesh_id = ?1 ORDER BY s.seq LIMIT 1 OFFSET ?2",
        read: step,
    },
    Shelf {
        count: "SELECT count(*) FROM effect_envelope WHERE mesh_id = ?1",
        select: "
            SELECT logical_request_key, canonical_operation, canonical_target, deployed_artifact_hash, run_id,
                   envelope_id, replay_key, requested_by, requested_at, expires_at
            FROM effect_envelope WHERE mesh_id = ?1 ORDER BY seq LIMIT 1 OFFSET ?2",
        read: |row| Ok(Unit::Envelope(load::envelope(row)?)),
    },
    Shelf {
        count: "SELECT count(*) FROM effect_decision WHERE mesh_id = ?1",
        select: "
            SELECT envelope_id, seq, ruling, nonce_hash, purpose, not_before, expires_at, decided_by, decided_at
            FROM effect_decision WHERE mesh_id = ?1 ORDER BY envelope_id, seq LIMIT 1 OFFSET ?2",
        read: |row| Ok(Unit::Decision(load::decision(row)?)),
    },
    Shelf {
        count: "SELECT count(*) FROM effect_call WHERE mesh_id = ?1",
        select: "
            SELECT caller, call_id, fingerprint, logical_request_key, called_at
            FROM effect_call WHERE mesh_id = ?1 ORDER BY caller, call_id LIMIT 1 OFFSET ?2",
        read: call,
    },
    Shelf {
        count: "SELECT count(*) FROM effect_audit WHERE mesh_id = ?1",
        select: "
            SELECT logical_request_key, attempt_id, event, code, detail, noted_by, noted_at
            FROM effect_audit WHERE mesh_id = ?1 ORDER BY seq LIMIT 1 OFFSET ?2",
        read: audit,
    },
];

fn key(text: &str) -> Answer<LogicalKey> {
    LogicalKey::parse(text).map_err(|error| StorageError::Corrupt(error.to_string()))
}

fn consumed(row: &Row<'_>) -> Answer<Unit> {
    let consume = load::consumed(row)?;
    let registration = load::registration_row(&consume.effect.key, row, 11)?;
    let digest: Option<Vec<u8>> = row.get(14)?;
    let whose = (mesh(row, 15)?, Some(&consume.replay_key));
    let compared = stored::compare_registration(whose, &registration, digest.as_deref());
    let digest = carried_digest(compared, digest)?;
    // Of rows that are gone nothing can be carried. The registration goes with a digest that no row has.
    let is_gone: bool = row.get(16)?;
    let digest = digest.or(is_gone.then_some(KeptDigest([0; 32])));
    Ok(Unit::Consumed {
        consume,
        registration,
        digest,
    })
}

fn step(row: &Row<'_>) -> Answer<Unit> {
    let key = key(&row.get::<_, String>(6)?)?;
    let of = stored::replay_key(&row.get::<_, Vec<u8>>(7)?)?;
    let digest: Option<Vec<u8>> = row.get(8)?;
    let whose = (mesh(row, 9)?, &key, Some(&of));
    let compared = load::step_row(whose, row, digest.as_deref());
    Ok(Unit::Step {
        row: load::step_row(whose, row, None)?,
        digest: carried_digest(compared, digest)?,
        of,
    })
}

/// What was changed here goes with its digest: whoever takes it over must not take it for true. Everything else gets one there.
fn carried_digest<T>(compared: Answer<T>, digest: Option<Vec<u8>>) -> Answer<Option<KeptDigest>> {
    match (compared, digest) {
        (Ok(_), _) | (Err(StorageError::Changed { .. }), None) => Ok(None),
        (Err(StorageError::Changed { .. }), Some(digest)) => {
            stored::digest(&digest).map(|digest| Some(KeptDigest(digest)))
        }
        (Err(error), _) => Err(error),
    }
}

fn mesh(row: &Row<'_>, column: usize) -> Answer<MeshId> {
    let bytes: [u8; 16] = row.get(column)?;
    Ok(MeshId(Ulid::from_bytes(bytes)))
}

fn call(row: &Row<'_>) -> Answer<Unit> {
    Ok(Unit::Call(CallRow {
        caller: row.get(0)?,
        id: row.get(1)?,
        fingerprint: stored::fingerprint(&row.get::<_, Vec<u8>>(2)?)?,
        key: key(&row.get::<_, String>(3)?)?,
        at: WallMs(row.get(4)?),
    }))
}

fn audit(row: &Row<'_>) -> Answer<Unit> {
    Ok(Unit::Audit(AuditRow {
        key: row.get(0)?,
        attempt_id: row.get(1)?,
        event: row.get(2)?,
        code: row.get(3)?,
        detail: row.get(4)?,
        by: row.get(5)?,
        at: WallMs(row.get(6)?),
    }))
}

/// Whether nothing more is decided about this mesh here.
pub(super) fn is_given(connection: &Connection, mesh: MeshId) -> Answer<bool> {
    has(connection, mesh, "given")
}

fn has(connection: &Connection, mesh: MeshId, what: &str) -> Answer<bool> {
    let mut statement = connection.prepare_cached(GIVEN)?;
    Ok(statement.query_row(params![mesh.0.to_bytes(), what], |row| row.get(0))?)
}

impl Sqlite {
    /// From the moment that this is answered nothing more is decided about the mesh in this file, ever.
    pub async fn give_away(&self, mesh: MeshId, at: WallMs) -> Answer<()> {
        self.note_given(mesh, "given", at).await
    }

    /// Whoever it was given to has all of it.
    pub async fn all_told(&self, mesh: MeshId, at: WallMs) -> Answer<()> {
        self.note_given(mesh, TELL, at).await
    }

    pub async fn is_all_told(&self, mesh: MeshId) -> Answer<bool> {
        let found = self
            .database
            .read(move |connection| has(connection, mesh, TELL));
        Ok(found.await?)
    }

    async fn note_given(&self, mesh: MeshId, what: &'static str, at: WallMs) -> Answer<()> {
        let written = self.database.write(move |connection: &Connection| {
            let row = params![mesh.0.to_bytes(), what, at.0];
            connection.prepare_cached(GIVE)?.execute(row)?;
            Ok::<_, StorageError>(())
        });
        Ok(written.await?)
    }

    /// What was decided about a mesh that was given away, from this place on; and whether that is all. One unit at
    /// least, however long it is.
    pub async fn carried(
        &self,
        mesh: MeshId,
        from: u64,
        bytes_max: usize,
    ) -> Answer<(Vec<Unit>, bool)> {
        let found = self
            .database
            .read(move |connection| carried(connection, mesh, from, bytes_max));
        Ok(found.await?)
    }
}

fn carried(
    connection: &Connection,
    mesh: MeshId,
    mut from: u64,
    bytes_max: usize,
) -> Answer<(Vec<Unit>, bool)> {
    let id = mesh.0.to_bytes();
    let (mut units, mut bytes) = (Vec::new(), 0);
    for shelf in &SHELVES {
        let count: i64 = connection.query_row(shelf.count, [id], |row| row.get(0))?;
        let count = u64::try_from(count).unwrap_or(0);
        while from < count {
            let at = i64::try_from(from).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(shelf.select)?;
            let mut rows = statement.query(params![id, at])?;
            let Some(row) = rows.next()? else {
                return Err(StorageError::Corrupt("a row without its other half".into()));
            };
            let unit = (shelf.read)(row)?;
            bytes += unit.to_text().map_or(0, |text| text.len());
            if bytes > bytes_max && !units.is_empty() {
                return Ok((units, false));
            }
            units.push(unit);
            from += 1;
        }
        from -= count;
    }
    Ok((units, true))
}
