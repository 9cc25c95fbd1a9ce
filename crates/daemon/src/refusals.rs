//! What a broker says to rows that it does not take, and when that is worth a word to a person.

use std::sync::Mutex;
use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::limits::BACKOFF_MS_MAX;

use crate::shared::lock;

/// A rate limit that lets nothing in for longer than this is more than a burst.
const NONE_LONG: Duration = Duration::from_secs(15);
/// And one that lets some in, while others wait for longer than this.
const SOME_LONG: Duration = Duration::from_secs(60);
/// Whatever was refused has been tried again by then.
const OVER: Duration = Duration::from_millis(BACKOFF_MS_MAX + 5_000);

/// Whether a row's or a broker's last word is the limiter's.
pub(crate) fn is_limited(why: &str) -> bool {
    let codes = [ErrorCode::RateLimited, ErrorCode::LimiterUnavailable];
    codes.iter().any(|code| why.starts_with(code.as_str()))
}

#[derive(Debug, Clone)]
struct Refused {
    why: String,
    /// Since when there have been such rows.
    since: Duration,
    /// When it last said so.
    last: Duration,
    /// It has taken others since it last said so.
    takes_some: bool,
    /// It has taken others since there have been such rows.
    took_some: bool,
}

impl Refused {
    /// A full rate window passes by itself in seconds; what else is refused does not.
    fn is_told(&self, now: Duration) -> bool {
        let lasts = now.saturating_sub(self.since);
        self.is_of_now(now)
            && if self.takes_some {
                lasts >= SOME_LONG
            } else {
                lasts >= NONE_LONG || !self.why.starts_with(ErrorCode::RateLimited.as_str())
            }
    }

    fn is_of_now(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) < OVER
    }
}

/// Of one mesh.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Option<Refused>>);

impl Refusals {
    /// What the broker said to rows of a batch that it did not take; `None`: it took all of them. Others may wait
    /// all the same.
    pub(crate) fn note(&self, why: Option<String>, now: Duration) {
        let mut refused = lock(&self.0);
        let before = refused.take().filter(|before| before.is_of_now(now));
        *refused = match (why, before) {
            (None, None) => None,
            (None, Some(before)) => Some(Refused {
                takes_some: true,
                took_some: true,
                ..before
            }),
            (Some(why), before) => Some(Refused {
                why,
                since: before.as_ref().map_or(now, |before| before.since),
                last: now,
                takes_some: false,
                took_some: before.is_some_and(|before| before.took_some),
            }),
        };
    }

    /// Nothing waits any more.
    pub(crate) fn has_drained(&self) {
        *lock(&self.0) = None;
    }

    /// Why the broker does not take what waits, as long as that is worth a word; and whether it took others.
    pub(crate) fn told(&self, now: Duration) -> Option<(String, bool)> {
        let refused = lock(&self.0);
        let refused = refused.as_ref().filter(|refused| refused.is_told(now))?;
        Some((refused.why.clone(), refused.took_some))
    }

    /// What the limiter says while it lets nothing more in, however short that is, or lets in less than waits.
    pub(crate) fn limited(&self, now: Duration) -> Option<String> {
        let refused = lock(&self.0);
        let refused = refused
            .as_ref()
            .filter(|refused| is_limited(&refused.why))?;
        (!refused.takes_some || refused.is_told(now)).then(|| refused.why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: &str = "rate_limited: 1 in 10 s";

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rl_09_what_waits_for_a_minute_is_told_though_others_pass() {
        let refusals = Refusals::default();
        for now in (0..60).step_by(10) {
            // In each window one row passes, and the others do not.
            refusals.note(Some(LIMIT.to_owned()), at(now));
            refusals.note(None, at(now + 1));
            assert_eq!(refusals.told(at(now + 1)), None, "{now}");
        }
        refusals.note(Some(LIMIT.to_owned()), at(60));
        assert_eq!(refusals.told(at(60)), Some((LIMIT.to_owned(), true)));
        refusals.note(None, at(61));
        assert_eq!(refusals.told(at(61)), Some((LIMIT.to_owned(), true)));
        assert_eq!(refusals.limited(at(61)), Some(LIMIT.to_owned()));
        // Whatever waits is tried within a minute: nothing was refused since, so nothing is.
        assert_eq!(refusals.told(at(60) + OVER), None);
        refusals.has_drained();
        assert_eq!(refusals.told(at(61)), None);
    }

    #[test]
    fn a_window_that_is_full_for_a_moment_is_no_news_and_a_broken_store_is() {
        let refusals = Refusals::default();
        refusals.note(Some(LIMIT.to_owned()), at(0));
        assert_eq!(refusals.told(at(14)), None);
        assert_eq!(refusals.limited(at(14)), Some(LIMIT.to_owned()));
        assert_eq!(refusals.told(at(15)), Some((LIMIT.to_owned(), false)));
        refusals.has_drained();
        let why = "storage_unavailable: no".to_owned();
        refusals.note(Some(why.clone()), at(20));
        assert_eq!(refusals.told(at(20)), Some((why, false)));
        assert_eq!(refusals.limited(at(20)), None);
        refusals.note(None, at(21));
        assert_eq!(refusals.told(at(21)), None);
    }
}
