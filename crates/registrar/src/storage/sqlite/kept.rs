//! Whether the rows that are answered from are as they were written: all of them, effect by effect.

use std::path::Path;

use heddle_core::ids::MeshId;
use rusqlite::{Connection, OpenFlags};
use ulid::Ulid;

use super::{load, waiting};
use crate::binding::LogicalKey;
use crate::kept::Kept;
use crate::storage::error::StorageError;
use crate::storage::stored;

/// Of meshes that were given away only as long as whoever decides about them now does not have all of it: from then on the
/// damage is told there.
const KEYS: &str = "
    SELECT mesh_id, logical_request_key FROM (
        SELECT mesh_id, logical_request_key FROM effect_envelope
        UNION SELECT mesh_id, logical_request_key FROM effect_consume
        UNION SELECT mesh_id, logical_request_key FROM effect_tally)
    WHERE mesh_id NOT IN (SELECT mesh_id FROM effect_given WHERE what = 'told')
        AND (?1 IS NULL OR mesh_id = ?1)";
const IS_TOLD: &str = "SELECT 1 FROM effect_given WHERE mesh_id = ?1 AND what = 'told'";
const WITHOUT: &str = "SELECT count(*) FROM effect_undigested";

const NO_COUNTS: &str = "
    CREATE TEMP TABLE effect_tally (mesh_id BLOB, logical_request_key TEXT, row_count INTEGER)";

const NO_DIGESTS: &str = "
    CREATE TEMP VIEW effect_decision AS SELECT *, NULL AS digest FROM main.effect_decision";

/// Of a file that nobody has opened since they are written down, all that have none are of before.
const ALL_OF_BEFORE: &str = "
    CREATE TEMP VIEW effect_undigested AS
    SELECT mesh_id, 'effect_decision' AS table_name, envelope_id AS row_id, seq FROM effect_decision
        WHERE digest IS NULL
    UNION ALL SELECT mesh_id, 'effect_registration', logical_request_key, 0 FROM effect_registration
        WHERE digest IS NULL
    UNION ALL SELECT mesh_id, 'effect_step', logical_request_key, seq FROM effect_step WHERE digest IS NULL";

fn has_table(connection: &Connection, name: &str) -> Result<bool, StorageError> {
    let has = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
    Ok(connection.query_row(has, [name], |row| row.get(0))?)
}

fn has_digest(connection: &Connection, table: &str) -> Result<bool, StorageError> {
    let has = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = 'digest'";
    let has: i64 = connection.query_row(has, [table], |row| row.get(0))?;
    Ok(has > 0)
}

/// Its mesh, and its bytes as they lie there.
type FoundKey = ([u8; 16], Vec<u8>);

/// Every key, or those of one mesh.
fn keys(connection: &Connection, of: Option<MeshId>) -> Result<Vec<FoundKey>, StorageError> {
    let mut statement = connection.prepare_cached(KEYS)?;
    let of = of.map(|mesh| mesh.0.to_bytes());
    let keys = statement.query_map([of], |row| {
        Ok((row.get(0)?, row.get_ref(1)?.as_bytes()?.to_vec()))
    })?;
    Ok(keys.collect::<Result<_, _>>()?)
}

/// The keys of a mesh that are not as they were written, each with why.
pub(super) fn changed_of(
    connection: &Connection,
    mesh: MeshId,
) -> Result<Vec<String>, StorageError> {
    changed(connection, keys(connection, Some(mesh))?)
}

fn changed(connection: &Connection, keys: Vec<FoundKey>) -> Result<Vec<String>, StorageError> {
    let mut changed = Vec::new();
    for (mesh, bytes) in keys {
        // What is no text any more is no key. It is told, and hides no other.
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let shown = String::from_utf8_lossy(error.as_bytes());
                changed.push(format!(
                    "{shown}: a key that was changed into what is no text"
                ));
                continue;
            }
        };
        let read = LogicalKey::parse(&text)
            .map_err(|error| StorageError::Corrupt(error.to_string()))
            .and_then(|key| load::facts(connection, MeshId(Ulid::from_bytes(mesh)), &key, None));
        match read {
            Err(error) if error.is_damage() => changed.push(error.about(&text)),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok(changed)
}

pub(super) fn kept(connection: &Connection) -> Result<Kept, StorageError> {
    let keys = keys(connection, None)?;
    let without: i64 = connection.query_row(WITHOUT, [], |row| row.get(0))?;
    let mut kept = Kept {
        effects: keys.len() as u64,
        without: u64::try_from(without).unwrap_or(0),
        changed: changed(connection, keys)?,
    };
    let mut statement = connection.prepare_cached(stored::ORPHANS)?;
    let orphans = statement.query_map([], |row| {
        Ok((load::text(row, 0)?, row.get(1)?, row.get(2)?))
    })?;
    let mut is_told = connection.prepare_cached(IS_TOLD)?;
    for orphan in orphans {
        let (key, table, mesh): (String, String, Vec<u8>) = orphan?;
        if !is_told.exists([mesh])? {
            kept.changed.push(stored::orphan(&key, &table));
        }
    }
    if has_digest(connection, "effect_waiting")? {
        kept.changed.extend(waiting::changed(connection)?);
    }
    let links = connection.query_row(stored::LINKS_GONE, [], |row| row.get(0))?;
    kept.changed.extend(stored::links_gone(links));
    Ok(kept)
}

/// The same of a file that may be open elsewhere; reads only. None where it is of before there were digests.
pub fn kept_in(file: &Path) -> Result<Option<Kept>, StorageError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    heddle_sqlite::refuse_misplaced(file)?;
    let connection = Connection::open_with_flags(file, flags)?;
    if !has_digest(&connection, "effect_step")? {
        return Ok(None);
    }
    if !has_digest(&connection, "effect_decision")? {
        // The same of those of words, which came later.
        connection.execute_batch(NO_DIGESTS)?;
    }
    if !has_table(&connection, "effect_undigested")? {
        connection.execute_batch(ALL_OF_BEFORE)?;
    }
    if !has_table(&connection, "effect_tally")? {
        // Nobody has opened it since there are counts: of such a file nothing was counted.
        connection.execute_batch(NO_COUNTS)?;
    }
    kept(&connection).map(Some)
}
