//! A place in the code may say so much in a while; what it says beyond that is counted, not written.
//!
//! A broker that is away, a disk that refuses: such things are said a thousand times a minute by the
//! same line of code. The first twenty of them tell everything, and the count tells the rest.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

pub const LINES_PER_WINDOW: u32 = 20;
pub const WINDOW: Duration = Duration::from_secs(10);

/// Keyed by the place; there are only as many places as the program has.
#[derive(Debug)]
pub struct Limit<K> {
    places: HashMap<K, Place>,
}

#[derive(Debug)]
struct Place {
    name: String,
    since: Duration,
    lines: u32,
    suppressed: u64,
}

/// So many lines of a place were not written.
#[derive(Debug, PartialEq, Eq)]
pub struct Suppressed {
    pub place: String,
    pub lines: u64,
}

impl<K: Eq + Hash> Limit<K> {
    pub fn new() -> Self {
        Self {
            places: HashMap::new(),
        }
    }

    /// Whether this place may say something now.
    pub fn admit(&mut self, key: K, now: Duration, name: impl FnOnce() -> String) -> bool {
        let place = self.places.entry(key).or_insert_with(|| Place {
            name: name(),
            since: now,
            lines: 0,
            suppressed: 0,
        });
        if now.saturating_sub(place.since) >= WINDOW && place.suppressed == 0 {
            place.since = now;
            place.lines = 0;
        }
        if place.lines < LINES_PER_WINDOW {
            place.lines += 1;
            return true;
        }
        place.suppressed += 1;
        metrics::counter!("heddle_log_lines_suppressed_total").increment(1);
        false
    }

    /// What was held back in windows that are over; with `all`, also in those that are not.
    pub fn overdue(&mut self, now: Duration, all: bool) -> Vec<Suppressed> {
        let is_over = |place: &Place| all || now.saturating_sub(place.since) >= WINDOW;
        let held_back = self.places.values_mut();
        held_back
            .filter(|place| place.suppressed > 0 && is_over(place))
            .map(|place| {
                place.since = now;
                place.lines = 0;
                Suppressed {
                    place: place.name.clone(),
                    lines: std::mem::take(&mut place.suppressed),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_chatty_place_is_cut_short_and_counted_while_another_speaks_on() {
        let mut limit = Limit::new();
        let say = |limit: &mut Limit<u8>, key| limit.admit(key, SECOND, || format!("place {key}"));
        let written = (0..1000).filter(|_| say(&mut limit, 1)).count();
        assert_eq!(written, 20);
        assert!(say(&mut limit, 2));
        assert_eq!(limit.overdue(SECOND, false), []);
        let told = limit.overdue(SECOND + WINDOW, false);
        let expected = Suppressed {
            place: "place 1".to_owned(),
            lines: 980,
        };
        assert_eq!(told, [expected]);
        assert_eq!(limit.overdue(SECOND + WINDOW, true), []);
        assert!(limit.admit(1, SECOND + WINDOW, String::new));
    }

    #[test]
    fn a_place_that_says_little_is_never_cut_short() {
        let mut limit = Limit::new();
        for second in 0..1000 {
            let now = SECOND * second;
            assert!(limit.admit((), now, String::new));
            assert!(limit.admit((), now, String::new));
        }
        assert_eq!(limit.overdue(SECOND * 2000, true), []);
    }

    #[test]
    fn the_end_tells_what_was_held_back_although_its_window_is_not_over() {
        let mut limit = Limit::new();
        for _ in 0..21 {
            limit.admit((), SECOND, || "here".to_owned());
        }
        assert_eq!(limit.overdue(SECOND, true)[0].lines, 1);
    }
}
