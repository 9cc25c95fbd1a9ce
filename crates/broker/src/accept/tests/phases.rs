//! What each phase leaves behind, on every store.

use std::sync::Arc;

use heddle_core::drain::PERMANENT;
use heddle_core::limits::REQUEST_BYTES_MAX;
use heddle_wire::broker::{SendItem, Verdict};
use serde_json::value::{RawValue, to_raw_value};

use crate::storage::{DeliveryCursor, PageLimit, Storage};
use crate::test_support::{
    CountingLimiter, Dump, Flaky, Gate, TestStorage, envelope, member, mesh, on_every_storage,
    party, refused_code, send_item, topic,
};

on_every_storage!(
    br_01_a_dedupe_row_exists_exactly_when_an_accept_committed,
    br_02_a_message_has_all_five_effects_and_the_bytes_that_were_sent,
    br_03_only_subscribers_get_a_delivery_and_only_they_are_woken,
    br_04_rl_03_a_known_id_changes_no_row_and_asks_no_limiter,
    br_05_a_refusal_before_the_transaction_opens_none_and_burns_no_id,
    br_06_an_unknown_recipient_burns_no_id,
    br_10_no_permanent_refusal_leaves_a_dedupe_row,
    br_17_the_same_id_from_another_member_or_agent_is_another_message,
    c1_an_id_of_another_member_cannot_be_asked_about,
);

async fn br_01_a_dedupe_row_exists_exactly_when_an_accept_committed<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one"]).await;
    let items = vec![
        send_item("one", "good", "#ops", "x"),
        send_item("one", "nowhere", "#none", "x"),
        send_item("ghost", "unregistered", "#ops", "x"),
        send_item("one", "queue", "queue:a b", "x"),
        send_item("one", "dm", "@a/one", "x"),
    ];
    let decided = gate.batch("a", items).await;
    let codes: Vec<&str> = decided.verdicts.iter().map(refused_code).collect();
    assert_eq!(
        codes,
        [
            "created",
            "unknown_recipient",
            "unknown_agent",
            "invalid_request",
            "created"
        ]
    );
    for (id, held) in [
        ("good", true),
        ("nowhere", false),
        ("queue", false),
        ("dm", true),
    ] {
        assert_eq!(gate.holds("a/one", id).await, held, "{id}");
    }
    assert!(!gate.holds("a/ghost", "unregistered").await);
    assert_eq!(gate.storage().count("dedupe").await, 2);
    assert_eq!(gate.storage().orphan_check(mesh(1)).await, Ok(vec![]));
}

async fn br_02_a_message_has_all_five_effects_and_the_bytes_that_were_sent<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    // Odd spacing, which must survive, and a mention of somebody who does not exist.
    let text = serde_json::to_string(&envelope("#ops", "x", &["b/one", "b/none"])).unwrap();
    let text = text.replace(':', " : ");
    let item = SendItem {
        envelope: RawValue::from_string(text.clone()).unwrap(),
        ..send_item("one", "A", "#ops", "x")
    };
    let decided = gate.batch("a", vec![item]).await;
    assert_eq!(refused_code(&decided.verdicts[0]), "created");
    for (table, rows) in [
        ("dedupe", 1),
        ("message", 1),
        ("history", 1),
        ("delivery", 2),
        ("mention", 1),
    ] {
        assert_eq!(gate.storage().count(table).await, rows, "{table}");
    }
    let limit = PageLimit {
        rows_max: 9,
        bytes_max: 9_999,
    };
    let page = gate
        .storage()
        .deliveries_after(mesh(1), member("b"), DeliveryCursor::START, limit)
        .await
        .unwrap();
    assert_eq!(&*page[0].envelope, text);
    assert_eq!(page[0].sender, party("a/one"));
    assert_eq!(page[0].sender_name.as_str(), "a");
    let Verdict::Created {
        broker_message_id,
        history_id,
        ..
    } = decided.verdicts[0]
    else {
        panic!("created above");
    };
    assert_eq!(
        (page[0].broker_message_id, page[0].history_id),
        (broker_message_id, history_id)
    );
}

async fn br_03_only_subscribers_get_a_delivery_and_only_they_are_woken<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one", "a/two", "b/one"]).await;
    gate.register("c/one").await;
    gate.register("b/two").await;
    let items = vec![
        send_item("one", "A", "#ops", "x"),
        send_item("one", "A", "#ops", "x"),
        send_item("one", "B", "#none", "x"),
    ];
    let decided = gate.batch("a", items).await;
    let woken: Vec<_> = decided.effects.wake.into_iter().collect();
    assert_eq!(woken, [member("a"), member("b")]);
    let mut rows: Vec<String> = gate.storage().dump().await;
    rows.retain(|line| line.starts_with("delivery "));
    let expected = [party("a/one"), party("a/two"), party("b/one")];
    assert_eq!(rows.len(), expected.len());
    for (row, party) in rows.iter().zip(expected) {
        assert!(row.contains(&party.to_string()), "{row}");
    }
    let retried = gate
        .batch("a", vec![send_item("one", "A", "#ops", "x")])
        .await;
    assert!(retried.effects.wake.is_empty());
}

