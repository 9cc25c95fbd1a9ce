//! What the database itself refuses, whoever asks.

use heddle_registrar::carry::Part;
use heddle_registrar::storage::Storage;
use heddle_registrar::storage::postgres::Postgres;
use heddle_registrar::storage::sqlite::Waiting;

use crate::world::{
    Raw, START, World, agent, calling, effect, ended, fresh_schema, key, mesh, postgres,
    postgres_url, raw_client, sqlite, with_policy,
};

const TABLES: &[(&str, &str)] = &[
    ("effect_surface", "domain"),
    ("effect_envelope", "run_id"),
    ("effect_decision", "decided_by"),
    ("effect_consume", "run_id"),
    ("effect_registration", "receipt"),
    ("effect_step", "body"),
    ("effect_audit", "detail"),
    ("effect_call", "call_id"),
    ("effect_chain", "seal"),
    ("effect_tally", "row_count"),
    ("effect_taken", "noted_at"),
];

async fn filled<S: Storage>(w: &World<S>) {
    w.registered("k").await;
    w.registrar
        .start(key("k"), "a".into(), None, &agent())
        .await
        .unwrap();
    w.registrar
        .finish(key("k"), "a".into(), ended(0), &calling("id", 1))
        .await
        .unwrap();
    // Of a mesh that was taken over, with nothing in it.
    let nothing = Part {
        from: 0,
        units: Vec::new(),
        is_last: true,
        at: START,
    };
    let storage = w.registrar.storage();
    storage.take_over(mesh(), nothing).await.unwrap();
}

async fn rg_16_no_row_of_any_table_can_be_changed_or_deleted<S: Storage>(w: World<S>) {
    filled(&w).await;
    for (table, column) in TABLES {
        let before = w.raw.count(table).await;
        assert!(before > 0, "{table} is empty");
        let update = format!("UPDATE {table} SET {column} = {column}");
        let error = w.raw.run(&update).await.unwrap_err();
        assert!(error.contains("append-only"), "{update}: {error}");
        let delete = format!("DELETE FROM {table}");
        let error = w.raw.run(&delete).await.unwrap_err();
        assert!(error.contains("append-only"), "{delete}: {error}");
        assert_eq!(w.raw.count(table).await, before);
    }
}

async fn rg_01_c13_the_database_refuses_a_second_consumption_under_any_disguise<S: Storage>(
    w: World<S>,
) {
    filled(&w).await;
    let copy = |changed: &str, value: &str| {
        let columns = [
            "mesh_id",
            "logical_request_key",
            "replay_key",
            "canonical_operation",
            "canonical_target",
            "deployed_artifact_hash",
            "owner_or_approval_binding",
            "run_id",
            "authorization_nonce_hash",
            "attempt_id",
            "consumed_at",
            "horizon_until",
        ];
        let cells: Vec<&str> = columns
            .iter()
            .map(|column| if *column == changed { value } else { column })
            .collect();
        format!(
            "INSERT INTO effect_consume ({}) SELECT {} FROM effect_consume",
            columns.join(", "),
            cells.join(", ")
        )
    };
    // Another attempt, another run, another key: each time one unique key still holds.
    for (column, value) in [
        ("attempt_id", "'a2'"),
        ("run_id", "'r2'"),
        ("logical_request_key", "'k2'"),
    ] {
        let error = w.raw.run(&copy(column, value)).await.unwrap_err();
        assert!(!error.is_empty(), "{column}");
    }
    assert_eq!(w.raw.count("effect_consume").await, 1);
}

async fn rg_02_a_registration_without_its_consumption_is_refused<S: Storage>(w: World<S>) {
    filled(&w).await;
    let lone = "INSERT INTO effect_registration (mesh_id, logical_request_key, registration_id, receipt, registered_at)
        SELECT mesh_id, 'lone', registration_id, receipt, registered_at FROM effect_registration";
    // SQLite asks for foreign keys by connection; ours have them on, as this one.
    let error = if let Raw::Sqlite { file, .. } = &w.raw {
        let connection = rusqlite::Connection::open(file).unwrap();
        connection
            .pragma_update(None, "foreign_keys", true)
            .unwrap();
        connection.execute(lone, []).unwrap_err().to_string()
    } else {
        w.raw.run(lone).await.unwrap_err()
    };
    // For that, and for no other reason.
    assert!(error.to_lowercase().contains("foreign key"), "{error}");
    assert_eq!(w.raw.count("effect_registration").await, 1);
}

async fn the_check_passes_leaves_nothing_and_can_be_repeated<S: Storage>(w: World<S>) {
    for _ in 0..2 {
        let criteria = w.registrar.surface_check().await.unwrap();
        let letters: String = criteria.iter().map(|criterion| criterion.letter).collect();
        assert_eq!(letters, "abcdefgh");
        assert!(
            criteria.iter().all(|criterion| criterion.is_met),
            "{criteria:?}"
        );
        assert_eq!(w.raw.count("effect_consume").await, 0);
        assert_eq!(w.raw.count("effect_registration").await, 0);
    }
    // Also on a store with rows, which stay as they are.
    filled(&w).await;
    assert!(
        w.registrar
            .surface_check()
            .await
            .unwrap()
            .iter()
            .all(|c| c.is_met)
    );
    assert_eq!(w.raw.count("effect_consume").await, 1);
}

on_both_databases!(
    rg_16_no_row_of_any_table_can_be_changed_or_deleted,
    rg_01_c13_the_database_refuses_a_second_consumption_under_any_disguise,
    rg_02_a_registration_without_its_consumption_is_refused,
    the_check_passes_leaves_nothing_and_can_be_repeated,
);

