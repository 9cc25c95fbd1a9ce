//! How far this file has come, for those who remember how far it was.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::links;
use crate::chain::Link;
use crate::storage::contract::{Reached, Seen};
use crate::storage::error::StorageError;
use crate::storage::stored;

/// Rows are numbered from 1 and never deleted, so the last number is how many there are.
const ROWS: &str = "
    SELECT (SELECT coalesce(max(rowid), 0) FROM effect_consume)
         + (SELECT coalesce(max(seq), 0) FROM effect_step)
         + (SELECT count(*) FROM effect_decision)";
const LAST: &str = "SELECT replay_key FROM effect_consume ORDER BY rowid DESC LIMIT 1";
/// Not in a file of before there were counts, that nobody has opened since.
const COUNTS: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'effect_tally')";
const SEEN: &str = "SELECT EXISTS (SELECT 1 FROM effect_consume WHERE replay_key = ?1)";

pub(super) fn reached(connection: &Connection, seen: Seen) -> Result<Reached, StorageError> {
    let rows: i64 = connection.query_row(ROWS, [], |row| row.get(0))?;
    let last: Option<Vec<u8>> = connection
        .query_row(LAST, [], |row| row.get(0))
        .optional()?;
    let has_last = match seen.last.filter(|_| seen.link.is_none()) {
        None => true,
        Some(key) => connection.query_row(SEEN, [key.0], |row| row.get(0))?,
    };
    // A file of before there was a chain, that nobody has opened since.
    let has_chain = links::is_there(connection)?;
    let chain = |seen: Option<Link>| {
        if has_chain {
            links::has(connection, seen)
        } else {
            Ok(seen.is_none())
        }
    };
    let rows = u64::try_from(rows).unwrap_or(0);
    let gone: i64 = if rows < seen.rows && connection.query_row(COUNTS, [], |row| row.get(0))? {
        connection.query_row(stored::GONE, [], |row| row.get(0))?
    } else {
        0
    };
    Ok(Reached {
        rows,
        gone: u64::try_from(gone).unwrap_or(0),
        last: last.map(|bytes| stored::replay_key(&bytes)).transpose()?,
        // IMPORTANT: after the rows. A link that is behind them would be one of before.
        link: if has_chain {
            links::head(connection)?
        } else {
            None
        },
        seal: if has_chain {
            links::seal(connection)?
        } else {
            None
        },
        has_seen: has_last && chain(seen.link)?,
    })
}

/// The same of a file that somebody else may have open; reads only.
pub fn look(file: &Path, seen: Seen) -> Result<Reached, StorageError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    heddle_sqlite::refuse_misplaced(file)?;
    let connection = Connection::open_with_flags(file, flags)?;
    reached(&connection, seen)
}
