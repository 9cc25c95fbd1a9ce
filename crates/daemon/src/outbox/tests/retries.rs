//! Retries: what moves a row, what parks it, and what a jump of the wall changes (nothing).

use std::time::Duration;

use heddle_core::clock::Clock;
use heddle_core::envelope::Priority;
use heddle_core::outbox_status::OutboxStatus::{Dead, Done, Pending};
use tempfile::TempDir;

use super::super::drain::{Taken, take, transmit};
use super::super::pause::{BatchEnd, Pause};
use super::{FakeBroker, HOUR, Mood, START, start};

#[tokio::test]
async fn dr_07_c18_a_jump_of_the_wall_retries_nothing_early_and_nothing_late() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    broker.mood(Mood::Refuse("internal"));
    let live = broker.connect();
    world.accept("a", Priority::Next).await;
    let mut due = Duration::ZERO;
    for (attempt, days) in [0, 1, -1, 8, -8, 3650, -3650].into_iter().enumerate() {
        assert_eq!(world.drain(&live).await, 1, "attempt {attempt}");
        world.jump(days);
        assert_eq!(world.drain(&live).await, 0, "a jump of {days} days");
        let next = world.shared.store.next_due(world.mesh().mesh.mesh).await;
        let next = next.unwrap().unwrap();
        assert!(next >= due + Duration::from_secs(1), "the wait shrank");
        due = next;
        // One millisecond before it is due nothing goes; then it does.
        let wait = due.saturating_sub(world.clock.mono());
        let moment = Duration::from_millis(1);
        world.clock.manual.advance(wait.saturating_sub(moment));
        assert_eq!(world.drain(&live).await, 0);
        world.clock.manual.advance(moment);
    }
    assert_eq!(broker.sent().len(), 7);
}

#[tokio::test]
async fn dr_03_c6_every_refusal_moves_the_row_as_the_table_says() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let live = broker.connect();
    for (code, expected) in [
        ("idempotency_key_reused", Dead),
        ("invalid_request", Dead),
        ("payload_too_large", Dead),
        ("unknown_recipient", Dead),
        ("ambiguous_recipient", Dead),
        ("not_a_member", Dead),
        ("rate_limited", Pending),
        ("limiter_unavailable", Pending),
        ("storage_unavailable", Pending),
        ("request_timeout", Pending),
        ("shutting_down", Pending),
        ("internal", Pending),
        ("a_code_of_next_year", Pending),
    ] {
        broker.mood(Mood::Refuse(code));
        let row = world.accept(code, Priority::Next).await;
        // However long the rows before it have to wait.
        world.clock.manual.advance(HOUR);
        world.drain(&live).await;
        let row = world.row(row).await;
        assert_eq!((row.status, row.attempts), (expected, 1), "{code}");
        assert_eq!(row.last_error, Some(format!("{code}: as told")));
    }
}

#[tokio::test]
async fn c6_when_a_window_opens_what_is_urgent_goes_first_and_no_row_waits_by_itself() {
    const LOWS: usize = 2_000;
    const WINDOW: Duration = Duration::from_secs(5);
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let live = broker.connect();
    broker.mood(Mood::Budget(5, WINDOW));
    let mut rows = Vec::new();
    for number in 0..LOWS {
        rows.push(world.accept(&format!("low-{number}"), Priority::Low).await);
    }
    let lows = |from: usize, to: usize| -> Vec<String> {
        (from..to).map(|number| format!("low-{number}")).collect()
    };
    assert_eq!(world.drain(&live).await, 1, "one batch asks for all");
    assert_eq!(broker.sent()[..7], lows(0, 7));
    let urgent = world.accept("urgent", Priority::Now).await;
    assert_eq!(world.drain(&live).await, 0, "the window is full for all");
    world.jump(30);
    assert_eq!(world.drain(&live).await, 0, "the wall is nobody's window");
    world
        .clock
        .manual
        .advance(WINDOW.saturating_sub(Duration::from_millis(1)));
    assert_eq!(world.drain(&live).await, 0);

    // Behind more rows than any window of the drain holds; after it, those who came first.
    world.clock.manual.advance(Duration::from_millis(300));
    assert_eq!(world.drain(&live).await, 1);
    let sent = broker.sent();
    assert_eq!(
        (sent[0].as_str(), &sent[1..7]),
        ("urgent", &lows(5, 11)[..])
    );
    assert_eq!(world.row(urgent).await.status, Done);
    let refused = world.row(rows[9]).await;
    assert_eq!((refused.status, refused.attempts), (Pending, 2));
    let log = world.shared.store.outbox_attempts(refused.row).await;
    let log = log.unwrap();
    let told = log.iter().map(|one| (one.outcome.as_str(), one.number));
    let told: Vec<_> = told.collect();
    assert_eq!(told, [("rate_limited", 1), ("rate_limited", 2)]);
    assert!(log[1].at > log[0].at);

    // A start knows nothing of the window; the order is the same, and nothing is lost.
    world.accept("also", Priority::Now).await;
    world.pass(0).await;
    let wall = world.stop().await;
    let world = start(folder.path(), wall, None, 2).await;
    assert_eq!(world.drain(&broker.connect()).await, 1);
    let sent = broker.sent();
    assert_eq!((sent[0].as_str(), &sent[1..5]), ("also", &lows(9, 13)[..]));
    assert_eq!(world.drain(&broker.connect()).await, 0);
}

