//! Two brokers on one PostgreSQL: what one accepts the other pushes, a newer session replaces an older one
//! elsewhere, and sessions of the dead run out.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::limits::SESSION_LEASE;

use heddle_wire::broker::{ClientFrame, PartBytes};

use super::blobs;
use super::client::{Client, Hello};
use super::house::{House, end};
use crate::principal::Principal;
use crate::storage::{LeaseMs, PostgresOptions, PostgresStorage, Presence as _};
use crate::test_support::{member, mesh, mesh_name, postgres_options, principal, send_item};
use crate::ws::config::PUSH_POLL;
use crate::ws::{BrokerConfig, Ending};

/// Two brokers that hear each other.
async fn two() -> [House<PostgresStorage>; 2] {
    two_on(&postgres_options().await).await
}

async fn two_on(options: &PostgresOptions) -> [House<PostgresStorage>; 2] {
    let mut houses = Vec::new();
    for _ in 0..2 {
        let storage = PostgresStorage::open(options).await.unwrap();
        let house = House::over(Arc::new(storage), BrokerConfig::default()).await;
        let (broker, shutdown) = (house.broker.clone(), house.shutdown.clone());
        tokio::spawn(async move { broker.attend(shutdown).await });
        houses.push(house);
    }
    houses.try_into().ok().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_broker_accepts_the_other_pushes() {
    let [here, there] = two().await;
    let (mut ann, _serving) = here.enter("a", &["one"]).await;
    let (mut bob, _waiting) = there.enter("b", &["one"]).await;
    for number in 0..5 {
        let id = format!("id-{number}");
        ann.send(number, vec![send_item("one", &id, "@b/one", "hello")])
            .await;
        let pushed = bob.deliveries().await;
        assert_eq!(pushed[0].client_message_id.as_str(), id);
    }
}

/// Well under the poll that would find it without a hint.
const HINTED_WITHIN: Duration = Duration::from_millis(2_500);
const _: () = assert!(HINTED_WITHIN.as_millis() * 2 <= PUSH_POLL.as_millis());

/// A message for bob from ann, who is at the other broker; how long it took is judged by who asks.
async fn across(ann: &mut Client, bob: &mut Client, number: u64) -> Duration {
    let asked = tokio::time::Instant::now();
    let id = format!("id-{number}");
    let item = send_item("one", &id, "@b/one", "hello");
    ann.send(number, vec![item]).await;
    assert_eq!(bob.deliveries().await[0].client_message_id.as_str(), id);
    asked.elapsed()
}

/// DESIGN §12: without the hints every one of these would wait for its poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_at_another_broker_is_hinted_and_waits_for_no_poll() {
    let [here, there] = two().await;
    let (mut ann, _serving) = here.enter("a", &["one"]).await;
    let (mut bob, _waiting) = there.enter("b", &["one"]).await;
    let mut slow = 0;
    for number in 0..20 {
        let took = across(&mut ann, &mut bob, number).await;
        slow += u32::from(took > HINTED_WITHIN);
    }
    // One may fall into the moment in which a listener comes back.
    assert!(slow <= 1, "{slow} of 20 waited for a poll");
}

