//! Presence: sessions are leases, and the roster says who is here, since when, and as of when.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{Clock, ManualClock, ManualIds, WallMs};
use heddle_core::limits::SESSION_LEASE;
use heddle_wire::broker::{ReplyResult, Request, Roster, RosterMember};

use super::client::Client;
use super::house::{House, end};
use crate::limiter::{Budget, LocalLimiter};
use crate::storage::LeaseMs;
use crate::test_support::{TestStorage, member, mesh, mesh_name, on_every_storage};
use crate::ws::{Broker, BrokerConfig};

on_every_storage!(
    a_roster_says_online_since_and_as_of,
    a_session_lives_as_long_as_its_peer_and_ends_with_it,
    c16_whoever_died_with_the_last_process_is_not_here_after_a_restart,
);

async fn roster(client: &mut Client) -> Roster {
    match client.request(Request::Roster).await {
        ReplyResult::Roster { roster } => roster,
        other => panic!("{other:?}"),
    }
}

fn of(roster: &Roster, name: &str) -> RosterMember {
    let found = roster.members.iter().find(|m| m.member == member(name));
    found.unwrap().clone()
}

async fn a_roster_says_online_since_and_as_of<S: TestStorage>(storage: Arc<S>) {
    let house = House::over(storage, BrokerConfig::default()).await;
    let (mut watcher, _watching) = house.enter("a", &["one"]).await;
    house.clock.advance(Duration::from_secs(5));
    let (other, serving) = house.enter("b", &["one"]).await;
    house.clock.advance(Duration::from_secs(2));
    let seen = of(&roster(&mut watcher).await, "b");
    assert_eq!(
        (seen.online, seen.since, seen.as_of),
        (true, Some(6_000), 8_000)
    );
    drop(other);
    end(serving).await;
    house.clock.advance(Duration::from_secs(1));
    let seen = of(&roster(&mut watcher).await, "b");
    assert_eq!(
        (seen.online, seen.since, seen.as_of),
        (false, Some(8_000), 9_000)
    );
}

async fn a_session_lives_as_long_as_its_peer_and_ends_with_it<S: TestStorage>(storage: Arc<S>) {
    let config = BrokerConfig {
        ping_interval: Duration::from_millis(20),
        ..BrokerConfig::default()
    };
    let house = House::over(storage.clone(), config).await;
    let (mut client, serving) = house.enter("a", &["one"]).await;
    // Past the first lease by the lease's own clock; the peer answers pings while it listens.
    let lease = u64::try_from(SESSION_LEASE.as_millis()).unwrap();
    house.clock.advance(SESSION_LEASE / 2);
    let renewed = async {
        while !storage.presence(mesh(1), LeaseMs(lease + 1)).await.unwrap()[0].is_online {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = renewed => {}
        _ = client.deliveries() => panic!("nothing was sent"),
    }
    drop(client);
    end(serving).await;
    let present = storage.presence(mesh(1), LeaseMs(0)).await.unwrap();
    assert!(!present[0].is_online);
}

async fn c16_whoever_died_with_the_last_process_is_not_here_after_a_restart<S: TestStorage>(
    storage: Arc<S>,
) {
    storage
        .ensure_mesh(mesh(1), &mesh_name("home"))
        .await
        .unwrap();
    let name = heddle_core::names::MemberName::parse("a").unwrap();
    storage
        .ensure_member(mesh(1), member("a"), &name)
        .await
        .unwrap();
    let begun = storage.begin_session(mesh(1), member("a"), WallMs(1), LeaseMs(99_999));
    begun.await.unwrap();
    let clock = Arc::new(ManualClock::at(WallMs(7)));
    let limiter = LocalLimiter::new(clock.clone(), Budget::default());
    let broker = Broker::new(
        storage.clone(),
        Arc::new(limiter),
        clock.clone(),
        Arc::new(ManualIds::seeded(1)),
        BrokerConfig::default(),
    );
    broker.forget_sessions().await.unwrap();
    let present = storage.presence(mesh(1), LeaseMs(0)).await.unwrap();
    // Where several brokers serve, it may be at another: its lease decides.
    let expected = if storage.is_shared() {
        (true, Some(WallMs(1)))
    } else {
        (false, Some(clock.wall()))
    };
    assert_eq!((present[0].is_online, present[0].since), expected);
    assert_eq!(storage.lease_time(mesh(1)).await, Ok(LeaseMs(0)));
}
