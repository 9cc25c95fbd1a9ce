//! Who came again for what was registered. A retry is answered and writes nothing (RG-03), so this is counted in memory:
//! of the keys that were asked for last, since the process that decides has started.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use heddle_core::clock::WallMs;

use crate::binding::LogicalKey;
use crate::code::Code;

/// Keys that are remembered; beyond them the one whose last retry is the oldest is forgotten.
const KEYS_MAX: usize = 1024;

/// The retries of one key: how many, and the last of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retried {
    pub count: u64,
    pub since: WallMs,
    pub at: WallMs,
    pub by: String,
    pub attempt_id: String,
    pub code: Code,
}

#[derive(Debug, Default)]
pub(super) struct Retries(Mutex<BTreeMap<LogicalKey, Retried>>);

impl Retries {
    pub(super) fn note(
        &self,
        key: &LogicalKey,
        (by, attempt_id): (&str, &str),
        (code, now): (Code, WallMs),
    ) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(key).map_or((0, now), |it| (it.count, it.since));
        let last = Retried {
            count: before.0.saturating_add(1),
            since: before.1,
            at: now,
            by: by.to_owned(),
            attempt_id: attempt_id.to_owned(),
            code,
        };
        all.insert(key.clone(), last);
        if all.len() > KEYS_MAX {
            let oldest = all.iter().min_by_key(|(_, it)| it.at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                all.remove(&oldest);
            }
        }
    }

    /// One of those who came began it.
    pub(super) fn take_back(&self, key: &LogicalKey) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(retried) = all.get_mut(key) {
            retried.count -= 1;
            if retried.count == 0 {
                all.remove(key);
            }
        }
    }

    /// Of one key or of all, newest first.
    pub(super) fn of(&self, key: Option<&LogicalKey>) -> Vec<(LogicalKey, Retried)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all
            .iter()
            .filter(|(known, _)| key.is_none_or(|key| key == *known));
        let mut found: Vec<_> = found.map(|(key, it)| (key.clone(), it.clone())).collect();
        found.sort_by_key(|(_, it)| std::cmp::Reverse(it.at));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_counted_and_the_keys_of_long_ago_forgotten() {
        let retries = Retries::default();
        let key = |nth: usize| LogicalKey::parse(&format!("k{nth}")).unwrap();
        let note = |nth: usize, by: &str, at: i64| {
            let told = (Code::ReplayDuplicate, WallMs(at));
            retries.note(&key(nth), (by, "a"), told);
        };
        note(0, "planner", 1);
        note(0, "worker", 5);
        let told = &retries.of(Some(&key(0)))[0].1;
        assert_eq!((told.count, told.since.0, told.at.0), (2, 1, 5));
        assert_eq!(told.by, "worker");
        retries.take_back(&key(0));
        retries.take_back(&key(7));
        assert_eq!(retries.of(Some(&key(0)))[0].1.count, 1);
        retries.take_back(&key(0));
        assert!(retries.of(None).is_empty(), "the last of them began it");
        note(0, "planner", 1);
        assert!(retries.of(Some(&key(1))).is_empty());
        for nth in 1..=KEYS_MAX {
            note(nth, "planner", 10);
        }
        assert_eq!(retries.of(None).len(), KEYS_MAX);
        assert!(retries.of(Some(&key(0))).is_empty(), "the oldest one");
    }
}
