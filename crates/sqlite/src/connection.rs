//! Connections as every part of Heddle gets them: flags, pragmas and limits in one place.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::checkpoint::log_bytes_kept;
use crate::error::OpenError;
use crate::fault;
use crate::options::{Durability, Options};

const STATEMENT_CACHE_CAPACITY: usize = 64;
const WRITER_CACHE_KIB: i64 = 8 * 1024;
const READER_CACHE_KIB: i64 = 2 * 1024;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Where a database is and how its connections are made.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    path: PathBuf,
    vfs: Option<String>,
    durability: Durability,
    busy_timeout: Duration,
    /// A log that grew past this is cut back when it is reset.
    log_bytes_kept: i64,
}

impl Site {
    /// `path` as prepared by `files`, or a name on the disk that the VFS keeps.
    pub(crate) fn new(path: PathBuf, options: &Options) -> Site {
        Site {
            path,
            vfs: options.vfs.clone(),
            durability: options.durability,
            busy_timeout: options.busy_timeout,
            log_bytes_kept: log_bytes_kept(options.checkpoint_hard_pages),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The schema version as a look that writes nothing finds it; `None` if only a writer can tell (no
    /// file yet, or one that needs a rollback first).
    pub(crate) fn look(&self) -> Result<Option<u32>, OpenError> {
        let looked = self
            .connect(OpenFlags::SQLITE_OPEN_READ_ONLY)
            .and_then(|connection| schema_version(&connection));
        match looked {
            Ok(version) => Ok(Some(possible_version(version)?)),
            Err(error) if fault::is_damage(&error) => Err(OpenError::Damaged(error.to_string())),
            Err(error) => match error.sqlite_error_code() {
                Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => Ok(None),
                _ => Err(OpenError::Sqlite(error)),
            },
        }
    }

    /// The one connection that writes, in WAL mode.
    pub(crate) fn writer(&self) -> Result<Connection, OpenError> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        if self.vfs.is_some() {
            // On the real disk the file exists by now, made with its mode.
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let connection = self.connect(flags).map_err(refusal)?;
        let granted = self.ask_for_log(&connection).map_err(refusal)?;
        if !granted.eq_ignore_ascii_case("wal") {
            return Err(OpenError::NoWal { granted });
        }
        self.tune_writer(&connection).map_err(refusal)?;
        Ok(connection)
    }

    /// A connection that cannot write, whatever a job tries.
    pub(crate) fn reader(&self) -> rusqlite::Result<Connection> {
        let connection = self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    /// A connection that moves the log and does nothing else.
    pub(crate) fn mover(&self) -> rusqlite::Result<Connection> {
        let connection = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        self.tune_writer(&connection)?;
        Ok(connection)
    }

    fn connect(&self, access: OpenFlags) -> rusqlite::Result<Connection> {
        // No URI flag, and no mutex: a connection never leaves its thread.
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let path: &Path = &self.path;
        let connection = match &self.vfs {
            None => Connection::open_with_flags(path, flags)?,
            Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.as_str())?,
        };
        connection.busy_timeout(self.busy_timeout)?;
        // Only a clean stop of the writer may checkpoint when it closes; see `writer`. A poisoned handle
        // must not touch the file again.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // A plan holds for every value. SQLite would look at the values to see whether a partial index serves them, and for
        // that prepare a statement anew each time that another one is bound.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "mmap_size", 0)?;
        Ok(connection)
    }

    /// The switch to WAL mode upgrades a lock, where SQLite does not wait but gives up at once if a second
    /// opener of a new file stands in the way. So the waiting is done here.
    fn ask_for_log(&self, connection: &Connection) -> rusqlite::Result<String> {
        let mut waited = Duration::ZERO;
        loop {
            let granted =
                connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
            match granted {
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && waited < self.busy_timeout =>
                {
                    std::thread::sleep(LOCK_PAUSE);
                    waited += LOCK_PAUSE;
                }
                other => return other,
            }
        }
    }

    fn tune_writer(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.pragma_update(None, "synchronous", self.durability.pragma())?;
        // Where a plain fsync stops at the drive's cache (macOS) these ask for the real thing.
        let full = self.durability == Durability::Full;
        connection.pragma_update(None, "fullfsync", full)?;
        connection.pragma_update(None, "checkpoint_fullfsync", full)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        connection.pragma_update(None, "journal_size_limit", self.log_bytes_kept)?;
        // SQLite's own checkpoints swallow a failed sync and run before the callers are answered; the
        // writer runs them itself (`checkpoint`).
        connection.pragma_update(None, "wal_autocheckpoint", 0)
    }
}

/// The version that the last migration left, as the header has it: a changed bit may have made it negative.
pub(crate) fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// No migration leaves a negative number: a header that has one is damaged.
pub(crate) fn possible_version(version: i64) -> Result<u32, OpenError> {
    u32::try_from(version).map_err(|_| OpenError::Damaged(impossible_version(version)))
}

pub(crate) fn impossible_version(version: i64) -> String {
    format!("its header says schema {version}, and there is none with such a number")
}

/// A failure to open, with damage told apart.
pub(crate) fn refusal(error: rusqlite::Error) -> OpenError {
    if fault::is_damage(&error) {
        OpenError::Damaged(error.to_string())
    } else {
        OpenError::Sqlite(error)
    }
}
