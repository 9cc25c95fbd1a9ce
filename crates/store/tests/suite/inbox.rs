//! Receiving, reading, acknowledging: IN-01, C9.

use heddle_core::clock::{Ids, WallMs};
use heddle_core::ids::{HistoryId, IdKey, MeshId};
use heddle_core::names::{MemberName, TopicName};
use heddle_core::witness::Witness;
use heddle_store::{Acked, AckedItems, InboxFilter, NewInboxRow, Received};

use crate::fixture::{Fixture, NOW, agent, at};

fn all() -> InboxFilter {
    InboxFilter {
        mesh: None,
        agent: None,
        after: None,
        since: None,
        topic: None,
        from_member: None,
        from_agent: None,
        acked: AckedItems::All,
        limit: 100,
        bytes_max: usize::MAX,
    }
}

impl Fixture {
    async fn receive(&self, items: Vec<NewInboxRow>) -> Vec<Received> {
        self.store.receive(self.mesh, items).await.unwrap()
    }

    async fn arrivals(&self, filter: InboxFilter) -> Vec<i64> {
        let page = self.store.inbox_page(filter).await.unwrap();
        page.iter().map(|row| row.arrival).collect()
    }
}

#[tokio::test]
async fn in_01_duplicated_and_reordered_deliveries_are_stored_once_per_mailbox() {
    let fixture = Fixture::new();
    let items: Vec<NewInboxRow> = (1..=20)
        .map(|n| {
            let to = if n % 3 == 0 { "coder" } else { "tester" };
            fixture.item(to, &format!("m{n}"), at(1, n))
        })
        .collect();
    let mut stored = 0;
    for round in 0..5 {
        for chunk in items.rchunks(3 + round) {
            let mut batch = chunk.to_vec();
            batch.extend_from_slice(chunk);
            let received = fixture.receive(batch).await;
            let is_stored = |one: &&Received| matches!(one, Received::Stored(_));
            stored += received.iter().filter(is_stored).count();
        }
    }
    assert_eq!(stored, items.len());
    assert_eq!(fixture.arrivals(all()).await.len(), items.len());
    let figures = fixture.store.figures().await.unwrap();
    assert_eq!((figures.inbox, figures.unread), (20, 20));
}

#[tokio::test]
async fn in_01_one_message_to_two_agents_lies_in_both_mailboxes() {
    let fixture = Fixture::new();
    let to_coder = fixture.item("coder", "m", at(1, 1));
    let to_tester = fixture.item("tester", "m", at(1, 1));
    let received = fixture.receive(vec![to_coder, to_tester]).await;
    assert_eq!(received, [Received::Stored(1), Received::Stored(2)]);
}

#[tokio::test]
async fn c9_the_same_message_under_a_new_epoch_is_a_duplicate() {
    let fixture = Fixture::new();
    let first = fixture.item("coder", "m", at(1, 9));
    let again = NewInboxRow {
        history_id: at(2, 1),
        ..first.clone()
    };
    fixture.receive(vec![first]).await;
    assert_eq!(fixture.receive(vec![again]).await, [Received::Duplicate]);
    let cursor = fixture.store.delivery_cursor(fixture.mesh).await.unwrap();
    assert_eq!(cursor, at(2, 1), "the cursor passes a duplicate");
}

#[tokio::test]
async fn lf_16_of_two_messages_at_one_place_neither_is_lost_and_neither_speaks_for_the_other() {
    let fixture = Fixture::new();
    let first = fixture.item("coder", "a", at(1, 1));
    let known = IdKey::of(fixture.mesh, &first.sender, &first.client_message_id);
    fixture.receive(vec![first]).await;
    fixture
        .store
        .inbox_shown(vec![1], None, WallMs(5))
        .await
        .unwrap();
    let due = || fixture.store.receipts_due(fixture.mesh, 9);
    assert_eq!(due().await.unwrap().len(), 1);
    let batch = vec![
        fixture.item("coder", "b", at(1, 1)),
        fixture.item("coder", "c", at(1, 2)),
    ];
    let received = fixture.receive(batch.clone()).await;
    let witness = Witness {
        place: at(1, 1),
        id: known,
    };
    assert_eq!(
        received,
        [Received::Displacing(3, witness), Received::Stored(4)]
    );
    // What was said of the first is not said of the second.
    assert_eq!(due().await.unwrap(), []);
    fixture
        .store
        .inbox_ack(vec![1], None, WallMs(6))
        .await
        .unwrap();
    assert_eq!(due().await.unwrap(), []);
    // Each came once, whatever comes again.
    let again = vec![batch[0].clone(), fixture.item("coder", "a", at(2, 7))];
    let again = fixture.receive(again).await;
    assert_eq!(again, [Received::Duplicate, Received::Duplicate]);
    let told = due().await.unwrap();
    assert!(
        told.iter().all(|one| one.history_id == at(2, 7)),
        "{told:?}"
    );
    let agents = vec![agent("coder")];
    let known = fixture.store.witnesses(fixture.mesh, agents).await.unwrap();
    let places: Vec<_> = known.iter().map(|one| one.place).collect();
    assert_eq!(
        places,
        [at(1, 2), at(1, 1)],
        "one without a place is no witness"
    );
}

