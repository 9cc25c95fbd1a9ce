//! Where the time of a mutation goes: waiting for the lock, append, sync, projections. Kept in the cache, for doctor.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Powers of two of microseconds: up to half an hour and more.
const BUCKETS: usize = 32;

/// How often a phase took how long; bucket `n` is below 2^n microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(Vec<u64>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    #[serde(default)]
    pub wait: Histogram,
    #[serde(default)]
    pub append: Histogram,
    #[serde(default)]
    pub sync: Histogram,
    #[serde(default)]
    pub project: Histogram,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub count: u64,
    /// Upper bounds of the bucket.
    pub p50_us: u64,
    pub p95_us: u64,
}

impl Histogram {
    pub fn note(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = us.checked_ilog2().map_or(0, |n| n as usize + 1);
        let bucket = bucket.min(BUCKETS - 1);
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] = self.0[bucket].saturating_add(1);
    }

    pub fn spread(&self) -> Spread {
        let counts = &self.0[..self.0.len().min(BUCKETS)];
        let count = counts.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        let at = |percent: u64| {
            let wanted = count.saturating_mul(percent).div_ceil(100).max(1);
            let mut seen = 0_u64;
            let bucket = counts.iter().position(|n| {
                seen = seen.saturating_add(*n);
                seen >= wanted
            });
            bucket.map_or(0, |n| 1_u64 << n)
        };
        Spread {
            count,
            p50_us: at(50),
            p95_us: at(95),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_the_buckets_and_hostile_counts_do_no_harm() {
        let mut histogram = Histogram::default();
        for _ in 0..94 {
            histogram.note(Duration::from_micros(100));
        }
        for _ in 0..6 {
            histogram.note(Duration::from_millis(300));
        }
        let told = histogram.spread();
        assert_eq!((told.count, told.p50_us, told.p95_us), (100, 128, 1 << 19));
        assert_eq!(Histogram::default().spread(), Spread::default());
        let hostile: Histogram =
            serde_json::from_str(&format!("{:?}", vec![u64::MAX; 99])).unwrap();
        assert_eq!(hostile.spread().count, u64::MAX);
        histogram.note(Duration::MAX);
        assert_eq!(histogram.0.len(), BUCKETS);
    }
}
