//! Where the table of a model keeps the numbers of one vector. What says so (its row of `_rowids`, its part of a chunk) is
//! rows as all others: a disk can change them, and then the vector that lies there is lost, and no other one. A write of
//! its key gives it another place; `doctor` names it, and a repair writes the table anew.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Row, params};

use super::{models, numbers};
use crate::error::StoreError;

/// Vectors that one sentence names.
const NAMED_MAX: usize = 5;

/// In place where there is one: the table gives the room of a deleted row back only by the chunk.
pub(super) fn put(
    connection: &Connection,
    table: &str,
    place: i64,
    (bytes, is_there): (&[u8], bool),
) -> Result<(), StoreError> {
    if is_there {
        // IMPORTANT: looked at first. A number that is far too high is another vector's room to the table.
        if is_placed(connection, table, place)? {
            let update = format!("UPDATE {table} SET embedding = ?2 WHERE rowid = ?1");
            let mut update = connection.prepare_cached(&update)?;
            if is_done(update.execute(params![place, bytes]))? {
                return Ok(());
            }
        }
        give_up(connection, table, place)?;
    }
    let insert = format!("INSERT INTO {table} (rowid, embedding) VALUES (?1, ?2)");
    let mut insert = connection.prepare_cached(&insert)?;
    match insert.execute(params![place, bytes]) {
        Ok(1) => Ok(()),
        Ok(count) => Err(unfit(table, &format!("{count} rows were written for one"))),
        Err(error) if numbers::is_of_one(&error) => Err(unfit(table, &error.to_string())),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn clear(connection: &Connection, table: &str, place: i64) -> Result<(), StoreError> {
    if is_placed(connection, table, place)? {
        let delete = format!("DELETE FROM {table} WHERE rowid = ?1");
        let mut delete = connection.prepare_cached(&delete)?;
        if is_done(delete.execute([place]))? {
            return Ok(());
        }
    }
    give_up(connection, table, place)
}

/// False where the table cannot find the place.
fn is_done(changed: rusqlite::Result<usize>) -> Result<bool, StoreError> {
    match changed {
        Ok(count) => Ok(count == 1),
        Err(error) if numbers::is_of_one(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What says where it lies is forgotten; the room itself stays taken until the table is written anew. SQLite lets nobody
/// write what a table keeps for itself, but this table cannot do it any more.
fn give_up(connection: &Connection, table: &str, place: i64) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM {table}_rowids WHERE rowid = ?1");
    let was = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false);
    let done = was.and_then(|_| connection.execute(&sql, [place]));
    // IMPORTANT: whatever came of it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    done?;
    Ok(())
}

fn unfit(table: &str, why: &str) -> StoreError {
    StoreError::Corrupt(format!(
        "{table}, the table of a model, takes no vector: {why}"
    ))
}

/// Tables of models in which it is not said soundly where vectors lie, in words. The next vector could be written over
/// one that lies there.
pub(crate) fn problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(models::MODELS)?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut found = Vec::new();
    for id in ids {
        // What is wrong with the rest is told by others.
        let Ok(Some(model)) = models::by_id(connection, &id?) else {
            continue;
        };
        let table = model.table();
        if !crate::backup::has_table(connection, &table)? {
            continue;
        }
        let bad = unplaced(connection, &table)?;
        if let Some(words) = in_words(&table, &bad) {
            found.push(words);
        }
    }
    Ok(found)
}

fn in_words(table: &str, bad: &[String]) -> Option<String> {
    let more = if bad.len() > NAMED_MAX {
        " and more"
    } else {
        ""
    };
    let shown: Vec<&str> = bad.iter().take(NAMED_MAX).map(String::as_str).collect();
    let says = || {
        let which = shown.join(", ");
        format!("{table}: where vectors lie is not said soundly: {which}{more}")
    };
    (!bad.is_empty()).then(says)
}

fn unplaced(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&select(table, false))?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if !is_sound(row)? {
            let key = row.get_ref(1)?.as_bytes().unwrap_or_default();
            found.push(format!("vector {:?}", String::from_utf8_lossy(key)));
        }
    }
    Ok(found)
}

fn is_placed(connection: &Connection, table: &str, place: i64) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(&select(table, true))?;
    let mut rows = statement.query([place])?;
    Ok(match rows.next()? {
        Some(row) => is_sound(row)?,
        None => false,
    })
}

/// What is said of the places of all vectors, or of the one at `?1`.
fn select(table: &str, only_one: bool) -> String {
    let of = if only_one {
        "WHERE at.rowid = ?1"
    } else {
        "ORDER BY at.rowid"
    };
    format!(
        "SELECT at.rowid, m.key,
            at.chunk_offset >= 0 AND at.chunk_offset < chunk.size
                AND length(chunk.validity) * 8 = chunk.size AND length(chunk.rowids) = chunk.size * 8,
            substr(chunk.rowids, at.chunk_offset * 8 + 1, 8),
            substr(chunk.validity, at.chunk_offset / 8 + 1, 1), at.chunk_offset & 7,
            numbers.rowid IS NOT NULL
         FROM {table}_rowids AS at LEFT JOIN {table}_chunks AS chunk ON chunk.chunk_id = at.chunk_id
            LEFT JOIN {table}_vector_chunks00 AS numbers ON numbers.rowid = at.chunk_id
            LEFT JOIN vector_metadata AS m ON m.place = at.rowid {of}"
    )
}

/// A place is sound when its chunk has a room of that number, which is marked as taken, and by this one.
fn is_sound(row: &Row<'_>) -> rusqlite::Result<bool> {
    let place: i64 = row.get(0)?;
    if !row.get::<_, Option<bool>>(2)?.unwrap_or(false) {
        return Ok(false);
    }
    let by = row.get_ref(3)?.as_bytes().unwrap_or_default();
    let marks = row.get_ref(4)?.as_bytes().unwrap_or_default();
    let bit: u8 = row.get(5)?;
    let is_marked = marks.first().is_some_and(|marks| marks >> bit & 1 == 1);
    Ok(by == place.to_le_bytes() && is_marked && row.get(6)?)
}
