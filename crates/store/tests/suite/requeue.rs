//! Requeue: DR-11 to DR-14, and the chain it leaves.

use heddle_core::clock::Ids;
use heddle_core::ids::RowId;
use heddle_core::outbox_status::OutboxStatus::{self, Aborted, Dead, Pending};
use heddle_store::{Accepted, OutboxFind, Requeue, Requeued, StoreError};

use crate::fixture::{Fixture, NOW, agent};

#[tokio::test]
async fn dr_11_requeue_retires_the_row_and_lets_a_successor_wait() {
    for status in [Pending, Dead] {
        let fixture = Fixture::new();
        let old = fixture.row_in(status, "old").await;
        let before = fixture.find(old).await;
        let requeue = fixture.requeue_of(old, "new");
        let new = requeue.new.clone();
        let requeued = fixture.store.requeue(requeue).await.unwrap();
        let Requeued::Done {
            old: retired,
            new: successor,
        } = requeued
        else {
            panic!("{requeued:?}");
        };
        assert_eq!((retired.row, retired.status), (old, Aborted));
        assert_eq!(
            (retired.aborted_at, retired.superseded_by),
            (Some(NOW), Some(new.row))
        );
        assert_eq!(retired.aborted_by.as_deref(), Some("operator"));
        assert_eq!(retired.request_fingerprint, before.request_fingerprint);
        assert_eq!(retired.last_error, before.last_error);
        assert_eq!((successor.row, successor.status), (new.row, Pending));
        assert_eq!(
            (successor.mesh, successor.sender),
            (before.mesh, before.sender)
        );
        assert_eq!((successor.attempts, successor.superseded_by), (0, None));
        assert_eq!(fixture.find(new.row).await.payload, new.payload);
        let due = fixture.store.take_one(new.row).await.unwrap();
        assert!(due.is_some());
    }
}

#[tokio::test]
async fn dr_11_a_successor_that_cannot_be_written_leaves_the_old_row_untouched() {
    let fixture = Fixture::new();
    let old = fixture.row_in(Dead, "old").await;
    let other = fixture.accept("other").await;
    let before = fixture.dump("outbox");
    let mut requeue = fixture.requeue_of(old, "new");
    requeue.new.row = other;
    let requeued = fixture.store.requeue(requeue).await;
    assert!(
        matches!(requeued, Err(StoreError::Sqlite(_))),
        "{requeued:?}"
    );
    assert_eq!(fixture.dump("outbox"), before);
}

#[tokio::test]
async fn dr_11_an_old_row_that_cannot_be_retired_takes_its_successor_along() {
    let fixture = Fixture::new();
    let old = fixture.row_in(Dead, "old").await;
    fixture
        .raw()
        .execute_batch(
            "CREATE TRIGGER cut BEFORE UPDATE OF aborted_at ON outbox
             BEGIN SELECT RAISE(ABORT, 'cut'); END",
        )
        .unwrap();
    let before = fixture.dump("outbox");
    let requeued = fixture.store.requeue(fixture.requeue_of(old, "new")).await;
    assert!(
        matches!(requeued, Err(StoreError::Sqlite(_))),
        "{requeued:?}"
    );
    assert_eq!(fixture.dump("outbox"), before);
    fixture.accept("new").await;
}

#[tokio::test]
async fn dr_12_the_old_id_stays_buried_after_a_requeue() {
    let fixture = Fixture::new();
    fixture.row_in(Aborted, "old").await;
    for (fingerprint, expected) in [(1, "aborted_match"), (2, "aborted_mismatch")] {
        let key = fixture.key("old", fingerprint);
        let accepted = fixture.store.accept::<()>(key, Ok(fixture.new_row())).await;
        let Accepted::Known { decision, .. } = accepted.unwrap() else {
            panic!("the id was free again");
        };
        assert_eq!(decision.name, expected);
    }
}

