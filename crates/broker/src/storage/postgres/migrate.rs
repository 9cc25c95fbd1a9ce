//! The schema as forward-only steps, under a lock that one of many brokers holds.

use std::cmp::Ordering;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Transaction};

use super::OpenError;
use super::error::words;

/// A released step never changes; a change is a new one.
const STEPS: &[(i64, &str)] = &[
    (1, include_str!("schema_v1.sql")),
    (2, include_str!("schema_v2.sql")),
    (3, include_str!("schema_v3.sql")),
    (4, include_str!("schema_v4.sql")),
    (5, include_str!("schema_v5.sql")),
    (6, include_str!("schema_v6.sql")),
    (7, include_str!("schema_v7.sql")),
    (8, include_str!("schema_v8.sql")),
    (9, include_str!("schema_v9.sql")),
    (10, include_str!("schema_v10.sql")),
    (11, include_str!("schema_v11.sql")),
];

const LOCK: &str = "SELECT pg_advisory_xact_lock(7264517012874)";
const LOCK_WAIT: &str = "SET LOCAL lock_timeout = DEFAULT";
const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS schema_migration (
    version BIGINT NOT NULL PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM schema_migration";
const APPLIED: &str = "INSERT INTO schema_migration (version) VALUES ($1)";

const IS_THERE: &str = "SELECT to_regclass($1) IS NOT NULL";
const HAS_SCHEMA: &str = "SELECT to_regnamespace($1) IS NOT NULL";

/// What a migration found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// Before; 0 for a database without tables.
    pub from: i64,
    pub to: i64,
}

/// A name that needs no quoting, so that none can be forgotten.
pub(super) fn checked_name(name: &str) -> Result<&str, OpenError> {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= 63
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_plain {
        Ok(name)
    } else {
        Err(OpenError::Option {
            option: "--database-schema",
            why: format!(
                "{name:?} is no name: lower-case letters, digits and _ only, a letter first"
            ),
        })
    }
}

/// The newest version of the tables that this program knows.
fn known() -> i64 {
    STEPS.last().map_or(0, |(number, _)| *number)
}

/// The version of the tables that are there; none is made.
pub(super) async fn found(client: &Client, schema: &str) -> Result<i64, OpenError> {
    let failed = |error: tokio_postgres::Error| unusable(&error, schema, OpenError::Unreachable);
    let table = format!("{schema}.schema_migration");
    let there = client.query_one(IS_THERE, &[&table]).await;
    let mut version = 0;
    if has(there).map_err(failed)? {
        // By its full name: the schema is not looked for along a path.
        let asked = VERSION.replace("schema_migration", &table);
        let row = client.query_one(&asked, &[]).await;
        version = row.and_then(|row| row.try_get(0)).map_err(failed)?;
    }
    if version == 0 {
        let schema = schema.to_owned();
        return Err(OpenError::NoTables { schema });
    }
    Ok(version)
}

/// The same for whoever only looks, and needs the tables as this program knows them.
pub(super) async fn current(client: &Client, schema: &str) -> Result<Migrated, OpenError> {
    let (found, known) = (found(client, schema).await?, known());
    match found.cmp(&known) {
        Ordering::Less => Err(OpenError::Older { found, known }),
        Ordering::Greater => Err(OpenError::Newer { found, known }),
        Ordering::Equal => Ok(Migrated {
            from: found,
            to: found,
        }),
    }
}

/// All steps that are missing, in one transaction: the database is at the old version or at the new one
/// (LF-35). A newer one is refused.
pub(super) async fn run(client: &mut Client, schema: &str) -> Result<Migrated, OpenError> {
    let failed = |error: tokio_postgres::Error| unusable(&error, schema, OpenError::Migration);
    let transaction = client.transaction().await.map_err(failed)?;
    let migrated = match steps(&transaction, schema).await {
        Ok(migrated) => migrated,
        Err(error) => {
            let _ = transaction.rollback().await;
            return Err(why(client, schema, &error).await);
        }
    };
    let known = known();
    if migrated.from > known {
        return Err(OpenError::Newer {
            found: migrated.from,
            known,
        });
    }
    transaction.commit().await.map_err(failed)?;
    Ok(migrated)
}

/// Why a step could not be taken. Who may not make a schema is another matter than who may not use the one that is there.
async fn why(client: &Client, schema: &str, error: &tokio_postgres::Error) -> OpenError {
    let told = unusable(error, schema, OpenError::Migration);
    let OpenError::Denied { schema, words } = told else {
        return told;
    };
    match has(client.query_one(HAS_SCHEMA, &[&schema]).await) {
        Ok(false) => OpenError::NoSchema { schema, words },
        _ => OpenError::Denied { schema, words },
    }
}

fn has(
    row: Result<tokio_postgres::Row, tokio_postgres::Error>,
) -> Result<bool, tokio_postgres::Error> {
    row.and_then(|row| row.try_get(0))
}

/// Somebody who holds a table, a full disk or a right that is not there is another matter than a database that is away.
fn unusable(
    error: &tokio_postgres::Error,
    schema: &str,
    otherwise: fn(String) -> OpenError,
) -> OpenError {
    let (schema, words) = (schema.to_owned(), words(error));
    match error.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => OpenError::Held(words),
        Some(&SqlState::DISK_FULL) => OpenError::Full(words),
        // A schema that this user may not look into is none on its path.
        Some(&SqlState::INSUFFICIENT_PRIVILEGE | &SqlState::INVALID_SCHEMA_NAME) => {
            OpenError::Denied { schema, words }
        }
        _ => otherwise(words),
    }
}

async fn steps(
    transaction: &Transaction<'_>,
    schema: &str,
) -> Result<Migrated, tokio_postgres::Error> {
    // Longer than any step takes: whoever comes second waits for the first.
    transaction
        .batch_execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
        .await?;
    transaction.execute(LOCK, &[]).await?;
    // What else holds a table is nobody who will be done with a step.
    transaction.batch_execute(LOCK_WAIT).await?;
    // Looked for first: to make what is there already takes a right that is needed once.
    if !has(transaction.query_one(HAS_SCHEMA, &[&schema]).await)? {
        let home = format!("CREATE SCHEMA {schema}");
        transaction.batch_execute(&home).await?;
    }
    let path = format!("SET LOCAL search_path TO {schema}");
    transaction.batch_execute(&path).await?;
    let versions = format!("{schema}.schema_migration");
    if !has(transaction.query_one(IS_THERE, &[&versions]).await)? {
        transaction.batch_execute(VERSIONS).await?;
    }
    let from: i64 = transaction.query_one(VERSION, &[]).await?.try_get(0)?;
    let mut to = from;
    for (number, sql) in STEPS.iter().filter(|(number, _)| *number > from) {
        transaction.batch_execute(sql).await?;
        transaction.execute(APPLIED, &[number]).await?;
        to = *number;
    }
    Ok(Migrated { from, to })
}

#[cfg(test)]
mod tests {
    use super::checked_name;

    #[test]
    fn a_schema_name_cannot_carry_a_statement() {
        assert!(checked_name("mesh_1").is_ok());
        for bad in ["", "1a", "A", "a b", "a;drop", "a\"", "ä", &"a".repeat(64)] {
            assert!(checked_name(bad).is_err(), "{bad:?}");
        }
    }
}
