//! Ages: what too old means, whatever the clocks do, and what the broker says about it.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::HistoryId;
use heddle_core::outbox_status::OutboxStatus::{Dead, Done, Pending};
use heddle_core::retention::DedupeMode;
use metrics_exporter_prometheus::PrometheusBuilder;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::link::Live;

use super::super::requeue::refuse_forgotten;
use super::super::{age, second_look};
use super::{DAY_MS, FakeBroker, HOUR, Mood, START, boot, start};

/// 10 days of memory leave 216 hours: eight days are within them, and a jump of eight more is not.
#[tokio::test]
async fn dr_10_c18_eight_days_without_a_broker_and_a_clock_that_jumps_kill_nothing_and_all_drains_by_due_time()
 {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let mut world = start(folder.path(), START, None, 1).await;
    world.mesh().set_max_age_hours(&world.shared, 216).await;
    broker.mood(Mood::HangUp);
    let mut rows = Vec::new();
    for day in 0..8 {
        for n in 0..5 {
            let id = format!("d{day}-{n}");
            rows.push(world.accept(&id, Priority::Next).await);
        }
        match day {
            2 => world.jump(1),
            3 => world.jump(-1),
            4 => world.jump(8),
            6 => {
                // A restart into a wall clock that was set meanwhile.
                let wall = world.stop().await;
                world = start(folder.path(), WallMs(wall.0 + 8 * DAY_MS), None, 2).await;
            }
            7 => world.jump(-8),
            _ => {}
        }
        for _ in 0..8 {
            world.pass(3).await;
            // The connection comes up, and breaks under the first batch.
            let live = broker.connect();
            assert!(
                world.drain(&live).await <= 1,
                "a silent broker was asked on"
            );
        }
    }
    assert_eq!(world.statuses(&rows).await, vec![Pending; rows.len()]);
    broker.sent();

    // One more break, with jitter that is known: each row is due at a time of its own.
    world.pass(1).await;
    let jitter: Vec<u64> = (0..rows.len() as u64).map(|n| n * 23 % 59 * 1000).collect();
    world.ids.jitter.lock().unwrap().extend(jitter.clone());
    world.drain(&broker.connect()).await;
    let batch = broker.sent();
    assert_eq!(batch.len(), rows.len());
    let mut expected: Vec<(u64, String)> = jitter.into_iter().zip(batch).collect();
    expected.sort_by_key(|(due, _)| *due);
    let expected: Vec<String> = expected.into_iter().map(|(_, id)| id).collect();

    broker.mood(Mood::Commit);
    let live = broker.connect();
    for _ in 0..61 {
        world.clock.manual.advance(Duration::from_secs(1));
        world.drain(&live).await;
    }
    assert_eq!(broker.sent(), expected);
    assert_eq!(world.statuses(&rows).await, vec![Done; rows.len()]);
}

/// C32: the three ends of a row that is truly too old.
#[tokio::test]
async fn c32_dr_05_a_row_that_is_too_old_ends_by_what_the_broker_says() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    world.mesh().set_max_age_hours(&world.shared, 144).await;
    let committed = world.accept("committed", Priority::Next).await;
    let absent = world.accept("absent", Priority::Next).await;
    let foreign = world.accept("foreign", Priority::Next).await;
    // The ack of the first was lost; under the third id somebody else's request stands.
    broker.commit("committed");
    let other = Fingerprint([9; 32]);
    broker
        .committed
        .lock()
        .unwrap()
        .insert("foreign".to_owned(), other);
    world.pass(2).await;
    let young = world.accept("young", Priority::Next).await;
    world.pass(1).await;
    world.mesh().set_live(Some(broker.connect()));
    world.pass(141).await;
    assert_eq!(
        world.statuses(&[committed, absent, foreign, young]).await,
        [Pending; 4]
    );
    world.pass(1).await;
    assert_eq!(
        world.statuses(&[committed, absent, foreign, young]).await,
        [Done, Dead, Dead, Pending]
    );
    let reason = world.row(absent).await.last_error.unwrap();
    assert!(reason.starts_with("max_age: "), "{reason}");
    assert_eq!(
        world.row(committed).await.history_id,
        Some(HistoryId { epoch: 1, seq: 9 })
    );
    assert!(broker.sent().is_empty(), "the last look sent something");

    world.mesh().set_live(None);
    world.pass(3).await;
    let reason = world.row(young).await.last_error.unwrap();
    assert!(reason.starts_with("max_age_outcome_unknown: "), "{reason}");
    let attempts = world.shared.store.outbox_attempts(young).await.unwrap();
    assert_eq!(attempts[0].outcome, "max_age_outcome_unknown");
}

