//! Whether SQLite can work with the indexes for searching, and making them anew where it cannot. They are derived from their rows,
//! so nothing is lost with one; but a write that meets a damaged one fails, and with it the memory or the message that it was for.
//!
//! SQLite's own check of such an index reads its words only: the totals, the lengths and the settings beside them, without which
//! no write and no ranking goes through, are looked at here.

use rusqlite::{Connection, Error, ErrorCode, OptionalExtension as _};

use crate::backup::has_table;
use crate::carry::{begin_search_anew, index_memory_anew};
use crate::error::StoreError;

/// An index, and the places of the rows that it must hold.
struct Index {
    name: &'static str,
    rows: &'static str,
}

const INDEXES: [Index; 2] = [
    Index {
        name: "memory_fts",
        rows: "SELECT place AS at FROM memory WHERE tombstone = 0",
    },
    Index {
        name: "inbox_fts",
        rows: "SELECT arrival AS at FROM inbox
            WHERE arrival <= (SELECT indexed_through FROM inbox_state)",
    },
];

/// Where an index keeps how many items it has and how long they are, and the list of its pages.
const TOTALS: i64 = 1;
const PAGES: i64 = 10;

/// What is wrong with the index of this name; none for one that a file does not have. Closely: all of it is read.
pub(crate) fn problem(
    connection: &Connection,
    name: &str,
    closely: bool,
) -> rusqlite::Result<Option<String>> {
    let Some(index) = INDEXES.iter().find(|index| index.name == name) else {
        return Ok(None);
    };
    let looked = quick(connection, index).and_then(|found| match found {
        None if closely => close(connection, index),
        found => Ok(found),
    });
    match looked {
        Ok(found) => Ok(found),
        // Whatever kind of error: nothing but the index was asked.
        Err(error) if is_of_index(&error) => Ok(Some(format!("it cannot be read: {error}"))),
        Err(error) => Err(error),
    }
}

/// A setting that is gone is no damage to SQLite: "run 'rebuild'".
pub(crate) fn is_of_index(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::Unknown)
    )
}

/// A few rows by their keys.
fn quick(connection: &Connection, index: &Index) -> rusqlite::Result<Option<String>> {
    let name = index.name;
    // Reads the settings and the list of pages.
    connection
        .prepare(&format!(
            "SELECT rowid FROM {name} WHERE {name} MATCH '\"a\"' LIMIT 1"
        ))?
        .exists([])?;
    if record(connection, name, TOTALS)?.is_none() {
        return Ok(Some("its totals are gone".to_owned()));
    }
    let list = record(connection, name, PAGES)?.unwrap_or_default();
    let has_pages = format!("SELECT 1 FROM {name}_data WHERE id > {PAGES}");
    let has_pages = connection.prepare(&has_pages)?.exists([])?;
    // A new page would get the number of one that is there.
    Ok((has_pages && is_empty(&list)).then(|| "its list of pages is empty".to_owned()))
}

fn record(connection: &Connection, name: &str, id: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = format!("SELECT CAST(block AS BLOB) FROM {name}_data WHERE id = ?1");
    let found = connection.query_row(&sql, [id], |row| row.get(0));
    found.optional()
}

/// Behind a number that counts the settings, and the mark of a newer form: how many levels there are, and how many segments.
fn is_empty(list: &[u8]) -> bool {
    const SETTINGS: usize = 4;
    const NEWER: [u8; 4] = [0xff, 0, 0, 1];
    let list = list.get(SETTINGS..).unwrap_or_default();
    let list = list.strip_prefix(&NEWER).unwrap_or(list);
    // Fewer than 64 levels: one byte.
    first_number(list.get(1..).unwrap_or_default()).unwrap_or(0) == 0
}

fn close(connection: &Connection, index: &Index) -> rusqlite::Result<Option<String>> {
    let Index { name, rows } = index;
    let check = format!("PRAGMA integrity_check({name})");
    let verdict: String = connection.query_row(&check, [], |row| row.get(0))?;
    if verdict != "ok" {
        return Ok(Some(verdict));
    }
    let missing = format!(
        "SELECT count(*) FROM ({rows}) WHERE NOT EXISTS (SELECT 1 FROM {name}_docsize WHERE id = at)"
    );
    let missing: i64 = connection.query_row(&missing, [], |row| row.get(0))?;
    if missing > 0 {
        return Ok(Some(format!("it has lost the lengths of {missing} items")));
    }
    let lengths = format!("SELECT count(*) FROM {name}_docsize");
    let lengths: i64 = connection.query_row(&lengths, [], |row| row.get(0))?;
    let totals = record(connection, name, TOTALS)?;
    let counted = totals.as_deref().and_then(first_number).unwrap_or(0);
    Ok((i64::try_from(counted) != Ok(lengths))
        .then(|| format!("it counts {counted} items and has {lengths}")))
}

/// The first number of a record, as SQLite writes it: seven bits to a byte, the highest first.
fn first_number(bytes: &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    // No count of items needs the ninth byte, which has eight.
    for byte in bytes.iter().take(8) {
        number = (number << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Makes those anew that are damaged; which, and what was wrong.
pub(crate) fn mend(connection: &Connection, closely: bool) -> Result<Vec<String>, StoreError> {
    let mut mended = Vec::new();
    for index in &INDEXES {
        if !has_table(connection, index.name)? {
            continue;
        }
        if let Some(problem) = problem(connection, index.name, closely)? {
            make_anew(connection, index.name)?;
            mended.push(format!("{}: {problem}", index.name));
        }
    }
    Ok(mended)
}

fn make_anew(connection: &Connection, name: &str) -> Result<(), StoreError> {
    let made = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    let made: String = connection.query_row(made, [name], |row| row.get(0))?;
    // SQLite opens an index before it drops it, and one without its settings not at all: such a file is written anew.
    connection
        .execute_batch(&format!("DROP TABLE {name}; {made};"))
        .map_err(|error| StoreError::Corrupt(format!("{name} cannot be made anew: {error}")))?;
    if name == "memory_fts" {
        index_memory_anew(connection)?;
    } else {
        // The job behind the receive fills it.
        begin_search_anew(connection)?;
    }
    Ok(())
}
