//! The system clock: the one place that asks the machine for the time.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the clock"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heddle_core::clock::{Clock, WallMs};

#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> WallMs {
        let ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            // A clock before 1970 is wrong, but it is what the machine says.
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        };
        WallMs(ms)
    }

    fn mono(&self) -> Duration {
        self.start.elapsed()
    }
}
