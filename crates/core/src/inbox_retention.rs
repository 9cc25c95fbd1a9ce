//! Which items of the inbox retention may take, and up to which time it goes in one run.
//!
//! Ages are differences of wall-clock times, because an item's age spans restarts. So that a clock
//! that is set wrong for an hour does not empty a mailbox, a run may go at most a day further than
//! the time that truly passed since the run before.

use std::time::Duration;

use crate::clock::WallMs;

/// How much further than the time that passed a run may go: it lets a home that was switched off for
/// weeks catch up, and bounds what a wrong clock can take.
pub const CATCH_UP_MAX: Duration = Duration::from_hours(24);

/// What an item shows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    pub received_at: WallMs,
    /// Put before the agent, or acknowledged.
    pub was_shown: bool,
}

/// The two times behind which items go: `shown` for those that were shown, `unshown` for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutoff {
    pub shown: WallMs,
    pub unshown: WallMs,
}

impl Cutoff {
    /// `previous` is where the last run went, `elapsed` the monotonic time since then (zero if this
    /// process made none).
    pub fn next(
        previous: Option<WallMs>,
        now: WallMs,
        elapsed: Duration,
        retention: Duration,
    ) -> Self {
        let wanted = now.0.saturating_sub(ms(retention));
        let shown = match previous {
            None => wanted,
            Some(WallMs(previous)) => {
                let allowed = previous.saturating_add(ms(elapsed.saturating_add(CATCH_UP_MAX)));
                wanted.min(allowed)
            }
        };
        Self {
            shown: WallMs(shown),
            // An agent that never comes for its mail does not keep it for ever.
            unshown: WallMs(shown.saturating_sub(ms(retention))),
        }
    }

    pub fn takes(&self, age: Age) -> bool {
        age.received_at < self.unshown || (age.was_shown && age.received_at < self.shown)
    }
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;
    const NOW: WallMs = WallMs(1_794_000_000_000);
    const MONTH: Duration = Duration::from_hours(30 * 24);

    fn age(days: i64, was_shown: bool) -> Age {
        Age {
            received_at: WallMs(NOW.0 - days * DAY),
            was_shown,
        }
    }

    #[test]
    fn shown_items_go_after_the_retention_and_others_after_twice_of_it() {
        let cutoff = Cutoff::next(None, NOW, Duration::ZERO, MONTH);
        let table = [
            (29, true, false),
            (30, true, false),
            (31, true, true),
            (31, false, false),
            (60, false, false),
            (61, false, true),
            (61, true, true),
            (-5, true, false),
        ];
        for (days, was_shown, taken) in table {
            assert_eq!(
                cutoff.takes(age(days, was_shown)),
                taken,
                "{days} {was_shown}"
            );
        }
    }

    #[test]
    fn xc_05_a_clock_that_jumps_takes_at_most_a_day_more_than_passed() {
        let hour = Duration::from_hours(1);
        let before = Cutoff::next(None, NOW, Duration::ZERO, MONTH);
        let in_ten_years = WallMs(NOW.0 + 3650 * DAY);
        let jumped = Cutoff::next(Some(before.shown), in_ten_years, hour, MONTH);
        assert_eq!(jumped.shown.0, before.shown.0 + DAY + 3_600_000);
        let set_back = Cutoff::next(Some(jumped.shown), NOW, hour, MONTH);
        assert_eq!(set_back, before);
        let in_1970 = Cutoff::next(Some(before.shown), WallMs(0), hour, MONTH);
        assert!(!in_1970.takes(age(400, true)) && in_1970.shown.0 < 0);
    }

    #[test]
    fn a_home_that_was_off_for_weeks_catches_up_run_by_run() {
        let start = Cutoff::next(None, NOW, Duration::ZERO, MONTH);
        let later = WallMs(NOW.0 + 50 * DAY);
        let wanted = WallMs(later.0 - 30 * DAY);
        let mut at = start.shown;
        let mut runs = 0;
        while at < wanted {
            at = Cutoff::next(Some(at), later, Duration::ZERO, MONTH).shown;
            runs += 1;
        }
        assert_eq!((at, runs), (wanted, 50));
    }

    #[test]
    fn numbers_at_their_ends_do_not_overflow() {
        for now in [WallMs(i64::MIN), WallMs(i64::MAX)] {
            for previous in [None, Some(WallMs(i64::MIN)), Some(WallMs(i64::MAX))] {
                Cutoff::next(previous, now, Duration::MAX, Duration::MAX);
            }
        }
    }
}
