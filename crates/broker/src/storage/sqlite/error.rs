//! Errors of jobs and of the writer, sorted into the contract's.

use heddle_sqlite::{ReadError, WriteError};

use super::super::error::StorageError;

/// Why a job gave no answer: one of the contract's own reasons, or SQLite's.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    #[error("{0}")]
    Storage(#[from] StorageError),
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The only message of a batch could not be written; the job was undone with it.
    #[error("{0}")]
    Only(String),
}

impl From<JobError> for StorageError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Storage(error) => error,
            JobError::Sqlite(error) => Self::Unavailable(error.to_string()),
            JobError::Only(reason) => Self::Unavailable(reason),
        }
    }
}

impl From<WriteError<JobError>> for StorageError {
    fn from(error: WriteError<JobError>) -> Self {
        match error {
            WriteError::Job(error) => error.into(),
            WriteError::DiskFull => Self::Full,
            WriteError::Held => Self::Held,
            // After `Poisoned` the outcome is unknown; after the others nothing happened, but the
            // caller does the same about it: ask, or try again.
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<ReadError<JobError>> for StorageError {
    fn from(error: ReadError<JobError>) -> Self {
        match error {
            ReadError::Job(error) => error.into(),
            other => Self::Unavailable(other.to_string()),
        }
    }
}