/// ADR 12: who sent it is a part of what was accepted.
#[tokio::test]
async fn t_21_a_row_whose_sender_was_changed_is_damaged_and_never_shown_as_that_senders() {
    let fixture = Fixture::new();
    let items = ["a", "b", "c", "d"].into_iter().zip(1..);
    let items = items.map(|(id, seq)| fixture.item("coder", id, at(1, seq)));
    fixture.receive(items.collect()).await;
    fixture
        .raw()
        .execute_batch(
            "UPDATE inbox SET sender_agent = 'mallory' WHERE arrival = 1;
             UPDATE inbox SET member_id = zeroblob(16) WHERE arrival = 2;
             UPDATE inbox SET client_message_id = 'x' WHERE arrival = 3;",
        )
        .unwrap();
    let page = fixture.store.inbox_page(all()).await.unwrap();
    let whole: Vec<bool> = page.iter().map(|row| !row.envelope.is_empty()).collect();
    assert_eq!(whole, [false, false, false, true]);
    let look = fixture.store.inbox_look_for_damage(0, |_, _| true);
    assert_eq!(look.await.unwrap().damaged, [1, 2, 3]);
}

#[tokio::test]
async fn the_delivery_cursor_rises_with_its_batch_and_never_falls() {
    let fixture = Fixture::new();
    let other = MeshId(fixture.ids.ulid());
    let cursor = |mesh| fixture.store.delivery_cursor(mesh);
    assert_eq!(cursor(fixture.mesh).await.unwrap(), HistoryId::ZERO);
    let item = |id: &str, place| fixture.item("coder", id, place);
    fixture
        .receive(vec![item("a", at(1, 5)), item("b", at(1, 3))])
        .await;
    assert_eq!(cursor(fixture.mesh).await.unwrap(), at(1, 5));
    fixture.receive(vec![item("c", at(1, 4))]).await;
    assert_eq!(cursor(fixture.mesh).await.unwrap(), at(1, 5));
    fixture.receive(Vec::new()).await;
    fixture
        .receive(vec![item("d", at(u64::MAX, u64::MAX))])
        .await;
    assert_eq!(cursor(fixture.mesh).await.unwrap(), at(u64::MAX, u64::MAX));
    assert_eq!(cursor(other).await.unwrap(), HistoryId::ZERO);
    let last = fixture
        .store
        .inbox_page(all())
        .await
        .unwrap()
        .pop()
        .unwrap();
    assert_eq!(last.history_id, at(u64::MAX, u64::MAX));
}

#[tokio::test]
async fn a_batch_that_fails_leaves_neither_items_nor_cursor() {
    let fixture = Fixture::new();
    fixture
        .raw()
        .execute_batch(
            "CREATE TRIGGER cut BEFORE INSERT ON inbox WHEN NEW.client_message_id = 'cut'
             BEGIN SELECT RAISE(ABORT, 'cut'); END",
        )
        .unwrap();
    let batch = vec![
        fixture.item("coder", "a", at(1, 1)),
        fixture.item("coder", "cut", at(1, 2)),
    ];
    assert!(fixture.store.receive(fixture.mesh, batch).await.is_err());
    assert!(fixture.dump("inbox").is_empty() && fixture.dump("delivery").is_empty());
}

#[tokio::test]
async fn a_place_of_arrival_is_never_given_twice() {
    let fixture = Fixture::new();
    assert_eq!(fixture.store.last_arrival().await.unwrap(), 0);
    fixture
        .receive(vec![fixture.item("coder", "a", at(1, 1))])
        .await;
    fixture.raw().execute("DELETE FROM inbox", []).unwrap();
    assert_eq!(fixture.store.last_arrival().await.unwrap(), 1);
    let received = fixture
        .receive(vec![fixture.item("coder", "b", at(1, 2))])
        .await;
    assert_eq!(received, [Received::Stored(2)]);
}

