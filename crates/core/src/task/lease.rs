//! When a lease has run out, measured on clocks that nobody sets (C18).
//!
//! A home counts a lease from the moment at which it saw the claim or its last renewal, never from a
//! wall clock. A moment of another boot says nothing, so the lease is counted anew: a lease may end
//! late, and never early.

use std::time::Duration;

use super::LeaseMs;
use crate::clock::{BootTime, Clock};

/// A point on a clock that only goes forward, and which clock that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub boot: u128,
    pub since: Duration,
}

impl Moment {
    /// `process` stands for the machine's start where that is not known.
    pub fn now(clock: &dyn Clock, process: u128) -> Self {
        match clock.boot() {
            Some(BootTime { boot, since }) => Self { boot, since },
            None => Self {
                boot: process,
                since: clock.mono(),
            },
        }
    }

    /// What certainly passed since `earlier`; nothing if that cannot be told.
    pub fn since(self, earlier: Self) -> Duration {
        if self.boot == earlier.boot {
            self.since.saturating_sub(earlier.since)
        } else {
            Duration::ZERO
        }
    }
}

/// How much of a lease is left, seen then, now.
pub fn left(lease: LeaseMs, seen: Moment, now: Moment) -> Duration {
    Duration::from_millis(lease.get()).saturating_sub(now.since(seen))
}

/// Whether an active holder's lease is to be renewed: a third of it is used.
pub fn is_renewal_due(lease: LeaseMs, seen: Moment, now: Moment) -> bool {
    now.since(seen) >= Duration::from_millis(lease.get() / 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, WallMs};

    fn at(boot: u128, seconds: u64) -> Moment {
        Moment {
            boot,
            since: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn c18_a_lease_is_counted_on_one_boot_and_anew_on_the_next() {
        let lease = LeaseMs::new(90_000).unwrap();
        let seen = at(1, 100);
        assert_eq!(left(lease, seen, at(1, 100)), Duration::from_secs(90));
        assert_eq!(left(lease, seen, at(1, 130)), Duration::from_secs(60));
        assert_eq!(left(lease, seen, at(1, 190)), Duration::ZERO);
        assert_eq!(left(lease, seen, at(1, 500)), Duration::ZERO);
        // Another boot, or a clock that seems to have gone back: never early.
        assert_eq!(left(lease, seen, at(2, 5000)), Duration::from_secs(90));
        assert_eq!(left(lease, seen, at(1, 50)), Duration::from_secs(90));
        assert!(!is_renewal_due(lease, seen, at(1, 129)));
        assert!(is_renewal_due(lease, seen, at(1, 130)));
        assert!(!is_renewal_due(lease, seen, at(2, 5000)));
    }

    #[test]
    fn xc_05_setting_the_wall_moves_no_lease() {
        let clock = ManualClock::at(WallMs(0));
        let seen = Moment::now(&clock, 7);
        clock.set_wall(WallMs(10 * 365 * 86_400_000));
        assert_eq!(Moment::now(&clock, 7).since(seen), Duration::ZERO);
        clock.advance(Duration::from_secs(3));
        assert_eq!(Moment::now(&clock, 7).since(seen), Duration::from_secs(3));
    }
}
