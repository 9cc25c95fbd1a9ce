//! The clock of leases: monotonic time that goes on across restarts.
//!
//! It begins where the store says that the last process was, and moves with this process's monotonic
//! clock. Setting the wall clock moves no lease (C18); while nothing runs, no lease runs out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle_core::clock::Clock;

use crate::storage::LeaseMs;

pub(crate) struct LeaseClock {
    clock: Arc<dyn Clock>,
    base_ms: AtomicU64,
}

impl LeaseClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            base_ms: AtomicU64::new(0),
        }
    }

    /// Some lease was handed out at this time: it is now at the earliest.
    pub(crate) fn go_on_from(&self, reached: LeaseMs) {
        let now = self.mono_ms();
        let base = reached.0.saturating_sub(now);
        self.base_ms.fetch_max(base, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> LeaseMs {
        LeaseMs(self.base_ms.load(Ordering::SeqCst)).after(self.mono_ms())
    }

    fn mono_ms(&self) -> u64 {
        u64::try_from(self.clock.mono().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heddle_core::clock::{ManualClock, WallMs};

    use super::*;

    #[test]
    fn c18_lease_time_follows_no_wall_clock_and_never_falls_behind_the_store() {
        let clock = Arc::new(ManualClock::at(WallMs(5)));
        clock.advance(Duration::from_secs(3));
        let lease = LeaseClock::new(clock.clone());
        lease.go_on_from(LeaseMs(10_000));
        assert_eq!(lease.now(), LeaseMs(10_000));
        clock.set_wall(WallMs(-1_000_000));
        clock.advance(Duration::from_millis(7));
        assert_eq!(lease.now(), LeaseMs(10_007));
        lease.go_on_from(LeaseMs(9_000));
        assert_eq!(lease.now(), LeaseMs(10_007));
    }
}
