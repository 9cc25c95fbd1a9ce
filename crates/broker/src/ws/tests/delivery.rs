//! Pushing, acknowledging, resuming: nothing is lost, nothing acknowledged comes again.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use heddle_wire::broker::{Delivery, Request, Verdict};

use super::client::Client;
use super::house::{House, end};
use crate::storage::{DeliveryCursor, PageLimit, Storage};
use crate::test_support::{TestStorage, member, memory, mesh, on_every_storage, send_item, topic};
use crate::ws::config::PUSH_POLL;
use crate::ws::{BrokerConfig, Ending};

on_every_storage!(
    un_acknowledged_deliveries_come_again_and_acknowledged_ones_never,
    a_long_backlog_comes_whole_in_order_and_in_bounded_frames,
    every_agent_of_a_member_gets_its_own_copy,
);

/// A sender and `count` messages from it to `@b/one`.
async fn send_to_b<S: Storage>(house: &House<S>, count: usize, bytes: usize) {
    let (mut sender, serving) = house.enter("a", &["one"]).await;
    for (batch, first) in (0..count).step_by(100).enumerate() {
        let items: Vec<_> = (first..count.min(first + 100))
            .map(|n| send_item("one", &format!("id-{n}"), "@b/one", &"x".repeat(bytes)))
            .collect();
        sender.send(batch.try_into().unwrap(), items).await;
        let (_, verdicts) = sender.verdicts().await;
        assert!(
            verdicts
                .iter()
                .all(|verdict| matches!(verdict, Verdict::Created { .. }))
        );
    }
    drop(sender);
    end(serving).await;
}

async fn register_b<S: Storage>(house: &House<S>) {
    let (client, serving) = house.enter("b", &["one"]).await;
    drop(client);
    end(serving).await;
}

async fn take(client: &mut Client, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(client.deliveries().await);
    }
    assert_eq!(taken.len(), count);
    taken
}

fn seqs(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|d| d.history_id.seq).collect()
}