#[tokio::test]
async fn dr_13_the_chain_is_whole_from_any_of_its_rows_and_oldest_first() {
    let fixture = Fixture::new();
    let mut rows = vec![fixture.accept("r0").await];
    for n in 1..5 {
        let requeue = fixture.requeue_of(rows[n - 1], &format!("r{n}"));
        rows.push(requeue.new.row);
        let requeued = fixture.store.requeue(requeue).await.unwrap();
        assert!(matches!(requeued, Requeued::Done { .. }));
    }
    let bystander = fixture.accept("bystander").await;
    for row in &rows {
        let chain = fixture.store.outbox_chain(*row).await.unwrap();
        let chained: Vec<RowId> = chain.iter().map(|row| row.row).collect();
        assert_eq!(chained, rows);
        assert!(chain.iter().all(|row| row.payload == b"hello"));
    }
    let alone = fixture.store.outbox_chain(bystander).await.unwrap();
    assert_eq!(alone.len(), 1);
    let unknown = RowId(fixture.ids.ulid());
    assert!(
        fixture
            .store
            .outbox_chain(unknown)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn dr_13_a_chain_that_damage_has_closed_does_not_hang_its_reader() {
    let fixture = Fixture::new();
    let old = fixture.row_in(Aborted, "old").await;
    fixture
        .raw()
        .execute_batch(
            "DROP TRIGGER outbox_successor;
             UPDATE outbox SET superseded_by = (SELECT row_id FROM outbox WHERE arrival = 1)
             WHERE arrival = 2",
        )
        .unwrap();
    assert_eq!(fixture.store.outbox_chain(old).await.unwrap().len(), 2);
}

#[tokio::test]
async fn dr_14_what_is_in_flight_or_final_cannot_be_requeued() {
    for status in OutboxStatus::ALL {
        let fixture = Fixture::new();
        let old = fixture.row_in(status, "old").await;
        let before = fixture.dump("outbox");
        let requeued = fixture.store.requeue(fixture.requeue_of(old, "new")).await;
        if status.may_become(Aborted) {
            assert!(matches!(requeued.unwrap(), Requeued::Done { .. }));
        } else {
            assert_eq!(requeued.unwrap(), Requeued::NotRequeueable(status));
            assert_eq!(fixture.dump("outbox"), before);
        }
    }
}

#[tokio::test]
async fn dr_14_an_id_that_the_sender_has_used_is_refused_and_nothing_changes() {
    let fixture = Fixture::new();
    let old = fixture.row_in(Dead, "old").await;
    fixture.accept("taken").await;
    let before = fixture.dump("outbox");
    for id in ["taken", "old"] {
        let requeued = fixture.store.requeue(fixture.requeue_of(old, id)).await;
        assert_eq!(requeued.unwrap(), Requeued::IdTaken);
    }
    let unknown = Requeue {
        old: RowId(fixture.ids.ulid()),
        ..fixture.requeue_of(old, "new")
    };
    let requeued = fixture.store.requeue(unknown).await.unwrap();
    assert_eq!(requeued, Requeued::Unknown);
    assert_eq!(fixture.dump("outbox"), before);
}

#[tokio::test]
async fn c1_an_id_that_only_another_agent_used_is_free_for_a_successor() {
    let fixture = Fixture::new();
    let old = fixture.row_in(Dead, "old").await;
    let mut key = fixture.key("new", 1);
    key.sender.agent = agent("coder");
    let accepted = fixture.store.accept::<()>(key, Ok(fixture.new_row())).await;
    accepted.unwrap();
    let requeued = fixture.store.requeue(fixture.requeue_of(old, "new")).await;
    assert!(matches!(requeued.unwrap(), Requeued::Done { .. }));
    let find = OutboxFind::ClientMessageId {
        id: crate::fixture::client_id("new"),
        mesh: Some(fixture.mesh),
        agent: None,
    };
    assert_eq!(fixture.store.outbox_find(find).await.unwrap().len(), 2);
}
