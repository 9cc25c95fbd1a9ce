//! What this database shows to the surface check: its catalogue, its settings, and what it does to rows
//! that must not be. Every probe is rolled back.

use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;

use super::catalogue;
use super::write::{CONSUME, REGISTRATION};
use crate::storage::error::StorageError;
use crate::surface_check::Surface;

type Answer<T> = Result<T, StorageError>;

const COLUMNS: &str = "
    SELECT column_name::text FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = $1 AND is_nullable = 'NO'";
/// One line a unique index: its columns in order, without the mesh.
const UNIQUE: &str = "
    SELECT array_agg(a.attname::text ORDER BY k.place) FILTER (WHERE a.attname <> 'mesh_id')
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indrelid AND c.relname = 'effect_consume'
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()
    CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
    WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL GROUP BY i.indexrelid";
const AUDIT_REFERENCES: &str = "
    SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid = to_regclass('effect_audit')";
const AUDIT_EXISTS: &str = "SELECT to_regclass('effect_audit') IS NOT NULL";
const DOMAIN: &str = "SELECT domain FROM effect_surface LIMIT 1";
const DURABLE: &str = "
    SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'
       AND current_setting('synchronous_commit') <> 'off' AND NOT pg_is_in_recovery()
       AND current_setting('transaction_isolation') = 'read committed'";
/// As the role that every transaction of ours takes on.
const BOUND: &str = "
    SELECT bool_and(NOT has_table_privilege(name, 'UPDATE') AND NOT has_table_privilege(name, 'DELETE')
                    AND NOT has_table_privilege(name, 'TRUNCATE'))
    FROM unnest(ARRAY['effect_surface', 'effect_envelope', 'effect_decision', 'effect_consume', 'effect_registration',
                      'effect_step', 'effect_audit', 'effect_call', 'effect_migration', 'effect_chain',
                      'effect_taken', 'effect_tally', 'effect_undigested']) AS name";
const CHECK_NOW: &str = "SET CONSTRAINTS ALL IMMEDIATE";
const AS_OWNER: &str = "RESET ROLE";

/// A truncation is not tried: it would take the table from everybody who works with it.
const TRUNCATE_GUARDED: &str = "
    SELECT count(DISTINCT c.relname) = 2 FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema() AND NOT t.tgisinternal AND t.tgenabled <> 'D'
      AND (t.tgtype & 34) = 34 AND (c.relname = 'effect_consume' OR c.relname = 'effect_registration')";
/// One probe at a time: two would wait for each other's rows.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(7264517012874)";

/// What stands guard in this schema, by name: valid indexes, enabled triggers of ours, foreign keys.
const GUARDS: &str = "
    SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND i.indisvalid
    UNION ALL
    SELECT t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_proc p ON p.oid = t.tgfoid AND p.proname = 'effect_refuse_change'
    WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal AND t.tgenabled <> 'D'
    UNION ALL
    SELECT conname::text FROM pg_constraint
    WHERE connamespace = current_schema()::regnamespace AND contype = 'f'";
/// Beside the primary key and the two triggers of every table.
const OTHER_GUARDS: &[&str] = &[
    "effect_audit_key",
    "effect_envelope_key",
    "effect_consume_mesh_id_authorization_nonce_hash_key",
    "effect_consume_mesh_id_replay_key_key",
    "effect_decision_mesh_id_nonce_hash_key",
    "effect_step_mesh_id_nonce_hash_key",
    "effect_decision_mesh_id_envelope_id_fkey",
    "effect_registration_mesh_id_logical_request_key_fkey",
    "effect_step_mesh_id_logical_request_key_fkey",
    "effect_consume_registered",
];

const UPDATES: &[&str] = &[
    "UPDATE effect_consume SET run_id = 'other' WHERE logical_request_key = 'probe'",
    "UPDATE effect_registration SET receipt = 'other' WHERE logical_request_key = 'probe'",
];
const DELETES: &[&str] = &[
    "DELETE FROM effect_registration WHERE logical_request_key = 'probe'",
    "DELETE FROM effect_consume WHERE logical_request_key = 'probe'",
];

/// Not a mesh that anybody has.
const PROBE_MESH: [u8; 16] = [0xff; 16];

