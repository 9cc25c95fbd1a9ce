//! How old an outbox row truly is, on a measure that no setting of the wall clock can move (DR-10, C18).
//!
//! The *age clock* is a number of milliseconds that a home keeps. It advances by time that certainly
//! passed and by nothing else:
//!
//! - while the daemon runs, by the machine's clock since boot (which counts sleep), or by the monotonic
//!   clock where there is none;
//! - for the time between two processes of one boot, by the clock since boot;
//! - across a reboot, by the wall-clock difference, clamped to what is plausible: not negative, and not
//!   longer than the machine has been up. A home that was copied from another machine is covered by the
//!   first bound, a wall clock that was set by the second;
//! - by nothing where neither can be known.
//!
//! A row's birth is the first tick of this clock after its accept. So the age that is computed never
//! exceeds the true age: a row dies only if its true age exceeds the max age. Where time is in doubt (the
//! machine was switched off) the row looks younger than it is and is kept longer; a wall clock that jumps
//! by a day, by eight days or by ten years, in either direction, changes no age by itself.

use std::time::Duration;

use crate::clock::{BootTime, Clock, WallMs};

/// How often the age clock is advanced, and ages are looked at.
pub const AGE_TICK: Duration = Duration::from_secs(60);
/// Births are told apart no finer than this.
pub const BIRTH_GRAIN: Duration = Duration::from_secs(600);

/// The age clock as it was last written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeMark {
    pub age: Duration,
    pub wall: WallMs,
    pub boot: Option<BootTime>,
}

/// What the clocks of the machine say now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub wall: WallMs,
    pub mono: Duration,
    pub boot: Option<BootTime>,
}

impl Now {
    pub fn on(clock: &dyn Clock) -> Self {
        Self {
            wall: clock.wall(),
            mono: clock.mono(),
            boot: clock.boot(),
        }
    }
}

/// The age clock of a running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeClock {
    age: Duration,
    seen: Now,
}

impl AgeClock {
    /// Goes on from what the last process wrote down, if there was one.
    pub fn resume(last: Option<AgeMark>, now: Now) -> Self {
        let age = last.map_or(Duration::ZERO, |mark| {
            mark.age.saturating_add(between(mark, now))
        });
        Self { age, seen: now }
    }

    /// The same for a clock that processes of several machines keep together. Within one boot of one machine time
    /// certainly passed; between two of them the walls could only be trusted.
    pub fn resume_shared(last: Option<AgeMark>, now: Now) -> Self {
        let is_same_boot = |mark: &AgeMark| match (mark.boot, now.boot) {
            (Some(then), Some(now)) => then.boot == now.boot,
            _ => false,
        };
        match last.filter(|mark| !is_same_boot(mark)) {
            Some(mark) => Self {
                age: mark.age,
                seen: now,
            },
            None => Self::resume(last, now),
        }
    }

    /// Another process has kept this age: as much time has passed for certain.
    pub fn at_least(&mut self, age: Duration) {
        self.age = self.age.max(age);
    }

    /// Advances by the time that passed since the last call.
    pub fn tick(&mut self, now: Now) -> AgeMark {
        let by_mono = now.mono.saturating_sub(self.seen.mono);
        let passed = match (self.seen.boot, now.boot) {
            (Some(then), Some(now)) if then.boot == now.boot => {
                now.since.saturating_sub(then.since)
            }
            _ => by_mono,
        };
        // Both are lower bounds; the monotonic one does not count sleep.
        self.age = self.age.saturating_add(passed.max(by_mono));
        self.seen = now;
        self.mark()
    }

    pub fn age(&self) -> Duration {
        self.age
    }

    pub fn mark(&self) -> AgeMark {
        AgeMark {
            age: self.age,
            wall: self.seen.wall,
            boot: self.seen.boot,
        }
    }
}

/// The time that certainly passed between two processes.
fn between(last: AgeMark, now: Now) -> Duration {
    match (last.boot, now.boot) {
        (Some(then), Some(now)) if then.boot == now.boot => now.since.saturating_sub(then.since),
        (Some(_), Some(up)) => {
            let by_wall = now.wall.0.saturating_sub(last.wall.0);
            let by_wall = Duration::from_millis(u64::try_from(by_wall).unwrap_or(0));
            by_wall.min(up.since)
        }
        _ => Duration::ZERO,
    }
}

/// Rows that were born at this point of the age clock or before are over age; `None` while the clock
/// itself has not run for that long.
pub fn over_age(age: Duration, max_age_hours: u32) -> Option<Duration> {
    age.checked_sub(Duration::from_secs(u64::from(max_age_hours) * 3600))
}

