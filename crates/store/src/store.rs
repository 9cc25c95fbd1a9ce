//! The handle: opens the file, marks it unclean while it is open, and stops it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heddle_core::clock::WallMs;
use heddle_core::limits::WRITE_QUEUE_MAX;
use heddle_core::pressure::log_pages;
use heddle_sqlite::{Database, Durability, LogBounds, Look, OpenError, Options, Stats, WriteError};
use rusqlite::Connection;

use crate::data::{FillCursor, VectorCache, fill_step};
use crate::error::StoreError;
use crate::outbox::{NotedSenders, Turns};
use crate::unreadable::LeftOut;
use crate::{park, schema, search_index, unclean};

#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub path: PathBuf,
    pub durability: Durability,
    /// A registered SQLite VFS: the simulator's disk.
    pub vfs: Option<String>,
}

/// The mesh store of one home. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Store {
    database: Database,
    pub(crate) noted_senders: NotedSenders,
    /// Whose turn it is when more is due than a batch holds.
    pub(crate) turns: Arc<Turns>,
    pub(crate) vector_cache: VectorCache,
    log_bounds: Arc<LogBounds>,
    /// Where a read notes what it goes on without; without it, such a row is an error.
    pub(crate) left_out: Option<LeftOut>,
    /// Whether anybody has met what cannot be right since it was last asked.
    has_met_damage: Arc<AtomicBool>,
    /// Rows that are gone from the outbox, as the last look at all of it found.
    pub(crate) outbox_gone: Arc<AtomicU64>,
    /// The session before this one ended without a word.
    was_cut_off: bool,
}

impl Store {
    /// Opens the file, creates it if it is missing, and brings its schema up to date. A file that a
    /// newer program wrote is refused, and so is a damaged one, both without a byte changed.
    pub fn open(options: StoreOptions) -> Result<Store, StoreError> {
        heddle_sqlite::link_vectors()?;
        unclean::check(&options, Look::AsNeeded)?;
        Store::open_checked(options, Look::AsNeeded)
    }

    fn open_checked(options: StoreOptions, how: Look) -> Result<Store, StoreError> {
        let mut sqlite = Options::new(options.path);
        sqlite.durability = options.durability;
        sqlite.vfs = options.vfs;
        sqlite.queue_capacity = WRITE_QUEUE_MAX;
        sqlite.keeps_copy_before_steps = true;
        if let Some(free) = free_bytes(&sqlite) {
            (sqlite.checkpoint_idle_pages, sqlite.checkpoint_hard_pages) = log_pages(free);
        }
        // A file that was put in this place is checked by its first start as well, and has no log yet.
        let log = park::with_suffix(&sqlite.path, "-wal");
        let has_log = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
        let mut store = Store {
            log_bounds: Arc::clone(&sqlite.log_bounds),
            database: Database::open(sqlite, schema::MIGRATIONS)?,
            noted_senders: NotedSenders::default(),
            turns: Arc::default(),
            vector_cache: VectorCache::default(),
            left_out: None,
            has_met_damage: Arc::default(),
            outbox_gone: Arc::default(),
            was_cut_off: false,
        };
        let was_clean = store.database.write_blocking(unclean::mark_open)?;
        store.was_cut_off = !was_clean && has_log;
        if store.was_cut_off {
            tracing::info!("the last session did not end in order; data.db was checked");
        }
        store.seal_rows()?;
        store.mend_search(matches!(how, Look::AsNeeded) && was_clean)?;
        Ok(store)
    }

    /// Before a write meets a damaged index for searching, which would end the process, and the next one.
    fn mend_search(&self, was_clean: bool) -> Result<(), StoreError> {
        let mend = move |connection: &Connection| search_index::mend(connection, !was_clean);
        for mended in self.database.write_blocking(mend)? {
            tracing::warn!(
                mended,
                "an index for searching was damaged; it was made anew"
            );
        }
        Ok(())
    }

    /// Rows of before there were digests get theirs, before anybody reads them.
    fn seal_rows(&self) -> Result<(), StoreError> {
        let mut cursor = FillCursor::default();
        loop {
            let from = cursor.clone();
            let next = self
                .database
                .write_blocking(move |connection| fill_step(connection, from))?;
            match next {
                Some(next) => cursor = next,
                None => return Ok(()),
            }
        }
    }

    /// The same, but a file of which only the inbox is damaged is parked (`data.db.parked-TIME`), and
    /// a new one with everything else takes its place. Where the old one lies, if that was so.
    pub fn open_or_park(
        options: StoreOptions,
        now: WallMs,
    ) -> Result<(Store, Option<PathBuf>), StoreError> {
        heddle_sqlite::link_vectors()?;
        let parked = unclean::check_or_park(&options, now, Look::AsNeeded)?;
        match Store::open_checked(options.clone(), Look::AsNeeded) {
            Ok(store) => Ok((store, parked)),
            Err(error) if is_damage(&error) => Store::reopen_damaged(options, now),
            Err(error) => Err(error),
        }
    }