#[tokio::test]
async fn dr_10_a_broker_that_is_there_but_does_not_say_kills_nothing() {
    let folder = TempDir::new().unwrap();
    let world = start(folder.path(), START, None, 1).await;
    world.mesh().set_max_age_hours(&world.shared, 144).await;
    let row = world.accept("a", Priority::Next).await;
    world.pass(1).await;
    world.clock.manual.advance(HOUR * 200);
    // A connection that hangs up on the question while another one stands.
    let (outgoing, mut frames) = mpsc::channel::<String>(16);
    let live = Arc::new(Live::new(outgoing));
    world.mesh().set_live(Some(Arc::clone(&live)));
    let hang_up = tokio::spawn(async move {
        frames.recv().await;
        live.hang_up();
        frames
    });
    age::tick(&world.shared).await;
    let _frames = hang_up.await.unwrap();
    assert_eq!(world.row(row).await.status, Pending);
}

#[tokio::test]
async fn dr_10_what_was_never_agreed_with_a_broker_has_no_end() {
    let folder = TempDir::new().unwrap();
    let world = start(folder.path(), START, None, 1).await;
    let row = world.accept("a", Priority::Next).await;
    world.pass(24 * 400).await;
    assert_eq!(world.row(row).await.status, Pending);
}

/// Restarts: time of one boot counts, time across boots only as far as it is plausible.
#[tokio::test]
async fn dr_10_time_between_two_processes_counts_where_it_is_certain() {
    for (name, after, wall_days, dies) in [
        ("the same boot, 150 hours later", boot(1, 260), 6, true),
        ("the same boot, wall set back", boot(1, 260), -30, true),
        ("the same boot, wall set forward", boot(1, 101), 30, false),
        ("another boot, up for an hour", boot(2, 1), 30, false),
        ("another boot, up for 150 hours", boot(2, 150), 7, true),
        ("another boot, wall set back", boot(2, 150), -1, false),
        ("no clock since boot", None, 30, false),
    ] {
        let folder = TempDir::new().unwrap();
        let world = start(folder.path(), START, boot(1, 100), 1).await;
        world.mesh().set_max_age_hours(&world.shared, 144).await;
        let row = world.accept("a", Priority::Next).await;
        world.pass(1).await;
        let wall = world.stop().await;
        let wall = WallMs(wall.0 + wall_days * DAY_MS);
        let world = start(folder.path(), wall, after, 2).await;
        world.pass(1).await;
        let expected = if dies { Dead } else { Pending };
        assert_eq!(world.row(row).await.status, expected, "{name}");
    }
}

/// C32: no tick has looked yet, the broker is there, and it has forgotten. It is asked, and never sent to.
#[tokio::test]
async fn c32_a_row_that_is_over_age_is_not_sent_in_the_moments_after_a_start() {
    for (days, reason) in [
        // It would still know it.
        (7, "max_age: "),
        (9, "max_age_outcome_unknown: "),
    ] {
        let folder = TempDir::new().unwrap();
        let broker = FakeBroker::new();
        let world = start(folder.path(), START, boot(1, 100), 1).await;
        world.mesh().set_max_age_hours(&world.shared, 144).await;
        let sent = world.accept("sent", Priority::Next).await;
        broker.mood(Mood::HangUp);
        world.drain(&broker.connect()).await;
        assert_eq!(broker.sent(), ["sent"]);
        let never = world.accept("never", Priority::Next).await;
        world.pass(1).await;
        let wall = world.stop().await;
        let away = WallMs(wall.0 + i64::from(days) * DAY_MS);
        let world = start(folder.path(), away, boot(1, 101 + days * 24), 2).await;
        world
            .mesh()
            .set_memory(DedupeMode::RetentionScoped { days: 8 });
        let young = world.accept("young", Priority::Next).await;
        broker.mood(Mood::Commit);
        let live = broker.connect();
        world.mesh().set_live(Some(Arc::clone(&live)));
        world.clock.manual.advance(HOUR);
        world.drain(&live).await;
        assert_eq!(broker.sent(), ["young"], "{days} days");
        let statuses = world.statuses(&[sent, never, young]).await;
        assert_eq!(statuses, [Dead, Dead, Done], "{days} days");
        let said = world.row(sent).await.last_error.unwrap();
        assert!(said.starts_with(reason), "{days} days: {said}");
        let said = world.row(never).await.last_error.unwrap();
        assert!(
            said.starts_with("max_age: "),
            "what was never sent is nowhere: {said}"
        );
        // Only of what may have arrived a person has to say that it is sent again.
        for (row, is_free) in [(sent, days == 7), (never, true)] {
            let row = world.row(row).await;
            let refused = refuse_forgotten(&world.shared, world.mesh(), &row).await;
            assert_eq!(refused.is_ok(), is_free, "{days} days: {refused:?}");
        }
    }
}