#[tokio::test]
async fn c6_nothing_starves_in_a_window_for_one() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let live = broker.connect();
    broker.mood(Mood::Budget(1, Duration::from_secs(1)));
    world.accept("first", Priority::Next).await;
    world.accept("low", Priority::Low).await;
    world.drain(&live).await;
    let mut windows = 0;
    while !broker.committed.lock().unwrap().contains_key("low") {
        world.accept(&format!("now-{windows}"), Priority::Now).await;
        world.clock.manual.advance(Duration::from_secs(2));
        world.drain(&live).await;
        windows += 1;
        assert!(windows <= 8, "overtaken for ever");
    }
    assert!(windows >= 7, "it went before what is urgent");
}

#[tokio::test]
async fn dr_04_a_row_is_done_only_with_what_the_broker_committed() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let row = world.accept("a", Priority::Next).await;
    broker.mood(Mood::HangUp);
    world.drain(&broker.connect()).await;
    assert_eq!(world.row(row).await.status, Pending);
    assert!(broker.committed.lock().unwrap().is_empty());
    broker.mood(Mood::Commit);
    world.clock.manual.advance(HOUR);
    world.drain(&broker.connect()).await;
    let row = world.row(row).await;
    assert_eq!((row.status, row.attempts), (Done, 2));
    assert!(broker.committed.lock().unwrap().contains_key("a"));
    let attempts = world.shared.store.outbox_attempts(row.row).await.unwrap();
    let told: Vec<&str> = attempts.iter().map(|a| a.outcome.as_str()).collect();
    assert_eq!(told, ["no_answer", "committed"]);
}

#[tokio::test]
async fn a_payload_that_cannot_be_read_is_parked_and_not_dead() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let good = world.accept("good", Priority::Next).await;
    let bad = world.accept("bad", Priority::Next).await;
    let Taken::Rows(mut batch) = take(&world.shared, world.mesh()).await.unwrap() else {
        panic!()
    };
    batch.due[1].payload = b"{ torn".to_vec();
    transmit(
        &world.shared,
        world.shared.meshes.first().unwrap(),
        &broker.connect(),
        batch,
    )
    .await;
    assert_eq!(broker.sent(), ["good"]);
    assert_eq!(world.statuses(&[good, bad]).await, [Done, Pending]);
    assert_eq!(world.shared.store.outbox_parked().await.unwrap(), 1);
    let row = world.row(bad).await;
    assert_eq!(row.attempts, 0, "nothing was sent");
    assert!(row.last_error.unwrap().starts_with("damaged"));
}

/// A broker whose database is away refuses whole batches. Rows that each waited for a time of their own, up to a minute,
/// would be overtaken by everything that is sent after the outage.
#[tokio::test]
async fn what_waited_out_an_outage_of_the_broker_goes_before_what_was_sent_after_it() {
    for code in ["storage_unavailable", "shutting_down", "daemon_busy"] {
        let folder = TempDir::new().unwrap();
        let broker = FakeBroker::new();
        let world = start(folder.path(), START, None, 1).await;
        let live = broker.connect();
        let mut early = Vec::new();
        for number in 0..300 {
            let id = format!("early-{number}");
            world.accept(&id, Priority::Next).await;
            early.push(id);
        }
        broker.mood(Mood::Refuse(code));
        for _ in 0..6 {
            assert_eq!(
                world.drain(&live).await,
                1,
                "{code}: the mesh waits after it"
            );
            world.clock.manual.advance(Duration::from_secs(60));
        }
        let in_vain = broker.sent();
        assert!(in_vain.iter().all(|id| early.contains(id)), "{code}");
        world.drain(&live).await;
        broker.sent();
        // It is back a moment later, and others are sent meanwhile.
        world.clock.manual.advance(Duration::from_millis(1));
        let mut all = early;
        for number in 0..300 {
            let id = format!("late-{number}");
            world.accept(&id, Priority::Next).await;
            all.push(id);
        }
        broker.mood(Mood::Commit);
        world.drain(&live).await;
        assert_eq!(broker.sent(), all, "{code}");
    }
}

/// The other side of it: one row that a broker can never keep.
#[tokio::test]
async fn a_row_that_the_tables_alone_refuse_waits_by_itself_while_the_broker_takes_others() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let live = broker.connect();
    broker.mood(Mood::Except("bad", "storage_unavailable"));
    let bad = world.accept("bad", Priority::Next).await;
    world.accept("good", Priority::Next).await;
    assert_eq!(world.drain(&live).await, 1);
    assert_eq!(broker.sent(), ["bad", "good"]);
    let due = world.shared.store.next_due(world.mesh().mesh.mesh).await;
    let wait = due.unwrap().unwrap().saturating_sub(world.clock.mono());
    assert!(wait >= Duration::from_secs(1), "{wait:?}");
    world.accept("more", Priority::Next).await;
    assert_eq!(world.drain(&live).await, 1);
    assert_eq!(broker.sent(), ["more"]);
    assert_eq!(world.row(bad).await.status, Pending);
}

#[tokio::test]
async fn batches_that_fail_together_are_one_failure_and_the_next_one_goes_alone() {
    let folder = TempDir::new().unwrap();
    let world = start(folder.path(), START, None, 1).await;
    let mut pause = Pause::default();
    assert!(!pause.is_on() && !pause.is_probing());
    for _ in 0..4 {
        pause.heard(BatchEnd::Silent, &world.shared);
    }
    assert_eq!(pause.failures(), 1);
    assert!(pause.is_on() && pause.is_probing());
    pause.heard(BatchEnd::Answered, &world.shared);
    assert!(!pause.is_on() && !pause.is_probing());
}
