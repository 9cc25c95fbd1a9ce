//! The life of a row after its accept: attempts, priorities, damage, age and prune.

use std::time::Duration;

use heddle_core::age::{AgeMark, BIRTH_GRAIN};
use heddle_core::clock::{BootTime, Ids, WallMs};
use heddle_core::envelope::Priority::{self, Low, Next, Now};
use heddle_core::ids::{MeshId, RowId};
use heddle_core::limits::{ATTEMPTS_FIRST_KEPT, ATTEMPTS_LAST_KEPT, DUE_WINDOW_ROWS};
use heddle_core::outbox_status::OutboxStatus::{self, Aborted, Dead, Done, Inflight, Pending};
use heddle_store::{Accepted, NewOutboxRow, PruneFilter};

use crate::fixture::{Fixture, NOW, dead, open, retry};

const ZERO: Duration = Duration::ZERO;
const EVERYTHING: usize = usize::MAX;

impl Fixture {
    async fn accept_with(&self, id: &str, change: impl FnOnce(&mut NewOutboxRow)) -> RowId {
        let mut new = self.new_row();
        change(&mut new);
        match self.store.accept::<()>(self.key(id, 1), Ok(new)).await {
            Ok(Accepted::Inserted { row }) => row,
            other => panic!("{other:?}"),
        }
    }

    async fn try_accept(
        &self,
        id: &str,
        payload: Vec<u8>,
    ) -> Result<Accepted<()>, heddle_store::StoreError> {
        let mut new = self.new_row();
        new.payload = payload;
        self.store.accept(self.key(id, 1), Ok(new)).await
    }

    async fn take(&self, items_max: usize) -> Vec<RowId> {
        let due = self.store.take_due(self.mesh, ZERO, items_max, EVERYTHING);
        due.await.unwrap().into_iter().map(|due| due.row).collect()
    }

    async fn fail(&self, row: RowId, error: &str) {
        self.store.take_one(row).await.unwrap().unwrap();
        self.settle(row, retry(error)).await;
    }
}

// --- attempts ---------------------------------------------------------------------------------

#[tokio::test]
async fn a_row_that_is_delivered_at_once_leaves_no_attempt() {
    let fixture = Fixture::new();
    let row = fixture.row_in(Done, "a").await;
    assert!(fixture.store.outbox_attempts(row).await.unwrap().is_empty());
    assert!(fixture.dump("outbox_attempt").is_empty());
}

#[tokio::test]
async fn every_attempt_that_failed_is_told_with_the_one_that_ended_it() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    fixture.fail(row, "rate_limited: slow down").await;
    fixture.fail(row, "storage_unavailable: later").await;
    fixture.store.take_one(row).await.unwrap();
    fixture.settle(row, fixture.done()).await;
    let told: Vec<_> = fixture.store.outbox_attempts(row).await.unwrap();
    let told: Vec<(u32, &str, &str)> = told
        .iter()
        .map(|a| (a.number, a.outcome.as_str(), a.detail.as_str()))
        .collect();
    let expected = [
        (1, "rate_limited", "slow down"),
        (2, "storage_unavailable", "later"),
        (3, "committed", ""),
    ];
    assert_eq!(told, expected);
    let died = fixture.row_in(Dead, "b").await;
    assert_eq!(fixture.store.outbox_attempts(died).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_attempt_that_a_crash_cut_short_is_told_too() {
    let fixture = Fixture::new();
    let row = fixture.row_in(Inflight, "a").await;
    fixture.store.recover(NOW).await.unwrap();
    let told = fixture.store.outbox_attempts(row).await.unwrap();
    assert_eq!(
        (told[0].number, told[0].outcome.as_str()),
        (1, "interrupted")
    );
    assert_eq!(fixture.find(row).await.attempts, 1);
}

#[tokio::test]
async fn the_log_of_a_row_keeps_its_first_and_last_attempts_and_no_more() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    for n in 0..60 {
        fixture.fail(row, &format!("busy: {n}")).await;
    }
    let told = fixture.store.outbox_attempts(row).await.unwrap();
    let numbers: Vec<u32> = told.iter().map(|a| a.number).collect();
    let first = 1..=ATTEMPTS_FIRST_KEPT;
    let last = 60 - ATTEMPTS_LAST_KEPT + 1..=60;
    assert_eq!(numbers, first.chain(last).collect::<Vec<_>>());
    assert_eq!(fixture.find(row).await.attempts, 60);
}

