//! Forward-only migrations: each in one transaction with its row in `_migrations` and the new `user_version`.

use rusqlite::Connection;

use crate::connection::{possible_version, refusal, schema_version};
use crate::error::OpenError;

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

/// Brings the file to the newest known version. A crash or an error anywhere leaves a whole version
/// behind: k or k-1 (LF-35).
pub(crate) fn migrate(connection: &Connection, migrations: &[Migration]) -> Result<(), OpenError> {
    let known = known_version(migrations)?;
    let found = possible_version(schema_version(connection).map_err(refusal)?)?;
    refuse_newer(found, known)?;
    for migration in migrations.iter().filter(|step| step.version > found) {
        let applied = apply(connection, migration);
        if !connection.is_autocommit() {
            // The reason of the failure is worth more than that of a failed rollback; closing the
            // connection undoes the transaction as well.
            let _ = connection.execute_batch("ROLLBACK");
        }
        applied.map_err(|error| {
            tracing::error!(migration = migration.version, name = migration.name, %error, "a migration failed");
            OpenError::Migration {
                version: migration.version,
                name: migration.name,
                reason: error.without_sql(),
            }
        })?;
    }
    Ok(())
}

fn apply(connection: &Connection, migration: &Migration) -> Result<(), ApplyError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // Another process may have been faster between our look and our lock.
    if schema_version(connection)? >= i64::from(migration.version) {
        return Ok(connection.execute_batch("COMMIT")?);
    }
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
    connection.pragma_update(None, "user_version", migration.version)?;
    Ok(connection.execute_batch("COMMIT")?)
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
