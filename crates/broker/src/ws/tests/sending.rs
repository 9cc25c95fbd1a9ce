//! Batches and their verdicts.

use std::collections::BTreeMap;
use std::sync::Arc;

use heddle_core::ids::HistoryId;
use heddle_core::limits::BATCH_ITEMS_MAX;
use heddle_wire::broker::{ReplyResult, Request, Verdict};

use super::house::House;
use crate::storage::Upkeep;
use crate::test_support::{mesh, refused_code, send_item, sqlite};
use crate::ws::BrokerConfig;

#[tokio::test]
async fn a_batch_gets_a_verdict_for_each_item_in_its_order() {
    let house = House::new().await;
    let (mut client, _serving) = house.enter("a", &["one"]).await;
    let items = vec![
        send_item("one", "A", "@a/one", "x"),
        send_item("one", "B", "#none", "x"),
        send_item("one", "A", "@a/one", "x"),
        send_item("one", "A", "@a/one", "other"),
        send_item("ghost", "C", "@a/one", "x"),
        send_item("one", "D", "@a/one", "x"),
    ];
    client.send(42, items).await;
    let (batch, verdicts) = client.verdicts().await;
    assert_eq!(batch, 42);
    let codes: Vec<&str> = verdicts.iter().map(refused_code).collect();
    assert_eq!(
        codes,
        [
            "created",
            "unknown_recipient",
            "duplicate",
            "conflict",
            "unknown_agent",
            "created"
        ]
    );
    client.send(43, Vec::new()).await;
    let (batch, verdicts) = client.verdicts().await;
    assert_eq!((batch, verdicts.len()), (43, 0));
}

/// Batches are in the store's line before the first is answered, and still keep their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_in_flight_keep_the_order_of_their_connection() {
    const BATCHES: u64 = 100;
    let sqlite = sqlite();
    let storage = Arc::new(sqlite.storage.clone());
    let house = House::over(storage, BrokerConfig::default()).await;
    let (mut client, _serving) = house.enter("a", &["one"]).await;
    client
        .request(Request::CreateTopic {
            topic: crate::test_support::topic("#ops"),
        })
        .await;
    for batch in 0..BATCHES {
        let items = (0..3).map(|n| send_item("one", &format!("{batch}-{n}"), "#ops", "x"));
        client.send(batch, items.collect()).await;
    }
    let mut places: BTreeMap<u64, Vec<HistoryId>> = BTreeMap::new();
    for _ in 0..BATCHES {
        let (batch, verdicts) = client.verdicts().await;
        let created = verdicts.into_iter().map(|verdict| match verdict {
            Verdict::Created { history_id, .. } => history_id,
            other => panic!("{other:?}"),
        });
        places.insert(batch, created.collect());
    }
    let in_order: Vec<u64> = places.values().flatten().map(|place| place.seq).collect();
    let expected: Vec<u64> = (1..=BATCHES * 3).collect();
    assert_eq!(in_order, expected);
    assert_eq!(house.storage.orphan_check(mesh(1)).await, Ok(vec![]));
}

/// C5: a status that is asked for behind a batch must not say "absent" of what is about to commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_a_status_stands_in_line_behind_the_batches_before_it() {
    let sqlite = sqlite();
    let storage = Arc::new(sqlite.storage.clone());
    let house = House::over(storage, BrokerConfig::default()).await;
    let (mut client, _serving) = house.enter("a", &["one"]).await;
    for number in 0..50 {
        let id = format!("id-{number}");
        client
            .send(number, vec![send_item("one", &id, "@a/one", "x")])
            .await;
        let status = client
            .request(Request::MessageStatus {
                agent: heddle_core::names::AgentName::parse("one").unwrap(),
                client_message_id: heddle_core::ids::ClientMessageId::parse(&id).unwrap(),
            })
            .await;
        assert!(
            matches!(status, ReplyResult::Committed { .. }),
            "{status:?}"
        );
    }
}

#[tokio::test]
async fn a_batch_of_the_largest_size_is_taken() {
    let house = House::new().await;
    let (mut client, _serving) = house.enter("a", &["one"]).await;
    let items = (0..BATCH_ITEMS_MAX).map(|n| send_item("one", &n.to_string(), "#none", "x"));
    client.send(1, items.collect()).await;
    let (_, verdicts) = client.verdicts().await;
    assert_eq!(verdicts.len(), BATCH_ITEMS_MAX);
}
