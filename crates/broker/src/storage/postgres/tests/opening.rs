//! What is refused before anything is served, and what migrating leaves behind.

use super::super::{Migrated, OpenError, PostgresOptions, PostgresStorage};
use super::furnish;
use crate::storage::{Storage as _, StorageError};
use crate::test_support::{mesh, postgres_options};

async fn refused(more: &str) -> OpenError {
    let options = postgres_options().await;
    let url = format!("{}?options={}", options.url, more.replace(' ', "%20"));
    let opened = PostgresStorage::open(&PostgresOptions { url, ..options }).await;
    opened.err().unwrap()
}

/// BR-18. `fsync` and `full_page_writes` belong to the whole server; what a session can be given is tried.
#[tokio::test]
async fn br_18_c37_a_server_that_could_forget_or_decide_otherwise_is_refused() {
    for (setting, said) in [
        ("-c synchronous_commit=off", "synchronous_commit"),
        (
            "-c default_transaction_isolation=serializable",
            "read committed",
        ),
        ("-c default_transaction_read_only=on", "read-only"),
    ] {
        let OpenError::Unfit(problem) = refused(setting).await else {
            panic!("{setting}");
        };
        assert!(problem.contains(said), "{problem}");
    }
}

#[tokio::test]
async fn an_address_that_nobody_answers_is_told_without_its_password() {
    let options = PostgresOptions::new("postgres://u:secret@127.0.0.1:1/d");
    let error = PostgresStorage::open(&options).await.err().unwrap();
    assert!(matches!(error, OpenError::Unreachable(_)), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    let nonsense = PostgresOptions::new("nonsense://:secret@");
    let error = PostgresStorage::open(&nonsense).await.err().unwrap();
    assert!(matches!(error, OpenError::Address(_)), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lf_35_brokers_that_start_together_migrate_once_and_a_newer_schema_is_refused() {
    let options = postgres_options().await;
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let options = options.clone();
        starts.spawn(async move { PostgresStorage::open(&options).await.unwrap() });
    }
    let storages = starts.join_all().await;
    let mut made: Vec<Migrated> = storages.iter().map(PostgresStorage::migrated).collect();
    made.sort_by_key(|migrated| migrated.from);
    let latest = made[0].to;
    assert_eq!(
        made[0],
        Migrated {
            from: 0,
            to: latest
        }
    );
    for again in &made[1..] {
        assert_eq!(
            *again,
            Migrated {
                from: latest,
                to: latest
            }
        );
    }
    furnish(&storages[0]).await;
    storages[0]
        .batch("INSERT INTO schema_migration (version) VALUES (999)")
        .await;
    let newer = PostgresStorage::open(&options).await.err().unwrap();
    assert!(
        matches!(newer, OpenError::Newer { found: 999, .. }),
        "{newer}"
    );
    assert_eq!(
        storages[1].epoch(mesh(1)).await,
        Ok(1),
        "those that run go on"
    );
}

/// DESIGN §12: a mesh can be moved, dropped or sharded as one.
#[tokio::test]
async fn every_primary_key_begins_with_the_mesh() {
    let storage = crate::test_support::postgres().await;
    let client = storage.reader().await.unwrap();
    let sql = "
        SELECT c.relname::text, a.attname::text FROM pg_index i
        JOIN pg_class c ON c.oid = i.indrelid
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
        WHERE i.indisprimary AND c.relnamespace = current_schema()::regnamespace";
    let mut tables = 0;
    for row in client.query(sql, &[]).await.unwrap() {
        let (table, first): (String, String) = (row.get(0), row.get(1));
        // Of no mesh: who the database is, and which steps it has seen.
        if table != "broker" && table != "schema_migration" {
            assert_eq!(first, "mesh_id", "{table}");
            tables += 1;
        }
    }
    assert!(tables >= 19, "{tables}");
}

#[tokio::test]
async fn a_stopped_store_is_unavailable_and_never_a_refusal_for_good() {
    let storage = crate::test_support::postgres().await;
    furnish(&storage).await;
    storage.stop().await;
    let accepted = storage.accept(mesh(1), Vec::new()).await;
    assert!(matches!(accepted, Err(StorageError::Unavailable(_))));
    let known = storage.known(mesh(1), Vec::new()).await;
    assert!(matches!(known, Err(StorageError::Unavailable(_))));
}
