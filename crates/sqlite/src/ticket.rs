//! One queued write: the job, what it returned, and the caller who waits for the commit.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::Connection;

use crate::error::WriteError;
use crate::reply::{Reply, panic_text};

/// What became of the transaction that carried a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Committed,
    Stopped,
    Poisoned(Arc<str>),
    DiskFull,
    Held,
    RolledBack(Arc<str>),
}

/// Whether the job's own changes shall stay in the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Keep,
    Undo,
}

/// Whether a write's caller is promised that it survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Answered after the sync.
    Durable,
    /// Answered after the commit; the next durable commit syncs it along.
    Relaxed,
}

/// How a job that fails is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// By its savepoint.
    Savepoint,
    /// There is nothing to undo: its one change is a single statement, which undoes itself. A savepoint
    /// costs more than such a statement.
    Nothing,
}

/// A queued write with its types erased.
///
/// It goes to the writer and back to its caller, who knows its types again: so the line, the writer and the wait
/// are compiled once, and not once for each kind of write.
pub(crate) trait QueuedWrite: Any + Send {
    fn promise(&self) -> Promise;
    fn undo(&self) -> Undo;
    /// Whether it waits for a lock that another process holds, up to a bound.
    fn is_patient(&self) -> bool;
    /// Runs the job and keeps what it returned.
    fn run(&mut self, connection: &Connection) -> Ran;
    /// The way back to the caller. There is one, so a second answer is impossible (LF-21).
    fn take_reply(&mut self) -> Option<Reply<Settled>>;
}

/// A write that comes back, with what became of its transaction.
pub(crate) struct Settled {
    job: Box<dyn QueuedWrite>,
    verdict: Verdict,
}

impl Settled {
    pub(crate) fn is_held(&self) -> bool {
        self.verdict == Verdict::Held
    }
}

/// Answers the caller, who takes the outcome out of the job.
pub(crate) fn answer(mut job: Box<dyn QueuedWrite>, verdict: &Verdict) {
    if let Some(reply) = job.take_reply() {
        let verdict = verdict.clone();
        reply.send(Settled { job, verdict });
    }
}

pub(crate) struct Ticket<T, E, F> {
    promise: Promise,
    undo: Undo,
    is_patient: bool,
    job: Option<F>,
    outcome: Option<Result<T, WriteError<E>>>,
    reply: Option<Reply<Settled>>,
}

impl<T, E, F> Ticket<T, E, F>
where
    T: 'static,
    E: 'static,
    F: 'static,
{
    pub(crate) fn new(promise: Promise, undo: Undo, job: F, reply: Reply<Settled>) -> Self {
        Ticket {
            promise,
            undo,
            is_patient: true,
            job: Some(job),
            outcome: None,
            reply: Some(reply),
        }
    }

    /// The same for one that asks whether there is such a lock.
    pub(crate) fn impatient(self) -> Self {
        Ticket {
            is_patient: false,
            ..self
        }
    }

    /// What the caller is told.
    pub(crate) fn outcome(settled: Settled) -> Result<T, WriteError<E>> {
        // IMPORTANT: a failed transaction overrides the job's own answer, its errors included. A job that
        // said "this id exists" may have seen the insert of a neighbour that was rolled back with it.
        match settled.verdict {
            Verdict::Committed => {
                let job: Box<dyn Any> = settled.job;
                let outcome = job.downcast::<Self>().ok().and_then(|own| own.outcome);
                outcome
                    .unwrap_or_else(|| Err(WriteError::Commit("the write was not run".to_owned())))
            }
            Verdict::Stopped => Err(WriteError::Stopped),
            Verdict::Poisoned(reason) => Err(WriteError::Poisoned(reason.to_string())),
            Verdict::DiskFull => Err(WriteError::DiskFull),
            Verdict::Held => Err(WriteError::Held),
            Verdict::RolledBack(reason) => Err(WriteError::Commit(reason.to_string())),
        }
    }
}

impl<T, E, F> QueuedWrite for Ticket<T, E, F>
where
    F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    fn promise(&self) -> Promise {
        self.promise
    }

    fn undo(&self) -> Undo {
        self.undo
    }

    fn is_patient(&self) -> bool {
        self.is_patient
    }

    fn run(&mut self, connection: &Connection) -> Ran {
        let Some(job) = self.job.take() else {
            return Ran::Undo;
        };
        // Unwind safety: what the job changed in the database is undone by its savepoint, and what it
        // owned is gone with it.
        let outcome = match catch_unwind(AssertUnwindSafe(|| job(connection))) {
            Ok(result) => result.map_err(WriteError::Job),
            Err(payload) => Err(WriteError::Panicked(panic_text(&*payload))),
        };
        let ran = if outcome.is_ok() {
            Ran::Keep
        } else {
            Ran::Undo
        };
        self.outcome = Some(outcome);
        ran
    }

    fn take_reply(&mut self) -> Option<Reply<Settled>> {
        self.reply.take()
    }
}
