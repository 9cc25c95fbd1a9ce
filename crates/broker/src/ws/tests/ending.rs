//! How connections are taken down: what was begun is finished, and nothing keeps running.

use super::house::{House, end, tasks_alive};
use crate::storage::Upkeep;
use crate::test_support::{Dump, Fault, Flaky, memory, mesh, refused_code, send_item};
use crate::ws::{BrokerConfig, Ending};

#[tokio::test]
async fn a_shutdown_finishes_and_answers_what_was_read_and_closes_with_1001() {
    let storage = Flaky::around(memory());
    let house = House::over(storage.clone(), BrokerConfig::default()).await;
    let (mut client, serving) = house.enter("a", &["one"]).await;
    storage.set(Fault::Hold);
    for batch in 1..=3 {
        let item = send_item("one", &batch.to_string(), "@a/one", "x");
        client.send(batch, vec![item]).await;
    }
    storage.accepts_reached(3).await;
    house.shutdown.cancel();
    tokio::task::yield_now().await;
    for _ in 0..3 {
        assert!(!serving.is_finished());
        storage.release();
        let (_, verdicts) = client.verdicts().await;
        assert_eq!(refused_code(&verdicts[0]), "created");
    }
    assert_eq!(client.closed().await, (1001, "shutting_down".to_owned()));
    assert_eq!(end(serving).await, Ending::Shutdown);
    assert_eq!(storage.count("message").await, 3);
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(vec![]));
    assert_eq!(tasks_alive().await, 0);
}

#[tokio::test]
async fn a_shutdown_before_the_hello_closes_at_once() {
    let house = House::new().await;
    let (mut client, serving) = house.connect("a").await;
    client.frame().await;
    house.shutdown.cancel();
    assert_eq!(client.closed().await, (1001, "shutting_down".to_owned()));
    assert_eq!(end(serving).await, Ending::Shutdown);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_a_stuck_store_only_so_long() {
    let storage = Flaky::around(memory());
    let house = House::over(storage.clone(), BrokerConfig::default()).await;
    let (mut client, serving) = house.enter("a", &["one"]).await;
    storage.set(Fault::Hold);
    client
        .send(1, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    storage.accepts_reached(1).await;
    house.shutdown.cancel();
    assert_eq!(client.closed().await, (1001, "shutting_down".to_owned()));
    assert_eq!(end(serving).await, Ending::Shutdown);
    assert_eq!(tasks_alive().await, 0);
}

/// XC-07: however a connection ends, all of its tasks end with it.
#[tokio::test]
async fn xc_07_no_task_outlives_its_connection() {
    let house = House::new().await;
    for _ in 0..5 {
        let (mut client, serving) = house.enter("a", &["one"]).await;
        client
            .send(1, vec![send_item("one", "A", "@a/one", "x")])
            .await;
        client.verdicts().await;
        drop(client);
        end(serving).await;
    }
    assert_eq!(tasks_alive().await, 0);
    let (client, serving) = house.enter("a", &["one"]).await;
    // The embedding process drops the connection in the middle of everything.
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    drop(client);
    assert_eq!(tasks_alive().await, 0);
    assert!(house.broker.shared.hub.online(mesh(1)).is_empty());
}

/// A peer that goes away with a batch under way: the batch is committed all the same.
#[tokio::test]
async fn what_was_read_is_done_though_nobody_waits_for_the_answer() {
    let storage = Flaky::around(memory());
    let house = House::over(storage.clone(), BrokerConfig::default()).await;
    let (mut client, serving) = house.enter("a", &["one"]).await;
    storage.set(Fault::Hold);
    client
        .send(1, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    storage.accepts_reached(1).await;
    drop(client);
    storage.release();
    assert_eq!(end(serving).await, Ending::PeerClosed);
    assert_eq!(storage.count("message").await, 1);
    // The retry on the next connection finds it.
    storage.set(Fault::None);
    let (mut client, _serving) = house.enter("a", &["one"]).await;
    client
        .send(2, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    let (_, found) = client.verdicts().await;
    assert_eq!(refused_code(&found[0]), "duplicate");
}
