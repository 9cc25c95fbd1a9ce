//! The handle: opens a file, queues writes and reads, and stops its threads.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;

use crate::connection::{Site, refusal};
use crate::counters::{Counters, Stats};
use crate::error::{IntegrityError, OpenError, ReadError, WriteError};
use crate::files;
use crate::kept::{keep_before, thin_out};
use crate::lead::{Leadership, gather, lead_gathered, see_to_it};
use crate::log;
use crate::migrate::{Migration, StepsTaken, known_version, migrate, note_failure, refuse_newer};
use crate::mover::Mover;
use crate::options::Options;
use crate::place::Place;
use crate::poison::Poison;
use crate::queue::{Queue, Refused};
use crate::readers::{Desk, Read, ReadQueue, Reader};
use crate::reply::{Reply, wait};
use crate::threads::Threads;
use crate::ticket::{Promise, QueuedWrite, Ticket, Undo, Verdict};
use crate::writer::settle;

/// One SQLite file with its writer thread and its readers. Cheap to clone; the last clone stops it.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    writes: Arc<Leadership>,
    reads: Arc<ReadQueue>,
    desk: Desk,
    place: Arc<Place>,
    poison: Poison,
    counters: Arc<Counters>,
    taken: Option<StepsTaken>,
    writer: Threads,
    readers: Threads,
}

impl Database {
    /// Opens the file, creates it if it is missing, and brings its schema to the newest version of
    /// `migrations`.
    pub fn open(options: Options, migrations: &[Migration]) -> Result<Database, OpenError> {
        let known = known_version(migrations)?;
        let path = match options.vfs {
            None => {
                log::opened(&options.path);
                files::prepare(&options.path)?
            }
            Some(_) => Path::new("/").join(&options.path),
        };
        let site = Site::new(path.clone(), &options);
        if let Some(found) = site.look()? {
            refuse_newer(found, known)?;
        }
        let connection = site.writer()?;
        let keeps = options.keeps_copy_before_steps && options.vfs.is_none();
        let taken = migrate(&connection, migrations, |from| {
            if !keeps || from == 0 {
                return Ok(None);
            }
            let before = site.reader().map_err(refusal)?;
            keep_before(&before, &path, from + 1).map(Some)
        })
        .inspect_err(note_failure)?;
        if let Some(taken) = taken.as_ref().filter(|taken| !taken.made_it()) {
            let copy = taken.copy.as_ref().map(|copy| copy.display().to_string());
            tracing::info!(file = %path.display(), from = taken.from, to = taken.to, copy,
                "the schema was brought up to date");
            thin_out(&path, taken.from + 1);
        }
        if options.vfs.is_none() {
            log::note_boot(&files::with_suffix(&path, log::INDEX));
        }
        Database::start(options, &site, connection, taken)
    }

    fn start(
        options: Options,
        site: &Site,
        connection: Connection,
        taken: Option<StepsTaken>,
    ) -> Result<Database, OpenError> {
        let reader_count = options.reader_count.max(1);
        // From here on a drop of `inner` ends whatever threads have been started.
        let (poison, counters) = (Poison::default(), Arc::new(Counters::default()));
        let reads = Arc::new(Queue::new(options.read_queue_capacity));
        // Another VFS is no matter of paths.
        let place = Arc::new(match options.vfs {
            None => Place::of(site.path()),
            Some(_) => Place::default(),
        });
        let (placed, counted) = (Arc::clone(&place), Arc::clone(&counters));
        let writes = Leadership::new(connection, options, placed, poison.clone(), counted);
        let inner = Inner {
            writes: Arc::new(writes),
            reads,
            desk: Desk::new(site.clone()),
            place,
            poison,
            counters,
            taken,
            writer: Threads::default(),
            readers: Threads::default(),
        };
        let writes = Arc::clone(&inner.writes);
        let mover = Mover::new(site.clone());
        let failed = |source| OpenError::Thread { source };
        inner
            .writer
            .start("sqlite-writer", move || writes.run_thread(mover))
            .map_err(failed)?;
        for _ in 0..reader_count {
            let reader = Reader {
                queue: Arc::clone(&inner.reads),
                site: site.clone(),
                poison: inner.poison.clone(),
            };
            inner
                .readers
                .start("sqlite-reader", move || reader.run())
                .map_err(failed)?;
        }
        Ok(Database {
            inner: Arc::new(inner),
        })
    }

    /// The steps that the schema has taken when this handle opened the file.
    pub fn steps_taken(&self) -> Option<&StepsTaken> {
        self.inner.taken.as_ref()
    }

