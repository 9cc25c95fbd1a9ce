//! Challenge, hello, welcome; and who is let in when one member comes twice.

use std::time::Duration;

use heddle_core::ids::{HistoryId, MemberId};
use heddle_core::limits::NONCE_LIFE;
use heddle_core::negotiate::{ConnectionPolicy, negotiate, read_features};
use heddle_core::retention::DedupeMode;
use heddle_wire::broker::{BROKER_PROTOCOL, ServerFrame};

use super::client::Hello;
use super::house::{House, end};
use crate::storage::Storage;
use crate::test_support::{Fault, Flaky, member, memory, mesh, principal, send_item};
use crate::ws::{BrokerConfig, Ending};

#[tokio::test]
async fn a_hello_is_welcomed_with_features_that_a_daemon_accepts() {
    let house = House::new().await;
    let hello = Hello::of(&principal("a"), &["one", "two"]);
    let (_client, _serving, welcome) = house.greet(hello, "a").await;
    let ServerFrame::Welcome {
        epoch,
        generation,
        features,
        roster,
    } = welcome
    else {
        panic!("{welcome:?}");
    };
    assert_eq!((epoch, generation), (1, 1));
    let negotiated = negotiate(&read_features(&features).unwrap()).unwrap();
    assert_eq!(negotiated.dedupe, DedupeMode::RetentionScoped { days: 365 });
    assert_eq!(negotiated.connection_policy, ConnectionPolicy::PreferNewest);
    assert_eq!(roster.members.len(), 1);
    assert!(roster.members[0].online);
    assert_eq!(roster.members[0].name.as_str(), "a");
    assert_eq!(roster.agents.len(), 2);
}

#[tokio::test]
async fn every_challenge_is_another_one() {
    let house = House::new().await;
    let mut nonces = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let (mut client, _serving) = house.connect("a").await;
        let ServerFrame::Challenge {
            protocol, nonce, ..
        } = client.frame().await
        else {
            panic!("no challenge");
        };
        assert_eq!((protocol, nonce.len()), (BROKER_PROTOCOL, 64));
        nonces.insert(nonce);
    }
    assert_eq!(nonces.len(), 3);
}

#[tokio::test]
async fn a_hello_under_another_name_or_protocol_is_turned_away() {
    let house = House::new().await;
    let mine = || Hello::of(&principal("a"), &[]);
    let cases = [
        (
            Hello {
                protocol: BROKER_PROTOCOL + 1,
                ..mine()
            },
            4001,
            "protocol_mismatch",
        ),
        (
            Hello {
                mesh: mesh(2),
                ..mine()
            },
            1008,
            "identity_mismatch",
        ),
        (
            Hello {
                member: member("b"),
                ..mine()
            },
            1008,
            "identity_mismatch",
        ),
    ];
    for (hello, code, reason) in cases {
        let (mut client, serving) = house.connect("a").await;
        client.frame().await;
        client.hello(hello).await;
        assert_eq!(client.closed().await, (code, reason.to_owned()));
        end(serving).await;
    }
    let roster = house.storage.roster(mesh(1)).await.unwrap();
    assert_eq!(roster.members, [], "a stranger leaves no trace");
}

#[tokio::test]
async fn a_mesh_that_is_not_here_is_turned_away() {
    let storage = memory();
    let house = House::over(storage, BrokerConfig::default()).await;
    let mut elsewhere = principal("a");
    elsewhere.mesh = mesh(9);
    let (near, far) = tokio::io::duplex(1 << 12);
    let role = tokio_tungstenite::tungstenite::protocol::Role::Server;
    let socket = tokio_tungstenite::WebSocketStream::from_raw_socket(far, role, None).await;
    let (broker, shutdown) = (house.broker.clone(), house.shutdown.clone());
    let hello = Hello::of(&elsewhere, &[]);
    let serving = tokio::spawn(async move { broker.serve(socket, elsewhere, shutdown).await });
    let mut client = super::client::Client::over(near).await;
    client.frame().await;
    client.hello(hello).await;
    assert_eq!(client.closed().await, (1008, "unknown_mesh".to_owned()));
    assert_eq!(end(serving).await, Ending::UnknownMesh);
}