pub(super) async fn look(tx: &mut Transaction<'_>, role: Option<&str>) -> Answer<Surface> {
    tx.execute(ONE_AT_A_TIME, &[]).await?;
    let columns = texts(tx, "effect_consume").await?;
    let registration = texts(tx, "effect_registration").await?;
    let mut unique = Vec::new();
    for row in tx.query(UNIQUE, &[]).await? {
        unique.push(
            row.try_get::<_, Option<Vec<String>>>(0)?
                .unwrap_or_default(),
        );
    }
    let domain = tx.query_opt(DOMAIN, &[]).await?;
    let audits: bool = tx.query_one(AUDIT_EXISTS, &[]).await?.try_get(0)?;
    let references: i64 = tx.query_one(AUDIT_REFERENCES, &[]).await?.try_get(0)?;
    let is_durable = tx.query_one(DURABLE, &[]).await?.try_get(0)?;
    let bound: Option<bool> = tx.query_one(BOUND, &[]).await?.try_get(0)?;
    let truncate_guarded: bool = tx.query_one(TRUNCATE_GUARDED, &[]).await?.try_get(0)?;
    let mut missing = missing(tx).await?;
    missing.extend(catalogue::differing(tx).await?);
    let excess = catalogue::excess(tx).await?;
    let rows = probe_rows(tx).await?;
    if role.is_some() {
        // The triggers must hold on their own, also for those that the rights do not bind.
        tx.batch_execute(AS_OWNER).await?;
    }
    Ok(Surface {
        unique,
        domain: domain.map(|row| row.try_get(0)).transpose()?,
        second_consume_refused: rows.works && rows.second_refused,
        lone_registration_refused: rows.works && rows.lone_refused,
        update_refused: rows.works && all_refused(tx, UPDATES).await?,
        delete_refused: rows.works && truncate_guarded && all_refused(tx, DELETES).await?,
        writer_is_bound: bound == Some(true),
        is_durable,
        audit_stands_apart: audits && references == 0,
        keeps_receipt: registration.iter().any(|column| column == "receipt"),
        keeps_horizon: columns.iter().any(|column| column == "horizon_until"),
        missing,
        excess,
        columns,
    })
}

async fn missing(tx: &Transaction<'_>) -> Answer<Vec<String>> {
    let mut found = std::collections::BTreeSet::new();
    for row in tx.query(GUARDS, &[]).await? {
        found.insert(row.try_get::<_, String>(0)?);
    }
    let of_tables = catalogue::TABLES.iter().flat_map(|(table, _)| {
        let guards = ["pkey", "hold", "keep"];
        guards.map(|guard| format!("{table}_{guard}"))
    });
    let wanted = of_tables.chain(OTHER_GUARDS.iter().map(|name| (*name).to_owned()));
    Ok(wanted.filter(|name| !found.contains(name)).collect())
}

async fn texts(tx: &Transaction<'_>, table: &str) -> Answer<Vec<String>> {
    let rows = tx.query(COLUMNS, &[&table]).await?;
    let names = rows.iter().map(|row| Ok(row.try_get(0)?));
    names.collect()
}

struct Probed {
    works: bool,
    second_refused: bool,
    lone_refused: bool,
}

/// A registration and a consumption alone, then both together, which stay for the probes after; then a
/// second consumption of the same key.
async fn probe_rows(tx: &mut Transaction<'_>) -> Answer<Probed> {
    let lone = tx.savepoint("lone_registration").await?;
    let registered = register(&lone, "lone").await.is_ok();
    lone.rollback().await?;
    let lone = tx.savepoint("lone_consumption").await?;
    let consumed = consume(&lone, 1, "lone").await.is_ok();
    let stays = consumed && lone.batch_execute(CHECK_NOW).await.is_ok();
    lone.rollback().await?;
    let first = tx.savepoint("first").await?;
    let works = consume(&first, 1, "probe")
        .await
        .is_ok_and(|written| written == 1)
        && register(&first, "probe").await.is_ok();
    if works {
        first.commit().await?;
    } else {
        first.rollback().await?;
    }
    let second = tx.savepoint("second").await?;
    let written = consume(&second, 2, "probe").await;
    second.rollback().await?;
    Ok(Probed {
        works,
        second_refused: written.is_ok_and(|written| written == 0),
        lone_refused: !registered && !stays,
    })
}

async fn all_refused(tx: &mut Transaction<'_>, statements: &[&str]) -> Answer<bool> {
    let mut refused = true;
    for sql in statements {
        let probe = tx.savepoint("change").await?;
        refused &= probe
            .execute(*sql, &[])
            .await
            .is_err_and(|error| is_ours(&error));
        probe.rollback().await?;
    }
    Ok(refused)
}

/// A refusal by the trigger, or by the rights of whoever is neither owner nor superuser. A foreign key
/// stands in the way of some deletes too, and not for good.
fn is_ours(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        db.message().contains("append-only") || *db.code() == SqlState::INSUFFICIENT_PRIVILEGE
    })
}

/// Another `nth` has another replay key, run, nonce and attempt under the same logical key.
async fn consume(tx: &Transaction<'_>, nth: u8, key: &str) -> Result<u64, tokio_postgres::Error> {
    let digest = vec![nth; 32];
    let (attempt, run) = (format!("attempt {nth}"), format!("run {nth}"));
    let mesh = PROBE_MESH.to_vec();
    let (probe, at) = ("probe", 0_i64);
    tx.execute(
        CONSUME,
        &[
            &mesh, &key, &digest, &probe, &probe, &"", &probe, &run, &digest, &attempt, &at, &at,
        ],
    )
    .await
}

async fn register(tx: &Transaction<'_>, key: &str) -> Result<u64, tokio_postgres::Error> {
    let mesh = PROBE_MESH.to_vec();
    let digest: Option<Vec<u8>> = None;
    tx.execute(
        REGISTRATION,
        &[&mesh, &key, &"probe", &"{}", &0_i64, &digest],
    )
    .await
}
