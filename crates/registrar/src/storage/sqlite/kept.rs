//! Whether the rows that are answered from are as they were written: all of them, effect by effect.

use std::path::Path;

use heddle_core::ids::MeshId;
use rusqlite::{Connection, OpenFlags};
use ulid::Ulid;

use super::load;
use crate::binding::LogicalKey;
use crate::kept::Kept;
use crate::storage::error::StorageError;
use crate::storage::stored;

const KEYS: &str = "
    SELECT mesh_id, logical_request_key FROM effect_envelope
    UNION SELECT mesh_id, logical_request_key FROM effect_consume
    UNION SELECT mesh_id, logical_request_key FROM effect_tally";
const WITHOUT: &str = "
    SELECT (SELECT count(*) FROM effect_step WHERE digest IS NULL)
         + (SELECT count(*) FROM effect_registration WHERE digest IS NULL)";

const NO_COUNTS: &str = "
    CREATE TEMP TABLE effect_tally (mesh_id BLOB, logical_request_key TEXT, row_count INTEGER)";

pub(super) fn kept(connection: &Connection) -> Result<Kept, StorageError> {
    let mut statement = connection.prepare_cached(KEYS)?;
    let keys = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let keys: Vec<([u8; 16], String)> = keys.collect::<Result<_, _>>()?;
    let without: i64 = connection.query_row(WITHOUT, [], |row| row.get(0))?;
    let mut kept = Kept {
        effects: keys.len() as u64,
        without: u64::try_from(without).unwrap_or(0),
        changed: Vec::new(),
    };
    for (mesh, text) in keys {
        let read = LogicalKey::parse(&text)
            .map_err(|error| StorageError::Corrupt(error.to_string()))
            .and_then(|key| load::facts(connection, MeshId(Ulid::from_bytes(mesh)), &key, None));
        match read {
            Err(error) if error.is_damage() => kept.changed.push(error.about(&text)),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    let mut statement = connection.prepare_cached(stored::ORPHANS)?;
    let orphans = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for orphan in orphans {
        let (key, table): (String, String) = orphan?;
        kept.changed.push(stored::orphan(&key, &table));
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
    let has = "SELECT count(*) FROM pragma_table_info('effect_step') WHERE name = 'digest'";
    let has: i64 = connection.query_row(has, [], |row| row.get(0))?;
    if has == 0 {
        return Ok(None);
    }
    let counts = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'effect_tally')";
    let counts: bool = connection.query_row(counts, [], |row| row.get(0))?;
    if !counts {
        // Nobody has opened it since there are counts: of such a file nothing was counted.
        connection.execute_batch(NO_COUNTS)?;
    }
    kept(&connection).map(Some)
}