/// Whether a row that was sent before may be sent to a broker that has forgotten its id by now: then it would be taken for a
/// new one. By the wall clock, because a machine that was off is just the case (ADR 7); so it is only ever counted.
pub fn may_be_forgotten(
    attempts: u32,
    enqueued_at: WallMs,
    now: WallMs,
    max_age_hours: Option<u32>,
) -> bool {
    let waited_ms = now.0.saturating_sub(enqueued_at.0);
    attempts > 0 && max_age_hours.is_some_and(|hours| waited_ms > i64::from(hours) * 3_600_000)
}

/// The reason of a row that died of age, and that the broker does not have.
pub const MAX_AGE: &str = "max_age";
/// The reason of a row that died of age while the broker could not be asked: it may have arrived (C32).
pub const MAX_AGE_UNKNOWN: &str = "max_age_outcome_unknown";

/// What the last look at the broker said of a row that is over age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLook {
    Committed,
    /// The broker does not have it, and would know it if it ever had.
    Absent,
    /// The broker does not have it, but it was sent so long ago that its id may be forgotten by now.
    Forgotten,
    Unreachable,
}

/// What it means that the broker does not have a row that was sent `attempts` times. `is_beyond_memory` says that the age clock has
/// certainly passed the time for which the broker remembers an id; the wall clock is asked as well, because a machine that was off
/// is just the case. In doubt the outcome is unknown: nobody may hear "not delivered" of what was delivered.
pub fn absent(
    attempts: u32,
    (enqueued_at, now): (WallMs, WallMs),
    memory_hours: Option<u32>,
    is_beyond_memory: bool,
) -> LastLook {
    if is_beyond_memory && attempts > 0
        || may_be_forgotten(attempts, enqueued_at, now, memory_hours)
    {
        LastLook::Forgotten
    } else {
        LastLook::Absent
    }
}

/// The words on a row that dies of age; `None` for one that the broker has, which is `done`.
pub fn death_by_age(look: LastLook, max_age_hours: u32) -> Option<String> {
    match look {
        LastLook::Committed => None,
        LastLook::Absent => Some(format!(
            "{MAX_AGE}: not delivered within {max_age_hours} hours; the broker does not have it"
        )),
        LastLook::Forgotten => Some(format!(
            "{MAX_AGE_UNKNOWN}: not confirmed within {max_age_hours} hours, and the broker may have had it: it remembers an id for a shorter time"
        )),
        LastLook::Unreachable => Some(format!(
            "{MAX_AGE_UNKNOWN}: not confirmed within {max_age_hours} hours, and the broker could not be asked whether it has it"
        )),
    }
}

