//! Damage that the orphan check must find.

use super::super::PostgresStorage;
use crate::storage::Upkeep as _;
use crate::test_support::{Gate, mesh, postgres};

async fn with_messages(storage: &PostgresStorage) {
    let gate = Gate::open(std::sync::Arc::new(storage.clone())).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    for number in 0..3 {
        let id = format!("id-{number}");
        gate.send("a/one", &id, "#ops", "hello").await;
        gate.send("a/one", &format!("dm-{number}"), "@b/one", "hello")
            .await;
    }
    gate.send("a/one", "work", "queue:q", "hello").await;
    gate.send("a/one", "op", "log:ops", "{}").await;
}

#[tokio::test]
async fn br_14_the_orphan_check_finds_every_kind_of_missing_row() {
    #[rustfmt::skip]
    let table = [
        ("DELETE FROM client_message_dedupe WHERE seq = 2",
            vec!["history_without_dedupe", "message_without_dedupe"]),
        ("DELETE FROM message WHERE client_message_id = 'id-1'",
            vec!["dedupe_disagrees_with_message"]),
        ("UPDATE client_message_dedupe SET history_available = FALSE WHERE seq = 1",
            vec!["dedupe_disagrees_with_message"]),
        ("DELETE FROM message_history WHERE seq = 2",
            vec!["dedupe_without_history", "delivery_without_history", "gap_in_history", "message_without_history"]),
        ("DELETE FROM delivery_queue WHERE seq = 2", vec!["dm_without_delivery"]),
        ("UPDATE message_history SET is_expired = TRUE WHERE seq = 2", vec!["dedupe_of_expired_history"]),
        ("DELETE FROM queue_item WHERE seq = 7", vec!["queue_message_without_item"]),
        ("INSERT INTO queue_item (mesh_id, queue, epoch, seq, priority, broker_message_id)
            SELECT mesh_id, 'q', 1, 99, 1, mesh_id FROM mesh", vec!["queue_item_without_history"]),
        ("DELETE FROM log_row WHERE seq = 8", vec!["op_without_log_row"]),
        ("UPDATE log_row SET seq = 99 WHERE seq = 8", vec!["log_row_without_history"]),
        ("INSERT INTO mention_index (mesh_id, member_id, agent, epoch, seq)
            SELECT mesh_id, mesh_id, 'one', 1, 99 FROM mesh", vec!["mention_without_history"]),
        ("UPDATE mesh SET next_seq = next_seq + 1", vec!["gap_in_history"]),
    ];
    for (sql, expected) in table {
        let storage = postgres().await;
        with_messages(&storage).await;
        assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
        storage.batch(sql).await;
        let orphans = storage.orphan_check(mesh(1)).await.unwrap();
        let mut problems: Vec<&str> = orphans.iter().map(|orphan| orphan.problem).collect();
        problems.dedup();
        assert_eq!(problems, expected, "{sql}");
    }
}
