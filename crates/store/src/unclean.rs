//! Whether the last run ended in order, and the check of the file: all of it when it did not, and as
//! much as a quick start allows when it did.
//!
//! The check reads only, and runs before the writer opens the file: opening moves the old log into
//! it, and a damaged file must be refused with its bytes unchanged (DR-16).

use std::path::{Path, PathBuf};

use heddle_core::clock::WallMs;
use heddle_sqlite::OpenError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::StoreError;
use crate::store::{Store, StoreOptions};
use crate::{park, schema};

/// A file that was closed in order is read as a whole up to this size; that takes a few milliseconds.
/// Of a larger one only the first row of each table is read: the rest is checked by the start after the
/// one whose work met the damage.
const CHECKED_BYTES_MAX: u64 = 4 << 20;

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// As closely as the last end and the size ask for.
    AsNeeded,
    /// At all of it: somebody has just met damage.
    Closely,
}

pub(crate) fn mark_open(connection: &Connection) -> Result<(), StoreError> {
    mark(connection, false)
}

pub(crate) fn mark_stopped(connection: &Connection) -> Result<(), StoreError> {
    mark(connection, true)
}

fn mark(connection: &Connection, clean: bool) -> Result<(), StoreError> {
    connection.execute(
        "UPDATE store_state SET clean = ?1 WHERE clean <> ?1",
        [clean],
    )?;
    Ok(())
}

/// Looks for damage. What cannot be looked at is left for the writer to refuse by its proper name.
pub(crate) fn check(options: &StoreOptions, how: Look) -> Result<(), OpenError> {
    match look(options, how) {
        Ok(None) => Ok(()),
        Ok(Some(problem)) => Err(OpenError::Damaged(problem)),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Err(OpenError::Damaged(error.to_string()))
            }
            _ => Ok(()),
        },
    }
}

/// The same, but a damaged inbox is set aside; where the old file lies then.
pub(crate) fn check_or_park(
    options: &StoreOptions,
    now: WallMs,
    how: Look,
) -> Result<Option<PathBuf>, StoreError> {
    // The simulator's disk knows no second name for a file.
    if options.vfs.is_none() {
        Store::finish_parking(&options.path)?;
    }
    let problem = match check(options, how) {
        Ok(()) => return Ok(None),
        Err(OpenError::Damaged(problem)) if options.vfs.is_none() => problem,
        Err(error) => return Err(error.into()),
    };
    match park::park(&options.path, now) {
        Ok(Some(parked)) => {
            tracing::error!(problem, parked = %parked.display(),
                "the inbox was damaged: it begins anew, the old file was set aside, the outbox is whole");
            Ok(Some(parked))
        }
        Ok(None) => Err(OpenError::Damaged(problem).into()),
        Err(error) => Err(OpenError::Damaged(format!(
            "{problem}; saving what is whole failed as well: {error}"
        ))
        .into()),
    }
}

/// The first problem that SQLite names.
fn look(options: &StoreOptions, how: Look) -> rusqlite::Result<Option<String>> {
    let connection = connect(options)?;
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 || version > schema::newest() {
        return Ok(None);
    }
    if how == Look::AsNeeded && was_clean(&connection)? && bytes(&connection)? > CHECKED_BYTES_MAX {
        first_rows(&connection)?;
        return Ok(None);
    }
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((verdict != "ok").then_some(verdict))
}

/// A file without a single table: one whose log was lost before its first checkpoint. What cannot be read is not bare;
/// others say what it is.
pub fn is_bare(path: &Path) -> bool {
    let options = StoreOptions {
        path: path.to_owned(),
        durability: heddle_sqlite::Durability::Full,
        vfs: None,
    };
    let looked = connect(&options).and_then(|connection| {
        let sql =
            "SELECT (SELECT count(*) FROM sqlite_schema), user_version FROM pragma_user_version";
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
    });
    looked == Ok((0, 0))
}

/// What is wrong with the file, as far as a quick look tells: all of a small one, the beginnings of a large one.
pub fn quick_problem(path: &Path) -> Option<String> {
    let options = StoreOptions {
        path: path.to_owned(),
        durability: heddle_sqlite::Durability::Full,
        vfs: None,
    };
    let looked = heddle_sqlite::link_vectors().ok().map(|()| {
        let connection = connect(&options)?;
        if bytes(&connection)? > CHECKED_BYTES_MAX {
            first_rows(&connection)?;
            return Ok(None);
        }
        let verdict: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((verdict != "ok").then_some(verdict))
    })?;
    match looked {
        Ok(problem) => problem,
        Err(error) => {
            let error: rusqlite::Error = error;
            let code = error.sqlite_error_code();
            let is_damage = matches!(
                code,
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            );
            is_damage.then(|| error.to_string())
        }
    }
}

fn bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    Ok(u64::from(number("page_count")?) * u64::from(number("page_size")?))
}

/// Reads from the root of every table down to its first row.
fn first_rows(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "cell_size_check", true)?;
    let mut tables = connection.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'",
    )?;
    let names = tables.query_map([], |row| row.get::<_, String>(0))?;
    for name in names {
        let quoted = name?.replace('"', "\"\"");
        let sql = format!("SELECT * FROM \"{quoted}\" NOT INDEXED LIMIT 1");
        connection.prepare(&sql)?.query([])?.next()?;
    }
    Ok(())
}

fn was_clean(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT clean FROM store_state", [], |row| row.get(0))
}

fn connect(options: &StoreOptions) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // Absolute, as the writer opens it: SQLite would read a name that starts with `file:` as a URI.
    let connection = match &options.vfs {
        None => {
            let path = std::path::absolute(&options.path)
                .map_err(|_| rusqlite::Error::InvalidPath(options.path.clone()))?;
            Connection::open_with_flags(path, flags)?
        }
        Some(vfs) => {
            let path = Path::new("/").join(&options.path);
            Connection::open_with_flags_and_vfs(path, flags, vfs.as_str())?
        }
    };
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}