#[tokio::test(start_paused = true)]
async fn whoever_says_nothing_is_let_go() {
    let house = House::new().await;
    let (mut client, serving) = house.connect("a").await;
    client.frame().await;
    let before = tokio::time::Instant::now();
    assert_eq!(client.closed().await, (1008, "hello_timeout".to_owned()));
    assert!(
        before.elapsed() <= NONCE_LIFE && before.elapsed() + Duration::from_millis(50) > NONCE_LIFE
    );
    assert_eq!(end(serving).await, Ending::HelloTimeout);
}

#[tokio::test]
async fn the_newest_connection_wins_and_the_older_is_told() {
    let house = House::with_policy(ConnectionPolicy::PreferNewest).await;
    let (mut old, old_serving) = house.enter("a", &["one"]).await;
    let hello = Hello::of(&principal("a"), &["one"]);
    let (watching, mut new) = (tokio::spawn(async move { old.closed().await }), {
        let (client, _serving, welcome) = house.greet(hello, "a").await;
        let ServerFrame::Welcome { generation, .. } = welcome else {
            panic!("{welcome:?}");
        };
        assert_eq!(generation, 2);
        client
    });
    let closed = watching.await.unwrap();
    assert_eq!(closed, (4003, "replaced_by_newer".to_owned()));
    assert_eq!(end(old_serving).await, Ending::Replaced);
    // The end of the old one does not mark the new one offline.
    assert_eq!(online(&house), [member("a")]);
    new.send(1, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    assert_eq!(new.verdicts().await.0, 1);
}

#[tokio::test]
async fn the_oldest_connection_stays_and_the_newer_is_told() {
    let house = House::with_policy(ConnectionPolicy::PreferOldest).await;
    let (mut old, old_serving) = house.enter("a", &["one"]).await;
    let (mut new, new_serving) = house.connect("a").await;
    new.frame().await;
    new.hello(Hello::of(&principal("a"), &["one"])).await;
    assert_eq!(new.closed().await, (4004, "refused_for_older".to_owned()));
    assert_eq!(end(new_serving).await, Ending::RefusedForOlder);
    assert_eq!(online(&house), [member("a")]);
    old.send(1, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    assert_eq!(old.verdicts().await.0, 1);
    drop(old);
    assert_eq!(end(old_serving).await, Ending::PeerClosed);
    assert_eq!(online(&house), []);
    house.enter("a", &["one"]).await;
}

#[tokio::test]
async fn siblings_live_side_by_side_and_each_gets_what_comes() {
    let house = House::with_policy(ConnectionPolicy::AllowConcurrent).await;
    let (mut first, first_serving) = house.enter("a", &["one"]).await;
    let (mut second, _serving) = house.enter("a", &["one"]).await;
    second
        .send(1, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    assert_eq!(first.deliveries().await.len(), 1);
    drop(first);
    end(first_serving).await;
    assert_eq!(online(&house), [member("a")]);
}

/// While something of the old connection may still be committed, the new one is not told that it is
/// in: it could ask about an id and hear "absent" a moment too early (C5, C32).
#[tokio::test]
async fn a_replaced_connection_is_at_rest_before_the_new_one_is_welcome() {
    let storage = Flaky::around(memory());
    let house = House::over(storage.clone(), BrokerConfig::default()).await;
    let (mut old, old_serving) = house.enter("a", &["one"]).await;
    storage.set(Fault::Hold);
    old.send(1, vec![send_item("one", "A", "@a/one", "x")])
        .await;
    storage.accepts_reached(1).await;
    // Read by the old connection, and not begun: it is not begun any more.
    old.send(2, vec![send_item("one", "B", "@a/one", "x")])
        .await;
    let (mut new, _new_serving) = house.connect("a").await;
    new.frame().await;
    new.hello(Hello::of(&principal("a"), &["one"])).await;
    let early = tokio::time::timeout(Duration::from_millis(100), new.frame()).await;
    assert!(early.is_err(), "welcome while an accept is under way");
    storage.release();
    storage.release();
    assert!(matches!(new.frame().await, ServerFrame::Welcome { .. }));
    old.closed().await;
    assert_eq!(end(old_serving).await, Ending::Replaced);
    let history = house
        .storage
        .history_after(mesh(1), HistoryId::ZERO, 9)
        .await;
    assert!(!history.unwrap().is_empty());
}

fn online<S: Storage>(house: &House<S>) -> Vec<MemberId> {
    house
        .broker
        .shared
        .hub
        .online(mesh(1))
        .into_iter()
        .collect()
}
