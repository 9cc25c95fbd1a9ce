//! An accept as a set: how many statements it takes, and what one message that cannot be written does to the
//! others.

use futures_util::future::join_all;
use heddle_core::clock::WallMs;
use heddle_core::drain::PERMANENT;
use heddle_wire::broker::{SendItem, Verdict};
use serde_json::value::to_raw_value;

use super::super::PostgresStorage;
use super::{furnish, message};
use crate::storage::{Accepted, Ack, Storage as _, Upkeep as _};
use crate::test_support::{Gate, envelope, member, mesh, party, postgres, refused_code, send_item};

/// How often the statements of the one connection that writes were run.
pub(super) async fn statements_run(storage: &PostgresStorage) -> i64 {
    let client = storage.writer().await.unwrap();
    let sql =
        "SELECT coalesce(sum(generic_plans + custom_plans), 0)::bigint FROM pg_prepared_statements
        WHERE statement NOT LIKE '%pg_prepared_statements%'";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_set_takes_the_same_number_of_statements_however_large_it_is() {
    let storage = postgres().await;
    furnish(&storage).await;
    let mut counts = Vec::new();
    for (round, size) in [(0_u128, 1_u128), (1, 1), (2, 10), (3, 200)] {
        let set = (0..size)
            .map(|n| message(&format!("{round}-{n}"), 1, round * 1_000 + n))
            .collect();
        let before = statements_run(&storage).await;
        let accepted = storage.accept(mesh(1), set).await.unwrap();
        let is_created = |one: &Accepted| matches!(one, Accepted::Created { .. });
        assert!(accepted.iter().all(is_created), "{accepted:?}");
        counts.push(statements_run(&storage).await - before);
    }
    assert_eq!(counts[1], counts[2]);
    assert_eq!(counts[2], counts[3]);
    assert!(counts[3] <= 20, "{counts:?}");
}

/// Receivers acknowledge beside those who send: what stands in line together is one transaction, with the same number of
/// statements however many there are, and each hears what it changed itself.
#[tokio::test]
async fn acknowledgements_of_many_receivers_and_the_accepts_beside_them_are_one_set() {
    let storage = postgres().await;
    furnish(&storage).await;
    let mut counts = Vec::new();
    for (round, size) in [(0_u128, 1_u128), (1, 1), (2, 40)] {
        let sent = (0..size).map(|n| message(&format!("{round}-{n}"), 1, round * 1_000 + n));
        let accepted = storage.accept(mesh(1), sent.collect()).await.unwrap();
        let before = statements_run(&storage).await;
        // All of them stand in line before the first of them is begun: this thread does not yield.
        let (mut acking, mut sending) = (Vec::new(), Vec::new());
        for (n, one) in (0_u128..).zip(&accepted) {
            let Accepted::Created { history_id, .. } = one else {
                panic!("{one:?}");
            };
            let agent = party("a/one").agent;
            let item = Ack {
                history_id: *history_id,
                agent,
            };
            // The second of them comes too late, and one of nobody's names nothing.
            for member in [member("a"), member("a"), member("b")] {
                acking.push(storage.ack(mesh(1), member, vec![item.clone()], WallMs(5)));
            }
            let beside = message(&format!("{round}-{n}-beside"), 1, round * 1_000 + n + 500);
            sending.push(storage.accept(mesh(1), vec![beside]));
        }
        let (acked, sent) = tokio::join!(join_all(acking), join_all(sending));
        let acked: Vec<usize> = acked.into_iter().map(Result::unwrap).collect();
        assert_eq!(acked, [1, 0, 0].repeat(accepted.len()));
        assert_eq!(sent.len(), accepted.len());
        let is_created = |one: Accepted| matches!(one, Accepted::Created { .. });
        assert!(sent.into_iter().flat_map(Result::unwrap).all(is_created));
        counts.push(statements_run(&storage).await - before);
    }
    assert_eq!(counts[1], counts[2]);
    assert!(counts[2] <= 20, "{counts:?}");
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// B0 of many senders: those that ask while a look-up is under way are answered together.
#[tokio::test]
async fn br_04_look_ups_that_come_together_are_one_statement_and_each_gets_its_own() {
    let storage = postgres().await;
    furnish(&storage).await;
    let held = (0..50_u128).map(|n| message(&format!("held-{n}"), 1, n + 1));
    storage.accept(mesh(1), held.collect()).await.unwrap();
    // All readers are taken: whoever asks now waits, the first for a connection, the others for the first.
    let mut readers = Vec::new();
    for _ in 0..8 {
        readers.push(storage.reader().await.unwrap());
    }
    let before = storage.looks.statements();
    let mut asking = Vec::new();
    for n in 0..200_u128 {
        let name = if n < 50 {
            format!("held-{n}")
        } else {
            format!("free-{n}")
        };
        let ask = storage.known(mesh(1), vec![message(&name, 1, 1).id]);
        asking.push(Box::pin(ask));
    }
    for ask in &mut asking {
        assert!(futures_util::poll!(ask.as_mut()).is_pending());
    }
    drop(readers);
    for (n, ask) in asking.into_iter().enumerate() {
        let looks = ask.await.unwrap();
        assert_eq!(looks.len(), 1);
        assert_eq!(looks[0].consumed.is_some(), n < 50, "{n}");
        assert!(looks[0].sender_registered);
    }
    let statements = storage.looks.statements() - before;
    assert!(statements <= 2, "the first, and all others: {statements}");
}

async fn refuse_rows_of(storage: &PostgresStorage, table: &str, when: &str) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
         CREATE TRIGGER broken BEFORE INSERT ON {table} FOR EACH ROW {when} EXECUTE FUNCTION broken()"
    );
    storage.batch(&sql).await;
}

