//! What can go wrong in the store, told apart by what the caller may do next.

use heddle_sqlite::{OpenError, ReadError, WriteError};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was queued.
    #[error("too many requests wait for the store; try again")]
    Busy,
    #[error("the store is stopped")]
    Stopped,
    /// The one case in which a write may have happened all the same; the next start will tell.
    #[error("the store takes no further write until it is opened again: {0}")]
    Poisoned(String),
    #[error("there is no room for it on the disk right now; nothing was written")]
    DiskFull,
    /// Safe to retry; it works again when the other one lets go.
    #[error("another program holds a lock on data.db; nothing was written")]
    Held,
    /// Safe to retry.
    #[error("the store could not finish; nothing was written: {0}")]
    Unavailable(String),
    #[error("the store holds data that cannot be right: {0}")]
    Corrupt(String),
    #[error("SQLite refused: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the store cannot be opened: {0}{hint}", hint = hint(.0))]
    Open(#[from] OpenError),
}

/// The next step, where the person at the keyboard has one.
fn hint(error: &OpenError) -> String {
    let known = match error {
        OpenError::NewerSchema { .. } | OpenError::Symlink { .. } | OpenError::NotAFile { .. } => {
            "; nothing was changed"
        }
        OpenError::Damaged(_) => {
            "; nothing was changed. Put a backup back with `heddle daemon restore FILE`; without one, `heddle doctor --repair` saves what can be read and keeps the damaged file"
        }
        OpenError::Kept { .. } => {
            "; nothing was changed, and the Heddle of before still reads it. Free as much room as the file takes and start again"
        }
        OpenError::Migration { found, .. } => {
            return format!(
                "; nothing was changed: no step was taken, and the file is as it was before (version {found}), for the Heddle of before to read. If the disk is full, free some and start again; `heddle doctor` says what else helps"
            );
        }
        _ => "",
    };
    known.to_owned()
}

impl From<WriteError<StoreError>> for StoreError {
    fn from(error: WriteError<StoreError>) -> Self {
        match error {
            WriteError::Busy => Self::Busy,
            WriteError::Stopped => Self::Stopped,
            WriteError::Poisoned(reason) => Self::Poisoned(reason),
            WriteError::DiskFull => Self::DiskFull,
            WriteError::Held => Self::Held,
            WriteError::Commit(reason) => Self::Unavailable(reason),
            WriteError::Panicked(what) => Self::Unavailable(format!("the write panicked: {what}")),
            WriteError::Job(error) => error,
        }
    }
}

impl From<ReadError<StoreError>> for StoreError {
    fn from(error: ReadError<StoreError>) -> Self {
        match error {
            ReadError::Busy => Self::Busy,
            ReadError::Stopped => Self::Stopped,
            ReadError::Unreadable(reason) => Self::Unavailable(reason),
            ReadError::Panicked(what) => Self::Unavailable(format!("the read panicked: {what}")),
            ReadError::Job(error) => error,
        }
    }
}
