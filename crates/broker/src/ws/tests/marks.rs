//! A store that is not what was seen of it: an earlier copy that went on, and rows that somebody changed or took.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::ids::{ClientMessageId, HistoryId, IdKey};
use heddle_core::names::AgentName;
use heddle_core::witness::{WITNESSES_MAX, Witness};
use heddle_wire::broker::{Explained, ReplyResult, Request};

use super::client::{Client, Hello};
use super::house::{House, end};
use crate::storage::{Log as _, Storage as _};
use crate::test_support::{member, memory, mesh, party, principal, send_item, sqlite};
use crate::ws::{BrokerConfig, Marks};

fn place(epoch: u64, seq: u64) -> HistoryId {
    HistoryId { epoch, seq }
}

/// That the message of `a/one` under this id was seen there.
fn seen(at: HistoryId, id: &str) -> Witness {
    let id = ClientMessageId::parse(id).unwrap();
    Witness {
        place: at,
        id: IdKey::of(mesh(1), &party("a/one"), &id),
    }
}

async fn send(client: &mut Client, ids: &[&str], to: &str) {
    let items = ids.iter().map(|id| send_item("one", id, to, id));
    client.send(1, items.collect()).await;
    client.verdicts().await;
}

#[tokio::test]
async fn lf_16_a_member_that_knows_other_messages_at_its_places_is_pushed_none_under_them() {
    let house = House::over(memory(), BrokerConfig::default()).await;
    let (mut a, _serving) = house.enter("a", &["one"]).await;
    let (b, gone) = house.enter("b", &["one"]).await;
    drop(b);
    end(gone).await;
    send(&mut a, &["1", "2", "3", "4"], "@b/one").await;
    // B has seen 1, and then others that nobody here knows any more.
    let hello = Hello {
        seen: place(1, 3),
        witnesses: vec![
            seen(place(1, 1), "1"),
            seen(place(1, 2), "x"),
            seen(place(1, 3), "y"),
        ],
        ..Hello::of(&principal("b"), &["one"])
    };
    let (mut b, _serving, _) = house.greet(hello, "b").await;
    let mut pushed = Vec::new();
    while pushed.len() < 4 {
        pushed.extend(b.deliveries().await);
    }
    let places: Vec<_> = pushed.iter().map(|one| one.history_id).collect();
    assert_eq!(places, [place(1, 1), place(2, 1), place(2, 2), place(2, 3)]);
    // The sender is answered with the new place, and goes on in the new epoch.
    send(&mut a, &["5"], "@b/one").await;
    assert_eq!(house.storage.epoch(mesh(1)).await, Ok(2));
    let last = b.deliveries().await;
    assert_eq!(last[0].history_id, place(2, 4));
}

/// New places are work for everybody: who says without an end that others stood there is heard once in a while.
#[tokio::test]
async fn t_31_a_member_that_lies_moves_a_history_once_in_a_while() {
    let house = House::over(memory(), BrokerConfig::default()).await;
    let (mut a, _serving) = house.enter("a", &["one"]).await;
    send(&mut a, &["1", "2", "3"], "@a/one").await;
    let lie = async |at: HistoryId| {
        let hello = Hello {
            seen: at,
            witnesses: vec![seen(at, "x")],
            ..Hello::of(&principal("b"), &["one"])
        };
        let (client, serving, _) = house.greet(hello, "b").await;
        drop(client);
        end(serving).await;
        house.storage.epoch(mesh(1)).await
    };
    assert_eq!(lie(place(1, 2)).await, Ok(2));
    assert_eq!(lie(place(2, 2)).await, Ok(2));
    house.clock.advance(Duration::from_secs(599));
    assert_eq!(lie(place(2, 2)).await, Ok(2));
    house.clock.advance(Duration::from_secs(1));
    assert_eq!(lie(place(2, 2)).await, Ok(3));
}

