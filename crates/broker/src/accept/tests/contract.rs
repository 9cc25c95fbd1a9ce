//! v10 §4.6.2, row by row: what each phase of an accept costs and leaves behind. And the races past B0.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{ManualClock, WallMs};
use heddle_wire::broker::Verdict;
use tokio::task::JoinSet;

use crate::limiter::{Budget, LocalLimiter};
use crate::storage::{SendId, Storage};
use crate::test_support::{
    Counters, CountingLimiter, Dump, Fault, Flaky, Gate, TestStorage, memory, mesh,
    on_every_storage, party, refused_code, topic,
};

on_every_storage!(
    v10_4_6_2_b0_a_known_id_is_answered_before_limiter_and_transaction,
    v10_4_6_2_b1_a_refusal_before_the_claim_leaves_no_row_and_the_id_free,
    v10_4_6_2_b2_a_refusal_in_the_transaction_is_rolled_back_and_the_id_free,
    v10_4_6_2_b3_an_accept_commits_all_effects_and_consumes_the_id,
    rl_02_32_requests_of_one_id_racing_past_b0_use_one_unit_and_one_is_created,
    br_21_c36_a_sweep_beside_retries_gives_a_duplicate_or_one_new_accept_never_both,
    rl_10_spoilt_telemetry_changes_no_decision,
);

async fn metered<S: TestStorage>(
    storage: Arc<S>,
) -> (Gate<Flaky<S>, CountingLimiter>, Arc<CountingLimiter>) {
    let limiter = Arc::new(CountingLimiter::default());
    let clock = Arc::new(ManualClock::at(WallMs(1_000)));
    let gate = Gate::with(Flaky::around(storage), limiter.clone(), clock).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    (gate, limiter)
}

async fn v10_4_6_2_b0_a_known_id_is_answered_before_limiter_and_transaction<S: TestStorage>(
    storage: Arc<S>,
) {
    let (gate, limiter) = metered(storage).await;
    gate.send("a/one", "A", "#ops", "x").await;
    let before = (
        gate.storage().dump().await,
        limiter.call_count(),
        gate.storage().accept_count(),
    );
    let same = gate.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&same), "duplicate");
    let other = gate.send("a/one", "A", "#ops", "y").await;
    assert_eq!(refused_code(&other), "conflict");
    let after = (
        gate.storage().dump().await,
        limiter.call_count(),
        gate.storage().accept_count(),
    );
    assert_eq!(before, after);
}

async fn v10_4_6_2_b1_a_refusal_before_the_claim_leaves_no_row_and_the_id_free<S: TestStorage>(
    storage: Arc<S>,
) {
    let clock = Arc::new(ManualClock::at(WallMs(0)));
    let budget = Budget {
        ids_per_window_max: 1,
        window: Duration::from_secs(10),
    };
    let limiter = Arc::new(LocalLimiter::new(clock.clone(), budget));
    let gate = Gate::with(Flaky::around(storage), limiter, clock.clone()).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "first", "#ops", "x").await;
    let (rows, transactions) = (gate.storage().dump().await, gate.storage().accept_count());
    for (from, to) in [
        ("a/one", "#ops"),
        ("a/ghost", "#ops"),
        ("a/one", "queue:a b"),
    ] {
        let refused = gate.send(from, "B", to, "x").await;
        assert!(matches!(refused, Verdict::Refused(_)), "{from} {to}");
    }
    assert_eq!(gate.storage().dump().await, rows);
    assert_eq!(gate.storage().accept_count(), transactions);
    clock.advance(Duration::from_secs(10));
    let accepted = gate.send("a/one", "B", "#ops", "x").await;
    assert_eq!(refused_code(&accepted), "created");
}

async fn v10_4_6_2_b2_a_refusal_in_the_transaction_is_rolled_back_and_the_id_free<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    let (gate, _) = metered(storage).await;
    let rows = gate.storage().dump().await;
    let refused = gate.send("a/one", "A", "#late", "x").await;
    assert_eq!(refused_code(&refused), "unknown_recipient");
    assert_eq!(gate.storage().accept_count(), 1, "it was in a transaction");
    assert_eq!(gate.storage().dump().await, rows);
    let late = topic("#late");
    gate.storage().create_topic(mesh(1), &late).await.unwrap();
    let accepted = gate.send("a/one", "A", "#late", "x").await;
    assert_eq!(refused_code(&accepted), "created");
}

async fn v10_4_6_2_b3_an_accept_commits_all_effects_and_consumes_the_id<S: TestStorage>(
    storage: Arc<S>,
) {
    let (gate, _) = metered(storage).await;
    let accepted = gate.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&accepted), "created");
    for (table, count) in [
        ("dedupe", 1),
        ("message", 1),
        ("history", 1),
        ("delivery", 2),
    ] {
        assert_eq!(gate.storage().count(table).await, count, "{table}");
    }
    assert!(gate.holds("a/one", "A").await);
}

