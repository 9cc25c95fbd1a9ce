//! When the log is moved into the file: while the writer is idle, beside commits once the log is long (`mover`), or
//! between two transactions once it is too long.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME, ErrorCode};

use crate::fault::Fault;
use crate::options::{LogBounds, Options};
use crate::poison::Poison;

/// A pause this long means that the writer is idle and not just between two calls of one busy client.
pub(crate) const IDLE_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    None,
    /// Worth doing as soon as nobody waits.
    WhenIdle,
    /// Worth doing at once, beside those who commit.
    Beside,
    /// Before the next transaction: the log grew faster than it was moved, or the disk is short.
    Now,
}

/// A log that is this many times as long as it should be by the time that it has been moved beside commits is not
/// waited for any longer.
const MOST_BESIDE: u32 = 2;

const PAGE_BYTES: i64 = 4096;

/// A log that grew past this is cut back when it is reset.
pub(crate) fn log_bytes_kept(hard_pages: u32) -> i64 {
    2 * PAGE_BYTES * i64::from(hard_pages)
}

pub(crate) struct Checkpointer {
    idle_pages: u32,
    hard_pages: u32,
    bounds: Arc<LogBounds>,
    /// The bound that a reset log is cut back by.
    kept_pages: u32,
    /// Log length at the last checkpoint. A reader's snapshot can hold pages back; then the next attempt
    /// waits for as much growth again instead of following every commit.
    last_try: u32,
}

impl Checkpointer {
    pub(crate) fn new(options: &Options) -> Checkpointer {
        let hard_pages = options.checkpoint_hard_pages;
        Checkpointer {
            idle_pages: options.checkpoint_idle_pages.max(1),
            hard_pages: hard_pages.max(options.checkpoint_idle_pages).max(1),
            bounds: Arc::clone(&options.log_bounds),
            kept_pages: hard_pages,
            last_try: 0,
        }
    }

    /// What holds now: pages for an idle writer, and for a busy one.
    fn pages(&self) -> (u32, u32) {
        let (idle, hard) = self.bounds.pages();
        let idle = self.idle_pages.min(idle).max(1);
        (idle, self.hard_pages.min(hard).max(idle))
    }

    /// To be asked after each commit.
    pub(crate) fn need(&mut self, connection: &Connection) -> Result<Need, Fault> {
        let (log_pages, _) = connection
            .wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::NOOP)
            .map_err(|error| Fault::of(&error))?;
        Ok(self.weigh(u32::try_from(log_pages).unwrap_or(0)))
    }

    fn weigh(&mut self, log_pages: u32) -> Need {
        if log_pages < self.last_try {
            // SQLite began the log anew.
            self.last_try = 0;
        }
        let (idle_pages, hard_pages) = self.pages();
        let now_pages = if hard_pages < self.hard_pages {
            hard_pages
        } else {
            hard_pages.saturating_mul(MOST_BESIDE)
        };
        match log_pages - self.last_try {
            grown if grown >= now_pages => Need::Now,
            grown if grown >= hard_pages => Need::Beside,
            grown if grown >= idle_pages => Need::WhenIdle,
            _ => Need::None,
        }
    }

    /// Moves what no reader needs. `Ok(false)`: somebody else is checkpointing.
    pub(crate) fn run(&mut self, connection: &Connection) -> Result<bool, Fault> {
        self.keep_short(connection)?;
        match connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::PASSIVE) {
            Ok((log_pages, _)) => {
                self.last_try = u32::try_from(log_pages).unwrap_or(0);
                if self.is_overlong(self.last_try) {
                    self.cut(connection)?;
                }
                Ok(true)
            }
            Err(error) if is_busy(&error) => Ok(false),
            Err(error) => Err(Fault::of(&error)),
        }
    }

    /// On a short disk: readers who come and go have kept the log from beginning anew, until it is much longer than it may be. All
    /// of it may be marks on a few pages, and the room that it takes is what the file needs to take those few in.
    fn is_overlong(&self, log_pages: u32) -> bool {
        let (_, bound) = self.bounds.pages();
        bound < self.hard_pages && log_pages >= bound.saturating_mul(2)
    }

    /// Waits for the readers, for as long as the connection waits for any lock, and gives the room back. One that stays longer
    /// keeps the log, and it is tried again when the log has grown once more.
    fn cut(&mut self, connection: &Connection) -> Result<(), Fault> {
        match connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::TRUNCATE) {
            Ok(_) => {
                self.last_try = 0;
                Ok(())
            }
            Err(error) if is_busy(&error) => Ok(()),
            Err(error) => Err(Fault::of(&error)),
        }
    }

    /// A log that was long while its bound was, gives its room back when it is reset.
    fn keep_short(&mut self, connection: &Connection) -> Result<(), Fault> {
        let (_, hard_pages) = self.pages();
        if hard_pages == self.kept_pages {
            return Ok(());
        }
        connection
            .pragma_update(None, "journal_size_limit", log_bytes_kept(hard_pages))
            .map_err(|error| Fault::of(&error))?;
        self.kept_pages = hard_pages;
        Ok(())
    }
}

/// A fault outside any transaction: no caller is waiting, so the log is told.
pub(crate) fn note(poison: &Poison, fault: Fault) {
    match fault {
        Fault::Device(reason) | Fault::Damage(reason) => {
            poison.set(&reason);
            tracing::error!(
                reason,
                "checkpoint failed; the database takes no further write"
            );
        }
        Fault::DiskFull => tracing::warn!("checkpoint postponed: the disk is full"),
        Fault::Held => tracing::warn!("checkpoint postponed: another program holds a lock"),
        Fault::Passing(reason) => tracing::warn!(reason, "checkpoint postponed"),
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

#[cfg(test)]
mod tests {
    use super::{Checkpointer, Need};
    use crate::options::Options;

    #[test]
    fn a_reader_that_holds_the_log_does_not_make_every_commit_checkpoint() {
        let mut options = Options::new("x");
        options.checkpoint_idle_pages = 10;
        options.checkpoint_hard_pages = 100;
        let mut policy = Checkpointer::new(&options);
        assert_eq!(policy.weigh(9), Need::None);
        assert_eq!(policy.weigh(10), Need::WhenIdle);
        assert_eq!(policy.weigh(100), Need::Beside);
        assert_eq!(policy.weigh(200), Need::Now);
        policy.last_try = 100;
        assert_eq!(policy.weigh(101), Need::None);
        assert_eq!(policy.weigh(200), Need::Beside);
        assert_eq!(policy.weigh(300), Need::Now);
        // After a reset of the log the count starts from nothing.
        assert_eq!(policy.weigh(3), Need::None);
        assert_eq!(policy.weigh(10), Need::WhenIdle);
    }

    #[test]
    fn a_disk_that_has_become_short_makes_the_log_short_and_one_that_has_not_leaves_it_alone() {
        let mut options = Options::new("x");
        options.checkpoint_idle_pages = 10;
        options.checkpoint_hard_pages = 100;
        let mut policy = Checkpointer::new(&options);
        options.log_bounds.set(3, 7);
        assert_eq!(policy.weigh(2), Need::None);
        assert_eq!(policy.weigh(3), Need::WhenIdle);
        assert_eq!(policy.weigh(7), Need::Now);
        options.log_bounds.set(1_000, 8_000);
        assert_eq!(policy.weigh(99), Need::WhenIdle);
        assert_eq!(policy.weigh(100), Need::Beside);
    }
}
