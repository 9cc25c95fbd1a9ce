//! The pause of a mesh whose budget at the broker is used up.
//!
//! The budget is the mesh's, so the mesh waits and no row by itself: when the next window opens, the drain chooses
//! among everything that waits by then, the urgent first. A row that waited for a time of its own would leave windows
//! half empty and let others overtake it. Nothing of this is kept: a start asks the broker again, which says how long.

use std::sync::Mutex;
use std::time::Duration;

use heddle_core::backoff::backoff;
use heddle_core::clock::WallMs;
use heddle_core::limits::BACKOFF_MS_MAX;

use crate::mesh::MeshState;
use crate::shared::{Shared, lock};

/// However long the broker says: by then it is asked again, because its limits may have been changed.
const WAIT_MAX: Duration = Duration::from_millis(BACKOFF_MS_MAX);
/// Homes of one mesh do not come back in the same moment: a tenth of the wait is spread, and at most this.
const SPREAD_MAX: Duration = Duration::from_millis(250);

#[derive(Debug, Default, Clone, Copy)]
struct State {
    /// Nothing is sent before, on the monotonic clock.
    until: Duration,
    /// Batches that were refused since one was taken whole.
    refusals: u32,
}

/// Of one mesh.
#[derive(Debug, Default)]
pub(crate) struct Window(Mutex<State>);

impl Window {
    /// How long nothing may be sent; `None` once something may.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let until = lock(&self.0).until;
        until.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Whether the broker lets in less than is sent.
    pub(crate) fn is_tight(&self) -> bool {
        lock(&self.0).refusals > 0
    }

    /// The limiter refused some or all of a batch; how long to wait, if it said so.
    pub(crate) fn is_full(&self, now: Duration, retry_after: Option<Duration>, random: u64) {
        let mut state = lock(&self.0);
        let wait = match retry_after {
            Some(told) => spread(told.min(WAIT_MAX), random),
            None => backoff(state.refusals, random),
        };
        state.refusals = state.refusals.saturating_add(1);
        state.until = state.until.max(now + wait);
    }

    /// A batch was taken whole. What was sent before the window was full says nothing of it.
    pub(crate) fn is_open(&self, now: Duration) {
        let mut state = lock(&self.0);
        if state.until <= now {
            state.refusals = 0;
        }
    }
}

/// A pause that is on, to be told: it is the reason of every row that waits, also of those that were never tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PauseNow {
    /// The limiter's words.
    pub(crate) why: String,
    /// When the broker is asked again, on this home's clock.
    pub(crate) until: String,
}

/// Of this mesh, if it is on.
pub(crate) fn pause_of(shared: &Shared, mesh: &MeshState) -> Option<PauseNow> {
    let now = shared.clock.mono();
    let left = mesh.window.left(now)?;
    let left_ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
    let until = WallMs(shared.clock.wall().0.saturating_add(left_ms));
    let why = mesh.refusals.limited(now);
    Some(PauseNow {
        why: why.unwrap_or_else(|| "rate_limited".to_owned()),
        until: until.to_rfc3339(),
    })
}

fn spread(wait: Duration, random: u64) -> Duration {
    let spread = u64::try_from((wait / 10).min(SPREAD_MAX).as_millis()).unwrap_or(0);
    // Never at the very end of the window, which both clocks see a little differently.
    wait + Duration::from_millis(1 + random % (spread + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_mesh_waits_for_the_end_of_the_window_and_a_little_longer() {
        for random in [0, 1, 99, u64::MAX] {
            let window = Window::default();
            assert_eq!((window.left(NOW), window.is_tight()), (None, false));
            window.is_full(NOW, Some(4 * SECOND), random);
            let left = window.left(NOW).unwrap();
            assert!(left > 4 * SECOND && left <= 4 * SECOND + SPREAD_MAX + SECOND / 500);
            assert_eq!(window.left(NOW + left), None);
            assert!(
                window.is_tight(),
                "it is tight until a batch is taken whole"
            );
            // The answer to a batch of before the window was full.
            window.is_open(NOW);
            assert!(window.is_tight());
            window.is_open(NOW + left);
            assert!(!window.is_tight());
        }
    }

    #[test]
    fn whatever_a_broker_says_it_is_asked_again_within_a_minute() {
        for told in [Duration::MAX, WAIT_MAX, Duration::ZERO] {
            let window = Window::default();
            window.is_full(NOW, Some(told), u64::MAX);
            let left = window.left(NOW).unwrap();
            assert!(left <= WAIT_MAX + SPREAD_MAX + SECOND / 500 && !left.is_zero());
        }
    }

    #[test]
    fn a_broker_that_says_nothing_is_asked_more_and_more_rarely() {
        let window = Window::default();
        let mut longest = Duration::ZERO;
        for refusals in 0..10_u32 {
            let now = NOW + refusals * Duration::from_secs(100);
            window.is_full(now, None, u64::MAX - 1);
            let left = window.left(now).unwrap();
            assert!(left >= SECOND && left <= WAIT_MAX);
            longest = longest.max(left);
        }
        assert!(longest > 10 * SECOND);
    }
}