async fn rl_02_32_requests_of_one_id_racing_past_b0_use_one_unit_and_one_is_created<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    const RACERS: usize = 32;
    let storage = Flaky::around(storage);
    let clock = Arc::new(ManualClock::at(WallMs(0)));
    let budget = Budget {
        ids_per_window_max: 2,
        window: Duration::from_secs(10),
    };
    let limiter = Arc::new(LocalLimiter::new(clock.clone(), budget));
    let gate = Arc::new(Gate::with(storage.clone(), limiter, clock).await);
    gate.subscribe_all(&["a/one"]).await;
    // Held in front of the transaction until all of them are past B0 and the limiter.
    storage.set(Fault::Hold);
    let mut racers = JoinSet::new();
    for _ in 0..RACERS {
        let gate = Arc::clone(&gate);
        racers.spawn(async move { gate.send("a/one", "same", "#ops", "x").await });
    }
    storage.accepts_reached(RACERS).await;
    storage.set(Fault::None);
    let mut verdicts = Vec::new();
    while verdicts.len() < RACERS {
        // One that was counted may not wait yet.
        storage.release_all();
        match racers.try_join_next() {
            Some(verdict) => verdicts.push(verdict.unwrap()),
            None => tokio::task::yield_now().await,
        }
    }
    let created = verdicts.iter().filter(|v| refused_code(v) == "created");
    assert_eq!(created.count(), 1);
    assert!(
        verdicts
            .iter()
            .all(|v| ["created", "duplicate"].contains(&refused_code(v)))
    );
    // One unit of two is used: one more id goes through, and then none.
    let next = gate.send("a/one", "next", "#ops", "x").await;
    assert_eq!(refused_code(&next), "created");
    let third = gate.send("a/one", "third", "#ops", "x").await;
    assert_eq!(refused_code(&third), "rate_limited");
}

async fn br_21_c36_a_sweep_beside_retries_gives_a_duplicate_or_one_new_accept_never_both<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    let gate = Arc::new(Gate::open(storage).await);
    gate.subscribe_all(&["a/one"]).await;
    let year = Duration::from_secs(366 * 24 * 60 * 60);
    for round in 0..10 {
        gate.send("a/one", "A", "#ops", "x").await;
        // Its time is over, and nobody has swept it.
        let mark = heddle_core::age::AgeMark {
            age: year * round,
            wall: heddle_core::clock::WallMs(0),
            boot: None,
        };
        let kept = gate.storage().keep_age(mesh(1), mark, Duration::ZERO).await;
        let now = kept.unwrap() + year;
        let before = gate.storage().count("message").await;
        let mut tasks = JoinSet::new();
        for number in 0..9 {
            let gate = Arc::clone(&gate);
            tasks.spawn(async move {
                if number == 4 {
                    let swept = gate.storage().sweep_expired(mesh(1), now).await;
                    assert!(swept.unwrap() <= 1);
                    return "swept".to_owned();
                }
                let verdict = gate.send("a/one", "A", "#ops", "x").await;
                refused_code(&verdict).to_owned()
            });
        }
        let answers = tasks.join_all().await;
        let created = answers.iter().filter(|answer| *answer == "created").count();
        assert!(created <= 1, "round {round}: {answers:?}");
        assert_eq!(gate.storage().count("message").await, before + created);
        assert_eq!(gate.storage().orphan_check(mesh(1)).await, Ok(vec![]));
    }
}

/// RL-10: whatever stands in the telemetry, the next decision is the same.
async fn rl_10_spoilt_telemetry_changes_no_decision<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "A", "#ops", "x").await;
    gate.storage().count_traffic(mesh(1)).await.unwrap();
    gate.storage().spoil_telemetry().await;
    for (id, body, expected) in [
        ("A", "x", "duplicate"),
        ("A", "y", "conflict"),
        ("B", "x", "created"),
    ] {
        let verdict = gate.send("a/one", id, "#ops", body).await;
        assert_eq!(refused_code(&verdict), expected);
    }
    let id = heddle_core::ids::ClientMessageId::parse("A").unwrap();
    let id = SendId::new(mesh(1), party("a/one"), id);
    let explained = gate.storage().explain(mesh(1), id).await.unwrap();
    assert!(explained.is_some(), "an explanation survives it too");
    gate.storage().count_traffic(mesh(1)).await.unwrap();
}

/// BR-16 with figures. On one thread, because the recorder is the thread's.
#[test]
fn br_16_a_saturated_window_and_a_retry_of_a_committed_id_cost_nothing() {
    let counters = Counters::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    metrics::with_local_recorder(&counters, || {
        runtime.block_on(async {
            let clock = Arc::new(ManualClock::at(WallMs(0)));
            let budget = Budget {
                ids_per_window_max: 3,
                window: Duration::from_secs(10),
            };
            let limiter = Arc::new(LocalLimiter::new(clock.clone(), budget));
            let gate = Gate::with(memory(), limiter, clock).await;
            gate.subscribe_all(&["a/one"]).await;
            for id in ["A", "B", "C"] {
                let accepted = gate.send("a/one", id, "#ops", "x").await;
                assert_eq!(refused_code(&accepted), "created");
            }
            let refused = gate.send("a/one", "D", "#ops", "x").await;
            assert_eq!(refused_code(&refused), "rate_limited");
            let used = counters.value("heddle_broker_rate_limit_consumed_total");
            for id in ["A", "B", "C"] {
                let again = gate.send("a/one", id, "#ops", "x").await;
                assert_eq!(refused_code(&again), "duplicate");
            }
            let after = counters.value("heddle_broker_rate_limit_consumed_total");
            assert_eq!((used, after), (3, 3));
        });
    });
    assert_eq!(counters.value("heddle_broker_rate_limit_saved_total"), 3);
}
