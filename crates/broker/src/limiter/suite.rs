//! The contract suite of limiters, over every implementation.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{ManualClock, WallMs};
use heddle_core::ids::IdKey;
use proptest::prelude::*;

use super::{Budget, Decision, Limiter, LocalLimiter, RedisLimiter};
use crate::test_support::{mesh, redis_place, redis_url};
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
        Decision::Denied { .. } => Denied,
    };
    decisions.into_iter().map(plain).collect()
}

const LIMIT: usize = 3;
/// So long that no test of a real clock reaches its end.
const WINDOW: Duration = Duration::from_secs(1_000_000);

fn budget() -> Budget {
    Budget {
        ids_per_window_max: LIMIT,
        window: WINDOW,
    }
}

fn key(number: u8) -> IdKey {
    IdKey([number; 24])
}

/// A limiter with a clock that a test moves.
trait Rig: Limiter {
    fn advance(&self, by: Duration);
    /// How many ids it remembers now, of so many first meshes.
    fn remembered(&self, meshes: u128) -> impl Future<Output = usize> + Send;
}

struct Local {
    clock: Arc<ManualClock>,
    limiter: LocalLimiter,
}

impl Limiter for Local {
    async fn consume(
        &self,
        mesh: heddle_core::ids::MeshId,
        keys: &[IdKey],
    ) -> Result<Vec<Decision>, super::LimiterError> {
        self.limiter.consume(mesh, keys).await
    }
}

impl Rig for Local {
    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn remembered(&self, _: u128) -> usize {
        self.limiter.remembered_count()
    }
}

impl Rig for RedisLimiter {
    fn advance(&self, by: Duration) {
        RedisLimiter::advance(self, by);
    }

    /// The clock of the keys' expiry is the server's own: what a test has left behind by moving ours is not
    /// counted.
    async fn remembered(&self, meshes: u128) -> usize {
        self.remembered_in_two_windows(meshes).await
    }
}

fn local() -> Local {
    let clock = Arc::new(ManualClock::at(WallMs(0)));
    let limiter = LocalLimiter::new(clock.clone(), budget());
    Local { clock, limiter }
}

async fn redis() -> RedisLimiter {
    RedisLimiter::for_test(&redis_url(), budget(), redis_place().await).await
}

/// Runs each of the named tests on every limiter.
macro_rules! on_every_limiter {
    ($($test:ident),* $(,)?) => {
        mod on_local {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() { super::$test(super::local()).await; })*
        }
        mod on_redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() { super::$test(super::redis().await).await; })*
        }
    };
}

on_every_limiter!(
    rl_02_a_grant_says_its_window_and_whether_it_was_counted,
    rl_01_no_more_ids_than_the_limit_are_granted_in_a_window,
    rl_02_an_id_counts_once_however_often_it_comes,
    rl_02_racing_callers_of_one_id_use_one_unit,
    rl_04_a_denied_call_counts_nothing_and_is_not_remembered,
    rl_01_a_denied_call_is_told_when_the_next_window_begins,
    br_17_one_mesh_cannot_use_up_the_budget_of_another,
    rl_05_c35_memory_is_bounded_by_two_windows_of_traffic,
);

async fn ask(limiter: &impl Limiter, keys: &[u8]) -> Vec<Verdict> {
    let keys: Vec<IdKey> = keys.iter().map(|number| key(*number)).collect();
    verdicts(limiter.consume(mesh(1), &keys).await.unwrap())
}

async fn rl_02_a_grant_says_its_window_and_whether_it_was_counted<R: Rig>(limiter: R) {
    let ask = async |number| match limiter.consume(mesh(1), &[key(number)]).await.unwrap()[0] {
        Decision::Granted { window, counted } => (window, counted),
        Decision::Denied { .. } => panic!("denied"),
    };
    let (first, counted) = ask(1).await;
    assert!(counted);
    assert_eq!(ask(1).await, (first, false));
    limiter.advance(WINDOW);
    assert_eq!(ask(1).await, (first + 1, true));
}

/// RL-07: all memory lost in a window grants at most one limit more.
#[tokio::test]
async fn rl_07_a_limiter_that_lost_its_memory_grants_one_limit_more_and_no_more() {
    ask(&local(), &[1, 2, 3]).await;
    let again = local();
    let granted = ask(&again, &[4, 5, 6, 7, 8]).await;
    assert_eq!(granted.iter().filter(|one| **one == Granted).count(), LIMIT);
}

/// The same where the server forgets: its keys, and its scripts.
#[tokio::test]
async fn rl_07_a_redis_that_lost_its_memory_and_its_script_grants_one_limit_more() {
    let limiter = redis().await;
    ask(&limiter, &[1, 2, 3]).await;
    limiter.forget_everything(1).await;
    let granted = ask(&limiter, &[4, 5, 6, 7, 8]).await;
    assert_eq!(granted.iter().filter(|one| **one == Granted).count(), LIMIT);
}

#[tokio::test]
async fn rl_05_every_key_in_redis_expires() {
    let limiter = redis().await;
    ask(&limiter, &[1, 2, 3, 4]).await;
    let lives = limiter.lives(1).await;
    assert_eq!(lives.len(), 2, "the counter and the ids");
    let two_windows_ms = i64::try_from(2 * WINDOW.as_millis()).unwrap();
    for ms in lives {
        assert!(ms > 0 && ms <= two_windows_ms, "{ms}");
    }
}

