//! The jobs over every store: what they do, that they may be repeated, and that one of N does them.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{Clock, ManualClock, WallMs};
use heddle_wire::broker::SendItem;
use serde_json::value::to_raw_value;

use super::{Ages, Sweep, orphan_check, sweep};
use crate::storage::{Job, JobClaim, Upkeep};
use crate::test_support::{
    Dump, Gate, TestStorage, envelope, mesh, on_every_storage, refused_code, send_item, sqlite,
};

on_every_storage!(
    a_sweep_forgets_prunes_and_counts_and_a_second_one_finds_nothing,
    a_sweep_that_somebody_else_does_is_passed_over_and_told,
    br_14_the_orphan_check_counts_its_rows_and_finds_none,
    xc_05_a_wall_clock_that_jumps_past_the_retention_commits_no_work_twice,
);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn how(days: Option<u32>) -> Sweep {
    Sweep {
        holder: "me".to_owned(),
        message_retention_days: days,
        dedupe_retention_days: Some(365),
    }
}

async fn a_sweep_forgets_prunes_and_counts_and_a_second_one_finds_nothing<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage).await;
    gate.register("a/one").await;
    let topic = crate::test_support::topic("#ops");
    gate.storage().create_topic(mesh(1), &topic).await.unwrap();
    gate.send("a/one", "old", "#ops", "x").await;
    let ages = Ages::default();
    let clock: (&dyn Clock, &Ages) = (gate.clock.as_ref(), &ages);
    let figures = |one: &super::MeshSwept| (one.expired, one.pruned, one.counted);
    let swept = sweep(gate.storage(), clock, &how(Some(30))).await.unwrap();
    assert_eq!(swept.iter().map(figures).collect::<Vec<_>>(), [(0, 0, 1)]);
    gate.clock.advance(DAY * 40);
    gate.send("a/one", "new", "#ops", "x").await;
    let swept = sweep(gate.storage(), clock, &how(Some(30))).await.unwrap();
    assert_eq!(swept.iter().map(figures).collect::<Vec<_>>(), [(0, 1, 1)]);
    let retried = gate.send("a/one", "old", "#ops", "x").await;
    assert_eq!(refused_code(&retried), "duplicate", "BR-20");
    gate.clock.advance(DAY * 330);
    let swept = sweep(gate.storage(), clock, &how(None)).await.unwrap();
    assert_eq!(swept.iter().map(figures).collect::<Vec<_>>(), [(1, 0, 0)]);
    let rows = gate.storage().dump().await;
    let swept = sweep(gate.storage(), clock, &how(None)).await.unwrap();
    assert_eq!(swept.iter().map(figures).collect::<Vec<_>>(), [(0, 0, 0)]);
    assert_eq!(gate.storage().dump().await, rows);
    assert_eq!(orphan_check(gate.storage()).await.unwrap().orphans, []);
}

/// Work of a queue was taken and done; the wall jumps by ten years, forward and back; its sender asks again.
async fn xc_05_a_wall_clock_that_jumps_past_the_retention_commits_no_work_twice<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage).await;
    gate.register("a/one").await;
    let ages = Ages::default();
    let clock: (&dyn Clock, &Ages) = (gate.clock.as_ref(), &ages);
    let first = gate.send("a/one", "deploy", "queue:q", "x").await;
    assert_eq!(refused_code(&first), "created");
    sweep(gate.storage(), clock, &how(Some(30))).await.unwrap();
    let before = gate.clock.wall();
    for jump_days in [3650, -3650, 8, 366] {
        gate.clock
            .set_wall(WallMs(before.0 + jump_days * 86_400_000));
        gate.clock.advance(DAY);
        let swept = sweep(gate.storage(), clock, &how(Some(30))).await.unwrap();
        assert_eq!((swept[0].expired, swept[0].pruned), (0, 0), "{jump_days}");
        // A process that begins under that clock thinks no other.
        let fresh = Ages::default();
        let swept = sweep(
            gate.storage(),
            (gate.clock.as_ref(), &fresh),
            &how(Some(30)),
        )
        .await;
        assert_eq!(swept.unwrap()[0].expired, 0, "{jump_days}");
        let again = gate.send("a/one", "deploy", "queue:q", "x").await;
        assert_eq!(refused_code(&again), "duplicate", "{jump_days}");
    }
    // Time that truly passed does it.
    gate.clock.advance(DAY * 366);
    let swept = sweep(gate.storage(), clock, &how(None)).await.unwrap();
    assert_eq!(swept[0].expired, 1);
}

async fn a_sweep_that_somebody_else_does_is_passed_over_and_told<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "A", "#ops", "x").await;
    let now = gate.clock.wall();
    let until = WallMs(now.0 + 60_000);
    let another = JobClaim {
        mesh: mesh(1),
        job: Job::Sweep,
        holder: "another".to_owned(),
        now,
        until,
    };
    gate.storage().claim_job(another).await.unwrap();
    let ages = Ages::default();
    let clock: (&dyn Clock, &Ages) = (gate.clock.as_ref(), &ages);
    let swept = sweep(gate.storage(), clock, &how(None)).await;
    let swept = swept.unwrap();
    assert_eq!(swept[0].held_by, Some(("another".to_owned(), until)));
    assert_eq!(swept[0].counted, 0);
    // Its holder died: the claim ends by itself.
    gate.clock.advance(Duration::from_secs(61));
    let swept = sweep(gate.storage(), clock, &how(None)).await;
    assert_eq!(swept.unwrap()[0].counted, 1);
}