#[tokio::test]
async fn every_filter_lets_through_what_it_names_and_nothing_else() {
    let fixture = Fixture::new();
    let mut items = Vec::new();
    for n in 1..=4_u64 {
        items.push(fixture.item("coder", &format!("c{n}"), at(1, n)));
    }
    items[1].topic = Some(TopicName::parse("ops").unwrap());
    items[2].sender_name = MemberName::parse("bob").unwrap();
    items[3].sender.agent = agent("builder");
    items[3].received_at = WallMs(NOW.0 + 1);
    items.push(fixture.item("tester", "t", at(1, 5)));
    fixture.receive(items).await;
    let ack = fixture.store.inbox_ack(vec![1], None, NOW).await;
    ack.unwrap();

    for scope in [None, Some(agent("coder"))] {
        let base = InboxFilter {
            agent: scope.clone(),
            ..all()
        };
        let rest = |arrivals: &[i64]| {
            let mut arrivals = arrivals.to_vec();
            arrivals.extend(scope.is_none().then_some(5));
            arrivals
        };
        let found = |filter| fixture.arrivals(filter);
        assert_eq!(found(base.clone()).await, rest(&[1, 2, 3, 4]));
        let filter = InboxFilter {
            acked: AckedItems::None,
            ..base.clone()
        };
        assert_eq!(found(filter).await, rest(&[2, 3, 4]));
        let filter = InboxFilter {
            after: Some(2),
            ..base.clone()
        };
        assert_eq!(found(filter).await, rest(&[3, 4]));
        let filter = InboxFilter {
            since: Some(WallMs(NOW.0 + 1)),
            ..base.clone()
        };
        assert_eq!(found(filter).await, [4]);
        let filter = InboxFilter {
            topic: TopicName::parse("ops").ok(),
            ..base.clone()
        };
        assert_eq!(found(filter).await, [2]);
        let filter = InboxFilter {
            from_member: MemberName::parse("bob").ok(),
            ..base.clone()
        };
        assert_eq!(found(filter).await, [3]);
        let filter = InboxFilter {
            from_agent: Some(agent("builder")),
            ..base.clone()
        };
        assert_eq!(found(filter).await, [4]);
        let filter = InboxFilter {
            mesh: Some(MeshId(fixture.ids.ulid())),
            ..base.clone()
        };
        assert!(found(filter).await.is_empty());
        let filter = InboxFilter { limit: 2, ..base };
        assert_eq!(found(filter).await, [1, 2]);
    }
}

#[tokio::test]
async fn one_agent_in_several_meshes_reads_in_order_of_arrival_within_both_bounds() {
    let fixture = Fixture::new();
    let other = MeshId(fixture.ids.ulid());
    for n in 1..=6 {
        let mesh = if n % 2 == 0 { other } else { fixture.mesh };
        let item = fixture.item("coder", &format!("m{n}"), at(1, n));
        fixture.store.receive(mesh, vec![item]).await.unwrap();
    }
    let filter = |limit, bytes_max| InboxFilter {
        agent: Some(agent("coder")),
        limit,
        bytes_max,
        ..all()
    };
    assert_eq!(
        fixture.arrivals(filter(100, usize::MAX)).await,
        [1, 2, 3, 4, 5, 6]
    );
    assert_eq!(fixture.arrivals(filter(3, usize::MAX)).await, [1, 2, 3]);
    assert_eq!(fixture.arrivals(filter(100, 14)).await, [1, 2]);
    assert_eq!(fixture.arrivals(filter(100, 0)).await, [1]);
    assert!(fixture.arrivals(filter(0, usize::MAX)).await.is_empty());
    let mailbox = InboxFilter {
        mesh: Some(other),
        ..filter(100, 14)
    };
    assert_eq!(fixture.arrivals(mailbox).await, [2, 4]);
}

#[tokio::test]
async fn an_item_is_acknowledged_once_and_only_by_its_own_agent() {
    let fixture = Fixture::new();
    let batch = vec![
        fixture.item("coder", "a", at(1, 1)),
        fixture.item("coder", "b", at(1, 2)),
        fixture.item("tester", "c", at(1, 3)),
    ];
    fixture.receive(batch).await;
    let ack = |arrivals: &[i64], name: Option<&str>, now| {
        fixture
            .store
            .inbox_ack(arrivals.to_vec(), name.map(agent), now)
    };
    let acked = ack(&[1, 1, 3, 99], Some("coder"), NOW).await.unwrap();
    let expected = Acked {
        acked: 1,
        already: 1,
        unknown: vec![3, 99],
    };
    assert_eq!(acked, expected);
    let acked = ack(&[1, 3], None, WallMs(NOW.0 + 5)).await.unwrap();
    assert_eq!((acked.acked, acked.already), (1, 1));
    let page = fixture.store.inbox_page(all()).await.unwrap();
    assert_eq!(page[0].acked_at, Some(NOW), "the first time counts");
    let figures = fixture.store.figures().await.unwrap();
    assert_eq!((figures.inbox, figures.unread), (3, 1));
}
