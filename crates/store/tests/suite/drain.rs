//! Taking, settling, recovering: DR-01, DR-02, DR-07, DR-18, C18, C20.

use std::time::Duration;

use heddle_core::clock::Ids;
use heddle_core::drain::RowMove;
use heddle_core::ids::{MeshId, RowId};
use heddle_core::limits::BACKOFF_MS_MIN;
use heddle_core::outbox_status::OutboxStatus::{Dead, Done, Inflight, Pending};
use heddle_store::{AcceptKey, Settle};

use crate::fixture::{Fixture, NOW, at, dead, retry};

const EVERYTHING: usize = usize::MAX;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Fixture {
    async fn taken(&self, now: Duration, items_max: usize, bytes_max: usize) -> Vec<RowId> {
        let due = self.store.take_due(self.mesh, now, items_max, bytes_max);
        due.await.unwrap().into_iter().map(|due| due.row).collect()
    }

    async fn retry_at(&self, row: RowId, due: Duration) {
        let taken = self.store.take_one(row).await.unwrap().unwrap();
        let settle = Settle {
            row,
            attempts: taken.attempts,
            next: retry("broker away"),
            begun: NOW,
            at: NOW,
            due,
        };
        self.store.settle(vec![settle]).await.unwrap();
    }
}

#[tokio::test]
async fn dr_01_a_row_that_was_taken_is_not_taken_again() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    assert_eq!(fixture.taken(ms(0), 10, EVERYTHING).await, [row]);
    assert!(fixture.taken(ms(0), 10, EVERYTHING).await.is_empty());
    assert_eq!(fixture.store.take_one(row).await.unwrap(), None);
    assert_eq!(fixture.find(row).await.status, Inflight);
}

#[tokio::test]
async fn rows_are_taken_longest_due_first_and_never_before_they_are_due() {
    let fixture = Fixture::new();
    let [a, b, c, d] = [
        fixture.accept("a").await,
        fixture.accept("b").await,
        fixture.accept("c").await,
        fixture.accept("d").await,
    ];
    fixture.retry_at(a, ms(500)).await;
    fixture.retry_at(b, ms(200)).await;
    fixture.retry_at(c, ms(501)).await;
    let next = fixture.store.next_due(fixture.mesh).await.unwrap();
    assert_eq!(next, Some(ms(0)));
    assert_eq!(fixture.taken(ms(500), 10, EVERYTHING).await, [d, b, a]);
    let next = fixture.store.next_due(fixture.mesh).await.unwrap();
    assert_eq!(next, Some(ms(501)));
    assert_eq!(fixture.taken(ms(501), 10, EVERYTHING).await, [c]);
    assert_eq!(fixture.store.next_due(fixture.mesh).await.unwrap(), None);
}

#[tokio::test]
async fn a_batch_keeps_both_bounds_but_one_large_row_still_goes() {
    let fixture = Fixture::new();
    let mut rows = Vec::new();
    for id in ["a", "b", "c", "d", "e"] {
        rows.push(fixture.accept(id).await);
    }
    // Each payload has five bytes.
    assert_eq!(fixture.taken(ms(0), 10, 4).await, rows[..1]);
    assert_eq!(fixture.taken(ms(0), 10, 14).await, rows[1..3]);
    assert_eq!(fixture.taken(ms(0), 1, EVERYTHING).await, rows[3..4]);
    assert_eq!(fixture.taken(ms(0), 0, 0).await, rows[4..]);
}

#[tokio::test]
async fn a_mesh_takes_only_its_own_rows() {
    let fixture = Fixture::new();
    fixture.accept("a").await;
    let other = MeshId(fixture.ids.ulid());
    let key = AcceptKey {
        mesh: other,
        ..fixture.key("a", 1)
    };
    let accepted = fixture.store.accept::<()>(key, Ok(fixture.new_row())).await;
    accepted.unwrap();
    let due = fixture.store.take_due(other, ms(0), 10, EVERYTHING).await;
    assert_eq!(due.unwrap().len(), 1);
    let next = fixture.store.next_due(fixture.mesh).await.unwrap();
    assert_eq!(next, Some(ms(0)));
}

#[tokio::test]
async fn a_taken_row_carries_what_is_sent() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    fixture.retry_at(row, ms(9)).await;
    let due = fixture.store.take_one(row).await.unwrap().unwrap();
    assert_eq!((due.row, due.attempts), (row, 1));
    assert_eq!(
        (due.agent.as_str(), due.client_message_id.as_str()),
        ("planner", "a")
    );
    assert_eq!((&due.payload[..], due.enqueued_at), (&b"hello"[..], NOW));
}

