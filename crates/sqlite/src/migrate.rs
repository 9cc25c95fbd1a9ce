//! Forward-only migrations: all that wait in one transaction, with their rows in `_migrations` and the new `user_version`.

use std::path::PathBuf;

use rusqlite::Connection;

use crate::connection::{possible_version, refusal, schema_version};
use crate::error::OpenError;
use crate::fault::Fault;

/// One step of a schema. Versions are 1, 2, 3, …; a released migration never changes.
///
/// IMPORTANT for schemas: no `DEFERRABLE` constraint. It would be checked by the shared `COMMIT` only,
/// where one job's violation takes its whole batch along.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub version: u32,
    pub name: &'static str,
    pub sql: &'static str,
}

/// The newest version that `migrations` lead to.
pub(crate) fn known_version(migrations: &[Migration]) -> Result<u32, OpenError> {
    let mut known = 0;
    for migration in migrations {
        if migration.version != known + 1 {
            return Err(OpenError::MigrationOrder(format!(
                "{} ({}) follows {known}",
                migration.version, migration.name
            )));
        }
        known = migration.version;
    }
    Ok(known)
}

/// A file that a newer program wrote is left alone.
pub(crate) fn refuse_newer(found: u32, known: u32) -> Result<(), OpenError> {
    if found > known {
        return Err(OpenError::NewerSchema { found, known });
    }
    Ok(())
}

/// The steps that a file has taken when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepsTaken {
    /// The version that it was found at; 0 is a file that this made.
    pub from: u32,
    pub to: u32,
    /// The file as it was before, where one was kept.
    pub copy: Option<PathBuf>,
}

impl StepsTaken {
    /// There was no such file before.
    pub fn made_it(&self) -> bool {
        self.from == 0
    }
}

/// Brings the file to the newest known version: all steps that wait, in one transaction. A crash or an error anywhere
/// leaves the file at the version it was found at, or at the newest one, whole (LF-35): a person who goes back to the
/// program of before never meets a version between the two.
///
/// `keep` is called when every step is taken and none is committed: other connections see the file as it was before.
pub(crate) fn migrate(
    connection: &Connection,
    migrations: &[Migration],
    keep: impl FnOnce(u32) -> Result<Option<PathBuf>, OpenError>,
) -> Result<Option<StepsTaken>, OpenError> {
    let known = known_version(migrations)?;
    let found = possible_version(schema_version(connection).map_err(refusal)?)?;
    refuse_newer(found, known)?;
    let waiting = |from: u32| migrations.iter().filter(move |step| step.version > from);
    let Some(first) = waiting(found).next() else {
        return Ok(None);
    };
    let taken = begin(connection, first, found).and_then(|from| {
        refuse_newer(from, known)?;
        let mut last = first;
        for step in waiting(from) {
            apply(connection, step).map_err(|error| failed(step, from, &error))?;
            last = step;
        }
        let copy = if from < known { keep(from)? } else { None };
        let taken = StepsTaken {
            from,
            to: known,
            copy,
        };
        match connection.execute_batch("COMMIT") {
            Ok(()) => Ok((from < known).then_some(taken)),
            Err(error) => {
                // Certain not to have happened: the copy would hold the very room that is lacking.
                if let (Fault::DiskFull, Some(copy)) = (Fault::of(&error), &taken.copy) {
                    let _ = std::fs::remove_file(copy);
                }
                Err(failed(last, from, &error.into()))
            }
        }
    });
    if !connection.is_autocommit() {
        // The reason of the failure is worth more than that of a failed rollback; closing the
        // connection undoes the transaction as well.
        let _ = connection.execute_batch("ROLLBACK");
    }
    taken
}

/// Where the file stands once nobody else can move it: another process may have been faster between our look and our lock.
fn begin(connection: &Connection, first: &Migration, found: u32) -> Result<u32, OpenError> {
    let locked = |error: rusqlite::Error| failed(first, found, &error.into());
    connection
        .execute_batch("BEGIN IMMEDIATE")
        .map_err(locked)?;
    possible_version(schema_version(connection).map_err(locked)?)
}

fn failed(step: &Migration, found: u32, error: &ApplyError) -> OpenError {
    OpenError::Migration {
        version: step.version,
        name: step.name,
        reason: error.without_sql(),
        found,
        with_sql: error.to_string(),
    }
}

/// The words are for whoever asks what became of the start, the SQL is for whoever mends the step.
pub(crate) fn note_failure(error: &OpenError) {
    if let OpenError::Migration {
        version,
        name,
        reason,
        found,
        with_sql,
    } = error
    {
        tracing::error!(
            migration = version,
            name,
            found,
            error = reason,
            sql = with_sql,
            "a migration failed"
        );
    }
}

/// All steps that wait, in a database that is nobody's but the caller's.
pub(crate) fn take_all(
    connection: &Connection,
    migrations: &[Migration],
) -> Result<Option<StepsTaken>, OpenError> {
    migrate(connection, migrations, |_| Ok(None))
}

/// One step, inside of the transaction of all.
fn apply(connection: &Connection, migration: &Migration) -> Result<(), ApplyError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS _migrations (
             version INTEGER PRIMARY KEY,
             name TEXT NOT NULL,
             applied_at INTEGER
         )",
    )?;
    connection.execute_batch(migration.sql)?;
    if connection.is_autocommit() {
        return Err(ApplyError::EndedTransaction);
    }
    connection.execute(
        "INSERT INTO _migrations (version, name) VALUES (?1, ?2)",
        (migration.version, migration.name),
    )?;
    Ok(connection.pragma_update(None, "user_version", migration.version)?)
}

#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("its SQL ends the transaction it runs in")]
    EndedTransaction,
}

impl ApplyError {
    /// For people: the statement is in the log.
    fn without_sql(&self) -> String {
        match self {
            Self::Sqlite(rusqlite::Error::SqlInputError { msg, .. }) => msg.clone(),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Migration, known_version};

    fn step(version: u32) -> Migration {
        Migration {
            version,
            name: "step",
            sql: "",
        }
    }

    #[test]
    fn a_gap_or_a_repeat_in_the_numbers_is_refused_before_anything_runs() {
        assert_eq!(known_version(&[]).ok(), Some(0));
        assert_eq!(known_version(&[step(1), step(2)]).ok(), Some(2));
        assert!(known_version(&[step(2)]).is_err());
        assert!(known_version(&[step(1), step(3)]).is_err());
        assert!(known_version(&[step(1), step(1)]).is_err());
        assert!(known_version(&[step(0)]).is_err());
    }
}
