//! Places at which another message stood: what the next hello tells the broker of them.
//!
//! A broker that is an earlier copy of itself and went on gives places out twice. What it compares in a hello shows that as a
//! rule; a place that met another message here proves it, whatever the hello had named.

use std::sync::Mutex;
use std::time::Duration;

use heddle_core::witness::{WITNESSES_MAX, Witness};

use crate::shared::lock;

/// As many as are named beside the others.
const KEPT_MAX: usize = 16;
/// A broker that goes on all the same is not asked more often.
const AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Displaced {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    seen: Vec<Witness>,
    /// On the monotonic clock.
    told_at: Option<Duration>,
}

impl Displaced {
    /// True if the broker is to hear of it now: by a new hello.
    pub(crate) fn note(&self, found: &[Witness], now: Duration) -> bool {
        let mut inner = lock(&self.inner);
        inner.seen.extend(found);
        let surplus = inner.seen.len().saturating_sub(KEPT_MAX);
        inner.seen.drain(..surplus);
        let is_due = inner
            .told_at
            .is_none_or(|told| now.saturating_sub(told) >= AGAIN);
        if is_due {
            inner.told_at = Some(now);
        }
        is_due
    }

    /// With what the store knows, for a hello.
    pub(crate) fn with(&self, mut known: Vec<Witness>) -> Vec<Witness> {
        let inner = lock(&self.inner);
        known.truncate(WITNESSES_MAX - inner.seen.len());
        known.extend(&inner.seen);
        known
    }
}
