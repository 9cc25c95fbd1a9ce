//! Giving the room of deleted rows back: SQLite writes a database anew, in one transaction, without its empty pages.
//!
//! Nobody else may have the file open. A crash in between leaves it as it was; a damaged file is left alone, since
//! writing it anew would lose what a repair can still read.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::backup::{BackupError, problem_of};
use crate::park::with_suffix;

/// A moment for whoever just lets go of the file, such as a process that looks at it.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// What one file took before and takes now, its write-ahead log included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    pub file: PathBuf,
    pub bytes_before: u64,
    pub bytes_after: u64,
}

/// Writes the database anew. Needs room for two further copies of it for as long as that takes.
pub fn compact_database(path: &Path) -> Result<Compacted, BackupError> {
    let path = std::path::absolute(path).map_err(BackupError::io("named", path))?;
    let bytes_before = size(&path)?;
    let needed = bytes_before.saturating_mul(2);
    let disk = rustix::fs::statvfs(&path)
        .map_err(|error| BackupError::io("looked at", &path)(error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < needed {
        let why = format!("that takes {needed} free bytes for a while, and the disk has {free}");
        let full = io::Error::new(io::ErrorKind::StorageFull, why);
        return Err(BackupError::io("written anew", &path)(full));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    heddle_sqlite::refuse_misplaced(&path)?;
    let connection = Connection::open_with_flags(&path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    if let Some(problem) = problem_of(&connection)? {
        return Err(BackupError::Damaged { path, problem });
    }
    checkpoint(&connection)?;
    connection.execute_batch("VACUUM")?;
    checkpoint(&connection)?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(Compacted {
        bytes_after: size(&path)?,
        bytes_before,
        file: path,
    })
}

fn checkpoint(connection: &Connection) -> Result<(), BackupError> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

fn size(path: &Path) -> Result<u64, BackupError> {
    let file = std::fs::metadata(path).map_err(BackupError::io("measured", path))?;
    let log = std::fs::metadata(with_suffix(path, "-wal"));
    Ok(file.len() + log.map_or(0, |log| log.len()))
}
