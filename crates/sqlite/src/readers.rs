//! The read pool: a few threads, each with its own read-only connection, fed by one bounded queue.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::Site;
use crate::error::ReadError;
use crate::fault::Fault;
use crate::poison::Poison;
use crate::queue::Queue;
use crate::reply::{Reply, panic_text};

/// A queued read with its types erased. It goes to a reader and back to its caller, who knows its types again. One
/// that is dropped unrun tells its caller so by closing the reply.
pub(crate) trait QueuedRead: Any + Send {
    /// Runs the read and keeps its outcome. False if it failed.
    fn run(&mut self, connection: &Connection) -> bool;
    /// For one that cannot be run.
    fn refuse(&mut self, reason: String);
    fn take_reply(&mut self) -> Option<Reply<Box<dyn QueuedRead>>>;
}

pub(crate) type ReadQueue = Queue<Box<dyn QueuedRead>>;

/// Whether the connection may serve the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    Discard,
}

pub(crate) struct Reader {
    pub(crate) queue: Arc<ReadQueue>,
    pub(crate) site: Site,
    pub(crate) poison: Poison,
}

impl Reader {
    /// Runs until the queue is closed and drained.
    pub(crate) fn run(&self) {
        let mut kept: Option<Connection> = None;
        while let Some(mut job) = self.queue.next() {
            let connection = match kept.take().map_or_else(|| self.site.reader(), Ok) {
                Ok(connection) => connection,
                Err(error) => {
                    job.refuse(error.to_string());
                    answer(job);
                    continue;
                }
            };
            // The read itself is caught inside; this is for the answer's destructor, foreign code too.
            let after = catch_unwind(AssertUnwindSafe(|| {
                let after = in_snapshot(&connection, job.as_mut(), &self.poison);
                answer(job);
                after
            }));
            if matches!(after, Ok(After::Keep)) {
                kept = Some(connection);
            }
        }
    }
}

/// Sends a read back to its caller, who takes the outcome out of it.
fn answer(mut job: Box<dyn QueuedRead>) {
    if let Some(reply) = job.take_reply() {
        reply.send(job);
    }
}

/// A connection for reads of a few rows that are not worth two changes of thread: the caller reads
/// where it stands.
pub(crate) struct Desk {
    site: Site,
    kept: Mutex<Option<Connection>>,
}

impl Desk {
    pub(crate) fn new(site: Site) -> Desk {
        Desk {
            site,
            kept: Mutex::new(None),
        }
    }

    /// Runs the read. False if another caller sits here; then nothing was done.
    pub(crate) fn try_read(&self, job: &mut dyn QueuedRead, poison: &Poison) -> bool {
        let mut kept = match self.kept.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        match kept.take().map_or_else(|| self.site.reader(), Ok) {
            Ok(connection) => {
                if in_snapshot(&connection, job, poison) == After::Keep {
                    *kept = Some(connection);
                }
            }
            Err(error) => job.refuse(error.to_string()),
        }
        true
    }

    /// Closes the connection: a snapshot that it holds would keep the log from being emptied.
    pub(crate) fn close(&self) {
        drop(
            self.kept
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

/// One read: the job, what it returned, and the caller who waits for it.
pub(crate) struct Read<T, E, F> {
    job: Option<F>,
    outcome: Option<Result<T, ReadError<E>>>,
    reply: Option<Reply<Box<dyn QueuedRead>>>,
}

impl<T, E, F> Read<T, E, F>
where
    F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    pub(crate) fn new(job: F) -> Self {
        Read {
            job: Some(job),
            outcome: None,
            reply: None,
        }
    }

    /// For a reader's thread, and the way on which it comes back.
    pub(crate) fn queued(
        mut self,
    ) -> (Box<dyn QueuedRead>, oneshot::Receiver<Box<dyn QueuedRead>>) {
        let (reply, answer) = Reply::new();
        self.reply = Some(reply);
        (Box::new(self), answer)
    }

    /// What the caller is told.
    pub(crate) fn outcome(self) -> Result<T, ReadError<E>> {
        self.outcome.unwrap_or(Err(ReadError::Stopped))
    }

    /// The same of one that came back.
    pub(crate) fn outcome_of(read: Box<dyn QueuedRead>) -> Result<T, ReadError<E>> {
        let read: Box<dyn Any> = read;
        let own = read.downcast::<Self>();
        own.map_or(Err(ReadError::Stopped), |own| own.outcome())
    }
}

impl<T, E, F> QueuedRead for Read<T, E, F>
where
    F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    fn run(&mut self, connection: &Connection) -> bool {
        let Some(job) = self.job.take() else {
            return false;
        };
        let outcome = match catch_unwind(AssertUnwindSafe(|| job(connection))) {
            Ok(result) => result.map_err(ReadError::Job),
            Err(payload) => Err(ReadError::Panicked(panic_text(&*payload))),
        };
        self.outcome.insert(outcome).is_ok()
    }

    fn refuse(&mut self, reason: String) {
        self.outcome = Some(Err(ReadError::Unreadable(reason)));
    }

    fn take_reply(&mut self) -> Option<Reply<Box<dyn QueuedRead>>> {
        self.reply.take()
    }
}

/// Runs a read in one snapshot.
fn in_snapshot(connection: &Connection, job: &mut dyn QueuedRead, poison: &Poison) -> After {
    if let Err(error) = run(connection, "BEGIN") {
        job.refuse(error.to_string());
        return After::Discard;
    }
    let has_failed = !job.run(connection);
    end_snapshot(connection, has_failed, poison)
}

fn end_snapshot(connection: &Connection, has_failed: bool, poison: &Poison) -> After {
    let fault = has_failed.then(|| Fault::last_of(connection)).flatten();
    if let Some(Fault::Damage(reason)) = &fault {
        // Before the caller hears of it: no write may follow on a file known to be damaged (LF-39).
        poison.set(reason);
    }
    let ended = run(connection, "ROLLBACK").is_ok();
    if ended && fault.is_none() {
        After::Keep
    } else {
        After::Discard
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