async fn br_14_the_orphan_check_counts_its_rows_and_finds_none<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    gate.send("a/one", "A", "#ops", "x").await;
    gate.send("a/one", "B", "queue:q", "x").await;
    let checked = orphan_check(gate.storage()).await.unwrap();
    // Three rows each, two deliveries, one piece of work.
    assert_eq!((checked.row_count, checked.orphans), (9, vec![]));
}

#[tokio::test]
async fn br_14_the_orphan_check_names_the_row_and_its_mesh() {
    let sqlite = sqlite();
    let gate = Gate::open(Arc::new(sqlite.storage.clone())).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "A", "#ops", "x").await;
    let delete = "DELETE FROM message".to_owned();
    sqlite.storage.batch(delete).await;
    let checked = orphan_check(&sqlite.storage).await.unwrap();
    assert_eq!(checked.orphans.len(), 1);
    assert_eq!(checked.orphans[0].problem, "dedupe_disagrees_with_message");
    let row = &checked.orphans[0].row;
    assert!(
        row.starts_with("home: ") && row.ends_with("/one A"),
        "{row}"
    );
}

/// The schedule of a serving broker does the same, by itself.
#[tokio::test(start_paused = true)]
async fn a_serving_broker_sweeps_by_itself_and_stops_when_told() {
    use crate::limiter::{Budget, LocalLimiter};
    use crate::ws::{Broker, BrokerConfig};
    use heddle_core::clock::ManualIds;
    use tokio_util::sync::CancellationToken;

    let storage = crate::test_support::memory();
    let clock = Arc::new(ManualClock::at(WallMs(0)));
    let limiter = Arc::new(LocalLimiter::new(clock.clone(), Budget::default()));
    let gate = Gate::with(storage.clone(), limiter.clone(), clock.clone()).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "A", "#ops", "x").await;
    let ids = Arc::new(ManualIds::seeded(1));
    let broker = Broker::new(
        storage.clone(),
        limiter,
        clock.clone(),
        ids,
        BrokerConfig::default(),
    );
    let shutdown = CancellationToken::new();
    let upkeep = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { broker.upkeep(shutdown).await }
    });
    // How old it is has to be kept once, before it can be too old.
    while storage.age(mesh(1)).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    clock.advance(DAY * 366);
    while gate.storage().count("dedupe").await > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(storage.traffic(mesh(1)).await.unwrap().len(), 1);
    shutdown.cancel();
    upkeep.await.unwrap();
}

/// Every column that says what was accepted, and the index of mentions: rows that are there, but are others.
#[tokio::test]
async fn br_14_the_orphan_check_finds_what_is_another_than_was_accepted() {
    #[rustfmt::skip]
    let table = [
        ("DELETE FROM mention_index", "mention_without_index"),
        ("UPDATE mention_index SET agent = 'two'", "mention_without_index"),
        ("UPDATE client_message_dedupe SET wire_fingerprint = zeroblob(32)", "message_differs_from_dedupe"),
        ("UPDATE message SET envelope = replace(envelope, 'hello', 'HELLO')", "message_differs_from_dedupe"),
        ("UPDATE message SET client_message_id = 'other'", "message_differs_from_dedupe"),
        ("UPDATE message SET destination_ref = 'other'", "message_differs_from_dedupe"),
        ("UPDATE message SET envelope = '{'", "message_unreadable"),
        // No text any more: it must be named, not end the check.
        ("UPDATE message SET envelope = CAST(replace(envelope, 'hello', CAST(x'68e56c6c6f' AS TEXT)) AS TEXT)",
            "message_differs_from_dedupe"),
        ("UPDATE message SET sender_agent = CAST(x'6fee65' AS TEXT)", "message_differs_from_dedupe"),
        ("UPDATE client_message_dedupe SET client_message_id = CAST(x'ed' AS TEXT)", "message_differs_from_dedupe"),
        ("UPDATE client_message_dedupe SET sender_agent = CAST(x'6fee65' AS TEXT), history_available = 0",
            "dedupe_disagrees_with_message"),
        ("UPDATE delivery_queue SET agent = CAST(x'6fee65' AS TEXT), seq = 9", "delivery_without_history"),
    ];
    for (sql, expected) in table {
        let sqlite = sqlite();
        let gate = Gate::open(Arc::new(sqlite.storage.clone())).await;
        gate.subscribe_all(&["a/one", "b/one"]).await;
        let envelope = to_raw_value(&envelope("#ops", "hello", &["b/one"])).unwrap();
        let item = SendItem {
            envelope,
            ..send_item("one", "m", "#ops", "hello")
        };
        gate.batch("a", vec![item]).await;
        assert_eq!(orphan_check(gate.storage()).await.unwrap().orphans, []);
        sqlite.storage.batch(sql.to_owned()).await;
        let found = orphan_check(gate.storage()).await.unwrap().orphans;
        let problems: Vec<&str> = found.iter().map(|orphan| orphan.problem).collect();
        assert!(problems.contains(&expected), "{sql}: {found:?}");
        assert!(
            found.iter().all(|orphan| orphan.row.starts_with("home: ")),
            "{found:?}"
        );
    }
}
