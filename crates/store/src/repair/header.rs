//! A database of which only the header is damaged, or the list of its free pages: everything that counts is behind them,
//! and is taken over as it is. For files whose rows this room does not know, such as the broker's.

use std::path::{Path, PathBuf};

use heddle_core::clock::WallMs;
use heddle_sqlite::{Condition, Look};
use rusqlite::{Connection, OpenFlags};

use super::relist::plain_copy;
use crate::backup::{BackupError, has_table, replace_database};
use crate::park;

/// What SQLite says of pages that no list names, and nothing else.
const FREE_PAGES: [&str; 4] = ["never used", "Freelist", "freelist", "*** in database"];

/// Mends the file at `path` and tells where the damaged one lies; `is` is the judgement of those who use it. Nothing is
/// changed where more than the header is damaged. Blocks; nobody else may use the file.
pub fn mend_header(
    path: &Path,
    is: fn(&Path, Look) -> Condition,
    now: WallMs,
) -> Result<Option<PathBuf>, BackupError> {
    let path = std::path::absolute(path).map_err(BackupError::io("named", path))?;
    park::finish(&path).map_err(BackupError::io("exchanged", &path))?;
    let copy = plain_copy(&path)?;
    let damaged = |problem: String| BackupError::Damaged {
        path: path.clone(),
        problem,
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let new = Connection::open_with_flags(&copy.0, flags)?;
    if let Some(problem) = other_problem(&new)? {
        return Err(damaged(problem));
    }
    if !has_table(&new, "_migrations")? {
        return Err(damaged("it has no list of its migrations".to_owned()));
    }
    let last = "SELECT ifnull(max(version), 0) FROM _migrations";
    let version: u32 = new.query_row(last, [], |row| row.get(0))?;
    new.pragma_update(None, "user_version", version)?;
    // Without the pages that nobody names.
    new.execute_batch("VACUUM")?;
    new.close().map_err(|(_, error)| error)?;
    match is(&copy.0, Look::Wholly) {
        Condition::Fit => replace_database(&copy.0, &path, now),
        Condition::Newer { found, known } => Err(BackupError::Newer { path, found, known }),
        other => Err(damaged(
            other.damage().unwrap_or("it cannot be mended").to_owned(),
        )),
    }
}

/// The first problem that is not about free pages.
fn other_problem(connection: &Connection) -> Result<Option<String>, BackupError> {
    let mut statement = connection.prepare("PRAGMA integrity_check(1000)")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    for row in rows {
        let said = row?;
        let other = said
            .lines()
            .find(|line| *line != "ok" && !FREE_PAGES.iter().any(|words| line.contains(words)));
        if let Some(other) = other {
            return Ok(Some(other.to_owned()));
        }
    }
    Ok(None)
}
