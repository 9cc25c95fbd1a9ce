//! Queues, receipts and explanations over the wire; a bearer's hello; a history that fell back.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::Clock as _;
use heddle_core::envelope::Priority;
use heddle_core::ids::{ClientMessageId, HistoryId};
use heddle_core::names::{AgentName, QueueName};
use heddle_wire::broker::{
    Explained, LeasedItem, QueueStatus, QueueVerdict, ReceiptItem, ReceiptLevel, ReplyResult,
    Request, SendItem, TakenItem,
};
use serde_json::value::to_raw_value;

use super::client::{Client, Hello};
use super::house::House;
use crate::principal::Claim;
use crate::storage::fence_floor;
use crate::test_support::{
    TestStorage, envelope, mesh, mesh_name, on_every_storage, principal, send_item,
};
use crate::ws::BrokerConfig;

on_every_storage!(
    a_queue_is_pushed_taken_and_acknowledged_over_the_wire,
    receipts_are_told_and_explained_to_the_sender_alone,
    an_urgent_message_overtakes_what_waits_and_nothing_is_lost,
    a_bearer_says_who_it_is_and_its_mesh_is_made,
    lf_16_a_member_that_has_seen_more_begins_a_new_epoch,
);

fn agent(name: &str) -> AgentName {
    AgentName::parse(name).unwrap()
}

fn queue() -> QueueName {
    QueueName::parse("builds").unwrap()
}

async fn take(client: &mut Client, lease_ms: u64) -> Vec<TakenItem> {
    let body = Request::QueueTake {
        queue: queue(),
        agent: agent("one"),
        max: 9,
        lease_ms,
        wake: false,
    };
    match client.request(body).await {
        ReplyResult::Taken { items } => items,
        other => panic!("{other:?}"),
    }
}

async fn settle(client: &mut Client, taken: &TakenItem, is_ack: bool) -> Vec<QueueVerdict> {
    let items = vec![LeasedItem {
        history_id: taken.delivery.history_id,
        fence: taken.fence,
    }];
    let (queue, agent) = (queue(), agent("one"));
    let body = if is_ack {
        Request::QueueAck {
            queue,
            agent,
            items,
        }
    } else {
        Request::QueueRelease {
            queue,
            agent,
            items,
        }
    };
    match client.request(body).await {
        ReplyResult::QueueVerdicts { items } => items,
        other => panic!("{other:?}"),
    }
}

async fn explain(client: &mut Client, id: &str) -> Option<Explained> {
    let body = Request::Explain {
        agent: agent("one"),
        client_message_id: ClientMessageId::parse(id).unwrap(),
    };
    match client.request(body).await {
        ReplyResult::Explained(explained) => Some(*explained),
        ReplyResult::Absent => None,
        other => panic!("{other:?}"),
    }
}

async fn a_queue_is_pushed_taken_and_acknowledged_over_the_wire<S: TestStorage>(storage: Arc<S>) {
    let house = House::over(storage, BrokerConfig::default()).await;
    let (mut a, _a) = house.enter("a", &["one"]).await;
    let (mut b, _b) = house.enter("b", &["one"]).await;
    assert!(take(&mut b, 10).await.is_empty(), "there is no such queue");
    a.send(1, vec![send_item("one", "A", "queue:builds", "go")])
        .await;
    a.verdicts().await;
    // The queue is new, and everybody hears of it.
    while b.roster().await.queues.is_empty() {}
    let first = take(&mut a, 1_000).await.remove(0);
    // Above the time, in microseconds: no store that is put back gives this number out again.
    let floor = fence_floor(house.clock.wall());
    assert_eq!(
        (first.fence, first.delivery_count, first.lease_ms),
        (floor + 1, 1, 1_000)
    );
    assert!(first.delivery.envelope.get().contains("go"));
    assert!(take(&mut b, 1_000).await.is_empty());
    let state = explain(&mut a, "A").await.unwrap().queue.unwrap();
    assert_eq!(state.status, QueueStatus::Leased);
    assert_eq!(state.lease_left_ms, Some(1_000));
    // A wall clock that jumps takes no lease away (C18).
    house.clock.set_wall(heddle_core::clock::WallMs(86_400_000));
    assert!(take(&mut b, 1_000).await.is_empty());
    house.clock.advance(Duration::from_millis(1_000));
    let second = take(&mut b, 1_000).await.remove(0);
    assert!(second.fence > first.fence);
    assert_eq!(second.delivery_count, 2);
    assert_eq!(
        settle(&mut a, &first, true).await,
        [QueueVerdict::StaleFence]
    );
    assert_eq!(
        settle(&mut b, &second, false).await,
        [QueueVerdict::Released]
    );
    let third = take(&mut b, u64::MAX).await.remove(0);
    assert_eq!(settle(&mut b, &third, true).await, [QueueVerdict::Acked]);
    assert_eq!(settle(&mut b, &third, true).await, [QueueVerdict::Acked]);
    let state = explain(&mut a, "A").await.unwrap().queue.unwrap();
    assert_eq!(
        (state.status, state.fence),
        (QueueStatus::Acked, third.fence)
    );
    assert_eq!(house.storage.orphan_check(mesh(1)).await, Ok(vec![]));
}

