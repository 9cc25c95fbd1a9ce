//! How many messages one transaction of a mesh takes.
//!
//! A message to a topic writes a row for each subscriber, so nobody can say before how long a group takes. One that took too
//! long was undone, and its messages come again: the next ones are half as large until they are in time, or the same
//! group would fail for ever (T-29). It is known beyond the line, which ends while those who were refused wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heddle_core::ids::MeshId;

/// As many as a transaction takes where nothing speaks against it.
const MESSAGES_MAX: usize = 1024;

/// The meshes that take fewer.
#[derive(Default)]
pub(super) struct Paces(Mutex<HashMap<MeshId, usize>>);

impl Paces {
    fn lock(&self) -> MutexGuard<'_, HashMap<MeshId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At least one, and a piece of work that has more goes alone.
    pub(super) fn messages_max(&self, mesh: MeshId) -> usize {
        self.lock().get(&mesh).copied().unwrap_or(MESSAGES_MAX)
    }

    pub(super) fn too_slow(&self, mesh: MeshId, messages: usize) {
        // Upkeep, say: it tells nothing of messages.
        if messages == 0 {
            return;
        }
        let mut paces = self.lock();
        let max = paces.entry(mesh).or_insert(MESSAGES_MAX);
        *max = (messages.min(*max) / 2).max(1);
    }

    /// A group that was as large as it might be, or nearly, says that the next one may be larger.
    pub(super) fn in_time(&self, mesh: MeshId, messages: usize) {
        let mut paces = self.lock();
        let Some(max) = paces.get_mut(&mesh).filter(|max| messages * 2 >= **max) else {
            return;
        };
        *max *= 2;
        if *max >= MESSAGES_MAX {
            paces.remove(&mesh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::mesh;

    #[test]
    fn t_29_what_took_too_long_is_halved_until_it_is_in_time_and_grows_again() {
        let paces = Paces::default();
        let max = || paces.messages_max(mesh(1));
        paces.in_time(mesh(1), 1024);
        assert_eq!(max(), 1024);
        paces.too_slow(mesh(1), 63);
        assert_eq!(
            max(),
            31,
            "half of what there was, not of what might have been"
        );
        paces.too_slow(mesh(2), 0);
        assert_eq!(paces.messages_max(mesh(2)), 1024);
        paces.in_time(mesh(1), 2);
        assert_eq!(max(), 31, "a small group says nothing of a large one");
        paces.in_time(mesh(1), 31);
        assert_eq!(max(), 62);
        // One piece of work that has more than it may goes alone, and fails.
        paces.too_slow(mesh(1), 256);
        assert_eq!(max(), 31);
        for _ in 0..9 {
            paces.too_slow(mesh(1), 256);
        }
        assert_eq!(max(), 1);
        for _ in 0..12 {
            paces.in_time(mesh(1), max());
        }
        assert_eq!(max(), 1024);
        assert!(paces.lock().is_empty());
    }
}
