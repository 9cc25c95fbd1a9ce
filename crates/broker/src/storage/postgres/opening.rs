//! How the tables are opened, by whom, and why they cannot be.

use deadpool_postgres::{HookError, PoolError};

use super::error::{self, Entry};

/// What whoever opens the tables may do to a database that has none, or older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// They are made and brought up to date: whoever serves them, or is asked to.
    Make,
    /// Whoever changes rows of them: older ones are brought up to date, and a wrong name makes none.
    Change,
    /// Whoever only looks: nothing is written, not even a newer schema.
    Look,
}

/// Why the database cannot be used. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the address is not usable: {0}")]
    Address(String),
    /// Something else that was named beside it.
    #[error("{option}: {why}")]
    Option { option: &'static str, why: String },
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    #[error("the database answers, and takes no connection for now: {0}")]
    Busy(String),
    #[error("the database answers, and has no TLS: {0}")]
    NoTls(String),
    #[error(
        "another session of the database holds a lock on the broker's tables, and has not let go of it: {0}"
    )]
    Held(String),
    #[error("the database does not let this user in: {0}")]
    Refused(String),
    /// It is let in, and may not do in the schema what is asked.
    #[error("the database lets this user in, but not to the tables in schema {schema:?}: {words}")]
    Denied { schema: String, words: String },
    /// There is no schema, and it may make none.
    #[error("the database does not let this user make the schema {schema:?}: {words}")]
    NoSchema { schema: String, words: String },
    #[error("the disk of the database is full: {0}")]
    Full(String),
    #[error("there is no such database: {words}")]
    NoDatabase { name: String, words: String },
    #[error("there are no tables of a broker in schema {schema:?} of this database")]
    NoTables { schema: String },
    #[error("the tables are of an older version ({found}; this program knows {known})")]
    Older { found: i64, known: i64 },
    #[error("the database is not fit: {0}")]
    Unfit(String),
    #[error("the tables could not be brought up to date: {0}")]
    Migration(String),
    #[error("the tables are of a newer version ({found}; this program knows {known})")]
    Newer { found: i64, known: i64 },
}

/// A server that answers is another matter than one that does not: it is not fit, or does not know who asks, or for what.
pub(super) fn failed(error: &PoolError, config: &tokio_postgres::Config) -> OpenError {
    let words = error::pool_words(error);
    let (PoolError::Backend(cause) | PoolError::PostCreateHook(HookError::Backend(cause))) = error
    else {
        return match error {
            PoolError::PostCreateHook(HookError::Message(problem)) => {
                OpenError::Unfit(problem.clone().into_owned())
            }
            _ => OpenError::Unreachable(words),
        };
    };
    match error::entry_of(cause) {
        Entry::Refused => OpenError::Refused(words),
        Entry::NoDatabase => OpenError::NoDatabase {
            name: (config.get_dbname().or(config.get_user()))
                .unwrap_or_default()
                .to_owned(),
            words,
        },
        Entry::NoTls => OpenError::NoTls(words),
        // It said so itself: it starts, it stops, it has no place or no disk left.
        Entry::Unknown if cause.code().is_some() => OpenError::Busy(words),
        Entry::Unknown => OpenError::Unreachable(words),
    }
}
