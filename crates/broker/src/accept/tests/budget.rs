//! The gate and its limiter: what costs budget, what is free, what happens without one.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{ManualClock, WallMs};

use crate::limiter::{Budget, LocalLimiter};
use crate::storage::MemoryStorage;
use crate::test_support::{
    Counters, CountingLimiter, Flaky, Gate, StuckLimiter, TestStorage, memory, on_every_storage,
    refused_code, send_item,
};

on_every_storage!(
    br_16_a_retry_of_a_committed_id_in_a_saturated_window_is_a_duplicate,
    br_05_a_send_refused_for_its_budget_goes_through_in_the_next_window,
);

const WINDOW: Duration = Duration::from_secs(10);

async fn with_budget<S: TestStorage>(
    storage: Arc<S>,
    ids_per_window_max: usize,
) -> Gate<S, LocalLimiter> {
    let clock = Arc::new(ManualClock::at(WallMs(0)));
    let budget = Budget {
        ids_per_window_max,
        window: WINDOW,
    };
    let limiter = LocalLimiter::new(clock.clone(), budget);
    let gate = Gate::with(storage, Arc::new(limiter), clock).await;
    gate.subscribe_all(&["a/one"]).await;
    gate
}

async fn br_16_a_retry_of_a_committed_id_in_a_saturated_window_is_a_duplicate<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = with_budget(storage, 2).await;
    for id in ["A", "B"] {
        let accepted = gate.send("a/one", id, "#ops", "x").await;
        assert_eq!(refused_code(&accepted), "created");
    }
    let items = ["A", "C", "B"].map(|id| send_item("one", id, "#ops", "x"));
    let decided = gate.batch("a", items.into()).await;
    let codes: Vec<&str> = decided.verdicts.iter().map(refused_code).collect();
    assert_eq!(codes, ["duplicate", "rate_limited", "duplicate"]);
}

async fn br_05_a_send_refused_for_its_budget_goes_through_in_the_next_window<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = with_budget(Flaky::around(storage), 1).await;
    gate.send("a/one", "A", "#ops", "x").await;
    let transactions = gate.storage().accept_count();
    for _ in 0..3 {
        let refused = gate.send("a/one", "B", "#ops", "x").await;
        assert_eq!(refused_code(&refused), "rate_limited");
    }
    assert_eq!(gate.storage().accept_count(), transactions);
    assert!(!gate.holds("a/one", "B").await);
    gate.clock.advance(WINDOW);
    let accepted = gate.send("a/one", "B", "#ops", "x").await;
    assert_eq!(refused_code(&accepted), "created");
}

#[tokio::test(start_paused = true)]
async fn rl_06_c35_without_a_limiter_nothing_is_accepted_and_nothing_is_refused_for_good() {
    for is_down in [true, false] {
        let storage = Flaky::around(memory());
        let clock = Arc::new(ManualClock::at(WallMs(0)));
        let gate = Gate::with(storage, Arc::new(StuckLimiter { is_down }), clock).await;
        gate.subscribe_all(&["a/one"]).await;
        let refused = gate.send("a/one", "A", "#ops", "x").await;
        assert_eq!(refused_code(&refused), "limiter_unavailable");
        assert_eq!(gate.storage().accept_count(), 0);
    }
}

#[tokio::test]
async fn a_send_refused_for_its_shape_costs_no_budget() {
    let limiter = Arc::new(CountingLimiter::default());
    let clock = Arc::new(ManualClock::at(WallMs(0)));
    let gate = Gate::with(memory(), limiter.clone(), clock).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "A", "queue:a b", "x").await;
    gate.send("a/ghost", "A", "#ops", "x").await;
    assert_eq!(limiter.call_count(), 0);
}

/// RL-08. On one thread, because the recorder is the thread's.
#[test]
fn rl_08_budget_used_by_a_send_refused_in_the_transaction_is_gone_and_counted() {
    let counters = Counters::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    metrics::with_local_recorder(&counters, || {
        runtime.block_on(async {
            let storage: Arc<MemoryStorage> = memory();
            let gate = with_budget(storage, 3).await;
            // A retry in the same window is free, and counts nothing.
            for id in ["A", "B", "A"] {
                let refused = gate.send("a/one", id, "#none", "x").await;
                assert_eq!(refused_code(&refused), "unknown_recipient");
            }
            let accepted = gate.send("a/one", "C", "#ops", "x").await;
            assert_eq!(refused_code(&accepted), "created");
            let refused = gate.send("a/one", "D", "#ops", "x").await;
            assert_eq!(refused_code(&refused), "rate_limited");
        });
    });
    let name = "heddle_broker_rate_limit_consumed_then_b2_rejected_total";
    assert_eq!(counters.value(name), 2);
    assert_eq!(counters.value("heddle_broker_accept_total"), 5);
}
