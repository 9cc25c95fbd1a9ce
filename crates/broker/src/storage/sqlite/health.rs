//! Looks for damage before the file is opened for writing. Reads only: a damaged file is refused with
//! its bytes unchanged.

use std::path::{Path, PathBuf};

use heddle_sqlite::{
    Condition, Depth, Kind, Look, OpenError, Options, Subject, examine, refuse_misplaced,
};
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::schema;

/// A file that was closed in order is checked up to this size, which takes a few milliseconds; a larger
/// one after a process that did not close it.
const CHECKED_BYTES_MAX: u64 = 4 << 20;

/// What a broker cannot begin without; small, however much went through it.
const AT_START: [&str; 3] = ["mesh", "member", "member_standing"];

/// Refuses a damaged file, and one of a newer program. Only for whoever holds the folder: beside a running broker its
/// log would look like that of a crash.
pub(super) fn check(options: &Options) -> Result<(), OpenError> {
    if options.vfs.is_some() {
        return Ok(());
    }
    heddle_sqlite::mend_log(&options.path).map_err(|source| OpenError::Io {
        path: options.path.clone(),
        source,
    })?;
    match condition(&options.path, Look::AsNeeded).refusal() {
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

/// What the file of a broker is: the judgement of every start, for whoever only wants to know. Reads only; nobody in
/// this process may have it open.
pub fn condition(path: &Path, how: Look) -> Condition {
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    // The last one to close in order takes the log away; a poisoned one leaves it.
    let was_closed = !log_of(path).exists();
    let subject = Subject {
        kind: Kind::Broker,
        path,
        vfs: None,
        known: schema::MIGRATIONS.last().map_or(0, |step| step.version),
        alone: true,
    };
    let found = examine(&subject, |_| {
        how.depth(|| {
            Ok(if was_closed && bytes > CHECKED_BYTES_MAX {
                Depth::Beginnings
            } else {
                Depth::Pages
            })
        })
    });
    match (found, no_text(path)) {
        (Condition::Fit, Some(why)) => Condition::Damaged(why),
        (found, _) => found,
    }
}

/// A cell of what every start reads that is no text, which SQLite finds nothing wrong with. What cannot be looked at is
/// judged above.
fn no_text(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    refuse_misplaced(&path).ok()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).ok()?;
    let no_tidying = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(no_tidying, true).ok()?;
    let mut tables = AT_START.iter();
    tables.find_map(|table| no_text_in(&connection, table).ok().flatten())
}

fn no_text_in(connection: &Connection, table: &str) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare(&format!("SELECT * FROM {table}"))?;
    let names = statement.column_names();
    let columns: Vec<String> = names.map(str::to_owned).collect();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for (at, column) in columns.iter().enumerate() {
            if let ValueRef::Text(bytes) = row.get_ref(at)?
                && std::str::from_utf8(bytes).is_err()
            {
                let shown = String::from_utf8_lossy(bytes);
                return Ok(Some(format!(
                    "{table}, column {column}: {shown:?} is no text"
                )));
            }
        }
    }
    Ok(None)
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push("-wal");
    PathBuf::from(name)
}
