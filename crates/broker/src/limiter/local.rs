//! The limiter of a broker that is alone: counters and ids in this process, for two windows.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heddle_core::clock::Clock;
use heddle_core::ids::{IdKey, MeshId};

use super::contract::{Decision, Limiter, LimiterError};

/// How much a mesh may send in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub ids_per_window_max: usize,
    pub window: Duration,
}

/// Above what one disk can commit, so it stops a runaway sender and nobody else. A short window
/// keeps the remembered ids few (about 5 MB at the very most).
impl Default for Budget {
    fn default() -> Self {
        Self {
            ids_per_window_max: 100_000,
            window: Duration::from_secs(1),
        }
    }
}

pub struct LocalLimiter {
    clock: Arc<dyn Clock>,
    budget: Budget,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest window that any caller has named.
    newest: u64,
    /// Ids granted, by window and mesh. Their number is the counter. Two windows are kept, because
    /// a caller may name the one before last look at the clock and reach the lock in the next.
    granted: BTreeMap<(u64, MeshId), HashSet<IdKey>>,
}

impl LocalLimiter {
    pub fn new(clock: Arc<dyn Clock>, budget: Budget) -> Self {
        Self {
            clock,
            budget,
            state: Mutex::new(State::default()),
        }
    }

    /// The window of now, and what is left of it.
    fn window(&self) -> (u64, Duration) {
        let length = self.budget.window.as_nanos().max(1);
        let now = self.clock.mono().as_nanos();
        let left = u64::try_from(length - now % length).unwrap_or(u64::MAX);
        let window = u64::try_from(now / length).unwrap_or(u64::MAX);
        (window, Duration::from_nanos(left))
    }

    fn consume_in(
        &self,
        (window, left): (u64, Duration),
        mesh: MeshId,
        keys: &[IdKey],
    ) -> Vec<Decision> {
        // Nothing that can panic half way runs under this lock.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (window, granted) = state.window(window, mesh);
        let limit = self.budget.ids_per_window_max;
        keys.iter()
            .map(|key| {
                let counted = !granted.contains(key);
                if counted && granted.len() >= limit {
                    return Decision::Denied { retry_after: left };
                }
                granted.insert(*key);
                Decision::Granted { window, counted }
            })
            .collect()
    }

    /// How many ids it remembers now.
    #[cfg(test)]
    pub(super) fn remembered_count(&self) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.granted.values().map(HashSet::len).sum()
    }
}

impl State {
    fn window(&mut self, window: u64, mesh: MeshId) -> (u64, &mut HashSet<IdKey>) {
        if window > self.newest {
            self.newest = window;
            let oldest = window - 1;
            self.granted.retain(|(kept, _), _| *kept >= oldest);
        }
        // A caller that was held up for longer counts in the oldest window that is still kept.
        let window = window.max(self.newest.saturating_sub(1));
        (window, self.granted.entry((window, mesh)).or_default())
    }
}

impl Limiter for LocalLimiter {
    async fn consume(&self, mesh: MeshId, keys: &[IdKey]) -> Result<Vec<Decision>, LimiterError> {
        Ok(self.consume_in(self.window(), mesh, keys))
    }
}
