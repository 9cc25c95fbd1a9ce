//! The contract suite of limiters, over every implementation.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{Clock, ManualClock, WallMs};
use heddle_core::ids::IdKey;
use proptest::prelude::*;

use super::{Budget, Decision, Limiter, LocalLimiter};
use crate::test_support::mesh;
use Verdict::{Denied, Granted};

/// A decision without its telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Granted,
    Denied,
}

fn verdicts(decisions: Vec<Decision>) -> Vec<Verdict> {
    let plain = |decision| match decision {
        Decision::Granted { .. } => Granted,
        Decision::Denied => Denied,
    };
    decisions.into_iter().map(plain).collect()
}

const LIMIT: usize = 3;
const WINDOW: Duration = Duration::from_secs(10);

fn key(number: u8) -> IdKey {
    IdKey([number; 24])
}

fn local() -> (Arc<ManualClock>, LocalLimiter) {
    let clock = Arc::new(ManualClock::at(WallMs(0)));
    let budget = Budget {
        ids_per_window_max: LIMIT,
        window: WINDOW,
    };
    let limiter = LocalLimiter::new(clock.clone(), budget);
    (clock, limiter)
}

async fn ask(limiter: &impl Limiter, keys: &[u8]) -> Vec<Verdict> {
    let keys: Vec<IdKey> = keys.iter().map(|number| key(*number)).collect();
    verdicts(limiter.consume(mesh(1), &keys).await.unwrap())
}

#[tokio::test]
async fn rl_02_a_grant_says_its_window_and_whether_it_was_counted() {
    let (clock, limiter) = local();
    let said = |window, counted| Decision::Granted { window, counted };
    let ask = async |number| limiter.consume(mesh(1), &[key(number)]).await.unwrap()[0];
    assert_eq!(ask(1).await, said(0, true));
    assert_eq!(ask(1).await, said(0, false));
    clock.advance(WINDOW);
    assert_eq!(ask(1).await, said(1, true));
}

/// RL-07: all memory lost in a window grants at most one limit more.
#[tokio::test]
async fn rl_07_a_limiter_that_lost_its_memory_grants_one_limit_more_and_no_more() {
    let (_, limiter) = local();
    ask(&limiter, &[1, 2, 3]).await;
    let (_, again) = local();
    let granted = ask(&again, &[4, 5, 6, 7, 8]).await;
    assert_eq!(granted.iter().filter(|one| **one == Granted).count(), LIMIT);
}

#[tokio::test]
async fn rl_01_no_more_ids_than_the_limit_are_granted_in_a_window() {
    let (clock, limiter) = local();
    assert_eq!(
        ask(&limiter, &[1, 2, 3, 4, 5]).await,
        [Granted, Granted, Granted, Denied, Denied]
    );
    clock.advance(WINDOW);
    assert_eq!(ask(&limiter, &[4, 5]).await, [Granted, Granted]);
}

#[tokio::test]
async fn rl_02_an_id_counts_once_however_often_it_comes() {
    let (_, limiter) = local();
    for _ in 0..10 {
        assert_eq!(ask(&limiter, &[1, 1, 2]).await, [Granted; 3]);
    }
    assert_eq!(ask(&limiter, &[3, 4]).await, [Granted, Denied]);
    // Granted before the window was full, so granted still.
    assert_eq!(ask(&limiter, &[1, 2, 3]).await, [Granted; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rl_02_racing_callers_of_one_id_use_one_unit() {
    let (_, limiter) = local();
    let limiter = Arc::new(limiter);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let limiter = Arc::clone(&limiter);
        callers.spawn(async move { ask(limiter.as_ref(), &[7]).await });
    }
    while let Some(decisions) = callers.join_next().await {
        assert_eq!(decisions.unwrap(), [Granted]);
    }
    assert_eq!(
        ask(limiter.as_ref(), &[8, 9, 10]).await,
        [Granted, Granted, Denied]
    );
}

#[tokio::test]
async fn rl_04_a_denied_call_counts_nothing_and_is_not_remembered() {
    let (clock, limiter) = local();
    ask(&limiter, &[1, 2, 3]).await;
    for _ in 0..100 {
        assert_eq!(ask(&limiter, &[9]).await, [Denied]);
    }
    assert_eq!(limiter.remembered_count(), LIMIT);
    clock.advance(WINDOW);
    assert_eq!(ask(&limiter, &[9, 1, 2]).await, [Granted; 3]);
}

#[tokio::test]
async fn br_17_one_mesh_cannot_use_up_the_budget_of_another() {
    let (_, limiter) = local();
    ask(&limiter, &[1, 2, 3]).await;
    let other = limiter.consume(mesh(2), &[key(1), key(4)]).await.unwrap();
    assert_eq!(verdicts(other), [Granted, Granted]);
}

#[tokio::test]
async fn rl_05_c35_memory_is_bounded_by_two_windows_of_traffic() {
    let (clock, limiter) = local();
    for round in 0..50_u8 {
        for number in 0..20 {
            let keys = [key(round), key(number), key(100 + number)];
            limiter
                .consume(mesh(u128::from(number)), &keys)
                .await
                .unwrap();
        }
        assert!(limiter.remembered_count() <= 2 * 20 * LIMIT);
        clock.advance(WINDOW / 2 + Duration::from_secs(1));
    }
    clock.advance(WINDOW * 5);
    ask(&limiter, &[1]).await;
    assert_eq!(limiter.remembered_count(), 1);
}

proptest! {
    #[test]
    fn rl_01_rl_02_rl_04_agree_with_a_plain_count(calls in prop::collection::vec((0..8_u8, 0..4_u64), 1..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (clock, limiter) = local();
            // The model: per window, the ids that were let through, in a list.
            let mut windows: Vec<(u128, Vec<u8>)> = Vec::new();
            for (number, seconds) in calls {
                clock.advance(Duration::from_secs(seconds));
                let now = clock.mono().as_nanos() / WINDOW.as_nanos();
                if windows.last().is_none_or(|(window, _)| *window != now) {
                    windows.push((now, Vec::new()));
                }
                let granted = &mut windows.last_mut().unwrap().1;
                let expected = if granted.contains(&number) {
                    Granted
                } else if granted.len() < LIMIT {
                    granted.push(number);
                    Granted
                } else {
                    Denied
                };
                assert_eq!(ask(&limiter, &[number]).await, [expected]);
            }
        });
    }
}