async fn br_04_rl_03_a_known_id_changes_no_row_and_asks_no_limiter<S: TestStorage>(
    storage: Arc<S>,
) {
    let storage = Flaky::around(storage);
    let limiter = Arc::new(CountingLimiter::default());
    let clock = Gate::open(storage.clone()).await.clock;
    let gate = Gate::with(storage, limiter.clone(), clock).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "A", "#ops", "x").await;
    let (rows, calls) = (gate.storage().dump().await, limiter.call_count());
    let transactions = gate.storage().accept_count();
    for _ in 0..3 {
        let same = gate.send("a/one", "A", "#ops", "x").await;
        assert_eq!(refused_code(&same), "duplicate");
        let other = gate.send("a/one", "A", "#ops", "y").await;
        assert_eq!(refused_code(&other), "conflict");
    }
    assert_eq!(gate.storage().dump().await, rows);
    assert_eq!(limiter.call_count(), calls, "RL-03");
    assert_eq!(gate.storage().accept_count(), transactions);
    // A known id in a batch is free, its neighbour is not.
    let items = vec![
        send_item("one", "A", "#ops", "x"),
        send_item("one", "B", "#ops", "x"),
    ];
    gate.batch("a", items).await;
    assert_eq!(limiter.unit_count(), 2);
}

async fn br_05_a_refusal_before_the_transaction_opens_none_and_burns_no_id<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(Flaky::around(storage)).await;
    gate.storage()
        .create_topic(mesh(1), &topic("#ops"))
        .await
        .unwrap();
    let rows = gate.storage().dump().await;
    let refused = gate.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&refused), "unknown_agent");
    let too_large = "x".repeat(REQUEST_BYTES_MAX + 1);
    let refused = gate.send("a/one", "A", "#ops", &too_large).await;
    assert_eq!(refused_code(&refused), "payload_too_large");
    let refused = gate.send("a/one", "A", "queue:a b", "x").await;
    assert_eq!(refused_code(&refused), "invalid_request");
    assert_eq!(gate.storage().accept_count(), 0);
    assert_eq!(gate.storage().dump().await, rows);
    gate.register("a/one").await;
    let accepted = gate.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&accepted), "created");
}

async fn br_06_an_unknown_recipient_burns_no_id<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    gate.register("a/one").await;
    for to in ["#late", "@b/one"] {
        let refused = gate.send("a/one", to, to, "x").await;
        assert_eq!(refused_code(&refused), "unknown_recipient");
        assert!(!gate.holds("a/one", to).await);
    }
    gate.storage()
        .create_topic(mesh(1), &topic("#late"))
        .await
        .unwrap();
    gate.register("b/one").await;
    for to in ["#late", "@b/one"] {
        // Another text under the same id: the refusal consumed nothing.
        let accepted = gate.send("a/one", to, to, "y").await;
        assert_eq!(refused_code(&accepted), "created");
    }
}

async fn br_10_no_permanent_refusal_leaves_a_dedupe_row<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one"]).await;
    let items = vec![
        send_item("one", "1", "#none", "x"),
        send_item("one", "2", "queue:a b", "x"),
        send_item("one", "3", "#ops", &"x".repeat(REQUEST_BYTES_MAX + 1)),
        send_item("one", "4", "@b/none", "x"),
        SendItem {
            envelope: to_raw_value(&7).unwrap(),
            ..send_item("one", "5", "#ops", "x")
        },
    ];
    let decided = gate.batch("a", items).await;
    for (number, verdict) in decided.verdicts.iter().enumerate() {
        let code = refused_code(verdict);
        assert!(PERMANENT.iter().any(|one| one.as_str() == code), "{code}");
        let id = (number + 1).to_string();
        assert!(!gate.holds("a/one", &id).await, "{code}");
    }
    assert_eq!(gate.storage().count("dedupe").await, 0);
}

async fn br_17_the_same_id_from_another_member_or_agent_is_another_message<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one", "a/two", "b/one"]).await;
    for from in ["a/one", "a/two", "b/one"] {
        let accepted = gate.send(from, "deploy-42", "#ops", "go").await;
        assert_eq!(refused_code(&accepted), "created", "{from}");
    }
    assert_eq!(gate.storage().count("message").await, 3);
}

/// C1: B0 must not tell one member about the ids of another.
async fn c1_an_id_of_another_member_cannot_be_asked_about<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    gate.send("a/one", "secret", "#ops", "x").await;
    assert!(!gate.holds("b/one", "secret").await);
    let accepted = gate.send("b/one", "secret", "#ops", "y").await;
    assert_eq!(refused_code(&accepted), "created");
}