/// C32: the process was killed between two ticks, right after it had sent. What it sent does not look younger for it.
#[tokio::test]
async fn c32_a_row_that_was_sent_right_before_a_kill_is_not_sent_again_when_it_is_over_age() {
    for waited in [Duration::ZERO, Duration::from_secs(59), HOUR] {
        let folder = TempDir::new().unwrap();
        let broker = FakeBroker::new();
        let world = start(folder.path(), START, boot(1, 100), 1).await;
        world.mesh().set_max_age_hours(&world.shared, 144).await;
        let before = world.accept("before", Priority::Next).await;
        broker.mood(Mood::Commit);
        world.drain(&broker.connect()).await;
        // Within the grain of that mark, and with no tick in between.
        world.clock.manual.advance(waited);
        let sent = world.accept("sent", Priority::Next).await;
        broker.mood(Mood::HangUp);
        world.drain(&broker.connect()).await;
        assert_eq!(broker.sent(), ["before", "sent"]);
        let wall = world.kill();
        let away = WallMs(wall.0 + 8 * DAY_MS);
        let world = start(folder.path(), away, boot(1, 101 + 8 * 24), 2).await;
        let young = world.accept("young", Priority::Next).await;
        broker.mood(Mood::Commit);
        let live = broker.connect();
        world.mesh().set_live(Some(Arc::clone(&live)));
        world.clock.manual.advance(HOUR);
        world.drain(&live).await;
        assert_eq!(broker.sent(), ["young"], "{waited:?}");
        let statuses = world.statuses(&[before, sent, young]).await;
        assert_eq!(statuses, [Done, Dead, Done], "{waited:?}");
    }
}

/// C32: nothing was ever sent of it, so a broker that has forgotten much proves enough by not having it.
#[tokio::test]
async fn c32_a_second_look_knows_what_was_never_sent() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, boot(1, 1), 1).await;
    world.mesh().set_max_age_hours(&world.shared, 144).await;
    let row = world.accept("never", Priority::Next).await;
    world.pass(146).await;
    let said = world.row(row).await.last_error.unwrap();
    assert!(said.starts_with("max_age_outcome_unknown: "), "{said}");
    world.pass(100).await;
    let memory = DedupeMode::RetentionScoped { days: 7 };
    world.mesh().set_memory(memory);
    world.mesh().set_live(Some(broker.connect()));
    let dead = world.row(row).await;
    let refused = refuse_forgotten(&world.shared, world.mesh(), &dead).await;
    assert!(refused.is_ok(), "{refused:?}");
    let looked = second_look::once(&world.shared, world.mesh()).await;
    looked.unwrap();
    let said = world.row(row).await.last_error.unwrap();
    assert!(said.starts_with("max_age: "), "{said}");
}

/// C32: it died while nobody could be asked. A broker that has forgotten it by then proves nothing by not having it.
#[tokio::test]
async fn c32_a_second_look_at_a_broker_that_has_forgotten_leaves_the_outcome_unknown() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, boot(1, 1), 1).await;
    world.mesh().set_max_age_hours(&world.shared, 144).await;
    let row = world.accept("sent", Priority::Next).await;
    broker.mood(Mood::HangUp);
    world.drain(&broker.connect()).await;
    world.pass(146).await;
    let reason = |text: Option<String>| text.unwrap().split(':').next().unwrap().to_owned();
    assert_eq!(world.row(row).await.status, Dead);
    for (hours, memory, said) in [
        (0, DedupeMode::RetentionScoped { days: 7 }, "max_age"),
        (
            40,
            DedupeMode::RetentionScoped { days: 7 },
            "max_age_outcome_unknown",
        ),
        (0, DedupeMode::Permanent, "max_age"),
    ] {
        let unknown = "max_age_outcome_unknown: nobody could be asked".to_owned();
        world
            .shared
            .store
            .set_dead_reason(row, unknown)
            .await
            .unwrap();
        world.pass(hours).await;
        world.mesh().set_memory(memory);
        world.mesh().set_live(Some(broker.connect()));
        second_look::once(&world.shared, world.mesh())
            .await
            .unwrap();
        assert_eq!(
            reason(world.row(row).await.last_error),
            said,
            "{hours} h, {memory:?}"
        );
        world.mesh().set_live(None);
    }
}

/// v6 §4.12. On one thread, because the recorder is the thread's.
#[test]
fn v6_4_12_v10_4_11_a_retry_after_the_brokers_memory_is_counted_and_a_first_attempt_is_not() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let count = || {
        let name = "heddle_daemon_retry_after_dedupe_expired_total ";
        let text = handle.render();
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.map_or(0, |value| value.parse::<u64>().unwrap())
    };
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let folder = TempDir::new().unwrap();
            let broker = FakeBroker::new();
            let mut world = start(folder.path(), START, None, 1).await;
            world.mesh().set_max_age_hours(&world.shared, 144).await;
            world.accept("sent-before", Priority::Next).await;
            broker.mood(Mood::HangUp);
            world.drain(&broker.connect()).await;
            world.accept("never-sent", Priority::Next).await;
            assert_eq!(count(), 0);
            // The machine was off for a week: no clock of ours ran, and the row is not over age.
            let wall = world.stop().await;
            world = start(folder.path(), WallMs(wall.0 + 7 * DAY_MS), None, 2).await;
            world.mesh().set_max_age_hours(&world.shared, 144).await;
            broker.mood(Mood::Commit);
            world.pass(1).await;
            world.drain(&broker.connect()).await;
            let mut sent = broker.sent();
            sent.sort();
            assert!(sent.ends_with(&["sent-before".to_owned()]), "{sent:?}");
        });
    });
    assert_eq!(count(), 1);
}
