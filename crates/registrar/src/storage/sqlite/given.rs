//! A mesh that this home gives away: from then on nothing is decided about it here, and what was decided is read out
//! for whoever takes it over.
//!
//! A key whose rows are not as they were written is told as damaged, each of its rows in its place, and all other keys go:
//! one byte that a disk has changed does not keep a mesh from moving. Every key is compared once for each stretch.
//!
//! Not part of the contract: a broker gives nothing away.

use std::collections::HashMap;

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::{Connection, Row, params};

use super::{Sqlite, kept, load};
use crate::binding::LogicalKey;
use crate::carry::Unit;
use crate::kept::Beside;
use crate::rows::CallRow;
use crate::storage::error::StorageError;
use crate::storage::stored;

type Answer<T> = Result<T, StorageError>;

const GIVEN: &str = "SELECT EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = ?1 AND what = ?2)";
const GIVE: &str = "
    INSERT INTO effect_given (mesh_id, what, noted_at)
    SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = ?1 AND what = ?2)";
const TELL: &str = "told";

/// One kind of unit: how many there are, and which ones, from a place on and in an order that stays.
struct Shelf {
    count: &'static str,
    select: &'static str,
    /// The column of the key that a row is about; none of a row that says nothing of how its key stands.
    key: Option<usize>,
    read: fn(MeshId, &Row<'_>) -> Answer<Unit>,
}

/// IMPORTANT: a step after its consumption, a decision after its envelope. Each is read along the number of its rows, without
/// an index that would have to be sorted, so that what was told before is passed over and not read again; and every row has
/// its place, also one whose other half is gone.
const SHELVES: [Shelf; 7] = [
    Shelf {
        count: "SELECT count(*) FROM effect_consume WHERE mesh_id = ?1",
        select: "
            SELECT c.logical_request_key, c.canonical_operation, c.canonical_target, c.deployed_artifact_hash,
                   c.run_id, c.owner_or_approval_binding, c.replay_key, c.authorization_nonce_hash, c.attempt_id,
                   c.consumed_at, c.horizon_until, r.registration_id, r.receipt, r.registered_at
            FROM effect_consume c NOT INDEXED LEFT JOIN effect_registration r
                ON r.mesh_id = c.mesh_id AND r.logical_request_key = c.logical_request_key
            WHERE c.mesh_id = ?1 ORDER BY c.rowid LIMIT -1 OFFSET ?2",
        key: Some(0),
        read: consumed,
    },
    Shelf {
        count: "SELECT count(*) FROM effect_step WHERE mesh_id = ?1",
        select: "
            SELECT s.round, s.body, s.attempt_id, s.nonce_hash, s.taken_by, s.taken_at, s.logical_request_key,
                   c.replay_key
            FROM effect_step s NOT INDEXED LEFT JOIN effect_consume c
                ON c.mesh_id = s.mesh_id AND c.logical_request_key = s.logical_request_key
            WHERE s.mesh_id = ?1 ORDER BY s.seq LIMIT -1 OFFSET ?2",
        key: Some(6),
        read: step,
    },
    Shelf {
        count: "SELECT count(*) FROM effect_envelope WHERE mesh_id = ?1",
        select: "
            SELECT logical_request_key, canonical_operation, canonical_target, deployed_artifact_hash, run_id,
                   envelope_id, replay_key, requested_by, requested_at, expires_at
            FROM effect_envelope NOT INDEXED WHERE mesh_id = ?1 ORDER BY seq LIMIT -1 OFFSET ?2",
        key: Some(0),
        read: |_, row| Ok(Unit::Envelope(load::envelope(row)?)),
    },
    Shelf {
        count: "SELECT count(*) FROM effect_decision WHERE mesh_id = ?1",
        select: "
            SELECT d.envelope_id, d.seq, d.ruling, d.nonce_hash, d.purpose, d.not_before, d.expires_at, d.decided_by,
                   d.decided_at, (SELECT e.logical_request_key FROM effect_envelope e
                                  WHERE e.mesh_id = d.mesh_id AND e.envelope_id = d.envelope_id)
            FROM effect_decision d WHERE d.mesh_id = ?1 ORDER BY d.envelope_id, d.seq LIMIT -1 OFFSET ?2",
        key: Some(9),
        read: |_, row| Ok(Unit::Decision(load::decision(row)?)),
    },
    Shelf {
        count: "SELECT count(*) FROM effect_call WHERE mesh_id = ?1",
        select: "
            SELECT caller, call_id, fingerprint, logical_request_key, called_at
            FROM effect_call WHERE mesh_id = ?1 ORDER BY caller, call_id LIMIT -1 OFFSET ?2",
        key: None,
        read: call,
    },
    Shelf {
        count: "SELECT count(*) FROM effect_audit WHERE mesh_id = ?1",
        select: "
            SELECT logical_request_key, attempt_id, event, code, detail, noted_by, noted_at
            FROM effect_audit NOT INDEXED WHERE mesh_id = ?1 ORDER BY seq LIMIT -1 OFFSET ?2",
        key: None,
        read: audit,
    },
    // Keys of which nothing is left but how many rows they had.
    Shelf {
        count: "SELECT count(DISTINCT logical_request_key) FROM effect_tally t WHERE mesh_id = ?1
            AND NOT EXISTS (SELECT 1 FROM effect_consume c
                WHERE c.mesh_id = t.mesh_id AND c.logical_request_key = t.logical_request_key)
            AND NOT EXISTS (SELECT 1 FROM effect_envelope e
                WHERE e.mesh_id = t.mesh_id AND e.logical_request_key = t.logical_request_key)",
        select: "SELECT DISTINCT logical_request_key FROM effect_tally t WHERE mesh_id = ?1
            AND NOT EXISTS (SELECT 1 FROM effect_consume c
                WHERE c.mesh_id = t.mesh_id AND c.logical_request_key = t.logical_request_key)
            AND NOT EXISTS (SELECT 1 FROM effect_envelope e
                WHERE e.mesh_id = t.mesh_id AND e.logical_request_key = t.logical_request_key)
            ORDER BY logical_request_key LIMIT -1 OFFSET ?2",
        key: Some(0),
        read: |_, _| Err(StorageError::Corrupt("nothing is left of it".into())),
    },
];

impl Shelf {
    /// The row, or that it is damaged: by itself, or by what is known of its key.
    fn unit(&self, row: &Row<'_>, keys: &mut Keys<'_>) -> Answer<Unit> {
        let mut key = String::new();
        if let Some(column) = self.key {
            // One that is no text, or is not there: whose row it was, the number of rows of that key tells.
            key = row.get(column).unwrap_or_default();
            let why = match key.as_str() {
                "" => Some("a row of no key".to_owned()),
                text => keys.why_damaged(text)?,
            };
            if let Some(why) = why {
                return Ok(Unit::Damaged { key, why });
            }
        }
        match (self.read)(keys.mesh, row) {
            Err(error) if error.is_damage() => {
                let why = error.about(&key);
                Ok(Unit::Damaged { key, why })
            }
            read => read,
        }
    }
}

/// The keys of a stretch: each is read and compared once, whichever of its rows comes first.
struct Keys<'a> {
    connection: &'a Connection,
    mesh: MeshId,
    known: HashMap<String, Option<String>>,
}