#[tokio::test]
async fn rl_06_a_redis_that_is_not_there_is_an_error_and_no_grant() {
    // A port that nobody listens on: it was ours a moment ago.
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let limiter = RedisLimiter::open(&format!("redis://:secret@127.0.0.1:{port}"), None, budget());
    let refused = limiter.unwrap().consume(mesh(1), &[key(1)]).await;
    let words = refused.unwrap_err().to_string();
    assert!(!words.contains("secret"), "{words}");
}

async fn rl_01_no_more_ids_than_the_limit_are_granted_in_a_window<R: Rig>(limiter: R) {
    assert_eq!(
        ask(&limiter, &[1, 2, 3, 4, 5]).await,
        [Granted, Granted, Granted, Denied, Denied]
    );
    limiter.advance(WINDOW);
    assert_eq!(ask(&limiter, &[4, 5]).await, [Granted, Granted]);
}

async fn rl_02_an_id_counts_once_however_often_it_comes<R: Rig>(limiter: R) {
    for _ in 0..10 {
        assert_eq!(ask(&limiter, &[1, 1, 2]).await, [Granted; 3]);
    }
    assert_eq!(ask(&limiter, &[3, 4]).await, [Granted, Denied]);
    // Granted before the window was full, so granted still.
    assert_eq!(ask(&limiter, &[1, 2, 3]).await, [Granted; 3]);
}

async fn rl_02_racing_callers_of_one_id_use_one_unit<R: Rig>(limiter: R) {
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

async fn rl_04_a_denied_call_counts_nothing_and_is_not_remembered<R: Rig>(limiter: R) {
    ask(&limiter, &[1, 2, 3]).await;
    for _ in 0..100 {
        assert_eq!(ask(&limiter, &[9]).await, [Denied]);
    }
    assert_eq!(limiter.remembered(2).await, LIMIT);
    limiter.advance(WINDOW);
    assert_eq!(ask(&limiter, &[9, 1, 2]).await, [Granted; 3]);
}

async fn rl_01_a_denied_call_is_told_when_the_next_window_begins<R: Rig>(limiter: R) {
    ask(&limiter, &[1, 2, 3]).await;
    limiter.advance(WINDOW / 4);
    let denied = limiter.consume(mesh(1), &[key(4)]).await.unwrap();
    let Decision::Denied { retry_after } = denied[0] else {
        panic!("{denied:?}")
    };
    // A server's own clock goes on by itself.
    assert!(
        retry_after <= WINDOW * 3 / 4 && retry_after > WINDOW / 2,
        "{retry_after:?}"
    );
    limiter.advance(retry_after);
    assert_eq!(ask(&limiter, &[4]).await, [Granted]);
}

async fn br_17_one_mesh_cannot_use_up_the_budget_of_another<R: Rig>(limiter: R) {
    ask(&limiter, &[1, 2, 3]).await;
    let other = limiter.consume(mesh(2), &[key(1), key(4)]).await.unwrap();
    assert_eq!(verdicts(other), [Granted, Granted]);
}

async fn rl_05_c35_memory_is_bounded_by_two_windows_of_traffic<R: Rig>(limiter: R) {
    for round in 0..20_u8 {
        for number in 0..20 {
            let keys = [key(round), key(number), key(100 + number)];
            limiter
                .consume(mesh(u128::from(number)), &keys)
                .await
                .unwrap();
        }
        assert!(limiter.remembered(20).await <= 2 * 20 * LIMIT);
        limiter.advance(WINDOW / 2 + WINDOW / 10);
    }
    limiter.advance(WINDOW * 5);
    ask(&limiter, &[1]).await;
    assert_eq!(limiter.remembered(20).await, 1);
}

/// Against a model: per window, the ids that were let through, in a list.
async fn agrees_with_a_plain_count<R: Rig>(limiter: R, calls: &[(u8, u32)]) {
    let mut windows: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut tenths = 0;
    for (number, more) in calls {
        limiter.advance(WINDOW / 10 * *more);
        tenths += more;
        let now = tenths / 10;
        if windows.last().is_none_or(|(window, _)| *window != now) {
            windows.push((now, Vec::new()));
        }
        let granted = &mut windows.last_mut().unwrap().1;
        let expected = if granted.contains(number) {
            Granted
        } else if granted.len() < LIMIT {
            granted.push(*number);
            Granted
        } else {
            Denied
        };
        assert_eq!(ask(&limiter, &[*number]).await, [expected]);
    }
}

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(test);
}

proptest! {
    #[test]
    fn rl_01_rl_02_rl_04_agree_with_a_plain_count(calls in prop::collection::vec((0..8_u8, 0..4_u32), 1..200)) {
        run(async { agrees_with_a_plain_count(local(), &calls).await });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn rl_01_rl_02_rl_04_redis_agrees_with_a_plain_count(calls in prop::collection::vec((0..8_u8, 0..4_u32), 1..200)) {
        run(async { agrees_with_a_plain_count(redis().await, &calls).await });
    }
}