// --- priorities -------------------------------------------------------------------------------

#[tokio::test]
async fn rows_that_are_due_together_go_by_priority_then_in_order_of_arrival() {
    let fixture = Fixture::new();
    let mut rows = Vec::new();
    for (n, priority) in [Low, Next, Now, Low, Next, Now].into_iter().enumerate() {
        let id = format!("r{n}");
        rows.push(
            fixture
                .accept_with(&id, |new| new.priority = priority)
                .await,
        );
    }
    let order = [2, 5, 1, 4, 0, 3].map(|n| rows[n]);
    // In one batch, and in several.
    for items_max in [10, 4, 2] {
        let mut taken = Vec::new();
        loop {
            let batch = fixture.take(items_max).await;
            if batch.is_empty() {
                break;
            }
            taken.extend(batch);
        }
        assert_eq!(taken, order, "{items_max} at a time");
        for row in taken {
            fixture.settle(row, retry("busy: again")).await;
        }
    }
}

#[tokio::test]
async fn an_urgent_row_overtakes_a_batch_that_is_full_of_large_ones() {
    let fixture = Fixture::new();
    for n in 0..3 {
        let payload = vec![b'x'; 1000];
        let large = |new: &mut NewOutboxRow| {
            new.priority = Next;
            new.payload = payload;
        };
        fixture.accept_with(&format!("large-{n}"), large).await;
    }
    let urgent = fixture
        .accept_with("urgent", |new| new.priority = Now)
        .await;
    let due = fixture.store.take_due(fixture.mesh, ZERO, 256, 1500).await;
    assert_eq!(due.unwrap()[0].row, urgent);
}

#[tokio::test]
async fn nothing_starves_behind_urgent_rows_that_keep_coming() {
    let fixture = Fixture::new();
    let low = fixture.accept_with("low", |new| new.priority = Low).await;
    for n in 0..40 {
        fixture
            .accept_with(&format!("now-{n}"), |new| new.priority = Now)
            .await;
    }
    // Four at a time: there are always more urgent ones than a batch holds.
    let mut batches = 0;
    while !fixture.take(4).await.contains(&low) {
        batches += 1;
        assert!(batches < 8, "passed over for ever");
    }
    assert!(batches > 1, "taken before what is urgent");
}

#[tokio::test]
async fn a_window_of_equal_rows_is_taken_as_it_is_due() {
    let fixture = Fixture::new();
    let mut rows = Vec::new();
    for n in 0..DUE_WINDOW_ROWS + 10 {
        rows.push(fixture.accept(&format!("r{n}")).await);
    }
    let mut taken = Vec::new();
    while taken.len() < rows.len() {
        taken.extend(fixture.take(100).await);
    }
    assert_eq!(taken, rows);
}

// --- damage -----------------------------------------------------------------------------------

/// Changes row 2 behind the back of every guard.
fn vandalised(fixture: Fixture, change: &str) -> Fixture {
    fixture.store.stop();
    fixture
        .raw()
        .execute_batch(&format!(
            "PRAGMA ignore_check_constraints = ON; DROP TRIGGER outbox_frozen;
             UPDATE outbox SET {change} WHERE arrival = 2;
             UPDATE store_state SET clean = 1"
        ))
        .unwrap();
    Fixture {
        store: open(&fixture.path()).unwrap(),
        ..fixture
    }
}

