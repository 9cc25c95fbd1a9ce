//! v10 §4.7.1, row by row: every effect is in the one transaction, and nothing outside it decides.
//!
//! Each of the tables is made to refuse its row in turn. Then none of the others may have one, the
//! answer is never a refusal for good, and the same id goes through when the table is mended.

use std::sync::Arc;

use heddle_core::drain::PERMANENT;

use crate::storage::{SqliteStorage, Upkeep};
use crate::test_support::{Gate, envelope, mesh, refused_code, send_item, sqlite};
use heddle_wire::broker::{SendItem, Verdict};
use serde_json::value::to_raw_value;

async fn refuse_rows_of(storage: &SqliteStorage, table: &str) {
    let sql = format!(
        "CREATE TRIGGER broken BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'broken'); END"
    );
    storage.batch(sql).await;
}

async fn mend(storage: &SqliteStorage) {
    storage.batch("DROP TRIGGER broken".to_owned()).await;
}

/// A message with every effect that a destination can have.
fn item(id: &str, to: &str) -> SendItem {
    SendItem {
        envelope: to_raw_value(&envelope(to, "x", &["b/one"])).unwrap(),
        ..send_item("one", id, to, "x")
    }
}

async fn is_in_the_transaction(table: &str, to: &str) {
    let sqlite = sqlite();
    let gate = Gate::open(Arc::new(sqlite.storage.clone())).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    gate.batch("a", vec![item("before", to)]).await;
    let rows = sqlite.storage.dump().await;
    refuse_rows_of(&sqlite.storage, table).await;
    for batch in [vec!["A"], vec!["A", "B"]] {
        let items = batch.iter().map(|id| item(id, to)).collect();
        let decided = gate.batch("a", items).await;
        for verdict in &decided.verdicts {
            let Verdict::Refused(refused) = verdict else {
                panic!("{table}: {verdict:?}");
            };
            let is_permanent = PERMANENT.iter().any(|code| code.as_str() == refused.code);
            assert!(!is_permanent, "{table}: {refused:?}");
        }
        assert!(
            decided.effects.wake.is_empty(),
            "an effect without a commit"
        );
    }
    assert_eq!(sqlite.storage.dump().await, rows, "{table}");
    mend(&sqlite.storage).await;
    let decided = gate.batch("a", vec![item("A", to)]).await;
    assert_eq!(refused_code(&decided.verdicts[0]), "created");
    assert_eq!(sqlite.storage.orphan_check(mesh(1)).await, Ok(vec![]));
}

#[tokio::test]
async fn v10_4_7_1_dedupe_record() {
    is_in_the_transaction("client_message_dedupe", "#ops").await;
}

#[tokio::test]
async fn v10_4_7_1_message_body() {
    is_in_the_transaction("message", "#ops").await;
    is_in_the_transaction("queue_item", "queue:q").await;
}

#[tokio::test]
async fn v10_4_7_1_history_row() {
    is_in_the_transaction("message_history", "#ops").await;
}

#[tokio::test]
async fn v10_4_7_1_fan_out_work() {
    is_in_the_transaction("delivery_queue", "#ops").await;
    is_in_the_transaction("delivery_queue", "@b/one").await;
}

#[tokio::test]
async fn v10_4_7_1_mention_index_entries() {
    is_in_the_transaction("mention_index", "#ops").await;
}

#[tokio::test]
async fn v10_4_7_1_rate_limit_counters_are_outside_and_decide_nothing() {
    let sqlite = sqlite();
    let gate = Gate::open(Arc::new(sqlite.storage.clone())).await;
    gate.subscribe_all(&["a/one"]).await;
    sqlite
        .storage
        .batch("DROP TABLE rate_limit_counter".to_owned())
        .await;
    let accepted = gate.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&accepted), "created");
    // The job fails by itself, and the gate goes on.
    assert!(sqlite.storage.count_traffic(mesh(1)).await.is_err());
    let again = gate.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&again), "duplicate");
}

/// BR-11: a push, and whatever else follows, is told of committed rows only.
#[tokio::test]
async fn v10_4_7_1_br_11_the_live_push_follows_from_the_commit() {
    let sqlite = sqlite();
    let gate = Gate::open(Arc::new(sqlite.storage.clone())).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    refuse_rows_of(&sqlite.storage, "mention_index").await;
    let items = vec![item("A", "#ops"), send_item("one", "B", "@a/one", "x")];
    let decided = gate.batch("a", items).await;
    let codes: Vec<&str> = decided.verdicts.iter().map(refused_code).collect();
    assert_eq!(codes, ["internal", "created"]);
    let woken: Vec<_> = decided.effects.wake.into_iter().collect();
    assert_eq!(woken, [crate::test_support::member("a")]);
}
