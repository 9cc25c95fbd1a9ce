//! The one thread that writes: it takes what is queued, commits it as one transaction, then answers.
//!
//! There is no timer in front of a commit: a lone write is committed at once, and while its sync runs the
//! next batch gathers by itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME, Statement};

use crate::checkpoint::{Checkpointer, IDLE_PAUSE, Need};
use crate::counters::Counters;
use crate::fault::Fault;
use crate::options::{Durability, Options};
use crate::poison::Poison;
use crate::queue::{Next, Queue};
use crate::reply::panic_text;
use crate::ticket::{Promise, QueuedWrite, Ran, Undo, Verdict};

pub(crate) type WriteQueue = Queue<Box<dyn QueuedWrite>>;

pub(crate) struct Writer {
    pub(crate) queue: Arc<WriteQueue>,
    pub(crate) poison: Poison,
    pub(crate) counters: Arc<Counters>,
    pub(crate) options: Options,
}

/// The statements around every job, prepared once, and what a commit does to the disk right now.
struct Frame<'c> {
    promise: Promise,
    begin: Statement<'c>,
    commit: Statement<'c>,
    savepoint: Statement<'c>,
    release: Statement<'c>,
    undo: Statement<'c>,
}

impl<'c> Frame<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Frame<'c>> {
        Ok(Frame {
            promise: Promise::Durable,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            savepoint: connection.prepare("SAVEPOINT heddle_job")?,
            release: connection.prepare("RELEASE heddle_job")?,
            undo: connection.prepare("ROLLBACK TO heddle_job")?,
        })
    }
}

impl Writer {
    /// Runs until the queue is closed and drained, or the handle is poisoned. Every job that was ever
    /// queued is settled when it returns.
    pub(crate) fn run(&self, connection: Connection) {
        let ran = catch_unwind(AssertUnwindSafe(|| self.serve(&connection)));
        if let Err(payload) = ran {
            self.poison
                .set(&format!("the writer panicked: {}", panic_text(&*payload)));
        }
        if let Some(reason) = self.poison.reason() {
            let verdict = Verdict::Poisoned(reason);
            settle(self.queue.close_and_empty(), &verdict);
        } else {
            close_cleanly(&connection);
        }
        if let Err((_, error)) = connection.close() {
            tracing::warn!(%error, "database connection not closed cleanly");
        }
    }

    fn serve(&self, connection: &Connection) {
        let mut frame = match Frame::prepare(connection) {
            Ok(frame) => frame,
            Err(error) => {
                self.poison.set(&error.to_string());
                return;
            }
        };
        let mut checkpointer = Checkpointer::new(&self.options);
        let mut need = Need::None;
        loop {
            let patience = (need == Need::WhenIdle).then_some(IDLE_PAUSE);
            let first = match self.queue.next(patience) {
                Next::Job(job) => job,
                Next::Idle => {
                    need = Need::None;
                    self.checkpoint(&mut checkpointer, connection);
                    if self.poison.reason().is_some() {
                        return;
                    }
                    continue;
                }
                Next::Ended => return,
            };
            // A reader may have found damage, or a checkpoint may have failed, since the last batch.
            if let Some(reason) = self.poison.reason() {
                settle([first], &Verdict::Poisoned(reason));
                return;
            }
            self.commit_batch(connection, &mut frame, first);
            if self.poison.reason().is_some() {
                return;
            }
            match checkpointer.need(connection) {
                Ok(Need::Now) => {
                    need = Need::None;
                    self.checkpoint(&mut checkpointer, connection);
                }
                Ok(other) => need = other,
                Err(fault) => self.note(fault),
            }
        }
    }

    /// One transaction: the first job and whatever else is waiting by then. Answers all of them.
    fn commit_batch(
        &self,
        connection: &Connection,
        frame: &mut Frame<'_>,
        first: Box<dyn QueuedWrite>,
    ) {
        let started = self.now();
        let mut batch = vec![first];
        let verdict = match self.fill(connection, frame, &mut batch, started) {
            Ok(()) => Verdict::Committed,
            Err(fault) => self.roll_back(connection, fault),
        };
        if verdict == Verdict::Committed {
            let took = self.now().saturating_sub(started);
            self.counters.committed(batch.len(), took);
        }
        // IMPORTANT: only here, after COMMIT or rollback has returned, does a caller hear anything (OB-02).
        settle(batch, &verdict);
    }

    fn fill(
        &self,
        connection: &Connection,
        frame: &mut Frame<'_>,
        batch: &mut Vec<Box<dyn QueuedWrite>>,
        started: Duration,
    ) -> Result<(), Fault> {
        let promise = self.promise_of(batch);
        self.keep(promise, connection, frame)?;
        execute(&mut frame.begin)?;
        let changes_before = connection.total_changes();
        loop {
            if let Some(job) = batch.last_mut() {
                run_job(connection, frame, job.as_mut())?;
            }
            let changes = connection.total_changes().saturating_sub(changes_before);
            let full = batch.len() >= self.options.batch_jobs_max
                || changes >= self.options.batch_changes_max
                || self.now().saturating_sub(started) >= self.options.batch_time_max;
            let next = match promise {
                _ if full => None,
                Promise::Durable => self.queue.try_next(),
                Promise::Relaxed => self
                    .queue
                    .try_next_if(|job| job.promise() == Promise::Relaxed),
            };
            match next {
                Some(job) => batch.push(job),
                None => return execute(&mut frame.commit),
            }
        }
    }

