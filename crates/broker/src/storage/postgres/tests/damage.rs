//! Damage that the orphan check must find.

use heddle_core::ids::HistoryId;

use super::super::PostgresStorage;
use crate::storage::{Log as _, PageLimit, Upkeep as _};
use crate::test_support::{Gate, mesh, postgres, refused_code, send_item};

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

/// The places of the log, each of which names the one before it.
async fn chain(storage: &PostgresStorage) -> String {
    let limit = PageLimit {
        rows_max: 99,
        bytes_max: 99_999,
    };
    let page = storage.log_after(mesh(1), HistoryId::ZERO, limit).await;
    let (mut through, mut places) = (HistoryId::ZERO, Vec::new());
    for row in page.unwrap().rows {
        assert_eq!(row.previous, through);
        through = row.history_id;
        assert_eq!(storage.mend_log(mesh(1), through).await, Ok(None));
        places.push(through.seq.to_string());
    }
    places.join(" ")
}

#[tokio::test]
async fn lf_15_a_log_with_holes_is_mended_once_and_what_is_whole_stays() {
    let messages = "DELETE FROM message WHERE broker_message_id IN (
        SELECT broker_message_id FROM log_row WHERE seq = 2 OR seq = 3);";
    let ends = "DELETE FROM message WHERE broker_message_id IN (
        SELECT broker_message_id FROM log_row WHERE seq = 1 OR seq = 6);";
    let log = "DELETE FROM log_row WHERE seq = 2 OR seq = 3;";
    let rest = "DELETE FROM client_message_dedupe WHERE seq = 2 OR seq = 3;
        DELETE FROM message_history WHERE seq = 2 OR seq = 3;";
    // What is done to it, the op whose reader finds out, the places that are left, the holes, the ids that are free again.
    #[rustfmt::skip]
    let table = [
        (log.to_owned(), 5, "1 2 3 5 6 7", "", ""),
        (messages.to_owned(), 5, "1 5 6 7", "1.1-1.3", "2 3"),
        (format!("{messages}{log}"), 5, "1 5 6 7", "1.1-1.3", "2 3"),
        (format!("{messages}{log}{rest}"), 5, "1 5 6 7", "1.1-1.3", "2 3"),
        (ends.to_owned(), 2, "2 3 5 7", "0.0-1.1 1.5-1.6", "1 6"),
    ];
    for (sql, meets, left, holes, free) in table {
        let storage = postgres().await;
        let gate = Gate::open(std::sync::Arc::new(storage.clone())).await;
        gate.subscribe_all(&["a/one"]).await;
        for number in 1..=7 {
            let to = if number == 4 { "#ops" } else { "log:ops" };
            gate.send("a/one", &number.to_string(), to, "{}").await;
        }
        assert_eq!(chain(&storage).await, "1 2 3 5 6 7");
        storage.batch(&sql).await;
        let at = HistoryId {
            epoch: 1,
            seq: meets,
        };
        let mended = storage.mend_log(mesh(1), at).await.unwrap();
        let mended = mended.unwrap_or_else(|| panic!("{sql}"));
        let shown = mended.holes.iter();
        let shown = shown.map(|hole| format!("{}-{}", hole.after, hole.through));
        assert_eq!(shown.collect::<Vec<_>>().join(" "), holes, "{sql}");
        let epochs = storage.epochs(mesh(1)).await.unwrap();
        assert_eq!((epochs.epoch, epochs.holes), (2, mended.holes), "{sql}");
        assert_eq!(chain(&storage).await, left, "{sql}");
        for id in ["1", "2", "3", "5", "6", "7"] {
            let again = vec![send_item("one", id, "log:ops", "{}")];
            let sent = gate.batch("a", again).await;
            let is_free = free.split(' ').any(|other| other == id);
            let code = if is_free { "created" } else { "duplicate" };
            assert_eq!(refused_code(&sent.verdicts[0]), code, "{sql}: {id}");
        }
    }
}
