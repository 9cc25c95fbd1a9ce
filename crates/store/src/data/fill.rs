//! Digests for the rows of before there were any (`seal`): when the file is opened and before anybody reads it, a few rows at a
//! time, each piece a transaction. Where a crash comes between two, the next start goes on: what has one keeps it.

use rusqlite::{Connection, params};

use super::seal::{self, Seal, TASK_OP};
use super::task;
use crate::error::StoreError;

/// Rows of one piece.
pub(crate) const ROWS_AT_ONCE: i64 = 500;

/// Where a piece ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Which of the tables.
    table: usize,
    place: i64,
    key: Vec<u8>,
}

const SEALED: &str = "UPDATE store_state SET rows_sealed = 1";
const OPS: usize = seal::BY_PLACE.len();
const TASKS: usize = OPS + 1;
const ID: usize = 16;

/// The next rows behind the cursor; where to go on, none when all of them are done.
pub(crate) fn step(
    connection: &Connection,
    mut cursor: Cursor,
) -> Result<Option<Cursor>, StoreError> {
    if cursor == Cursor::default() && seal::is_sealed(connection)? {
        return Ok(None);
    }
    let is_more = match cursor.table {
        OPS => ops(connection, &mut cursor)?,
        TASKS => match task::fill(connection, cursor.place, ROWS_AT_ONCE)? {
            Some(place) => {
                cursor.place = place;
                true
            }
            None => false,
        },
        table => match seal::BY_PLACE.get(table) {
            Some(seal) => by_place(connection, seal, &mut cursor)?,
            None => {
                connection.prepare_cached(SEALED)?.execute([])?;
                return Ok(None);
            }
        },
    };
    if !is_more {
        cursor = Cursor {
            table: cursor.table + 1,
            place: i64::MIN,
            key: Vec::new(),
        };
    }
    Ok(Some(cursor))
}

fn by_place(connection: &Connection, seal: &Seal, cursor: &mut Cursor) -> Result<bool, StoreError> {
    let Seal { table, columns, .. } = seal;
    let sql = format!(
        "SELECT place, {columns} FROM {table} WHERE place > ?1 AND digest IS NULL ORDER BY place LIMIT ?2"
    );
    let keep = format!("UPDATE {table} SET digest = ?2 WHERE place = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![cursor.place, ROWS_AT_ONCE])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((row.get::<_, i64>(0)?, seal.of_row(row)?));
    }
    for (place, digest) in &found {
        let mut keep = connection.prepare_cached(&keep)?;
        keep.execute(params![place, digest])?;
    }
    cursor.place = found.last().map_or(cursor.place, |(place, _)| *place);
    Ok(!found.is_empty())
}

/// The steps of tasks have no number: they are gone through by their key.
fn ops(connection: &Connection, cursor: &mut Cursor) -> Result<bool, StoreError> {
    let Seal { table, columns, .. } = TASK_OP;
    let sql = format!(
        "SELECT {columns} FROM {table} WHERE (mesh_id, task_id, op_id) > (?1, ?2, ?3) AND digest IS NULL
         ORDER BY mesh_id, task_id, op_id LIMIT ?4"
    );
    let keep = "UPDATE task_op SET digest = ?4 WHERE mesh_id = ?1 AND task_id = ?2 AND op_id = ?3";
    let part = |at: usize| cursor.key.get(at * ID..(at + 1) * ID).unwrap_or_default();
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![part(0), part(1), part(2), ROWS_AT_ONCE])?;
    let mut found: Vec<([[u8; ID]; 3], seal::Digest)> = Vec::new();
    while let Some(row) = rows.next()? {
        let key = [row.get(0)?, row.get(1)?, row.get(2)?];
        found.push((key, TASK_OP.of_row(row)?));
    }
    for ([mesh, task, op], digest) in &found {
        let mut keep = connection.prepare_cached(keep)?;
        keep.execute(params![mesh, task, op, digest])?;
    }
    if let Some((key, _)) = found.last() {
        cursor.key = key.concat();
    }
    Ok(!found.is_empty())
}