#[tokio::test]
async fn each_verdict_leaves_the_row_where_it_says_c20() {
    let fixture = Fixture::new();
    let done = fixture.row_in(Inflight, "done").await;
    let died = fixture.row_in(Inflight, "dead").await;
    let again = fixture.row_in(Inflight, "again").await;
    fixture.settle(again, retry("reset")).await;
    let row = fixture.find(again).await;
    assert_eq!((row.status, row.attempts), (Pending, 1));
    assert_eq!(row.last_error.as_deref(), Some("reset"));

    fixture.settle(died, dead("not_a_member: no")).await;
    let row = fixture.find(died).await;
    assert_eq!((row.status, row.attempts), (Dead, 1));
    assert_eq!(row.last_error.as_deref(), Some("not_a_member: no"));

    let verdict = fixture.done();
    let RowMove::Done {
        broker_message_id, ..
    } = verdict
    else {
        panic!();
    };
    fixture.settle(done, verdict).await;
    let row = fixture.find(done).await;
    assert_eq!((row.status, row.attempts), (Done, 1));
    assert_eq!(row.broker_message_id, Some(broker_message_id));
    assert_eq!(
        (row.history_id, row.delivered_at),
        (Some(at(1, 7)), Some(NOW))
    );
}

#[tokio::test]
async fn an_error_of_the_past_does_not_stay_on_a_row_that_is_done() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    fixture.retry_at(row, ms(0)).await;
    fixture.store.take_one(row).await.unwrap();
    fixture.settle(row, fixture.done()).await;
    let row = fixture.find(row).await;
    assert_eq!((row.last_error, row.attempts), (None, 2));
}

#[tokio::test]
async fn a_verdict_that_comes_too_late_changes_nothing_and_takes_no_other_along() {
    let fixture = Fixture::new();
    let dead_row = fixture.row_in(Dead, "dead").await;
    let waiting = fixture.accept("waiting").await;
    let inflight = fixture.row_in(Inflight, "inflight").await;
    let unknown = RowId(fixture.ids.ulid());
    let before = (fixture.find(dead_row).await, fixture.find(waiting).await);
    let moves = [dead_row, waiting, unknown, inflight].map(|row| Settle {
        row,
        attempts: 0,
        next: fixture.done(),
        begun: NOW,
        at: NOW,
        due: ms(0),
    });
    fixture.store.settle(moves.to_vec()).await.unwrap();
    let after = (fixture.find(dead_row).await, fixture.find(waiting).await);
    assert_eq!(before, after);
    assert_eq!(fixture.find(inflight).await.status, Done);
}

#[tokio::test]
async fn dr_07_a_wait_is_never_rounded_down() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    fixture.retry_at(row, Duration::from_nanos(1_000_001)).await;
    assert!(fixture.taken(ms(1), 10, EVERYTHING).await.is_empty());
    assert_eq!(fixture.taken(ms(2), 10, EVERYTHING).await, [row]);
}

#[tokio::test]
async fn dr_02_recovery_leaves_nothing_in_flight_and_waits_a_minimum_backoff() {
    let fixture = Fixture::new();
    let sent = fixture.row_in(Inflight, "sent").await;
    let done = fixture.row_in(Done, "done").await;
    let waiting = fixture.accept("waiting").await;
    let (_folder, store) = fixture.crashed_copy();
    assert_eq!(store.recover(NOW).await.unwrap(), 1);
    let figures = store.figures().await.unwrap();
    assert_eq!((figures.inflight, figures.pending, figures.done), (0, 2, 1));

    let early = ms(BACKOFF_MS_MIN - 1);
    let due = store.take_due(fixture.mesh, early, 10, EVERYTHING).await;
    let due: Vec<RowId> = due.unwrap().into_iter().map(|due| due.row).collect();
    assert_eq!(due, [waiting]);
    let due = store.take_due(fixture.mesh, ms(BACKOFF_MS_MIN), 10, EVERYTHING);
    let due = due.await.unwrap();
    assert_eq!((due[0].row, due[0].attempts), (sent, 1));
    assert_eq!(fixture.find(done).await.attempts, 1);
}

#[tokio::test]
async fn c18_due_times_of_a_process_that_ended_mean_nothing_to_the_next() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    fixture.retry_at(row, Duration::from_hours(24)).await;
    fixture.store.recover(NOW).await.unwrap();
    let next = fixture.store.next_due(fixture.mesh).await.unwrap();
    assert_eq!(next, Some(ms(0)));
    assert_eq!(fixture.find(row).await.attempts, 1, "it was not in flight");
}

#[tokio::test]
async fn dr_18_recovering_again_after_a_crash_ends_in_the_same_state() {
    let fixture = Fixture::new();
    fixture.row_in(Inflight, "sent").await;
    fixture.row_in(Dead, "dead").await;
    fixture.accept("fresh").await;
    for (id, due) in [("soon", 1), ("minimum", BACKOFF_MS_MIN), ("late", 90_000)] {
        let row = fixture.accept(id).await;
        fixture.retry_at(row, ms(due)).await;
    }
    fixture.store.recover(NOW).await.unwrap();
    let once = fixture.dump("outbox");
    for _ in 0..3 {
        assert_eq!(fixture.store.recover(NOW).await.unwrap(), 0);
        assert_eq!(fixture.dump("outbox"), once);
    }
}