    /// A batch is synced if any job wants it. A relaxed job that stands before durable ones joins them.
    fn promise_of(&self, batch: &[Box<dyn QueuedWrite>]) -> Promise {
        let in_batch = batch.iter().any(|job| job.promise() == Promise::Durable);
        if in_batch || self.queue.any(|job| job.promise() == Promise::Durable) {
            Promise::Durable
        } else {
            Promise::Relaxed
        }
    }

    /// Makes the coming commit sync, or not. Nothing is lost by a commit that does not: the log keeps
    /// the order, and the next sync covers the whole of it.
    fn keep(
        &self,
        promise: Promise,
        connection: &Connection,
        frame: &mut Frame<'_>,
    ) -> Result<(), Fault> {
        if promise == frame.promise || self.options.durability == Durability::Normal {
            return Ok(());
        }
        let level = match promise {
            Promise::Durable => Durability::Full,
            Promise::Relaxed => Durability::Normal,
        };
        // IMPORTANT: before BEGIN. Inside a transaction SQLite would not change the level.
        connection
            .pragma_update(None, "synchronous", level.pragma())
            .map_err(|error| Fault::of(&error))?;
        frame.promise = promise;
        Ok(())
    }

    /// Undoes the transaction and says what its callers are told.
    fn roll_back(&self, connection: &Connection, fault: Fault) -> Verdict {
        let undone = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        match fault {
            Fault::Device(reason) | Fault::Damage(reason) => {
                Verdict::Poisoned(self.poison.set(&reason))
            }
            _ if !undone => {
                Verdict::Poisoned(self.poison.set("a transaction cannot be rolled back"))
            }
            Fault::DiskFull => Verdict::DiskFull,
            Fault::Passing(reason) => Verdict::RolledBack(reason.into()),
        }
    }

    fn checkpoint(&self, checkpointer: &mut Checkpointer, connection: &Connection) {
        match checkpointer.run(connection) {
            Ok(true) => self.counters.checkpointed(),
            Ok(false) => {}
            Err(fault) => self.note(fault),
        }
    }

    /// A fault outside any transaction: no caller is waiting, so the log is told.
    fn note(&self, fault: Fault) {
        match fault {
            Fault::Device(reason) | Fault::Damage(reason) => {
                self.poison.set(&reason);
                tracing::error!(
                    reason,
                    "checkpoint failed; the database takes no further write"
                );
            }
            Fault::DiskFull => tracing::warn!("checkpoint postponed: the disk is full"),
            Fault::Passing(reason) => tracing::warn!(reason, "checkpoint postponed"),
        }
    }

    /// Zero without a time source, which switches the time bound off.
    fn now(&self) -> Duration {
        self.options.monotonic.map_or(Duration::ZERO, |now| now())
    }
}

/// Runs one job in its savepoint. `Err` means that the whole transaction is lost.
fn run_job(
    connection: &Connection,
    frame: &mut Frame<'_>,
    job: &mut dyn QueuedWrite,
) -> Result<(), Fault> {
    let undo = job.undo();
    let changes_before = connection.total_changes();
    if undo == Undo::Savepoint {
        execute(&mut frame.savepoint)?;
    }
    let ran = job.run(connection);
    let fault = match ran {
        Ran::Undo => Fault::last_of(connection),
        Ran::Keep => None,
    };
    if let Some(fault) = fault {
        return Err(fault);
    }
    // SQLite ends a transaction by itself after some failures, and a job could end it by hand. Either
    // way earlier jobs of the batch may be gone, and what followed ran outside of any transaction.
    if connection.is_autocommit() {
        return Err(Fault::Device(
            "a transaction ended in the middle of a batch".to_owned(),
        ));
    }
    match undo {
        Undo::Nothing if ran == Ran::Undo && connection.total_changes() != changes_before => Err(
            Fault::Device("a write of a single statement failed after a change".to_owned()),
        ),
        Undo::Nothing => Ok(()),
        Undo::Savepoint => {
            if ran == Ran::Undo {
                execute(&mut frame.undo)?;
            }
            execute(&mut frame.release)
        }
    }
}

fn execute(statement: &mut Statement<'_>) -> Result<(), Fault> {
    statement
        .execute([])
        .map(drop)
        .map_err(|error| Fault::of(&error))
}

pub(crate) fn settle(batch: impl IntoIterator<Item = Box<dyn QueuedWrite>>, verdict: &Verdict) {
    for job in batch {
        // The answer of a caller who left is dropped here, and its destructor is foreign code.
        if catch_unwind(AssertUnwindSafe(|| job.settle(verdict))).is_err() {
            tracing::error!("the answer to a write panicked when it was dropped");
        }
    }
}

/// Best effort: an empty log makes the next start short. What fails here is found by that start.
fn close_cleanly(connection: &Connection) {
    let closed = connection
        .wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::TRUNCATE)
        .and_then(|_| connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false));
    if let Err(error) = closed {
        tracing::warn!(%error, "last checkpoint not completed");
    }
}