impl Keys<'_> {
    /// Why nothing of this key can be told; none where it is as it was written.
    fn why_damaged(&mut self, text: &str) -> Answer<Option<String>> {
        if let Some(known) = self.known.get(text) {
            return Ok(known.clone());
        }
        let read =
            key(text).and_then(|key| load::facts(self.connection, self.mesh, &key, None).map(drop));
        let why = match read {
            Ok(()) => None,
            Err(error) if error.is_damage() => Some(error.about(text)),
            Err(error) => return Err(error),
        };
        self.known.insert(text.to_owned(), why.clone());
        Ok(why)
    }
}

fn key(text: &str) -> Answer<LogicalKey> {
    LogicalKey::parse(text).map_err(|error| StorageError::Corrupt(error.to_string()))
}

/// Its digest is made anew where it comes to: it was compared here.
fn consumed(_: MeshId, row: &Row<'_>) -> Answer<Unit> {
    let consume = load::consumed(row)?;
    let registration = load::registration_row(&consume.effect.key, row, 11)?;
    Ok(Unit::Consumed {
        consume,
        registration,
        digest: None,
    })
}

fn step(mesh: MeshId, row: &Row<'_>) -> Answer<Unit> {
    let key = key(&row.get::<_, String>(6)?)?;
    let of = stored::replay_key(&row.get::<_, Vec<u8>>(7)?)?;
    Ok(Unit::Step {
        row: load::step_row((mesh, &key, Some(&of)), row, Beside::Unasked)?,
        digest: None,
        of,
    })
}

