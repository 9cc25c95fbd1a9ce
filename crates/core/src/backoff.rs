//! How long to wait before a retry: exponential with full jitter, 1 s to 60 s.
//!
//! The wait is a duration on the monotonic clock (C18); a jump of the wall changes nothing.

use std::time::Duration;

use crate::limits::{BACKOFF_MS_MAX, BACKOFF_MS_MIN};

/// The ceiling of the wait after this many failed attempts.
fn ceiling_ms(attempts: u32) -> u64 {
    BACKOFF_MS_MIN
        .saturating_mul(1 << attempts.min(16))
        .min(BACKOFF_MS_MAX)
}

/// A wait between the minimum and the ceiling. `random` is any number; its spread is the jitter.
pub fn backoff(attempts: u32, random: u64) -> Duration {
    let spread = ceiling_ms(attempts) - BACKOFF_MS_MIN;
    let jitter = random.checked_rem(spread + 1).unwrap_or(0);
    Duration::from_millis(BACKOFF_MS_MIN + jitter)
}

/// The wait before a connection that was lost is tried again, after so many tries in vain. Never without jitter: all
/// daemons of a broker lose it in the same moment, and must not come back in the same one (L-21).
pub fn reconnect(failures: u32, random: u64) -> Duration {
    backoff(failures.saturating_add(1), random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_is_within_the_named_bounds() {
        for attempts in [0, 1, 2, 5, 6, 7, 30, u32::MAX] {
            for random in [0, 1, 999, 12_345_678_901, u64::MAX] {
                let wait = u64::try_from(backoff(attempts, random).as_millis()).unwrap();
                assert!((BACKOFF_MS_MIN..=BACKOFF_MS_MAX).contains(&wait));
            }
        }
    }

    /// A thousand daemons that lost one broker in the same moment: after each failed try they come further apart, and
    /// no moment gets more than its share. The numbers are those of a fixed generator, so the outcome is, too.
    #[test]
    fn l_21_a_thousand_daemons_that_lost_one_broker_come_back_spread_out() {
        const DAEMONS: u64 = 1_000;
        for failures in 0..=6_u32 {
            let mut state = u64::from(failures);
            let mut slots = [0_u32; 10];
            let spread = ceiling_ms(failures + 1) - BACKOFF_MS_MIN;
            for _ in 0..DAEMONS {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let wait = u64::try_from(reconnect(failures, state >> 16).as_millis()).unwrap();
                let slot = (wait - BACKOFF_MS_MIN) * 10 / (spread + 1);
                slots[usize::try_from(slot).unwrap()] += 1;
            }
            // A tenth of the time gets a tenth of them, give or take half.
            assert!(
                slots.iter().all(|count| (50..=150).contains(count)),
                "{slots:?}"
            );
        }
    }

    #[test]
    fn the_ceiling_doubles_until_the_cap() {
        let ceilings: Vec<u64> = (0..8).map(ceiling_ms).collect();
        assert_eq!(
            ceilings,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
        );
    }
}