    /// Opens a file that somebody has just found damaged: all of it is checked first.
    pub fn reopen_damaged(
        options: StoreOptions,
        now: WallMs,
    ) -> Result<(Store, Option<PathBuf>), StoreError> {
        let parked = unclean::check_or_park(&options, now, Look::Closely)?;
        Ok((Store::open_checked(options, Look::Closely)?, parked))
    }

    /// Finishes an exchange of files that a crash interrupted. To be called before anybody looks at
    /// the file; `open_or_park` does it by itself.
    pub fn finish_parking(path: &Path) -> Result<(), StoreError> {
        park::finish(path).map_err(|source| {
            let path = path.to_owned();
            StoreError::Open(OpenError::Io { path, source })
        })
    }

    /// Files of this store that were parked and still lie beside it.
    pub fn parked_files(path: &Path) -> Vec<PathBuf> {
        park::parked(path)
    }

    /// Files of this store that were found damaged, parked or repaired, and are still there.
    pub fn damaged_files(path: &Path) -> Vec<PathBuf> {
        park::damaged(path)
    }

    /// What a person should hear of this opening, in sentences.
    pub fn start_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let taken = self.database.steps_taken();
        if let Some(taken) = taken.filter(|taken| !taken.made_it()) {
            let kept = taken.copy.as_ref().map_or_else(String::new, |copy| {
                format!(
                    "; for the Heddle of before, the file as it was is kept as {}",
                    copy.display()
                )
            });
            let (from, to) = (taken.from, taken.to);
            notes.push(format!(
                "this start brought data.db from version {from} of its schema to {to}{kept}"
            ));
        }
        if self.was_cut_off {
            notes.push(
                "the last session did not end in order; data.db was checked, and what was on its way goes out again"
                    .to_owned(),
            );
        }
        notes
    }

    /// Finishes what is queued, marks the file clean and closes it. Blocks until that is done.
    ///
    /// IMPORTANT: to be called when nobody writes any more. A write that slips in behind the mark is
    /// kept like any other, but a crash right after it would skip the check of the next start.
    pub fn stop(&self) {
        match self.database.write_blocking(unclean::mark_stopped) {
            Ok(()) | Err(WriteError::Stopped) => {}
            // The next start checks the file; that is the whole damage.
            Err(error) => tracing::warn!(%error, "the store was not marked clean"),
        }
        self.database.stop();
    }

    /// The log stays as short as a disk with this much room wants it; with much room, as at the start.
    pub fn bound_log(&self, free_bytes: u64) {
        let (idle_pages, hard_pages) = log_pages(free_bytes);
        self.log_bounds.set(idle_pages, hard_pages);
    }

    /// Why no write is accepted any more, if that is so.
    pub fn poisoned(&self) -> Option<String> {
        self.database.is_poisoned()
    }

    /// The same, after a look whether the file that is open is still the one in its place.
    pub fn look_at_place(&self) -> Option<String> {
        self.database.look_at_place()
    }

    /// Whether another process keeps this one from writing now.
    pub async fn is_held(&self) -> bool {
        self.database.is_held().await
    }

    pub fn stats(&self) -> Stats {
        self.database.stats()
    }

    /// One job of the writer: one savepoint, answered after the commit.
    pub(crate) async fn write<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.noted(self.database.write(job).await)
    }

    /// The same for a job whose only change is one statement; it needs no savepoint.
    pub(crate) async fn write_single<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        Ok(self.database.write_single(job).await?)
    }

    /// For a thread that serves many callers by turns: what `work` writes is led by `lead_gathered`, which the
    /// caller owes.
    pub fn gather<R>(&self, work: impl FnOnce() -> R) -> R {
        self.database.gather(work)
    }

    /// Carries what was gathered to its commit.
    pub fn lead_gathered(&self) {
        self.database.lead_gathered();
    }

    /// The same without a sync of its own: for marks that are derived again after a power cut, and of
    /// which nobody was told more than that (docs/adr/0005).
    pub(crate) async fn write_relaxed<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        Ok(self.database.write_relaxed(job).await?)
    }

    /// One snapshot that holds every write answered before the call.
    pub(crate) async fn read<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.noted(self.database.read(job).await)
    }

    /// The same for a few rows by their key, which the caller reads where it stands.
    pub(crate) async fn read_few<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.noted(self.database.read_few(job).await)
    }

    fn noted<T, E: Into<StoreError>>(&self, done: Result<T, E>) -> Result<T, StoreError> {
        let done = done.map_err(Into::into);
        if let Err(StoreError::Corrupt(_)) = &done {
            self.has_met_damage.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Whether a row that cannot be right was met since this was last asked. A hint: who wants to know looks.
    pub fn take_met_damage(&self) -> bool {
        self.has_met_damage.swap(false, Ordering::Relaxed)
    }
}

/// How much room there is; unknown on the simulator's disk, and where it cannot be asked.
fn free_bytes(options: &Options) -> Option<u64> {
    let folder = options.path.parent().filter(|_| options.vfs.is_none())?;
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Whether the file's content stood in the way of opening it.
fn is_damage(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Open(OpenError::Damaged(_) | OpenError::Migration { .. })
            | StoreError::Poisoned(_)
            | StoreError::Corrupt(_)
    )
}
