//! A token bucket on the monotonic clock: 100 a second, 1000 at once.

use std::sync::Mutex;
use std::time::Duration;

use heddle_core::limits::{TCP_REQUESTS_BURST, TCP_REQUESTS_PER_SECOND};

use crate::shared::lock;

/// Counts in thousandths of a request, so that a millisecond refills a whole number.
#[derive(Debug)]
pub(super) struct Bucket {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    level_milli: u64,
    at: Duration,
}

const FULL_MILLI: u64 = TCP_REQUESTS_BURST as u64 * 1000;

impl Default for Bucket {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                level_milli: FULL_MILLI,
                at: Duration::ZERO,
            }),
        }
    }
}

impl Bucket {
    /// Takes one request out, if there is one.
    pub(super) fn take(&self, now: Duration) -> bool {
        let mut state = lock(&self.state);
        let passed_ms = now.saturating_sub(state.at).as_millis();
        let refill = u64::try_from(passed_ms)
            .unwrap_or(u64::MAX)
            .saturating_mul(u64::from(TCP_REQUESTS_PER_SECOND));
        state.level_milli = state.level_milli.saturating_add(refill).min(FULL_MILLI);
        state.at = now.max(state.at);
        match state.level_milli.checked_sub(1000) {
            Some(left) => {
                state.level_milli = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l_03_a_burst_passes_then_the_rate_holds() {
        let bucket = Bucket::default();
        let start = Duration::from_secs(5);
        let taken = (0..2000).filter(|_| bucket.take(start)).count();
        assert_eq!(taken, TCP_REQUESTS_BURST as usize);
        let later = start + Duration::from_secs(1);
        let taken = (0..2000).filter(|_| bucket.take(later)).count();
        assert_eq!(taken, TCP_REQUESTS_PER_SECOND as usize);
    }
}
