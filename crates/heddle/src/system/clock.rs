//! The system clock: the one place that asks the machine for the time.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the clock"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heddle_core::clock::{BootTime, Clock, WallMs};

#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    /// Which start of the machine this is.
    boot: Option<u128>,
}

impl SystemClock {
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            boot: boot_id(),
        }
    }
}

/// Linux names every start of the machine; other systems do not.
fn boot_id() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok()
}

/// Time since the machine was started, sleep included.
#[cfg(target_os = "linux")]
fn since_boot() -> Option<Duration> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).ok()
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Option<Duration> {
    None
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

    fn boot(&self) -> Option<BootTime> {
        let boot = self.boot?;
        Some(BootTime {
            boot,
            since: since_boot()?,
        })
    }
}
