//! When the log is moved into the file: while the writer is idle, or between two transactions once the
//! log is too long.

use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME, ErrorCode};

use crate::fault::Fault;
use crate::options::Options;

/// A pause this long means that the writer is idle and not just between two calls of one busy client.
pub(crate) const IDLE_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    None,
    /// Worth doing as soon as nobody waits.
    WhenIdle,
    Now,
}

pub(crate) struct Checkpointer {
    idle_pages: u32,
    hard_pages: u32,
    /// Log length at the last checkpoint. A reader's snapshot can hold pages back; then the next attempt
    /// waits for as much growth again instead of following every commit.
    last_try: u32,
}

impl Checkpointer {
    pub(crate) fn new(options: &Options) -> Checkpointer {
        Checkpointer {
            idle_pages: options.checkpoint_idle_pages.max(1),
            hard_pages: options
                .checkpoint_hard_pages
                .max(options.checkpoint_idle_pages)
                .max(1),
            last_try: 0,
        }
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
        match log_pages - self.last_try {
            grown if grown >= self.hard_pages => Need::Now,
            grown if grown >= self.idle_pages => Need::WhenIdle,
            _ => Need::None,
        }
    }

    /// Moves what no reader needs. `Ok(false)`: somebody else is checkpointing.
    pub(crate) fn run(&mut self, connection: &Connection) -> Result<bool, Fault> {
        match connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::PASSIVE) {
            Ok((log_pages, _)) => {
                self.last_try = u32::try_from(log_pages).unwrap_or(0);
                Ok(true)
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
            Err(error) => Err(Fault::of(&error)),
        }
    }
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
        assert_eq!(policy.weigh(100), Need::Now);
        policy.last_try = 100;
        assert_eq!(policy.weigh(101), Need::None);
        assert_eq!(policy.weigh(200), Need::Now);
        // After a reset of the log the count starts from nothing.
        assert_eq!(policy.weigh(3), Need::None);
        assert_eq!(policy.weigh(10), Need::WhenIdle);
    }
}