fn call(_: MeshId, row: &Row<'_>) -> Answer<Unit> {
    Ok(Unit::Call(CallRow {
        caller: row.get(0)?,
        id: row.get(1)?,
        fingerprint: stored::fingerprint(&row.get::<_, Vec<u8>>(2)?)?,
        key: key(&row.get::<_, String>(3)?)?,
        at: WallMs(row.get(4)?),
    }))
}

fn audit(_: MeshId, row: &Row<'_>) -> Answer<Unit> {
    load::audit_row(row, 0).map(Unit::Audit)
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

    /// The keys of a mesh that would go as damaged, each with why.
    pub async fn changed_of(&self, mesh: MeshId) -> Answer<Vec<String>> {
        let found = self
            .database
            .read(move |connection| kept::changed_of(connection, mesh));
        Ok(found.await?)
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
    let mut keys = Keys {
        connection,
        mesh,
        known: HashMap::new(),
    };
    for shelf in &SHELVES {
        let count: i64 = connection.query_row(shelf.count, [id], |row| row.get(0))?;
        let count = u64::try_from(count).unwrap_or(0);
        if from >= count {
            from -= count;
            continue;
        }
        let at = i64::try_from(from).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(shelf.select)?;
        let mut rows = statement.query(params![id, at])?;
        while let Some(row) = rows.next()? {
            let unit = shelf.unit(row, &mut keys)?;
            bytes += unit.to_text().map_or(0, |text| text.len());
            if bytes > bytes_max && !units.is_empty() {
                return Ok((units, false));
            }
            units.push(unit);
            from += 1;
        }
        // A place that is left out would shift all that come after it, and some would never be told.
        if from != count {
            return Err(StorageError::Corrupt("rows that are not counted".into()));
        }
        from = 0;
    }
    Ok((units, true))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use heddle_core::clock::{Ids as _, ManualIds};
    use rusqlite::trace::{TraceEvent, TraceEventCodes};

    use super::super::links::{self, Linked};
    use super::super::write;
    use super::*;
    use crate::authority::NonceHash;
    use crate::binding::Effect;
    use crate::kept::Bound;
    use crate::rows::{
        ConsumeRow, DecisionRow, EnvelopeRow, Grant, Outcome, Purpose, RegistrationRow,
        Row as Written, Ruling, Step, StepRow,
    };
    use crate::tally::Tally;

    fn mesh() -> MeshId {
        MeshId(ManualIds::seeded(5).ulid())
    }

    fn rows(nth: usize) -> (LogicalKey, Vec<Written>) {
        let effect = Effect::new(&format!("k{nth}"), "deploy", "prod", "", "").unwrap();
        let (key, at, approval) = (effect.key.clone(), WallMs(7), format!("env_{nth}"));
        let replay_key = effect.replay_key(&approval);
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&nth.to_be_bytes());
        let nonce = NonceHash(hash);
        let step = |step: Step| {
            Written::Step(StepRow {
                key: key.clone(),
                round: 1,
                step,
                attempt_id: "a".into(),
                nonce: None,
                by: "planner".into(),
                at,
            })
        };
        let outcome = Outcome {
            exit_code: Some(0),
            stdout: "done".into(),
            stderr: String::new(),
            truncated: false,
        };
        let rows = vec![
            Written::Envelope(EnvelopeRow {
                envelope_id: approval.clone(),
                effect: effect.clone(),
                replay_key,
                requested_by: "planner".into(),
                requested_at: at,
                expires_at: at,
            }),
            Written::Decision(DecisionRow {
                envelope_id: approval.clone(),
                seq: 1,
                ruling: Ruling::Approved,
                grant: Some(Grant {
                    nonce,
                    purpose: Purpose::Register,
                    not_before: at,
                    expires_at: at,
                }),
                by: "alice".into(),
                at,
            }),
            Written::Consume(ConsumeRow {
                effect,
                approval,
                replay_key,
                nonce,
                attempt_id: "a".into(),
                consumed_at: at,
                horizon_until: at,
            }),
            Written::Registration(RegistrationRow {
                key: key.clone(),
                registration_id: format!("reg_{nth}"),
                receipt: "{}".into(),
                registered_at: at,
            }),
            step(Step::Started { command_hash: None }),
            step(Step::Finished { outcome }),
            step(Step::Verified {
                passed: true,
                detail: String::new(),
            }),
        ];
        (key, rows)
    }

    /// A file with so many effects, each from its request to its verdict.
    fn file(effects: usize) -> (tempfile::TempDir, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects.db");
        Sqlite::open(path.clone()).unwrap().stop();
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("BEGIN").unwrap();
        for nth in 0..effects {
            let (key, rows) = rows(nth);
            let mut of = None;
            for row in &rows {
                if let Written::Consume(row) = row {
                    of = Some(row.replay_key);
                }
                write::insert(&connection, mesh(), row, Bound::to(of)).unwrap();
            }
            let linked = Linked {
                mesh: Some(mesh()),
                rows: &rows,
                more: b"",
                seal: None,
                tally: Tally::of(&key, &rows),
            };
            links::append(&connection, None, &linked).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
        (folder, connection)
    }

    fn counter() -> (Arc<AtomicUsize>, impl Fn() + Send + 'static) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        (count, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Everything, in parts of so many bytes: the parts, the statements and the steps of the machine that reads.
    fn told(connection: &mut Connection, bytes_max: usize) -> (usize, usize, usize) {
        let (statements, said) = counter();
        let trace = move |event: TraceEvent<'_>| {
            if let TraceEvent::Stmt(..) = event {
                said();
            }
        };
        connection
            .trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(trace))
            .unwrap();
        let (steps, stepped) = counter();
        let step = move || {
            stepped();
            false
        };
        connection.progress_handler(1, Some(step)).unwrap();
        let (mut from, mut parts) = (0, 0);
        loop {
            let (units, is_last) = carried(connection, mesh(), from, bytes_max).unwrap();
            let is_damaged = |unit: &Unit| matches!(unit, Unit::Damaged { .. });
            assert!(!units.iter().any(is_damaged));
            from += units.len() as u64;
            parts += 1;
            if is_last {
                break;
            }
        }
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        (parts, count(&statements), count(&steps))
    }

    #[test]
    fn what_a_mesh_takes_along_is_read_with_a_few_statements_for_each_key() {
        let [few, many] = [100, 400].map(|effects| {
            let (_folder, mut connection) = file(effects);
            let (parts, statements, steps) = told(&mut connection, usize::MAX);
            assert_eq!(parts, 1);
            // Six to compare a key, two for each kind of row.
            assert!(statements <= 6 * effects + 14, "{statements} of {effects}");
            let (parts, statements, _) = told(&mut connection, 64 << 10);
            // A key has rows in six places, and is compared in each part that has one of them.
            let bound = 6 * 6 * effects + 14 * parts;
            assert!(
                parts > 1 && statements <= bound,
                "{statements} of {effects}"
            );
            steps
        });
        // Four times as many are four times the work, and not sixteen times.
        assert!(many < 5 * few, "{many} and {few}");
    }
}
