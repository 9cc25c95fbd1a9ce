//! Peers that speak nonsense, or nothing.

use heddle_core::limits::{FRAME_BYTES_MAX, PING_DEADLINE, PUSH_WINDOW_MAX};
use heddle_wire::broker::{AckItem, ClientFrame};
use tokio_tungstenite::tungstenite::Message;

use super::client::Hello;
use super::house::{House, end};
use crate::test_support::{Counters, member, mesh, principal, send_item};
use crate::ws::Ending;

#[test]
fn nonsense_closes_the_connection_and_is_counted_and_nothing_else_suffers() {
    let counters = Counters::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    metrics::with_local_recorder(&counters, || runtime.block_on(speak_nonsense()));
    assert_eq!(counters.value("heddle_broker_frames_malformed_total"), 6);
}

async fn speak_nonsense() {
    let house = House::new().await;
    let (mut honest, _honest_serving) = house.enter("b", &["one"]).await;
    let too_many = ClientFrame::Ack {
        items: vec![
            AckItem {
                history_id: heddle_core::ids::HistoryId::ZERO,
                agent: heddle_core::names::AgentName::parse("one").unwrap(),
            };
            PUSH_WINDOW_MAX + 1
        ],
    };
    let too_many = serde_json::to_string(&too_many).unwrap();
    let cases = [
        (Message::text("hello?"), 1008, "not_a_frame"),
        (Message::text("{\"type\":\"dance\"}"), 1008, "not_a_frame"),
        (
            Message::text("{\"type\":\"send\",\"batch\":1}"),
            1008,
            "not_a_frame",
        ),
        (Message::text(too_many), 1008, "too_many_acks"),
        (Message::binary(vec![0; 10]), 1003, "not_text"),
        (
            Message::text("x".repeat(FRAME_BYTES_MAX + 1)),
            1009,
            "frame_too_large",
        ),
    ];
    for (message, code, reason) in cases {
        let (mut client, serving) = house.enter("a", &["one"]).await;
        client.say_raw(message).await;
        assert_eq!(client.closed().await, (code, reason.to_owned()));
        end(serving).await;
        honest
            .send(1, vec![send_item("one", "A", "@b/one", "x")])
            .await;
        honest.verdicts().await;
    }
}

#[tokio::test]
async fn a_second_hello_and_a_first_frame_that_is_none_are_refused() {
    let house = House::new().await;
    let (mut client, _serving) = house.enter("a", &["one"]).await;
    client.hello(Hello::of(&principal("a"), &["one"])).await;
    assert_eq!(client.closed().await, (1008, "second_hello".to_owned()));
    let (mut client, _serving) = house.connect("a").await;
    client.frame().await;
    client
        .send(1, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    assert_eq!(client.closed().await, (1008, "hello_expected".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_dropped_at_the_deadline_and_a_living_one_is_not() {
    let house = House::new().await;
    // One that never reads, and so never answers a ping.
    let (_silent, silent_serving) = house.enter("a", &["one"]).await;
    let (mut living, living_serving) = house.enter("b", &["one"]).await;
    let before = tokio::time::Instant::now();
    let reading = tokio::spawn(async move {
        loop {
            living.frame().await;
        }
    });
    assert_eq!(end(silent_serving).await, Ending::PeerSilent);
    let silence = before.elapsed();
    assert!(
        silence >= PING_DEADLINE && silence < PING_DEADLINE * 2,
        "{silence:?}"
    );
    tokio::time::sleep(PING_DEADLINE * 10).await;
    assert!(!living_serving.is_finished());
    let online: Vec<_> = house
        .broker
        .shared
        .hub
        .online(mesh(1))
        .into_iter()
        .collect();
    assert_eq!(online, [member("b")]);
    reading.abort();
}

#[tokio::test]
async fn a_peer_that_vanishes_is_gone() {
    let house = House::new().await;
    let (client, serving) = house.enter("a", &["one"]).await;
    drop(client);
    assert_eq!(end(serving).await, Ending::PeerClosed);
    assert!(house.broker.shared.hub.online(mesh(1)).is_empty());
}
