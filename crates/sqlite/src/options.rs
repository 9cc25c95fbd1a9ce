//! How a database is opened: where it lives, how durable it is, and the bounds of its queues and batches.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// When a commit may be called durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// The write-ahead log is synced by every commit: an answered write survives a power cut.
    #[default]
    Full,
    /// The log is synced by checkpoints only: a power cut may take answered writes, never the file's order.
    Normal,
}

impl Durability {
    pub(crate) fn pragma(self) -> &'static str {
        match self {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        }
    }
}

/// Bounds of the log that change while the database is open: a disk that has become short wants a short log.
#[derive(Debug)]
pub struct LogBounds {
    idle_pages: AtomicU32,
    hard_pages: AtomicU32,
}

impl Default for LogBounds {
    /// None: the bounds of the options hold.
    fn default() -> Self {
        LogBounds {
            idle_pages: AtomicU32::new(u32::MAX),
            hard_pages: AtomicU32::new(u32::MAX),
        }
    }
}

impl LogBounds {
    /// From now on, where these are shorter than those of the options.
    pub fn set(&self, idle_pages: u32, hard_pages: u32) {
        self.idle_pages.store(idle_pages, Ordering::Relaxed);
        self.hard_pages.store(hard_pages, Ordering::Relaxed);
    }

    pub(crate) fn pages(&self) -> (u32, u32) {
        (
            self.idle_pages.load(Ordering::Relaxed),
            self.hard_pages.load(Ordering::Relaxed),
        )
    }
}

/// Everything that can be chosen about a [`crate::Database`]; start from [`Options::new`].
#[derive(Clone, Debug)]
pub struct Options {
    pub path: PathBuf,
    pub durability: Durability,
    /// A registered SQLite VFS (the simulator's disk). The path is then a name on that disk: no file
    /// modes are set and no folder is made.
    pub vfs: Option<String>,
    /// Writes that may wait; one more is refused with `Busy`.
    pub queue_capacity: usize,
    /// Reads that may wait; one more is refused with `Busy`.
    pub read_queue_capacity: usize,
    /// Reader threads; each opens its connection at its first read.
    pub reader_count: usize,
    /// Jobs in one transaction at most.
    pub batch_jobs_max: usize,
    /// Row changes after which a transaction takes no further job. It stands in for time where no
    /// monotonic source is given.
    pub batch_changes_max: u64,
    /// With `monotonic`: time after which a transaction takes no further job. Half of the 100 ms a
    /// transaction may last (LF-20), because the job that crosses the line still has to end, and commit.
    pub batch_time_max: Duration,
    /// A monotonic time source. This crate never asks a clock by itself.
    pub monotonic: Option<fn() -> Duration>,
    /// Log pages from which an idle writer checkpoints.
    pub checkpoint_idle_pages: u32,
    /// Log pages from which even a busy writer checkpoints between two transactions.
    pub checkpoint_hard_pages: u32,
    /// Shorter ones than these two, for a while.
    pub log_bounds: Arc<LogBounds>,
    /// How long SQLite waits for a lock that another process holds.
    pub busy_timeout: Duration,
    /// A file that has a schema is copied before its schema takes a step (`FILE.before-migration-N`). Not with a VFS.
    pub keeps_copy_before_steps: bool,
}

impl Options {
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options {
            path: path.into(),
            durability: Durability::Full,
            vfs: None,
            queue_capacity: 1024,
            read_queue_capacity: 1024,
            reader_count: 2,
            batch_jobs_max: 512,
            batch_changes_max: 10_000,
            batch_time_max: Duration::from_millis(50),
            monotonic: None,
            checkpoint_idle_pages: 1_000,
            checkpoint_hard_pages: 8_000,
            log_bounds: Arc::default(),
            busy_timeout: Duration::from_secs(1),
            keeps_copy_before_steps: false,
        }
    }
}
