//! The read pool: a few threads, each with its own read-only connection, fed by one bounded queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use rusqlite::Connection;

use crate::connection::Site;
use crate::error::ReadError;
use crate::fault::Fault;
use crate::poison::Poison;
use crate::queue::Queue;
use crate::reply::{Reply, panic_text};

/// A queued read with its types erased. It is given a connection, or the reason why there is none. One
/// that is dropped unrun tells its caller so by closing the reply.
pub(crate) type QueuedRead = Box<dyn FnOnce(Result<&Connection, String>) -> After + Send>;

pub(crate) type ReadQueue = Queue<QueuedRead>;

/// Whether the connection may serve the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    Discard,
}

pub(crate) struct Reader {
    pub(crate) queue: Arc<ReadQueue>,
    pub(crate) site: Site,
}

impl Reader {
    /// Runs until the queue is closed and drained.
    pub(crate) fn run(&self) {
        let mut kept: Option<Connection> = None;
        while let Some(job) = self.queue.next() {
            let connection = match kept.take().map_or_else(|| self.site.reader(), Ok) {
                Ok(connection) => connection,
                Err(error) => {
                    job(Err(error.to_string()));
                    continue;
                }
            };
            // The read itself is caught inside; this is for the answer's destructor, foreign code too.
            let after = catch_unwind(AssertUnwindSafe(|| job(Ok(&connection))));
            if matches!(after, Ok(After::Keep)) {
                kept = Some(connection);
            }
        }
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

    /// Runs the read, or hands it back if another caller sits here.
    pub(crate) fn try_read<T, E, F>(
        &self,
        job: F,
        poison: &Poison,
    ) -> Result<Result<T, ReadError<E>>, F>
    where
        F: FnOnce(&Connection) -> Result<T, E>,
    {
        let mut kept = match self.kept.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(job),
        };
        let connection = match kept.take().map_or_else(|| self.site.reader(), Ok) {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(ReadError::Unreadable(error.to_string()))),
        };
        let (answer, after) = in_snapshot(&connection, job, poison);
        if after == After::Keep {
            *kept = Some(connection);
        }
        Ok(answer)
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

/// Packs a read so that it runs in one snapshot and answers exactly once.
pub(crate) fn queued<T, E, F>(
    job: F,
    poison: Poison,
    reply: Reply<Result<T, ReadError<E>>>,
) -> QueuedRead
where
    F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    Box::new(move |connection| {
        let (answer, after) = match connection {
            Ok(connection) => in_snapshot(connection, job, &poison),
            Err(reason) => (Err(ReadError::Unreadable(reason)), After::Discard),
        };
        reply.send(answer);
        after
    })
}

fn in_snapshot<T, E, F>(
    connection: &Connection,
    job: F,
    poison: &Poison,
) -> (Result<T, ReadError<E>>, After)
where
    F: FnOnce(&Connection) -> Result<T, E>,
{
    if let Err(error) = run(connection, "BEGIN") {
        return (
            Err(ReadError::Unreadable(error.to_string())),
            After::Discard,
        );
    }
    let answer = match catch_unwind(AssertUnwindSafe(|| job(connection))) {
        Ok(result) => result.map_err(ReadError::Job),
        Err(payload) => Err(ReadError::Panicked(panic_text(&*payload))),
    };
    let after = end_snapshot(connection, answer.is_err(), poison);
    (answer, after)
}

/// Apart from the above so that there is one of it, and not one for each kind of read.
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

#[inline(never)]
fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