#[tokio::test]
async fn rg_16_sqlite_insert_or_replace_replaces_nothing() {
    let w = sqlite().await;
    filled(&w).await;
    let call = Waiting {
        key: "k".into(),
        caller: "planner".into(),
        call_id: "c".into(),
        verb: "request".into(),
        call: "{}".into(),
        since: START,
    };
    let storage = w.registrar.storage();
    for _ in 0..2 {
        storage.wait(mesh(), call.clone()).await.unwrap();
        storage.waited(1, "answered".into(), START).await.unwrap();
    }
    let logs = [
        ("_migrations", "name"),
        ("effect_waiting", "verb"),
        ("effect_waited", "outcome"),
    ];
    for (table, column) in TABLES.iter().chain(&logs) {
        let before = w.raw.count(table).await;
        assert!(before > 0, "{table} is empty");
        for sql in [
            format!("INSERT OR REPLACE INTO {table} SELECT * FROM {table}"),
            format!("UPDATE {table} SET {column} = {column}"),
            format!("DELETE FROM {table}"),
        ] {
            let error = w.raw.run(&sql).await.unwrap_err();
            assert!(
                error.contains("single-use") || error.contains("append-only"),
                "{sql}: {error}"
            );
        }
        assert_eq!(w.raw.count(table).await, before);
    }
    // Nor by the number of a row alone.
    let by_number = "INSERT OR REPLACE INTO effect_consume (rowid, mesh_id, logical_request_key, replay_key,
        canonical_operation, canonical_target, deployed_artifact_hash, owner_or_approval_binding, run_id,
        authorization_nonce_hash, attempt_id, consumed_at, horizon_until)
        SELECT rowid, mesh_id, 'other', zeroblob(32), canonical_operation, canonical_target, deployed_artifact_hash,
        owner_or_approval_binding, run_id, zeroblob(32), attempt_id, consumed_at, horizon_until FROM effect_consume";
    let error = w.raw.run(by_number).await.unwrap_err();
    assert!(error.contains("append-only"), "{error}");
}

#[tokio::test]
async fn rg_16_postgres_the_role_may_only_append() {
    let w = postgres().await;
    filled(&w).await;
    let Raw::Postgres { url, schema } = &w.raw else {
        panic!("not PostgreSQL");
    };
    let client = raw_client(url, schema).await;
    client
        .batch_execute("SET ROLE heddle_registrar")
        .await
        .unwrap();
    for (table, column) in TABLES {
        for sql in [
            format!("UPDATE {table} SET {column} = {column}"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
        ] {
            let error = client.batch_execute(&sql).await.unwrap_err();
            let code = error.code().unwrap().code();
            assert_eq!(
                code, "42501",
                "{sql} must end at the rights, not at the trigger"
            );
        }
    }
    let change = "UPDATE effect_migration SET version = version";
    let error = client.batch_execute(change).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501");
    // And for those whom no right binds, at the trigger.
    for sql in [
        "TRUNCATE effect_audit",
        change,
        "DELETE FROM effect_migration",
        "TRUNCATE effect_migration",
    ] {
        let error = w.raw.run(sql).await.unwrap_err();
        assert!(error.contains("append-only"), "{sql}: {error}");
    }
}

/// An owner of the database that is no superuser, with and without the right to make roles.
#[tokio::test]
async fn a_plain_owner_of_a_database_is_enough() {
    let url = postgres_url();
    let root = raw_client(&url, "public").await;
    for more in ["", " CREATEROLE"] {
        let name = fresh_schema();
        let sql = format!("CREATE ROLE {name} LOGIN PASSWORD 'plain'{more}");
        root.batch_execute(&sql).await.unwrap();
        let sql = format!("CREATE DATABASE {name} OWNER {name}");
        root.batch_execute(&sql).await.unwrap();
        // postgres://USER:PASSWORD@HOST:PORT/DATABASE
        let (_, place) = url.rsplit_once('@').unwrap();
        let (place, _) = place.split_once('/').unwrap();
        let own = format!("postgres://{name}:plain@{place}/{name}");
        {
            let storage = Postgres::connect(&own, "effects").await.unwrap();
            let raw = Raw::Postgres {
                url: own.clone(),
                schema: "effects".to_owned(),
            };
            let w = with_policy(storage, raw, 3, "").await.unwrap();
            let nonce = w.nonce(&effect("k")).await;
            w.register(&effect("k"), Some(&nonce)).await;
            // Append-only for the owner, too, by its one column and by any other.
            for column in ["mesh_id = mesh_id", "run_id = 'other'"] {
                let changed = w
                    .raw
                    .run(&format!("UPDATE effect_consume SET {column}"))
                    .await;
                assert!(changed.is_err(), "{column}{more}");
            }
        }
        let sql = format!("DROP DATABASE {name} WITH (FORCE)");
        root.batch_execute(&sql).await.unwrap();
    }
}

#[tokio::test]
async fn nonces_are_stored_hashed() {
    let w = sqlite().await;
    let nonce = w.nonce(&effect("k")).await;
    w.register(&effect("k"), Some(&nonce)).await;
    let Raw::Sqlite { file, .. } = &w.raw else {
        panic!("not SQLite");
    };
    let needle = &nonce.reveal().as_bytes()[3..];
    for path in [file.clone(), file.with_extension("db-wal")] {
        let bytes = std::fs::read(path).unwrap_or_default();
        assert!(!bytes.windows(needle.len()).any(|window| window == needle));
    }
}
