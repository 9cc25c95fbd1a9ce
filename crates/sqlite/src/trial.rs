//! The steps that wait for a file, tried in memory: what a start would meet, told without a byte changed.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::connection::schema_version;
use crate::error::OpenError;
use crate::migrate::{Migration, take_all};

/// What a file that lacks steps would do at a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The version that it has.
    pub found: u32,
    pub known: u32,
    /// Of the file, with what stands in its log.
    pub bytes: u64,
    /// The step that cannot be taken, and why, in SQLite's words.
    pub refused: Option<Refused>,
    /// Tried with every row; else with the tables alone, and a row may stand in the way all the same.
    pub with_rows: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub version: u32,
    pub name: &'static str,
    pub reason: String,
}

/// Tries the steps that wait; `None` where none does, where the file is of a newer program, or where it cannot be told.
/// Rows come along up to `bytes_max`: they are in memory then.
pub fn try_steps(path: &Path, migrations: &[Migration], bytes_max: u64) -> Option<Trial> {
    let known = migrations.last()?.version;
    let path = std::path::absolute(path).ok()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let file = Connection::open_with_flags(path, flags).ok()?;
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .ok()?;
    let found = u32::try_from(schema_version(&file).ok()?).ok()?;
    if found == 0 || found >= known {
        return None;
    }
    let bytes = bytes_of(&file).ok()?;
    let with_rows = bytes <= bytes_max;
    let copy = if with_rows {
        rows_and_all(&file)
    } else {
        tables_alone(&file, found)
    };
    let copy = copy.ok()?;
    copy.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)
        .ok()?;
    copy.pragma_update(None, "foreign_keys", true).ok()?;
    let refused = match take_all(&copy, migrations) {
        Err(OpenError::Migration {
            version,
            name,
            reason,
            ..
        }) => Some(Refused {
            version,
            name,
            reason,
        }),
        _ => None,
    };
    Some(Trial {
        found,
        known,
        bytes,
        refused,
        with_rows,
    })
}

fn bytes_of(file: &Connection) -> rusqlite::Result<u64> {
    let number = |name: &str| file.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    Ok(u64::from(number("page_count")?) * u64::from(number("page_size")?))
}

fn rows_and_all(file: &Connection) -> rusqlite::Result<Connection> {
    let mut copy = Connection::open_in_memory()?;
    let backup = Backup::new(file, &mut copy)?;
    // Whoever holds the file now is no daemon; nothing is told of a file that cannot be read at once.
    let is_done = backup.step(-1)? == StepResult::Done;
    drop(backup);
    is_done
        .then_some(copy)
        .ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Everything that the file's statements made, without a row.
fn tables_alone(file: &Connection, found: u32) -> rusqlite::Result<Connection> {
    let copy = Connection::open_in_memory()?;
    // What makes tables of its own comes first: those are there then.
    let mut listed = file.prepare(
        "SELECT name, sql FROM sqlite_schema
         WHERE sql IS NOT NULL AND substr(name, 1, 7) <> 'sqlite_'
         ORDER BY type = 'table' AND rootpage = 0 DESC, rowid",
    )?;
    let mut made = listed.query([])?;
    while let Some(row) = made.next()? {
        let (name, sql): (String, String) = (row.get(0)?, row.get(1)?);
        let is_there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
        if !copy.query_row(is_there, [&name], |row| row.get::<_, bool>(0))? {
            copy.execute_batch(&sql)?;
        }
    }
    copy.pragma_update(None, "user_version", found)?;
    Ok(copy)
}
