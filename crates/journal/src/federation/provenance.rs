//! Where the newest image of an entity came from, and what the slices of other origins brought. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Digits behind `org_`.
const ORIGIN_DIGITS: usize = 16;
/// Origins that an image remembers; more only cost a candidate too many, never one too few.
pub(crate) const LINEAGE_MAX: usize = 8;
/// Ranges that are kept apart for one origin; more are merged from below, which forgets gaps.
const RANGES_MAX: usize = 64;

/// `org_` and sixteen hex digits: never a path, never a name of somebody.
pub fn is_origin_id(text: &str) -> bool {
    text.strip_prefix("org_").is_some_and(|digits| {
        digits.len() == ORIGIN_DIGITS
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// A record of some origin. The field order is the order of last-writer-wins: revision, then origin; no clock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub entity_rev: u64,
    pub origin_id: String,
    pub origin_epoch: u64,
    pub seq: u64,
}

/// What an image was built on: by origin, the epoch and seq up to which it has seen that origin.
pub type Lineage = BTreeMap<String, (u64, u64)>;

/// The foreign record that is an entity's newest, or what an own one was built on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// None: the newest record is this store's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Source>,
    #[serde(default, skip_serializing_if = "Lineage::is_empty")]
    pub lineage: Lineage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub origin_id: String,
    pub origin_epoch: u64,
    pub seq: u64,
}

impl Provenance {
    /// After a change of this store's own on top of it.
    pub fn after_own(&self) -> Option<Self> {
        let lineage = self.with_source();
        (!lineage.is_empty()).then_some(Self {
            from: None,
            lineage,
        })
    }

    /// Everything that this image has seen, its own record included.
    pub fn with_source(&self) -> Lineage {
        let mut lineage = self.lineage.clone();
        if let Some(from) = &self.from {
            see(&mut lineage, &from.origin_id, (from.origin_epoch, from.seq));
        }
        lineage
    }
}

/// The newest of an origin stays; beyond the bound, origins that come last in order are not taken in.
pub(crate) fn see(lineage: &mut Lineage, origin_id: &str, at: (u64, u64)) {
    if let Some(held) = lineage.get_mut(origin_id) {
        *held = at.max(*held);
    } else if lineage.len() < LINEAGE_MAX {
        lineage.insert(origin_id.to_owned(), at);
    }
}

/// What was taken in of one origin and epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Seqs, rising and apart.
    pub ranges: Vec<[u64; 2]>,
    /// Inside of the ranges, and refused all the same.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left_out: BTreeSet<u64>,
    /// Erased by their origin or here: never taken in again (C15).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub erased: BTreeSet<u64>,
}

impl Taken {
    pub fn has(&self, seq: u64) -> bool {
        let is_inside = self.ranges.iter().any(|r| (r[0]..=r[1]).contains(&seq));
        is_inside && !self.left_out.contains(&seq)
    }

    pub fn add(&mut self, range: [u64; 2], left_out: &[u64]) {
        if range[0] == 0 || range[0] > range[1] {
            return;
        }
        self.left_out
            .retain(|seq| !(range[0]..=range[1]).contains(seq));
        self.left_out.extend(left_out);
        self.ranges.push(range);
        self.ranges.sort_unstable();
        let mut merged: Vec<[u64; 2]> = Vec::new();
        for range in self.ranges.drain(..) {
            match merged.last_mut() {
                Some(last) if range[0] <= last[1].saturating_add(1) => {
                    last[1] = last[1].max(range[1]);
                }
                _ => merged.push(range),
            }
        }
        // Forgets what is oldest: known records are then judged once more, and change nothing.
        let surplus = merged.len().saturating_sub(RANGES_MAX);
        self.ranges = merged.split_off(surplus);
    }
}

/// By origin and epoch, as one word: JSON keys are strings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Federated(BTreeMap<String, Taken>);

impl Federated {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn of(&self, origin_id: &str, origin_epoch: u64) -> Option<&Taken> {
        self.0.get(&key(origin_id, origin_epoch))
    }

    pub fn of_mut(&mut self, origin_id: &str, origin_epoch: u64) -> &mut Taken {
        self.0.entry(key(origin_id, origin_epoch)).or_default()
    }

    /// By origin, the newest seq that was taken in, for people.
    pub fn newest(&self) -> BTreeMap<&str, u64> {
        let last = |taken: &Taken| taken.ranges.last().map_or(0, |range| range[1]);
        let all = self.0.iter();
        all.map(|(name, taken)| (name.as_str(), last(taken)))
            .collect()
    }
}

fn key(origin_id: &str, origin_epoch: u64) -> String {
    format!("{origin_id}:{origin_epoch}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_never_a_path_or_a_name() {
        assert!(is_origin_id("org_0123456789abcdef"));
        for bad in [
            "",
            "org_",
            "org_0123456789abcde",
            "org_0123456789ABCDEF",
            "org_../../../etc/pas",
            "alice",
        ] {
            assert!(!is_origin_id(bad), "{bad}");
        }
    }

    #[test]
    fn ranges_grow_together_and_what_was_left_out_can_come_later() {
        let mut taken = Taken::default();
        taken.add([1, 5], &[3]);
        taken.add([9, 12], &[]);
        assert!(taken.has(1) && !taken.has(3) && !taken.has(7) && taken.has(12));
        taken.add([6, 8], &[]);
        assert_eq!(taken.ranges, [[1, 12]]);
        assert!(!taken.has(3));
        taken.add([3, 3], &[]);
        assert!(taken.has(3));
        taken.add([0, 9], &[]);
        taken.add([20, 10], &[]);
        assert_eq!(taken.ranges, [[1, 12]]);
        for n in 0..200 {
            taken.add([100 + 2 * n, 100 + 2 * n], &[]);
        }
        assert_eq!(taken.ranges.len(), RANGES_MAX);
        assert!(taken.has(498));
    }

    #[test]
    fn an_own_change_remembers_what_it_was_built_on() {
        let foreign = Provenance {
            from: Some(Source {
                origin_id: "org_a".into(),
                origin_epoch: 2,
                seq: 9,
            }),
            lineage: Lineage::from([("org_a".into(), (2, 4)), ("org_b".into(), (1, 1))]),
        };
        let own = foreign.after_own().unwrap();
        assert_eq!(own.from, None);
        assert_eq!(own.lineage["org_a"], (2, 9));
        assert_eq!(own.lineage["org_b"], (1, 1));
        assert_eq!(own.after_own(), Some(own));
        assert_eq!(Provenance::default().after_own(), None);
    }
}
