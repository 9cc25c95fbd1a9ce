//! Looks for damage before the file is opened for writing. Reads only: a damaged file is refused with
//! its bytes unchanged.

use std::path::{Path, PathBuf};

use heddle_sqlite::{OpenError, Options};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// A file that was closed in order is checked up to this size, which takes a few milliseconds; a larger
/// one after a process that did not close it.
const CHECKED_BYTES_MAX: u64 = 4 << 20;

/// Refuses a damaged file. Only for whoever holds the folder: beside a running broker its log would look
/// like that of a crash.
pub(super) fn check(options: &Options) -> Result<(), OpenError> {
    if options.vfs.is_some() || !options.path.is_file() {
        return Ok(());
    }
    let bytes = std::fs::metadata(&options.path).map_or(0, |metadata| metadata.len());
    // The last one to close in order takes the log away; a poisoned one leaves it.
    let was_closed = !log_of(&options.path).exists();
    if was_closed && bytes > CHECKED_BYTES_MAX {
        return Ok(());
    }
    match look(&options.path) {
        Ok(verdict) if verdict == "ok" => Ok(()),
        Ok(problem) => Err(OpenError::Damaged(problem)),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Err(OpenError::Damaged(error.to_string()))
            }
            // Left for the writer to refuse by its proper name.
            _ => Ok(()),
        },
    }
}

fn look(path: &Path) -> rusqlite::Result<String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let path =
        std::path::absolute(path).map_err(|_| rusqlite::Error::InvalidPath(path.to_owned()))?;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push("-wal");
    PathBuf::from(name)
}
