//! What only SQLite can show: damage that the orphan check must find, and what survives a restart.

use rusqlite::Connection;

use super::*;
use crate::test_support::{Gate, member, mesh, on_disk};

async fn with_messages(storage: &SqliteStorage) {
    let gate = Gate::open(std::sync::Arc::new(storage.clone())).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    for number in 0..3 {
        let id = format!("id-{number}");
        gate.send("a/one", &id, "#ops", "hello").await;
        gate.send("a/one", &format!("dm-{number}"), "@b/one", "hello")
            .await;
    }
}

async fn damage(storage: &SqliteStorage, sql: &'static str) -> Vec<&'static str> {
    storage
        .write(mesh(1), move |connection: &Connection| {
            connection.execute_batch(sql)?;
            Ok(())
        })
        .await
        .unwrap();
    let orphans = storage.orphan_check(mesh(1)).await.unwrap();
    let mut problems: Vec<&str> = orphans.iter().map(|orphan| orphan.problem).collect();
    problems.dedup();
    problems
}

#[tokio::test]
async fn br_14_the_orphan_check_finds_every_kind_of_missing_row() {
    #[rustfmt::skip]
    let table = [
        ("DELETE FROM client_message_dedupe WHERE seq = 2",
            vec!["history_without_dedupe", "message_without_dedupe"]),
        ("DELETE FROM message WHERE client_message_id = 'id-1'",
            vec!["dedupe_disagrees_with_message"]),
        ("UPDATE client_message_dedupe SET history_available = 0 WHERE seq = 1",
            vec!["dedupe_disagrees_with_message"]),
        ("DELETE FROM message_history WHERE seq = 2",
            vec!["dedupe_without_history", "delivery_without_history", "gap_in_history", "message_without_history"]),
        ("DELETE FROM delivery_queue WHERE seq = 2", vec!["dm_without_delivery"]),
        ("INSERT INTO mention_index VALUES (x'00000000000000000000000000000001', x'00000000000000000000000000000061', 'one', 1, 99)",
            vec!["mention_without_history"]),
        ("UPDATE mesh SET next_seq = next_seq + 1", vec!["gap_in_history"]),
    ];
    for (sql, expected) in table {
        let disk = on_disk();
        with_messages(&disk.storage).await;
        assert_eq!(disk.storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
        assert_eq!(damage(&disk.storage, sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let disk = on_disk();
    with_messages(&disk.storage).await;
    let before = disk.storage.dump().await;
    disk.storage.stop();
    let again = SqliteStorage::open(Options::new(disk.path())).unwrap();
    assert_eq!(again.dump().await, before);
    assert_eq!(again.orphan_check(mesh(1)).await, Ok(Vec::new()));
    let generation = again.begin_session(mesh(1), member("a")).await;
    assert_eq!(generation, Ok(1));
}

#[tokio::test]
async fn br_09_a_stopped_store_is_unavailable_and_never_a_refusal_for_good() {
    let disk = on_disk();
    with_messages(&disk.storage).await;
    disk.storage.stop();
    let accepted = disk.storage.accept(mesh(1), Vec::new()).await;
    assert!(matches!(accepted, Err(StorageError::Unavailable(_))));
    let known = disk.storage.known(mesh(1), Vec::new()).await;
    assert!(matches!(known, Err(StorageError::Unavailable(_))));
}

/// A scan would read the whole past of a mesh for every page or ack.
#[tokio::test]
async fn hot_statements_use_their_index() {
    let disk = on_disk();
    let plans = disk
        .storage
        .database
        .read(|connection| {
            let mut plans = Vec::new();
            for sql in deliveries::STATEMENTS.iter().chain(look::STATEMENTS) {
                let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
                let parameters = statement.parameter_count();
                let nulls = vec![rusqlite::types::Null; parameters];
                let lines = statement
                    .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))?
                    .collect::<rusqlite::Result<Vec<String>>>()?;
                plans.push((*sql, lines));
            }
            Ok::<_, rusqlite::Error>(plans)
        })
        .await
        .unwrap();
    for (sql, lines) in plans {
        for line in lines {
            assert!(!line.contains("SCAN"), "{line} in {sql}");
            assert!(!line.contains("TEMP B-TREE"), "{line} in {sql}");
        }
    }
}
