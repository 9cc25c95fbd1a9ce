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

    #[test]
    fn the_ceiling_doubles_until_the_cap() {
        let ceilings: Vec<u64> = (0..8).map(ceiling_ms).collect();
        assert_eq!(
            ceilings,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
        );
    }
}