/// Waits until nothing more than this waits for `b` in the table.
async fn waiting<S: Storage>(storage: &S, count: usize) {
    let limit = PageLimit {
        rows_max: 10_000,
        bytes_max: usize::MAX,
    };
    loop {
        let page = storage
            .deliveries_after(mesh(1), member("b"), DeliveryCursor::START, limit)
            .await
            .unwrap();
        if page.len() == count {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn un_acknowledged_deliveries_come_again_and_acknowledged_ones_never<S: TestStorage>(
    storage: Arc<S>,
) {
    let house = House::over(storage, BrokerConfig::default()).await;
    register_b(&house).await;
    send_to_b(&house, 5, 10).await;
    let (mut client, serving) = house.enter("b", &["one"]).await;
    let taken = take(&mut client, 5).await;
    assert_eq!(seqs(&taken), [1, 2, 3, 4, 5]);
    // Out of order, and one of them twice.
    client.ack(&[taken[3].clone(), taken[0].clone()]).await;
    client.ack(&[taken[0].clone()]).await;
    waiting(house.storage.as_ref(), 3).await;
    drop(client);
    end(serving).await;
    let (mut client, _serving) = house.enter("b", &["one"]).await;
    let again = take(&mut client, 3).await;
    assert_eq!(seqs(&again), [2, 3, 5]);
    client.ack(&again).await;
    waiting(house.storage.as_ref(), 0).await;
}

async fn a_long_backlog_comes_whole_in_order_and_in_bounded_frames<S: TestStorage>(
    storage: Arc<S>,
) {
    const COUNT: usize = 700;
    let house = House::over(storage, BrokerConfig::default()).await;
    register_b(&house).await;
    send_to_b(&house, COUNT, 10_000).await;
    let (mut client, _serving) = house.enter("b", &["one"]).await;
    let mut taken = Vec::new();
    while taken.len() < COUNT {
        let items = client.deliveries().await;
        let bytes: usize = items.iter().map(|item| item.envelope.get().len()).sum();
        assert!(items.len() <= BATCH_ITEMS_MAX && bytes <= BATCH_BYTES_MAX);
        client.ack(&items).await;
        taken.extend(items);
    }
    let expected: Vec<u64> = (1..=COUNT.try_into().unwrap()).collect();
    assert_eq!(seqs(&taken), expected);
    waiting(house.storage.as_ref(), 0).await;
}

async fn every_agent_of_a_member_gets_its_own_copy<S: TestStorage>(storage: Arc<S>) {
    let config = BrokerConfig {
        // Smaller than the copies of one message: a page ends in the middle of a place.
        push_window: 2,
        ..BrokerConfig::default()
    };
    let house = House::over(storage, config).await;
    let (mut client, _serving) = house.enter("b", &["one", "three", "two"]).await;
    for agent in ["one", "two", "three"] {
        client
            .request(Request::Subscribe {
                topic: topic("#ops"),
                agent: heddle_core::names::AgentName::parse(agent).unwrap(),
            })
            .await;
    }
    let items = ["A", "B"].map(|id| send_item("one", id, "#ops", "x"));
    client.send(1, items.into()).await;
    let mut taken = Vec::new();
    while taken.len() < 6 {
        let items = client.deliveries().await;
        client.ack(&items).await;
        taken.extend(items);
    }
    let copies: Vec<String> = taken
        .iter()
        .map(|d| format!("{}/{}", d.history_id.seq, d.agent))
        .collect();
    assert_eq!(
        copies,
        ["1/one", "1/three", "1/two", "2/one", "2/three", "2/two"]
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_is_in_flight_than_the_window_allows() {
    let config = BrokerConfig {
        push_window: 3,
        ..BrokerConfig::default()
    };
    let house = House::over(memory(), config).await;
    register_b(&house).await;
    send_to_b(&house, 5, 10).await;
    let (mut client, _serving) = house.enter("b", &["one"]).await;
    let taken = take(&mut client, 3).await;
    let none = tokio::time::timeout(PUSH_POLL * 3, client.deliveries()).await;
    assert!(none.is_err(), "pushed beyond the window");
    // An ack of what was never pushed opens nothing.
    let mut foreign = taken[0].clone();
    foreign.history_id.seq = 99;
    client.ack(&[foreign]).await;
    let none = tokio::time::timeout(PUSH_POLL * 3, client.deliveries()).await;
    assert!(none.is_err(), "a foreign ack opened the window");
    client.ack(&taken[..1]).await;
    assert_eq!(seqs(&client.deliveries().await), [4]);
}

/// The wake-up is a hint: a message that was committed by another process is found all the same.
#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_costs_time_and_no_message() {
    let storage = memory();
    let house = House::over(storage.clone(), BrokerConfig::default()).await;
    let elsewhere = House::over(storage, BrokerConfig::default()).await;
    let (mut client, _serving) = house.enter("b", &["one"]).await;
    // Let the pump find nothing and fall asleep.
    tokio::time::sleep(Duration::from_millis(10)).await;
    send_to_b(&elsewhere, 1, 10).await;
    let before = tokio::time::Instant::now();
    assert_eq!(seqs(&client.deliveries().await), [1]);
    assert!(before.elapsed() <= Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn c16_t_26_a_slow_reader_loses_its_connection_and_no_message_and_holds_up_nobody() {
    const COUNT: usize = 300;
    let house = House::new().await;
    register_b(&house).await;
    let (mut other, _other_serving) = house.enter("c", &["one"]).await;
    // Connected, and never reads again.
    let (stuck, stuck_serving) = house.enter("b", &["one"]).await;
    send_to_b(&house, COUNT, 10_000).await;
    other
        .send(1, vec![send_item("one", "A", "@c/one", "x")])
        .await;
    assert_eq!(other.verdicts().await.0, 1);
    assert_eq!(end(stuck_serving).await, Ending::SlowReader);
    drop(stuck);
    let (mut client, _serving) = house.enter("b", &["one"]).await;
    let taken = take(&mut client, COUNT).await;
    assert!(taken.is_sorted_by_key(|delivery| delivery.history_id));
}
