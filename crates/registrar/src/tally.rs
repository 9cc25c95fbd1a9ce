//! How many rows each link has written about a key, kept beside the chain. A row that was deleted, or that is under another
//! key now, leaves nothing in its place that could be compared; this number misses it.
//!
//! A caller's own ids are not counted: they decide about no run.

use std::collections::BTreeMap;

use crate::binding::LogicalKey;
use crate::facts::Facts;
use crate::rows::Row;

/// More rows than anybody writes. A key of which that many are said to have been written is never whole: it was damaged in
/// the store that its mesh has moved from, and stays so.
pub(crate) const DAMAGED: i64 = 1 << 40;

/// The rows of one transaction, by the key that they are about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally(BTreeMap<String, i64>);

impl Tally {
    /// Of a decision, whose rows are all about one key.
    pub(crate) fn of(key: &LogicalKey, rows: &[Row]) -> Self {
        let mut tally = Self::default();
        for row in rows {
            tally.add(key, row);
        }
        tally
    }

    pub(crate) fn add(&mut self, key: &LogicalKey, row: &Row) {
        if !matches!(row, Row::Call(_)) {
            *self.0.entry(key.to_string()).or_default() += 1;
        }
    }

    /// Nothing of this key can be told. False where that was said before.
    pub(crate) fn lose(&mut self, key: &LogicalKey) -> bool {
        let count = self.0.entry(key.to_string()).or_default();
        let is_new = *count < DAMAGED;
        if is_new {
            *count += DAMAGED;
        }
        is_new
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(key, count)| (key.as_str(), *count))
    }
}

/// How many of the rows that were written are not there. More than were counted is no loss: somebody may have written since.
pub(crate) fn gone(facts: &Facts, written: i64) -> i64 {
    let said = facts.envelopes.iter().map(|it| 1 + it.decisions.len());
    let found = said.sum::<usize>()
        + usize::from(facts.consumed.is_some())
        + usize::from(facts.registration.is_some())
        + facts.steps.len();
    let found = i64::try_from(found).unwrap_or(i64::MAX);
    written.saturating_sub(found).max(0)
}
