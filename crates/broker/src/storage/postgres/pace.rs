//! How many messages one transaction of a mesh takes.
//!
//! A message to a topic writes a row for each subscriber, so nobody can say before how long a group takes. One that took too
//! long was undone, and its messages come again: the next ones are half as large until they are in time, or the same
//! group would fail for ever (T-29).

/// As many as a transaction takes where nothing speaks against it.
const MESSAGES_MAX: usize = 1024;

pub(super) struct Pace {
    messages_max: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            messages_max: MESSAGES_MAX,
        }
    }
}

impl Pace {
    /// At least one, and a piece of work that has more goes alone.
    pub(super) fn messages_max(&self) -> usize {
        self.messages_max
    }

    pub(super) fn too_slow(&mut self) {
        self.messages_max = (self.messages_max / 2).max(1);
    }

    pub(super) fn in_time(&mut self) {
        self.messages_max = (self.messages_max * 2).min(MESSAGES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_29_what_took_too_long_is_halved_until_it_is_in_time_and_grows_again() {
        let mut pace = Pace::default();
        assert_eq!(pace.messages_max(), MESSAGES_MAX);
        pace.in_time();
        assert_eq!(pace.messages_max(), MESSAGES_MAX);
        pace.too_slow();
        assert_eq!(pace.messages_max(), MESSAGES_MAX / 2);
        for _ in 0..20 {
            pace.too_slow();
        }
        assert_eq!(pace.messages_max(), 1);
        for _ in 0..20 {
            pace.in_time();
        }
        assert_eq!(pace.messages_max(), MESSAGES_MAX);
    }
}
