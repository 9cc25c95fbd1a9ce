//! The schema as forward-only steps, and the role that may only append.

use deadpool_postgres::{HookError, Pool, PoolError};
use tokio_postgres::Transaction;

use crate::storage::error::StorageError;

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
];

/// May read and append, and nothing else.
const ROLE: &str = "heddle_registrar";

const LOCK: &str = "SELECT pg_advisory_xact_lock(7264517012873)";
const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS effect_migration (
    version BIGINT NOT NULL PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())";
const HAS_SCHEMA: &str = "SELECT to_regnamespace($1) IS NOT NULL";
const HAS_TABLE: &str = "SELECT to_regclass($1) IS NOT NULL";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM effect_migration";
const APPLIED: &str = "INSERT INTO effect_migration (version) VALUES ($1)";

/// Whoever may not make roles goes on without one; its own rights are then what is checked.
const MAKE_ROLE: &str = "
    DO $$ BEGIN
        CREATE ROLE heddle_registrar NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
    END $$";
const JOIN_ROLE: &str = "
    DO $$ BEGIN
        IF NOT pg_has_role(current_user, 'heddle_registrar', 'MEMBER') THEN
            GRANT heddle_registrar TO CURRENT_USER;
        END IF;
    EXCEPTION WHEN undefined_object OR insufficient_privilege THEN NULL;
    END $$";
const HAS_ROLE: &str = "
    SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'heddle_registrar'
                   AND pg_has_role(current_user, oid, 'MEMBER'))";

/// A name that needs no quoting, so that none can be forgotten.
pub(super) fn checked_name(name: &str) -> Result<&str, StorageError> {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= 63
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_plain {
        Ok(name)
    } else {
        let why = format!("{name:?} is no schema name: lower-case letters, digits and _ only");
        Err(StorageError::Open(why))
    }
}

/// What every transaction begins with.
pub(super) fn prologue(schema: &str, role: Option<&str>) -> String {
    let role = role.map_or(String::new(), |role| format!("SET LOCAL ROLE {role};"));
    format!(
        "SET LOCAL search_path TO {schema}; SET LOCAL statement_timeout = '30s'; \
         SET LOCAL idle_in_transaction_session_timeout = '30s'; {role}"
    )
}

pub(super) async fn run(pool: &Pool, schema: &str) -> Result<Option<&'static str>, StorageError> {
    let open = |error: tokio_postgres::Error| StorageError::Open(detail(&error));
    let mut client = pool
        .get()
        .await
        .map_err(|error| StorageError::Open(no_connection(&error)))?;
    let client: &mut tokio_postgres::Client = &mut client;
    let transaction = client.transaction().await.map_err(open)?;
    let role = steps(&transaction, schema).await.map_err(open)?;
    transaction.commit().await.map_err(open)?;
    Ok(role)
}

async fn steps(
    transaction: &Transaction<'_>,
    schema: &str,
) -> Result<Option<&'static str>, tokio_postgres::Error> {
    transaction.execute(LOCK, &[]).await?;
    // Looked for first: to make what is there already takes a right that is needed once.
    if !has(transaction, HAS_SCHEMA, schema).await? {
        let home = format!("CREATE SCHEMA {schema}");
        transaction.batch_execute(&home).await?;
    }
    let path = format!("SET LOCAL search_path TO {schema}");
    transaction.batch_execute(&path).await?;
    if !has(
        transaction,
        HAS_TABLE,
        &format!("{schema}.effect_migration"),
    )
    .await?
    {
        transaction.batch_execute(VERSIONS).await?;
    }
    let version: i64 = transaction.query_one(VERSION, &[]).await?.try_get(0)?;
    for (number, sql) in STEPS.iter().filter(|(number, _)| *number > version) {
        transaction.batch_execute(sql).await?;
        transaction.execute(APPLIED, &[number]).await?;
    }
    transaction.batch_execute(MAKE_ROLE).await?;
    transaction.batch_execute(JOIN_ROLE).await?;
    let has_role: bool = transaction.query_one(HAS_ROLE, &[]).await?.try_get(0)?;
    if !has_role {
        return Ok(None);
    }
    if STEPS.iter().any(|(number, _)| *number > version) {
        let rights = format!(
            "GRANT USAGE ON SCHEMA {schema} TO {ROLE}; GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {schema} TO {ROLE}"
        );
        transaction.batch_execute(&rights).await?;
    }
    Ok(Some(ROLE))
}

async fn has(
    transaction: &Transaction<'_>,
    asked: &str,
    name: &str,
) -> Result<bool, tokio_postgres::Error> {
    transaction.query_one(asked, &[&name]).await?.try_get(0)
}

/// With the code of the server, by which whoever starts it knows what helps.
fn detail(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(
        || error.to_string(),
        |db| format!("{} ({})", db.message(), db.code().code()),
    )
}

fn no_connection(error: &PoolError) -> String {
    match error {
        PoolError::Backend(cause) | PoolError::PostCreateHook(HookError::Backend(cause)) => {
            detail(cause)
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::checked_name;

    #[test]
    fn a_schema_name_cannot_carry_a_statement() {
        assert!(checked_name("effects_1").is_ok());
        for bad in ["", "1a", "A", "a b", "a;drop", "a\"", "ä", &"a".repeat(64)] {
            assert!(checked_name(bad).is_err(), "{bad:?}");
        }
    }
}