async fn receipts_are_told_and_explained_to_the_sender_alone<S: TestStorage>(storage: Arc<S>) {
    let house = House::over(storage, BrokerConfig::default()).await;
    let (mut b, _b) = house.enter("b", &["one"]).await;
    let (mut a, _a) = house.enter("a", &["one"]).await;
    a.send(1, vec![send_item("one", "A", "@b/one", "x")]).await;
    a.verdicts().await;
    let delivered = b.deliveries().await;
    let told = explain(&mut a, "A").await.unwrap();
    assert_eq!(told.deliveries[0].delivered_at, None);
    assert_eq!(told.limiter.map(|note| note.counted), Some(true));
    assert!(explain(&mut b, "A").await.is_none(), "C1");
    let receipt = |level, at| Request::Receipts {
        items: vec![ReceiptItem {
            history_id: delivered[0].history_id,
            agent: agent("one"),
            level,
            at,
        }],
    };
    let changed = b.request(receipt(ReceiptLevel::Acked, 77)).await;
    assert!(matches!(changed, ReplyResult::Ok { changed: true }));
    let changed = b.request(receipt(ReceiptLevel::Shown, 5)).await;
    assert!(matches!(changed, ReplyResult::Ok { changed: false }));
    let told = explain(&mut a, "A").await.unwrap();
    let receipt = &told.deliveries[0];
    assert_eq!(receipt.recipient.member_name.as_str(), "b");
    let levels = (receipt.delivered_at, receipt.shown_at, receipt.acked_at);
    assert_eq!(levels, (Some(77), Some(77), Some(77)));
}

fn with_priority(id: &str, priority: Priority) -> SendItem {
    let mut envelope = envelope("@b/one", "x", &[]);
    envelope["priority"] = priority.as_str().into();
    SendItem {
        envelope: to_raw_value(&envelope).unwrap(),
        ..send_item("one", id, "@b/one", "x")
    }
}

async fn an_urgent_message_overtakes_what_waits_and_nothing_is_lost<S: TestStorage>(
    storage: Arc<S>,
) {
    let config = BrokerConfig {
        push_window: 1,
        ..BrokerConfig::default()
    };
    let house = House::over(storage, config).await;
    let (mut b, _b) = house.enter("b", &["one"]).await;
    let (mut a, _a) = house.enter("a", &["one"]).await;
    let sent = [
        ("1", Priority::Low),
        ("2", Priority::Next),
        ("3", Priority::Next),
        ("4", Priority::Now),
    ];
    // The first is on its way before the others come.
    a.send(1, vec![with_priority("1", Priority::Low)]).await;
    let first = b.deliveries().await;
    let items = sent[1..].iter().map(|(id, p)| with_priority(id, *p));
    a.send(2, items.collect()).await;
    a.verdicts().await;
    a.verdicts().await;
    let mut order = vec![first[0].history_id.seq];
    b.ack(&first).await;
    while order.len() < sent.len() {
        let page = b.deliveries().await;
        order.extend(page.iter().map(|d| d.history_id.seq));
        b.ack(&page).await;
    }
    assert_eq!(order, [1, 4, 2, 3]);
}

async fn a_bearer_says_who_it_is_and_its_mesh_is_made<S: TestStorage>(storage: Arc<S>) {
    let house = House::over(storage, BrokerConfig::default()).await;
    let mut elsewhere = principal("z");
    elsewhere.mesh = mesh(77);
    for _ in 0..2 {
        let claim = Claim::Bearer(mesh_name("ours"));
        let (mut client, serving) = house.connect_as(claim).await;
        client.frame().await;
        client.hello(Hello::of(&elsewhere, &["one"])).await;
        let welcome = client.frame().await;
        let shown = format!("{welcome:?}");
        assert!(shown.starts_with("Welcome"), "{shown}");
        drop(client);
        super::house::end(serving).await;
    }
    let meshes = house.storage.meshes().await.unwrap();
    assert_eq!(meshes[1], (mesh(77), mesh_name("ours")));
    let roster = house.storage.roster(mesh(77)).await.unwrap();
    assert_eq!(roster.members.len(), 1);
}

async fn lf_16_a_member_that_has_seen_more_begins_a_new_epoch<S: TestStorage>(storage: Arc<S>) {
    let house = House::over(storage, BrokerConfig::default()).await;
    let hello = |epoch, seq| Hello {
        seen: HistoryId { epoch, seq },
        ..Hello::of(&principal("a"), &["one"])
    };
    let (mut client, _serving, _) = house.greet(hello(1, 5), "a").await;
    client
        .send(1, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    let place = client.deliveries().await[0].history_id;
    assert_eq!(place, HistoryId { epoch: 2, seq: 1 });
    drop(client);
    // It has seen what there is: nothing changes.
    let (_client, _serving, _) = house.greet(hello(2, 1), "a").await;
    assert_eq!(house.storage.epoch(mesh(1)).await, Ok(2));
    // A place that nobody can have seen is no place.
    let (mut client, _serving) = house.connect("a").await;
    client.frame().await;
    client.hello(hello(u64::MAX, 1)).await;
    assert_eq!(client.closed().await, (1008, "no_such_place".to_owned()));
}