#[tokio::test]
async fn t_31_nobody_names_more_places_than_a_hello_holds() {
    let house = House::new().await;
    let (mut client, serving) = house.connect("a").await;
    client.frame().await;
    let many = (1..=65)
        .map(|seq| seen(place(1, seq), "x"))
        .collect::<Vec<_>>();
    assert!(many.len() > WITNESSES_MAX);
    let hello = Hello {
        witnesses: many,
        ..Hello::of(&principal("a"), &["one"])
    };
    client.hello(hello).await;
    assert_eq!(
        client.closed().await,
        (1008, "too_many_witnesses".to_owned())
    );
    end(serving).await;
    assert_eq!(house.storage.epoch(mesh(1)).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn lf_16_a_broker_marks_what_it_has_and_knows_by_that_when_its_store_is_an_older_one() {
    let house = House::new().await;
    let kept: Arc<Mutex<Marks>> = Arc::default();
    let marking = {
        let (broker, stop, kept) = (house.broker.clone(), house.shutdown.clone(), kept.clone());
        let keep = move |marks: &Marks| *kept.lock().unwrap() = marks.clone();
        tokio::spawn(async move { broker.mark(Marks::default(), keep, stop).await })
    };
    let (mut a, serving) = house.enter("a", &["one"]).await;
    send(&mut a, &["1"], "@a/one").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(kept.lock().unwrap()[&mesh(1)], [seen(place(1, 1), "1")]);
    // What came since the last look is looked at when it stops, though nobody is here any more.
    send(&mut a, &["2", "3"], "@a/one").await;
    drop(a);
    end(serving).await;
    house.shutdown.cancel();
    marking.await.unwrap();
    let marks = kept.lock().unwrap().clone();
    assert_eq!(
        marks[&mesh(1)],
        [seen(place(1, 3), "3"), seen(place(1, 1), "1")]
    );
    // The same store: nothing. One that has not come so far: a new epoch. One that went on: new places.
    assert_eq!(house.broker.compare(&marks).await, Ok(()));
    assert_eq!(house.storage.epoch(mesh(1)).await, Ok(1));
    for (sent, ends) in [
        (&["1"][..], vec![place(1, 1)]),
        (&["1", "8", "9"], vec![place(1, 1), place(2, 2)]),
    ] {
        let older = House::new().await;
        let (mut a, _serving) = older.enter("a", &["one"]).await;
        send(&mut a, sent, "@a/one").await;
        assert_eq!(older.broker.compare(&marks).await, Ok(()));
        let epochs = older.storage.epochs(mesh(1)).await.unwrap();
        assert_eq!((epochs.epoch, epochs.ends), (2, ends));
    }
    let empty = House::over(memory(), BrokerConfig::default()).await;
    assert_eq!(empty.broker.compare(&marks).await, Ok(()));
    assert_eq!(empty.storage.epoch(mesh(1)).await, Ok(2));
}

async fn explained(client: &mut Client, id: &str) -> Explained {
    let asked = Request::Explain {
        agent: AgentName::parse("one").unwrap(),
        client_message_id: ClientMessageId::parse(id).unwrap(),
    };
    match client.request(asked).await {
        ReplyResult::Explained(explained) => *explained,
        other => panic!("{other:?}"),
    }
}

/// ADR 12: the sender is what was accepted as well. Whoever changes it in the row changes what the message says.
#[tokio::test]
async fn t_21_a_message_whose_sender_was_changed_in_the_table_is_not_shown_as_that_senders() {
    let disk = sqlite();
    let house = House::over(Arc::new(disk.storage.clone()), BrokerConfig::default()).await;
    let (mut a, _serving) = house.enter("a", &["one", "two"]).await;
    let (b, gone) = house.enter("b", &["one"]).await;
    drop(b);
    end(gone).await;
    send(&mut a, &["1", "2", "3"], "@b/one").await;
    let b_key = heddle_core::fingerprint::hex(&member("b").0.to_bytes());
    disk.storage
        .batch(format!(
            "UPDATE message SET sender_agent = 'two' WHERE client_message_id = '1';
             UPDATE message SET sender_member = x'{b_key}' WHERE client_message_id = '2';"
        ))
        .await;
    let (mut b, _serving) = house.enter("b", &["one"]).await;
    let mut pushed = Vec::new();
    while pushed.len() < 3 {
        pushed.extend(b.deliveries().await);
    }
    let nobody = "0".repeat(64);
    let is_marked = |one: &heddle_wire::broker::Delivery| {
        one.wire_fingerprint.as_deref() == Some(nobody.as_str())
    };
    let marked: Vec<bool> = pushed.iter().map(is_marked).collect();
    assert_eq!(marked, [true, true, false]);
    assert!(pushed[2].wire_fingerprint.is_some());
    for (id, damaged) in [("1", true), ("2", true), ("3", false)] {
        let told = explained(&mut a, id).await;
        assert_eq!((told.damaged, told.gone), (damaged, false), "{id}");
    }
}

#[tokio::test]
async fn a_message_that_was_deleted_behind_the_brokers_back_is_told_as_gone() {
    let disk = sqlite();
    let house = House::over(Arc::new(disk.storage.clone()), BrokerConfig::default()).await;
    let (mut a, _serving) = house.enter("a", &["one"]).await;
    send(&mut a, &["1", "2", "3"], "@a/one").await;
    disk.storage
        .batch(
            "DELETE FROM message WHERE client_message_id = '1';
             DELETE FROM message_history WHERE seq = 2;"
                .to_owned(),
        )
        .await;
    for (id, gone) in [("1", true), ("2", true), ("3", false)] {
        let told = explained(&mut a, id).await;
        assert_eq!((told.gone, told.damaged), (gone, false), "{id}");
    }
    // Pruned is another matter: the broker did that, and says so.
    disk.storage
        .batch("UPDATE client_message_dedupe SET history_available = 0".to_owned())
        .await;
    assert!(!explained(&mut a, "1").await.gone);
}
