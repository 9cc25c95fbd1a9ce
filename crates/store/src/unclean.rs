//! Whether the last run ended in order, and the check of the file when it did not.
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

/// Looks for damage if the file was not closed in order. What cannot be looked at is left for the
/// writer to refuse by its proper name.
pub(crate) fn check(options: &StoreOptions) -> Result<(), OpenError> {
    match look(options) {
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
) -> Result<Option<PathBuf>, StoreError> {
    // The simulator's disk knows no second name for a file.
    if options.vfs.is_none() {
        Store::finish_parking(&options.path)?;
    }
    let problem = match check(options) {
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
fn look(options: &StoreOptions) -> rusqlite::Result<Option<String>> {
    let connection = connect(options)?;
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 || version > schema::newest() || was_clean(&connection)? {
        return Ok(None);
    }
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((verdict != "ok").then_some(verdict))
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
