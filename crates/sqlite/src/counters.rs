//! Counts of what the writer did, for metrics and for tests that count instead of timing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    transactions: AtomicU64,
    writes: AtomicU64,
    largest_batch: AtomicU64,
    checkpoints: AtomicU64,
    moves_beside: AtomicU64,
    slowest_transaction_us: AtomicU64,
    last_transaction_us: AtomicU64,
}

/// A snapshot of the counters of one [`crate::Database`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions committed. With [`crate::Durability::Full`] each one that changed anything cost one sync of the log.
    pub transactions: u64,
    /// Writes that those transactions carried, failed ones included.
    pub writes: u64,
    /// Most writes in one transaction.
    pub largest_batch: u64,
    /// Checkpoints that ran.
    pub checkpoints: u64,
    /// Those before which most of the log was moved beside commits.
    pub moves_beside: u64,
    /// Longest transaction; zero without a monotonic source in the options.
    pub slowest_transaction: Duration,
    /// Writes that wait for the writer now.
    pub queued: u64,
}

impl Counters {
    /// How long the last transaction took, committed or not; zero without a monotonic source.
    pub(crate) fn last_took(&self) -> Duration {
        Duration::from_micros(self.last_transaction_us.load(Ordering::Relaxed))
    }

    pub(crate) fn took(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.last_transaction_us.store(took_us, Ordering::Relaxed);
    }

    pub(crate) fn committed(&self, batch_jobs: usize, took: Duration) {
        let batch_jobs = u64::try_from(batch_jobs).unwrap_or(u64::MAX);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(batch_jobs, Ordering::Relaxed);
        self.largest_batch.fetch_max(batch_jobs, Ordering::Relaxed);
        self.slowest_transaction_us
            .fetch_max(took_us, Ordering::Relaxed);
    }

    pub(crate) fn checkpointed(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn moved_beside(&self) {
        self.moves_beside.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            transactions: self.transactions.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            largest_batch: self.largest_batch.load(Ordering::Relaxed),
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            moves_beside: self.moves_beside.load(Ordering::Relaxed),
            slowest_transaction: Duration::from_micros(
                self.slowest_transaction_us.load(Ordering::Relaxed),
            ),
            queued: 0,
        }
    }
}