#[tokio::test]
async fn one_poisoned_message_takes_no_neighbour_along_and_leaves_no_hole() {
    let storage = postgres().await;
    furnish(&storage).await;
    let when = "WHEN (NEW.client_message_id = 'poison')";
    refuse_rows_of(&storage, "message", when).await;
    let ids = ["A", "poison", "B", "poison", "C"];
    let set = ids.iter().zip(1..).map(|(id, n)| message(id, 1, n));
    // Beside another batch, which may be of the same group.
    let (accepted, beside) = tokio::join!(
        storage.accept(mesh(1), set.collect()),
        storage.accept(mesh(1), vec![message("D", 1, 100)]),
    );
    let shown: Vec<&str> = accepted.unwrap().iter().map(shown).collect();
    assert_eq!(shown, ["created", "failed", "created", "failed", "created"]);
    assert_eq!(
        beside.unwrap().iter().map(self::shown).next(),
        Some("created")
    );
    let history = storage.history_after(mesh(1), heddle_core::ids::HistoryId::ZERO, 99);
    let places: Vec<u64> = history
        .await
        .unwrap()
        .iter()
        .map(|h| h.history_id.seq)
        .collect();
    assert_eq!(places, [1, 2, 3, 4]);
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

fn shown(accepted: &Accepted) -> &'static str {
    match accepted {
        Accepted::Created { .. } => "created",
        Accepted::Failed(_) => "failed",
        _ => "other",
    }
}

/// A message with every effect that a destination can have.
fn item(id: &str, to: &str) -> SendItem {
    SendItem {
        envelope: to_raw_value(&envelope(to, "x", &["b/one"])).unwrap(),
        ..send_item("one", id, to, "x")
    }
}

/// v10 §4.7.1: each table refuses its row in turn; then none of the others has one.
#[tokio::test]
async fn v10_4_7_1_every_effect_is_in_the_one_transaction() {
    for (table, to) in [
        ("client_message_dedupe", "#ops"),
        ("message", "#ops"),
        ("message_history", "#ops"),
        ("delivery_queue", "#ops"),
        ("delivery_queue", "@b/one"),
        ("mention_index", "#ops"),
        ("queue_item", "queue:q"),
        ("queue", "queue:new"),
        ("log_row", "log:ops"),
    ] {
        let storage = postgres().await;
        let gate = Gate::open(std::sync::Arc::new(storage.clone())).await;
        gate.subscribe_all(&["a/one", "b/one"]).await;
        let rows = storage.dump().await;
        refuse_rows_of(&storage, table, "").await;
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
        }
        assert_eq!(storage.dump().await, rows, "{table}");
        storage
            .batch(&format!("DROP TRIGGER broken ON {table}"))
            .await;
        let decided = gate.batch("a", vec![item("A", to)]).await;
        assert_eq!(refused_code(&decided.verdicts[0]), "created", "{table}");
        assert_eq!(storage.orphan_check(mesh(1)).await, Ok(vec![]));
    }
}