/// Whether a dead row may have arrived all the same.
pub fn is_outcome_unknown(last_error: Option<&str>) -> bool {
    last_error.is_some_and(|text| text.starts_with(MAX_AGE_UNKNOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY_MS: i64 = 86_400_000;

    fn boot(boot: u128, hours: u32) -> Option<BootTime> {
        Some(BootTime {
            boot,
            since: HOUR * hours,
        })
    }

    fn now(wall_days: i64, mono_hours: u32, boot: Option<BootTime>) -> Now {
        Now {
            wall: WallMs(wall_days * DAY_MS),
            mono: HOUR * mono_hours,
            boot,
        }
    }

    #[test]
    fn dr_10_xc_05_no_jump_of_the_wall_moves_the_clock_of_a_running_process() {
        for jump_days in [1, -1, 8, -8, 3650, -3650] {
            for boots in [false, true] {
                let boot = |hours| boots.then(|| boot(1, hours).unwrap());
                let mut clock = AgeClock::resume(None, now(100, 0, boot(5)));
                clock.tick(now(100 + jump_days, 1, boot(6)));
                assert_eq!(clock.age(), HOUR);
                clock.tick(now(100, 2, boot(7)));
                assert_eq!(clock.age(), HOUR * 2);
            }
        }
    }

    #[test]
    fn sleep_counts_where_the_machine_can_tell() {
        let mut clock = AgeClock::resume(None, now(0, 0, boot(1, 5)));
        clock.tick(now(0, 1, boot(1, 15)));
        assert_eq!(clock.age(), HOUR * 10);
    }

    /// What the last process saw, what this one sees, and the hours that certainly passed.
    #[test]
    fn dr_10_time_between_two_processes_counts_only_where_it_is_certain() {
        let table = [
            ("one boot, wall steady", boot(1, 5), 0, boot(1, 9), 0, 4),
            (
                "one boot, wall set forward",
                boot(1, 5),
                0,
                boot(1, 9),
                8,
                4,
            ),
            ("one boot, wall set back", boot(1, 5), 9, boot(1, 9), 0, 4),
            (
                "one boot, restored snapshot",
                boot(1, 9),
                0,
                boot(1, 5),
                1,
                0,
            ),
            ("rebooted, up for 3 h", boot(1, 500), 0, boot(2, 3), 8, 3),
            (
                "rebooted, wall went back",
                boot(1, 500),
                9,
                boot(2, 3),
                0,
                0,
            ),
            (
                "copied to a machine that is up for long",
                boot(1, 5),
                0,
                boot(2, 9000),
                0,
                0,
            ),
            ("no clock since boot", None, 0, None, 8, 0),
            ("a clock since boot only now", None, 0, boot(2, 70), 8, 0),
        ];
        for (name, then, then_days, up, now_days, hours) in table {
            let mark = AgeMark {
                age: HOUR * 100,
                wall: WallMs(then_days * DAY_MS),
                boot: then,
            };
            let clock = AgeClock::resume(Some(mark), now(now_days, 0, up));
            assert_eq!(clock.age(), HOUR * (100 + hours), "{name}");
        }
    }

    #[test]
    fn xc_05_a_clock_of_several_machines_trusts_no_wall() {
        let mark = |boot| AgeMark {
            age: HOUR * 100,
            wall: WallMs(0),
            boot,
        };
        let table = [
            ("one boot", boot(1, 5), boot(1, 9), 104),
            (
                "another machine, its wall 8 days ahead",
                boot(1, 5),
                boot(2, 9000),
                100,
            ),
            ("rebooted", boot(1, 500), boot(2, 3), 100),
            ("no clock since boot", None, None, 100),
        ];
        for (name, then, up, hours) in table {
            let mut clock = AgeClock::resume_shared(Some(mark(then)), now(8, 0, up));
            assert_eq!(clock.age(), HOUR * hours, "{name}");
            clock.at_least(HOUR * 90);
            assert_eq!(clock.age(), HOUR * hours, "{name}");
            clock.at_least(HOUR * 200);
            assert_eq!(clock.age(), HOUR * 200, "{name}");
        }
        let clock = AgeClock::resume_shared(None, now(8, 0, boot(2, 9000)));
        assert_eq!(clock.age(), Duration::ZERO);
    }

    #[test]
    fn nothing_is_over_age_before_the_clock_has_run_that_long() {
        assert_eq!(over_age(HOUR * 143, 144), None);
        assert_eq!(over_age(HOUR * 144, 144), Some(Duration::ZERO));
        assert_eq!(over_age(HOUR * 150, 144), Some(HOUR * 6));
    }

    #[test]
    fn c32_each_last_look_has_its_own_words() {
        assert_eq!(death_by_age(LastLook::Committed, 144), None);
        let absent = death_by_age(LastLook::Absent, 144);
        assert!(!is_outcome_unknown(absent.as_deref()));
        for look in [LastLook::Unreachable, LastLook::Forgotten] {
            let unknown = death_by_age(look, 144);
            assert!(is_outcome_unknown(unknown.as_deref()));
        }
        assert!(!is_outcome_unknown(None));
    }

    /// Attempts, days by the wall, whether the age clock says so, and what the broker's word is worth.
    #[test]
    fn c32_the_absence_of_an_id_proves_something_only_while_the_broker_would_remember_it() {
        for (attempts, days, is_beyond, look) in [
            (0, 0, false, LastLook::Absent),
            (0, 400, true, LastLook::Absent),
            (1, 6, false, LastLook::Absent),
            (1, 8, false, LastLook::Forgotten),
            (1, -8, true, LastLook::Forgotten),
            (1, -8, false, LastLook::Absent),
        ] {
            let times = (WallMs(0), WallMs(days * DAY_MS));
            let found = absent(attempts, times, Some(168), is_beyond);
            assert_eq!(found, look, "{attempts} tries, {days} days, {is_beyond}");
        }
        let forever = absent(1, (WallMs(0), WallMs(4000 * DAY_MS)), None, false);
        assert_eq!(forever, LastLook::Absent, "a broker that never forgets");
    }

    #[test]
    fn only_a_retry_after_the_max_age_may_meet_a_broker_that_forgot() {
        const DAY_MS: i64 = 24 * 3_600_000;
        let born = WallMs(1_000);
        let after = |days: i64| WallMs(born.0 + days * DAY_MS);
        assert!(may_be_forgotten(1, born, after(7), Some(144)));
        assert!(!may_be_forgotten(1, born, after(6), Some(144)));
        // Never sent: no broker has an id to forget. Never agreed: no broker knows any.
        assert!(!may_be_forgotten(0, born, after(7), Some(144)));
        assert!(!may_be_forgotten(1, born, after(7), None));
        // A clock that was set back.
        assert!(!may_be_forgotten(1, born, WallMs(0), Some(144)));
    }
}
