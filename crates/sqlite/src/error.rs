//! What can go wrong, told apart by what the caller may do next.

use std::path::PathBuf;

/// Why a database could not be opened. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("sqlite-vec cannot be linked: {0}")]
    Vectors(String),
    #[error("{path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is a symbolic link; a database must be a regular file", path = path.display())]
    Symlink { path: PathBuf },
    #[error("{path} is not a regular file", path = path.display())]
    NotAFile { path: PathBuf },
    #[error("SQLite granted journal mode {granted:?} where \"wal\" is needed")]
    NoWal { granted: String },
    /// The file was written by a newer Heddle.
    #[error("a newer Heddle has written it (schema {found}, this one knows {known})")]
    NewerSchema { found: u32, known: u32 },
    /// The list of migrations itself is wrong: versions must be 1, 2, 3, ….
    #[error("the migrations are not numbered 1, 2, 3, …: {0}")]
    MigrationOrder(String),
    /// The file is at the version `found`, whole: the steps before this one were taken back with it.
    #[error("migration {version} ({name}) failed: {reason}")]
    Migration {
        version: u32,
        name: &'static str,
        reason: String,
        found: u32,
        /// The reason, with the statement that met it: for the log.
        with_sql: String,
    },
    /// No step was taken: there would be no way back from it.
    #[error("its migrations wait for a copy of it, and {path} cannot be made: {reason}", path = path.display())]
    Kept { path: PathBuf, reason: String },
    /// Another database lies under this name.
    #[error("it is {found}, not {wanted}; nothing was changed")]
    Foreign {
        found: &'static str,
        wanted: &'static str,
    },
    #[error("the database is damaged: {0}")]
    Damaged(String),
    #[error("SQLite: {0}")]
    Sqlite(#[source] rusqlite::Error),
    #[error("no thread could be started: {source}")]
    Thread { source: std::io::Error },
}

/// Why a write was not answered `Ok`.
///
/// After every variant but `Poisoned` it is certain that the write did not happen. After `Poisoned` it
/// may or may not be found when the file is opened again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError<E> {
    /// The queue is full. Nothing was queued; try again.
    #[error("the write queue is full")]
    Busy,
    /// The database is stopping or stopped.
    #[error("the database is stopped")]
    Stopped,
    /// A sync or a page failed. No later write is accepted: open the file again and check it.
    #[error("the database handle is poisoned: {0}")]
    Poisoned(String),
    /// No space. Rolled back; the handle works again when there is space.
    #[error("the disk is full")]
    DiskFull,
    /// Another process holds the file's lock for writes. Nothing was begun; it works again when that one lets go.
    #[error("another program holds a lock on it; nothing was written")]
    Held,
    /// The transaction was rolled back cleanly; the write may be tried again.
    #[error("the transaction was rolled back: {0}")]
    Commit(String),
    /// The job panicked; only this job was rolled back.
    #[error("the write panicked: {0}")]
    Panicked(String),
    /// The job's own answer; only this job was rolled back.
    #[error("{0}")]
    Job(E),
}

/// Why a read has no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError<E> {
    #[error("the read queue is full")]
    Busy,
    #[error("the database is stopped")]
    Stopped,
    /// No read-only connection or no snapshot could be had.
    #[error("the database cannot be read: {0}")]
    Unreadable(String),
    #[error("the read panicked: {0}")]
    Panicked(String),
    #[error("{0}")]
    Job(E),
}

/// What `integrity_check` found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntegrityError {
    /// The first problem SQLite names. The handle is poisoned with it.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The check could not be run.
    #[error("the integrity check could not run: {0}")]
    Unavailable(String),
}