#[tokio::test]
async fn a_damaged_row_is_parked_and_the_others_go_on() {
    for change in [
        "agent = ''",
        "client_message_id = char(7)",
        "row_id = x'00'",
        "priority = 'soon'",
        "attempts = -1",
    ] {
        let fixture = Fixture::new();
        let first = fixture.accept("first").await;
        fixture.accept("damaged").await;
        let last = fixture.accept("last").await;
        let fixture = vandalised(fixture, change);
        assert_eq!(fixture.take(256).await, [first, last], "{change}");
        assert_eq!(fixture.store.outbox_parked().await.unwrap(), 1);
        // It is not due any more, and makes nobody wake up for it.
        assert!(fixture.take(256).await.is_empty());
        assert_eq!(fixture.store.next_due(fixture.mesh).await.unwrap(), None);
        let figures = fixture.store.figures().await.unwrap();
        assert_eq!((figures.pending, figures.inflight), (1, 2), "{change}");
        // A start looks again, and finds it as it was.
        fixture.store.recover(NOW).await.unwrap();
        assert_eq!(fixture.store.outbox_parked().await.unwrap(), 0);
        assert!(fixture.take(256).await.is_empty());
        assert_eq!(fixture.store.outbox_parked().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn more_damaged_rows_than_a_batch_holds_do_not_hide_the_good_one() {
    let fixture = Fixture::new();
    for n in 0..5 {
        fixture.accept(&format!("damaged-{n}")).await;
    }
    let good = fixture.accept("good").await;
    fixture.store.stop();
    fixture
        .raw()
        .execute_batch(
            "DROP TRIGGER outbox_frozen; UPDATE outbox SET agent = '' WHERE arrival <= 5;
             UPDATE store_state SET clean = 1",
        )
        .unwrap();
    let fixture = Fixture {
        store: open(&fixture.path()).unwrap(),
        ..fixture
    };
    let mut looks = 0;
    while fixture
        .store
        .next_due(fixture.mesh)
        .await
        .unwrap()
        .is_some()
    {
        looks += 1;
        assert!(looks < 10);
        if fixture.take(2).await == [good] {
            break;
        }
    }
    assert_eq!(fixture.find(good).await.status, Inflight);
    assert_eq!(fixture.store.outbox_parked().await.unwrap(), 5);
}

// --- age --------------------------------------------------------------------------------------

fn mark(age: Duration) -> AgeMark {
    AgeMark {
        age,
        wall: NOW,
        boot: None,
    }
}

#[tokio::test]
async fn the_age_clock_is_kept_with_all_it_knows() {
    let fixture = Fixture::new();
    assert_eq!(fixture.store.age_mark().await.unwrap(), None);
    for boot in [
        None,
        Some(BootTime {
            boot: u128::MAX - 5,
            since: Duration::from_millis(77),
        }),
    ] {
        let kept = AgeMark {
            age: Duration::from_hours(5),
            wall: WallMs(-3),
            boot,
        };
        fixture.store.mark_age(kept).await.unwrap();
        assert_eq!(fixture.store.age_mark().await.unwrap(), Some(kept));
    }
}

#[tokio::test]
async fn dr_10_a_row_is_as_old_as_the_first_mark_behind_it_and_never_older() {
    let fixture = Fixture::new();
    let hour = Duration::from_hours(1);
    let first = fixture.accept("first").await;
    fixture.store.mark_age(mark(hour * 10)).await.unwrap();
    let second = fixture.accept("second").await;
    // Within the grain of a mark one more serves for all, and moves on with them.
    let soon = hour * 10 + BIRTH_GRAIN / 2;
    fixture.store.mark_age(mark(soon)).await.unwrap();
    let born_by = |age| fixture.store.over_age(fixture.mesh, age, 10);
    assert_eq!(born_by(soon).await.unwrap(), [first, second]);
    let third = fixture.accept("third").await;
    let later = hour * 10 + BIRTH_GRAIN;
    fixture.store.mark_age(mark(later)).await.unwrap();
    assert!(born_by(hour * 9).await.unwrap().is_empty());
    assert_eq!(born_by(hour * 10).await.unwrap(), [first]);
    assert_eq!(born_by(soon).await.unwrap(), [first]);
    assert_eq!(born_by(later).await.unwrap(), [first, second, third]);
    // What comes behind the grain moves it no more.
    let fourth = fixture.accept("fourth").await;
    fixture.store.mark_age(mark(hour * 12)).await.unwrap();
    assert_eq!(born_by(hour * 11).await.unwrap(), [first, second, third]);
    let all = [first, second, third, fourth];
    assert_eq!(born_by(hour * 12).await.unwrap(), all);
    let other = MeshId(fixture.ids.ulid());
    let elsewhere = fixture.store.over_age(other, hour * 99, 10).await;
    assert!(elsewhere.unwrap().is_empty());
    // What does not wait has no age.
    fixture.store.take_one(first).await.unwrap();
    fixture.settle(first, dead("no")).await;
    assert_eq!(born_by(hour * 12).await.unwrap(), all[1..]);
    // Marks of the last month say how old a message is that its broker turns out to have lost.
    fixture.store.forget_births().await.unwrap();
    assert_eq!(fixture.dump("outbox_birth").len(), 3);
    let older_than = |hours| fixture.store.older_than(hour * hours);
    assert_eq!(older_than(1).await.unwrap(), 3, "the fourth may be of now");
    assert_eq!(older_than(0).await.unwrap(), 4);
    assert_eq!(older_than(3).await.unwrap(), 0);
    fixture.store.mark_age(mark(hour * 24 * 40)).await.unwrap();
    fixture.store.forget_births().await.unwrap();
    assert_eq!(fixture.dump("outbox_birth").len(), 2);
    assert_eq!(born_by(hour * 12).await.unwrap(), all[1..]);
    assert_eq!(older_than(24 * 30).await.unwrap(), 4);
}

#[tokio::test]
async fn what_was_agreed_with_a_broker_is_remembered_while_it_is_away() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.store.max_age_hours(fixture.mesh).await.unwrap(),
        None
    );
    for hours in [144, 7884] {
        let set = fixture.store.set_max_age_hours(fixture.mesh, hours);
        set.await.unwrap();
        let kept = fixture.store.max_age_hours(fixture.mesh).await.unwrap();
        assert_eq!(kept, Some(hours));
    }
}

// --- prune ------------------------------------------------------------------------------------

fn filter(statuses: &[OutboxStatus], before: WallMs) -> PruneFilter {
    PruneFilter {
        statuses: statuses.to_vec(),
        before,
        with_empty: false,
    }
}

async fn one_of_each() -> Fixture {
    let fixture = Fixture::new();
    for status in OutboxStatus::ALL {
        fixture.row_in(status, status.as_str()).await;
    }
    fixture
}

#[tokio::test]
async fn c33_ob_10_prune_empties_payloads_of_final_rows_and_changes_nothing_else() {
    let fixture = one_of_each().await;
    let later = WallMs(NOW.0 + 1);
    let everything = filter(&OutboxStatus::ALL, later);
    let look = fixture
        .store
        .prune_look(everything.clone(), 0)
        .await
        .unwrap();
    assert_eq!(look.next, None);
    // Done, dead, aborted; pending, inflight and the successor need their payloads.
    let payloads: Vec<usize> = look.rows.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(payloads, [5, 5, 5]);
    let emptied = fixture.store.prune((1..100).collect()).await.unwrap();
    assert_eq!(emptied, 3);
    for status in OutboxStatus::ALL {
        let key = fixture.key(status.as_str(), 1);
        let accepted = fixture.store.accept::<()>(key, Err(())).await.unwrap();
        let Accepted::Known { decision, row, .. } = accepted else {
            panic!("{status:?} is forgotten");
        };
        assert_eq!(decision.name, format!("{}_match", status.as_str()));
        let emptied = matches!(status, Done | Dead | Aborted);
        let row = fixture.find(row.row).await;
        assert_eq!(row.payload.is_empty(), emptied, "{status:?}");
        assert_eq!(row.status, status);
    }
    let again = fixture.store.prune_look(everything, 0).await.unwrap();
    assert!(again.rows.is_empty());
}

#[tokio::test]
async fn c33_prune_takes_only_the_states_and_ages_that_were_named() {
    let fixture = one_of_each().await;
    let later = WallMs(NOW.0 + 1);
    for (statuses, before, expected) in [
        (vec![Done], later, 1),
        (vec![Done, Dead], later, 2),
        (vec![Done, Dead, Aborted], later, 3),
        (vec![Pending, Inflight], later, 0),
        (vec![Done, Dead, Aborted], NOW, 0),
        (vec![], later, 0),
    ] {
        let look = fixture.store.prune_look(filter(&statuses, before), 0);
        assert_eq!(look.await.unwrap().rows.len(), expected, "{statuses:?}");
    }
}

#[tokio::test]
async fn c33_pages_of_pruned_payloads_are_used_again() {
    let fixture = Fixture::new();
    let mut used = Vec::new();
    for round in 0..3 {
        for n in 0..20 {
            let id = format!("{round}-{n}");
            let payload = vec![b'x'; 20_000];
            let row = fixture.accept_with(&id, |new| new.payload = payload).await;
            fixture.store.take_one(row).await.unwrap();
            fixture.settle(row, fixture.done()).await;
        }
        let full = fixture.store.usage().await.unwrap().used_bytes;
        fixture.store.prune((1..1000).collect()).await.unwrap();
        let pruned = fixture.store.usage().await.unwrap().used_bytes;
        assert!(pruned + 300_000 < full, "{pruned} of {full}");
        used.push(full);
    }
    // A row keeps its leaf page; the pages of its payload come back.
    assert!(used[2] < used[0] + 200_000, "{used:?}");
}

#[tokio::test]
async fn c33_a_file_that_may_not_grow_refuses_what_needs_more_and_uses_what_it_has() {
    let fixture = Fixture::new();
    let payload = vec![b'x'; 100_000];
    // The log is moved at once: the file is as long as its pages.
    fixture.store.bound_log(0);
    let first = fixture
        .accept_with("first", |new| new.payload = payload.clone())
        .await;
    // Before: a move of a row writes all of it anew.
    fixture.store.take_one(first).await.unwrap();
    fixture.settle(first, fixture.done()).await;
    let length = || std::fs::metadata(fixture.path()).unwrap().len();
    let pages = fixture.store.usage().await.unwrap();
    while length() < pages.used_bytes + pages.spare_bytes {
        tokio::task::yield_now().await;
    }
    fixture.store.bound_growth(Some(50_000)).await.unwrap();
    let refused = fixture.try_accept("second", vec![b'x'; 400_000]).await;
    assert!(
        matches!(refused, Err(heddle_store::StoreError::DiskFull)),
        "{refused:?}"
    );
    // What lies in the file already is given back, and its pages are used again.
    assert_eq!(fixture.store.prune((1..10).collect()).await.unwrap(), 1);
    let smaller = vec![b'x'; 60_000];
    fixture.try_accept("second", smaller).await.unwrap();
    let larger = vec![b'x'; 400_000];
    let refused = fixture.try_accept("third", larger.clone()).await;
    assert!(
        matches!(refused, Err(heddle_store::StoreError::DiskFull)),
        "{refused:?}"
    );
    fixture.store.bound_growth(None).await.unwrap();
    fixture.try_accept("third", larger).await.unwrap();
}

#[test]
fn priorities_sort_as_they_are_named() {
    assert!((Priority::Now as u8) < (Priority::Next as u8));
    assert!((Priority::Next as u8) < (Priority::Low as u8));
}
