//! The one connection that writes: it takes what waits, commits it as one transaction, then answers.
//!
//! There is no timer in front of a commit: a lone write is committed at once, and while its sync runs the
//! next batch gathers by itself.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME};

use crate::checkpoint::{Checkpointer, Need, note};
use crate::counters::Counters;
use crate::fault::Fault;
use crate::line::{Job, Line};
use crate::options::{Durability, Options};
use crate::place::Place;
use crate::poison::Poison;
use crate::ticket::{Promise, QueuedWrite, Ran, Undo, Verdict, answer};

const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const SAVEPOINT: &str = "SAVEPOINT heddle_job";
const RELEASE: &str = "RELEASE heddle_job";
const UNDO: &str = "ROLLBACK TO heddle_job";

/// How often in a row a transaction is begun in vain before those who wait are told that another process holds the
/// file; each time the lock is waited for as long as the options say. Whoever holds it for a moment delays, and no more.
const HELD_TRIES_MAX: u32 = 5;

pub(crate) struct Writer {
    connection: Connection,
    /// In a row, the last one included.
    held_tries: u32,
    /// What a commit does to the disk right now.
    promise: Promise,
    checkpointer: Checkpointer,
    place: Arc<Place>,
    poison: Poison,
    counters: Arc<Counters>,
    options: Options,
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        options: Options,
        place: Arc<Place>,
        poison: Poison,
        counters: Arc<Counters>,
    ) -> Writer {
        Writer {
            connection,
            held_tries: 0,
            promise: Promise::Durable,
            checkpointer: Checkpointer::new(&options),
            place,
            poison,
            counters,
            options,
        }
    }

    /// One transaction with all that waits. Answers everybody in it.
    pub(crate) fn commit_batch(&mut self, line: &Line) {
        let mut waiting = line.take(self.options.batch_jobs_max);
        // A reader may have found damage, or a checkpoint may have failed, since the last batch.
        if let Some(reason) = self.poison.reason() {
            settle(waiting, &Verdict::Poisoned(reason));
            return;
        }
        let started = self.now();
        let mut batch = Vec::with_capacity(waiting.len());
        let filled = self.fill(line, &mut waiting, &mut batch, started);
        if filled == Err(Fault::Held) && batch.is_empty() {
            self.counters.took(self.now().saturating_sub(started));
            self.keep_waiting(line, waiting);
            return;
        }
        self.held_tries = 0;
        if filled.is_err() && batch.is_empty() {
            // It could not be begun: whoever waits is told, or it would be tried without an end.
            batch.extend(waiting.drain(..));
        }
        line.give_back(waiting);
        let verdict = match filled {
            Ok(()) => self.look_at_place(),
            Err(fault) => self.roll_back(fault),
        };
        let took = self.now().saturating_sub(started);
        // Before anybody is answered: whoever writes next decides by it where to wait.
        self.counters.took(took);
        if verdict == Verdict::Committed {
            self.counters.committed(batch.len(), took);
        }
        // IMPORTANT: only here, after COMMIT or rollback has returned, does a caller hear anything (OB-02).
        settle(batch, &verdict);
    }

    /// Another process has the lock, and nothing was begun: for a while those who wait go on waiting.
    fn keep_waiting(&mut self, line: &Line, waiting: VecDeque<Job>) {
        self.held_tries = self.held_tries.saturating_add(1);
        let waits = |job: &Job| job.is_patient() && self.held_tries < HELD_TRIES_MAX;
        let (patient, told): (VecDeque<Job>, VecDeque<Job>) = waiting.into_iter().partition(waits);
        line.give_back(patient);
        settle(told, &Verdict::Held);
    }

    fn fill(
        &mut self,
        line: &Line,
        waiting: &mut VecDeque<Job>,
        batch: &mut Vec<Job>,
        started: Duration,
    ) -> Result<(), Fault> {
        let promise = promise_of(waiting);
        self.keep(promise)?;
        execute(&self.connection, BEGIN)?;
        let changes_before = self.connection.total_changes();
        loop {
            if waiting.is_empty() {
                // What was queued meanwhile rides along, unless it would turn a relaxed batch into a
                // durable one half way.
                let room = self.options.batch_jobs_max - batch.len();
                *waiting = line.take(room);
                if promise == Promise::Relaxed && promise_of(waiting) == Promise::Durable {
                    break;
                }
            }
            let Some(job) = waiting.pop_front() else {
                break;
            };
            batch.push(job);
            if let Some(job) = batch.last_mut() {
                run_job(&self.connection, job.as_mut())?;
            }
            let changes = self
                .connection
                .total_changes()
                .saturating_sub(changes_before);
            if batch.len() >= self.options.batch_jobs_max
                || changes >= self.options.batch_changes_max
                || self.now().saturating_sub(started) >= self.options.batch_time_max
            {
                break;
            }
        }
        execute(&self.connection, COMMIT)
    }

    /// Makes the coming commit sync, or not. Nothing is lost by a commit that does not: the log keeps
    /// the order, and the next sync covers the whole of it.
    fn keep(&mut self, promise: Promise) -> Result<(), Fault> {
        if promise == self.promise || self.options.durability == Durability::Normal {
            return Ok(());
        }
        let level = match promise {
            Promise::Durable => Durability::Full,
            Promise::Relaxed => Durability::Normal,
        };
        // IMPORTANT: before BEGIN. Inside a transaction SQLite would not change the level.
        self.connection
            .pragma_update(None, "synchronous", level.pragma())
            .map_err(|error| Fault::of(&error))?;
        self.promise = promise;
        Ok(())
    }

    /// A commit into a file that is not in its place any more is none.
    fn look_at_place(&self) -> Verdict {
        match self.place.lost_by_a_commit() {
            None => Verdict::Committed,
            Some(why) => Verdict::Poisoned(self.poison.set(&why)),
        }
    }

    /// Undoes the transaction and says what its callers are told.
    fn roll_back(&self, fault: Fault) -> Verdict {
        let undone =
            self.connection.is_autocommit() || self.connection.execute_batch("ROLLBACK").is_ok();
        match fault {
            Fault::Device(reason) | Fault::Damage(reason) => {
                Verdict::Poisoned(self.poison.set(&reason))
            }
            _ if !undone => {
                Verdict::Poisoned(self.poison.set("a transaction cannot be rolled back"))
            }
            Fault::DiskFull => Verdict::DiskFull,
            Fault::Held => Verdict::Held,
            Fault::Passing(reason) => Verdict::RolledBack(reason.into()),
        }
    }

    /// What the log needs after a commit.
    pub(crate) fn need(&mut self) -> Need {
        if self.poison.reason().is_some() {
            return Need::None;
        }
        match self.checkpointer.need(&self.connection) {
            Ok(need) => need,
            Err(fault) => {
                note(&self.poison, fault);
                Need::None
            }
        }
    }

    pub(crate) fn checkpoint(&mut self) {
        match self.checkpointer.run(&self.connection) {
            Ok(true) => self.counters.checkpointed(),
            Ok(false) => {}
            Err(fault) => note(&self.poison, fault),
        }
    }

    /// Zero without a time source, which switches the time bound off.
    fn now(&self) -> Duration {
        self.options.monotonic.map_or(Duration::ZERO, |now| now())
    }

    /// The end of the handle: nothing leads any more.
    pub(crate) fn close(self) {
        if self.poison.reason().is_none() {
            close_cleanly(&self.connection);
        }
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "database connection not closed cleanly");
        }
    }
}