    /// Queues a write and waits until the transaction that carries it is committed and synced.
    ///
    /// The job is queued when the future is first polled; from then on it runs exactly once, also if the
    /// future is dropped. It runs on the writer's thread inside a transaction, so it must be short, must
    /// not end the transaction and must not wait for another write.
    pub async fn write<T, E, F>(&self, job: F) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        self.wait_for(Promise::Durable, Undo::Savepoint, job).await
    }

    /// Queues a durable write whose only change is one statement, its last step. It runs without a
    /// savepoint, because a statement that fails undoes itself.
    ///
    /// A job that fails after it has changed something breaks that promise: the whole batch is rolled
    /// back and the handle is poisoned.
    pub async fn write_single<T, E, F>(&self, job: F) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        self.wait_for(Promise::Durable, Undo::Nothing, job).await
    }

    /// Runs work that queues writes for many callers on this thread, and leads none of them. The caller owes
    /// a `lead_gathered`, also if the work panics; until then nothing of it may be waited for.
    pub fn gather<R>(&self, work: impl FnOnce() -> R) -> R {
        gather(&self.inner.writes, work)
    }

    /// Carries what was gathered to its commit, here and as one batch, unless somebody is about to.
    pub fn lead_gathered(&self) {
        lead_gathered(&self.inner.writes);
    }

    /// Queues a write that may be forgotten in a power cut: it is answered after its commit, but has no
    /// sync of its own. Whatever is written durably after it carries it along; the order of commits is
    /// kept, so it is never lost alone from the middle.
    ///
    /// Only for what is derived again after a crash, and never for what a caller is told of.
    pub async fn write_relaxed<T, E, F>(&self, job: F) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        self.wait_for(Promise::Relaxed, Undo::Savepoint, job).await
    }

    /// The same for a thread without a runtime. Called from inside a write it would wait for itself,
    /// and is refused with `Busy`.
    pub fn write_blocking<T, E, F>(&self, job: F) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        if self.inner.writes.line.leads_here() {
            return Err(WriteError::Busy);
        }
        let (reply, answer) = Reply::new();
        let ticket = Ticket::<T, E, F>::new(Promise::Durable, Undo::Savepoint, job, reply);
        self.queue_write(Box::new(ticket)).map_err(refused)?;
        self.inner.writes.line.call();
        wait(answer).map_or_else(|_| Err(self.unanswered()), Ticket::<T, E, F>::outcome)
    }

    async fn wait_for<T, E, F>(
        &self,
        promise: Promise,
        undo: Undo,
        job: F,
    ) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let (reply, answer) = Reply::new();
        let ticket = Ticket::<T, E, F>::new(promise, undo, job, reply);
        self.queue_write(Box::new(ticket)).map_err(refused)?;
        see_to_it(&self.inner.writes);
        let answer = answer.await;
        answer.map_or_else(|_| Err(self.unanswered()), Ticket::<T, E, F>::outcome)
    }

    fn queue_write(&self, ticket: Box<dyn QueuedWrite>) -> Result<(), NotQueued> {
        if let Some(reason) = self.inner.poison.reason() {
            return Err(NotQueued::Poisoned(reason));
        }
        let queued = self.inner.writes.line.push(ticket);
        queued.map_err(|refused| match (refused, self.inner.poison.reason()) {
            (_, Some(reason)) => NotQueued::Poisoned(reason),
            (Refused::Full, None) => NotQueued::Full,
            (Refused::Closed, None) => NotQueued::Closed,
        })
    }

    /// The writer went away with a write in its hands; only a broken invariant leads here, and the
    /// outcome of that write is unknown.
    fn unanswered<E>(&self) -> WriteError<E> {
        let reason = self.inner.poison.set("the writer ended without an answer");
        WriteError::Poisoned(reason.to_string())
    }

    /// Runs a read on a pool thread, in one snapshot that holds every write answered before the call.
    pub async fn read<T, E, F>(&self, job: F) -> Result<T, ReadError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        self.read_queued(Read::new(job)).await
    }

    async fn read_queued<T, E, F>(&self, read: Read<T, E, F>) -> Result<T, ReadError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let (read, answer) = read.queued();
        self.inner.reads.push(read).map_err(unread)?;
        let answer = answer.await;
        answer.map_or(Err(ReadError::Stopped), Read::<T, E, F>::outcome_of)
    }

    /// The same for a read of a few rows by their key, which runs where the caller stands if it can: two
    /// changes of thread would cost more than the read. Not for anything that scans.
    pub async fn read_few<T, E, F>(&self, job: F) -> Result<T, ReadError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        if self.inner.reads.is_closed() {
            return Err(ReadError::Stopped);
        }
        let mut read = Read::new(job);
        if self.inner.desk.try_read(&mut read, &self.inner.poison) {
            return read.outcome();
        }
        self.read_queued(read).await
    }

    /// The same for a thread without a runtime. Not to be called from inside a read.
    pub fn read_blocking<T, E, F>(&self, job: F) -> Result<T, ReadError<E>>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let (read, answer) = Read::new(job).queued();
        self.inner.reads.push(read).map_err(unread)?;
        wait(answer).map_or(Err(ReadError::Stopped), Read::<T, E, F>::outcome_of)
    }

    /// `PRAGMA integrity_check`, the first problem as an error. Damage poisons the handle (LF-39).
    pub fn integrity_check(&self) -> Result<(), IntegrityError> {
        let found = self.read_blocking(|connection| {
            connection.query_row("PRAGMA integrity_check(1)", [], |row| {
                row.get::<_, String>(0)
            })
        });
        match found {
            Ok(verdict) if verdict == "ok" => Ok(()),
            Ok(problem) => {
                self.inner.poison.set(&problem);
                Err(IntegrityError::Damaged(problem))
            }
            Err(error) => match self.is_poisoned() {
                Some(reason) => Err(IntegrityError::Damaged(reason)),
                None => Err(IntegrityError::Unavailable(error.to_string())),
            },
        }
    }

    /// Whether another process keeps this one from writing, as a transaction without a change finds out now: it is
    /// begun once, waits for the lock as long as the options say, and costs no sync.
    pub async fn is_held(&self) -> bool {
        let (reply, answer) = Reply::new();
        let nothing = |_: &Connection| Ok::<(), Infallible>(());
        let ticket = Ticket::new(Promise::Durable, Undo::Nothing, nothing, reply).impatient();
        if self.queue_write(Box::new(ticket)).is_err() {
            return false;
        }
        // Where it is held somebody waits, and that is for the writer's own thread.
        self.inner.writes.line.call();
        let settled = answer.await;
        settled.is_ok_and(|settled| settled.is_held())
    }

    /// Takes nothing more, finishes what is queued, moves the log into the file and ends the threads.
    /// Blocks until that is done; any number of calls is one stop.
    pub fn stop(&self) {
        self.inner.stop();
    }

    /// Takes nothing more and answers what is queued with `Stopped`; a transaction that is running is
    /// still committed and answered.
    pub fn abort(&self) {
        drop(self.inner.reads.close_and_empty());
        settle(self.inner.writes.line.close_and_empty(), &Verdict::Stopped);
        self.inner.stop();
    }

    /// Poisons the handle if the file, its log or its index is not in its place any more: whoever writes nothing for a while
    /// must not believe that all is well. The reason, as `is_poisoned` gives it.
    pub fn look_at_place(&self) -> Option<String> {
        if let Some(why) = self.inner.place.lost() {
            self.inner.poison.set(&why);
        }
        self.is_poisoned()
    }

    /// Why no write is accepted any more, if that is so.
    pub fn is_poisoned(&self) -> Option<String> {
        self.inner.poison.reason().map(|reason| reason.to_string())
    }

    pub fn stats(&self) -> Stats {
        Stats {
            queued: self.inner.writes.line.len() as u64,
            ..self.inner.counters.stats()
        }
    }
}

/// Why a write did not get into the line.
enum NotQueued {
    Poisoned(Arc<str>),
    Full,
    Closed,
}

fn refused<E>(why: NotQueued) -> WriteError<E> {
    match why {
        NotQueued::Poisoned(reason) => WriteError::Poisoned(reason.to_string()),
        NotQueued::Full => WriteError::Busy,
        NotQueued::Closed => WriteError::Stopped,
    }
}

fn unread<E>(why: Refused) -> ReadError<E> {
    match why {
        Refused::Full => ReadError::Busy,
        Refused::Closed => ReadError::Stopped,
    }
}

impl Inner {
    fn stop(&self) {
        // Readers first: a snapshot they hold would keep the writer from emptying the log.
        self.reads.close();
        self.readers.join();
        self.desk.close();
        self.writes.line.close();
        // A job that stops its own database, on whichever thread it is led, does not wait for itself.
        if !self.writes.line.leads_here() {
            self.writer.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}
