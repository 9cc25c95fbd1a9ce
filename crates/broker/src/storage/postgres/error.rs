//! Errors of the database, sorted into the contract's.

use deadpool_postgres::{HookError, PoolError};
use tokio_postgres::error::SqlState;

use super::super::error::StorageError;

/// Why a piece of work gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// One of the contract's own reasons.
    #[error("{0}")]
    Storage(#[from] StorageError),
    #[error("{}", words(.0))]
    Sql(#[from] tokio_postgres::Error),
    #[error("{}", pool_words(.0))]
    Pool(#[from] PoolError),
    /// This database has not come as far as this process has seen it: nothing is accepted there now.
    #[error("{0}")]
    Older(StorageError),
    /// A row that holds what none of ours wrote.
    #[error("a row cannot be read: {0}")]
    BadRow(String),
    /// The server, or the way to it, took too long.
    #[error("no answer within {0} s")]
    TimedOut(u64),
}

impl JobError {
    /// A rule of the tables was broken by what was written: a second try fails as well, and whatever was
    /// written beside it is not at fault.
    pub(super) fn is_violation(&self) -> bool {
        let Self::Sql(error) = self else {
            return false;
        };
        let Some(code) = error.code() else {
            return false;
        };
        // Data exceptions, integrity violations, and what a trigger raises.
        ["22", "23", "P0"].contains(&&code.code()[..2])
    }

    /// Only what was beside it in the transaction was done for nothing, and is tried alone: the work that ends this state is
    /// in line with the rest.
    pub(super) fn spares_others(&self) -> bool {
        self.is_violation() || matches!(self, Self::Older(_))
    }

    /// It was begun and took longer than anything may: with less in it, the next one may be in time.
    pub(super) fn is_too_slow(&self) -> bool {
        match self {
            Self::TimedOut(_) => true,
            Self::Sql(error) => error.code() == Some(&SqlState::QUERY_CANCELED),
            _ => false,
        }
    }

    /// What was prepared on the connection does not fit the tables any more: they were dropped and put back under it, and
    /// types have other numbers since then. A new connection prepares anew.
    pub(super) fn is_outdated(&self) -> bool {
        let Self::Sql(error) = self else {
            return false;
        };
        let Some(code) = error.code() else {
            return false;
        };
        // Not supported (a plan that changed), no such statement, no such thing, and a look into the catalogue that failed.
        ["0A", "26", "42", "XX"].contains(&&code.code()[..2])
    }

    /// The contract's own refusals are the caller's affair and take nobody along.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Storage(_))
    }
}

impl From<JobError> for StorageError {
    fn from(error: JobError) -> Self {
        match &error {
            JobError::Storage(known) | JobError::Older(known) => known.clone(),
            JobError::Sql(sql) if is_full(sql) => Self::Full,
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

fn is_full(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::DISK_FULL)
}

/// What a server says to whoever asks to be let in.
pub(super) enum Entry {
    Refused,
    NoDatabase,
    NoTls,
    /// It did not get so far, or said something else.
    Unknown,
}

pub(super) fn entry_of(error: &tokio_postgres::Error) -> Entry {
    let Some(code) = error.code() else {
        // The server asked for a password, and the address has none.
        let said = words(error);
        return if said.contains("password missing") {
            Entry::Refused
        } else if said.contains("server does not support TLS") {
            Entry::NoTls
        } else {
            Entry::Unknown
        };
    };
    match code {
        &SqlState::INVALID_CATALOG_NAME => Entry::NoDatabase,
        &SqlState::INSUFFICIENT_PRIVILEGE => Entry::Refused,
        code if code.code().starts_with("28") => Entry::Refused,
        _ => Entry::Unknown,
    }
}

pub(super) fn pool_words(error: &PoolError) -> String {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            words(error)
        }
        PoolError::PostCreateHook(HookError::Message(problem)) => {
            format!("the database is not fit: {problem}")
        }
        other => other.to_string(),
    }
}

/// The library's own words for an error of the server are "db error".
pub(super) fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            text
        }
    }
}