/// Runs one job in its savepoint. `Err` means that the whole transaction is lost.
fn run_job(connection: &Connection, job: &mut dyn QueuedWrite) -> Result<(), Fault> {
    let undo = job.undo();
    let changes_before = connection.total_changes();
    if undo == Undo::Savepoint {
        execute(connection, SAVEPOINT)?;
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
                execute(connection, UNDO)?;
            }
            execute(connection, RELEASE)
        }
    }
}

fn execute(connection: &Connection, sql: &'static str) -> Result<(), Fault> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.execute([]))
        .map(drop)
        .map_err(|error| Fault::of(&error))
}

pub(crate) fn settle(batch: impl IntoIterator<Item = Box<dyn QueuedWrite>>, verdict: &Verdict) {
    for job in batch {
        // The answer of a caller who left is dropped here, and its destructor is foreign code.
        if catch_unwind(AssertUnwindSafe(|| answer(job, verdict))).is_err() {
            tracing::error!("the answer to a write panicked when it was dropped");
        }
    }
}

/// A batch is synced if any job wants it. A relaxed job that stands before durable ones joins them.
fn promise_of(jobs: &VecDeque<Job>) -> Promise {
    if jobs.iter().any(|job| job.promise() == Promise::Durable) {
        Promise::Durable
    } else {
        Promise::Relaxed
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