/// The brokers compare their lease time by a write to each mesh. A mesh whose row somebody holds keeps that waiting, and nobody
/// else's hints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mesh_whose_row_is_held_delays_no_hint_of_another_mesh() {
    let options = postgres_options().await;
    let [here, there] = two_on(&options).await;
    let (mut ann, _serving) = here.enter("a", &["one"]).await;
    let (mut bob, _waiting) = there.enter("b", &["one"]).await;
    there
        .broker
        .ensure_mesh(mesh(2), &mesh_name("other"))
        .await
        .unwrap();
    let zoe = Principal {
        mesh: mesh(2),
        ..principal("z")
    };
    let (mut client, _held) = there.connect_as(zoe.clone().into()).await;
    client.frame().await;
    client.hello(Hello::of(&zoe, &["one"])).await;
    client.frame().await;
    let holding = PostgresStorage::open(&options).await.unwrap();
    let key = mesh(2)
        .0
        .to_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    let hold = format!(
        "BEGIN; SELECT 1 FROM mesh WHERE mesh_id = '\\x{key}' FOR UPDATE; SELECT pg_sleep(9); COMMIT"
    );
    let held = tokio::spawn(async move { holding.batch(&hold).await });
    let mut number = 0;
    let mut slow = 0;
    while !held.is_finished() {
        let took = across(&mut ann, &mut bob, number).await;
        slow += u32::from(took > HINTED_WITHIN);
        number += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        slow == 0,
        "{slow} of {number} waited for a poll while another mesh was held"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_connection_at_another_broker_replaces_the_older_one() {
    let [here, there] = two().await;
    let (_old, serving) = here.enter("a", &["one"]).await;
    let (_new, _serving) = there.enter("a", &["one"]).await;
    assert_eq!(end(serving).await, Ending::Replaced);
}

/// A file's bytes come from a member at another broker, bounded and once, as from one at the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_goes_from_a_member_at_one_broker_to_a_member_at_another() {
    let [here, there] = two().await;
    let (mut ann, _serving) = here.enter("a", &["one"]).await;
    let (mut bob, holding) = there.enter("b", &["one"]).await;
    let (mut eve, _listening) = there.enter("c", &["one"]).await;
    blobs::ask(&mut ann, 1, "b").await;
    let number = blobs::asked(&mut bob).await;
    let give = |data: &str| ClientFrame::BlobPart {
        ask: number,
        data: Some(PartBytes(data.as_bytes().to_vec())),
    };
    // Somebody who was not asked is not heard, wherever it is.
    eve.say(&give("evil")).await;
    blobs::ask(&mut eve, 9, "nobody").await;
    assert_eq!(blobs::words(&blobs::reply(&mut eve).await.1), "absent");
    bob.say(&give("good")).await;
    let (request, result) = blobs::reply(&mut ann).await;
    assert_eq!((request, blobs::words(&result).as_str()), (1, "good"));
    let left = here.storage.count_of("blob_part").await;
    assert_eq!(left, 0, "nothing is kept");
    // Nothing, and more than was asked for, are nothing.
    for data in ["", "too long"] {
        blobs::ask(&mut ann, 2, "b").await;
        let ask = blobs::asked(&mut bob).await;
        let data = Some(PartBytes(data.as_bytes().to_vec()));
        bob.say(&ClientFrame::BlobPart { ask, data }).await;
        assert_eq!(blobs::words(&blobs::reply(&mut ann).await.1), "absent");
    }
    // A holder that leaves in the middle answers nothing; and one that is nowhere is known to be.
    blobs::ask(&mut ann, 3, "b").await;
    blobs::asked(&mut bob).await;
    drop(bob);
    let _ = holding.await;
    for request in [3, 4] {
        let (answered, result) = blobs::reply(&mut ann).await;
        assert_eq!(
            (answered, blobs::words(&result).as_str()),
            (request, "absent")
        );
        if request == 3 {
            blobs::ask(&mut ann, 4, "b").await;
        }
    }
}

/// C16: the lease of a session whose broker was killed runs out by the time that the others share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c16_sessions_of_a_broker_that_is_gone_run_out() {
    let [here, there] = two().await;
    let (_ann, _serving) = here.enter("a", &["one"]).await;
    let (_bob, _waiting) = there.enter("b", &["one"]).await;
    // Of a third one, which is dead: nobody renews it.
    let storage = &here.storage;
    let lease_ms = u64::try_from(SESSION_LEASE.as_millis()).unwrap();
    let dead = storage.begin_session(mesh(1), member("b"), WallMs(5), LeaseMs(lease_ms));
    let generation = dead.await.unwrap();
    here.clock.advance(SESSION_LEASE * 2);
    there.clock.advance(SESSION_LEASE * 2);
    let gone = async {
        while storage
            .renew_session(mesh(1), member("b"), generation, LeaseMs(1))
            .await
            .unwrap()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .unwrap();
}
