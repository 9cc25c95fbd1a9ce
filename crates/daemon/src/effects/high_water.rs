//! Keeps the mark of the store at the height of the store, and notices a store that has sunk below it: at the start,
//! while it is in use, and by what others have seen of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use heddle_core::clock::Ids;
use heddle_core::error_code::ErrorCode;
use heddle_registrar::chain::{Link, Proven, Seal};
use heddle_registrar::storage::{Reached, Seen, Storage};
use heddle_store::Store;
use heddle_wire::problem::Problem;
use tokio::sync::Mutex;

use super::mark::{self, FILES, Mark, Remembered};
use super::{ANEW, EffectsError};
use crate::shared::store_problem;

/// What to do about a store that is not the newest one.
pub(crate) const OLDER_NEXT: &str = "Put the newest one back and restart. Or go on with this one: make an empty file effects-begin-anew in the folder that effects.mark is in, and restart; keys that were used since can then be used again.";

pub(super) struct HighWater {
    folder: PathBuf,
    /// What the store is called.
    what: String,
    /// A home's own; a broker without one has the files alone.
    store: Option<Store>,
    /// Held until what was written is on the disk, also when whoever wanted it has gone.
    mark: Arc<Mutex<Mark>>,
    older: RwLock<Option<Sunk>>,
}

/// Why nothing is decided.
#[derive(Debug, Clone)]
struct Sunk {
    words: String,
    /// It stands in the store, too: whoever gives that a new seal lets all others go on.
    is_by_seal: bool,
}

/// In words for everybody: whose home it was is in the log.
pub(super) fn broken(what: &str) -> String {
    format!(
        "{what} is an earlier copy of itself, or went another way: a home that asks here was told of changes that it does not know; used keys would be free again, so no effect is decided about"
    )
}

impl HighWater {
    /// Compares the store with what is remembered of it. A person's word (`effects-begin-anew`) makes what is there
    /// the newest one; so does a store that begins anew.
    pub(super) async fn open<S: Storage>(
        folder: &Path,
        store: Option<Store>,
        (storage, what): (&S, &str),
        (begins_anew, ids): (bool, &Arc<dyn Ids>),
    ) -> Result<Self, EffectsError> {
        let known = match &store {
            Some(store) => store.effects_used().await?,
            None => None,
        };
        let remembered = Remembered::new(folder, known);
        let mut reached = Vec::new();
        for mark in &remembered.marks {
            reached.push(storage.reached(remembered.seen(mark)).await?);
        }
        let is_broken = reached.first().is_some_and(Reached::is_broken);
        let trouble = remembered.trouble(what, &reached);
        let is_noticed = trouble.is_some() || is_broken;
        let is_accepted = begins_anew || (is_noticed && folder.join(ANEW).exists());
        let high = Self {
            folder: folder.to_owned(),
            what: what.to_owned(),
            store,
            mark: Arc::new(Mutex::new(remembered.newest())),
            older: RwLock::default(),
        };
        if is_accepted {
            high.accept(storage, ids.as_ref()).await?;
        } else if let Some(trouble) = trouble {
            high.sink(trouble, false);
        } else {
            storage.expect(high.mark.lock().await.link);
            if is_broken {
                high.sink(broken(what), true);
            }
        }
        Ok(high)
    }

    /// A store of before there was a seal gets one; once it has shown itself fit. Where that cannot be written now,
    /// members are proven nothing until the next start.
    pub(super) async fn seal<S: Storage>(&self, storage: &S, ids: &dyn Ids) {
        let reached = storage.reached(Seen::default()).await;
        let has_none = reached.is_ok_and(|reached| reached.seal.is_none());
        if !has_none || self.trouble().is_some() {
            return;
        }
        if let Err(error) = storage.reseal(Seal::mint(ids)).await {
            tracing::warn!(what = self.what, %error, "it has no seal yet");
        }
    }

    /// What was proven to anybody before is given up with the rest.
    async fn accept<S: Storage>(&self, storage: &S, ids: &dyn Ids) -> Result<(), EffectsError> {
        tracing::warn!(
            what = self.what,
            "goes on by a person's word; what was decided since is not known any more"
        );
        storage.expect(None);
        let sealed = storage.reached(Seen::default()).await?.seal;
        let seal = sealed.map_or_else(|| Seal::mint(ids), |seal| seal.begins_anew(ids));
        storage.reseal(seal).await?;
        let reached = storage.reached(Seen::default()).await?;
        if let Some(store) = &self.store {
            store.forget_effects().await?;
        }
        let mark = Mark::of(&reached);
        write(&self.folder, self.store.as_ref(), &mark).await?;
        storage.expect(mark.link);
        *self.mark.lock().await = mark;
        Ok(())
    }

    /// From now on nothing is decided.
    fn sink(&self, words: String, is_by_seal: bool) {
        let mut older = self.older.write().unwrap_or_else(PoisonError::into_inner);
        if older.is_none() {
            tracing::error!(next = OLDER_NEXT, "{words}");
            *older = Some(Sunk { words, is_by_seal });
        }
    }

    fn sunk(&self) -> Option<Sunk> {
        let older = self.older.read().unwrap_or_else(PoisonError::into_inner);
        older.clone()
    }

    pub(super) fn trouble(&self) -> Option<String> {
        Some(self.sunk()?.words)
    }

    /// The store has a new seal: somebody who shares it was told to go on.
    fn rise(&self) {
        let mut older = self.older.write().unwrap_or_else(PoisonError::into_inner);
        if older.as_ref().is_some_and(|sunk| sunk.is_by_seal) {
            tracing::warn!(
                what = self.what,
                "goes on by a person's word, as another broker was told"
            );
            *older = None;
        }
    }

    /// For whoever wants something decided by a store that is not the newest one.
    pub(super) fn refusal(&self) -> Option<Problem> {
        let problem = Problem::new(ErrorCode::StorageUnavailable, self.trouble()?);
        Some(problem.next(OLDER_NEXT))
    }

    /// Whether the store is still the one that was last seen, whoever has written to it since. What others have
    /// written is remembered here as well.
    pub(super) async fn look<S: Storage>(&self, storage: &S) -> Result<(), Problem> {
        if self.sunk().is_some_and(|sunk| !sunk.is_by_seal) {
            return self.refusal().map_or(Ok(()), Err);
        }
        let seen = self.mark.lock().await.clone();
        let reached = storage.reached(seen.seen()).await;
        let reached = reached.map_err(|error| super::storage_problem(&error))?;
        if let Some(trouble) = seen.trouble(&self.what, &reached) {
            self.rise();
            self.sink(trouble, false);
        } else if reached.is_broken() {
            self.sink(broken(&self.what), true);
        } else {
            self.rise();
        }
        match self.refusal() {
            Some(problem) => Err(problem),
            None => self.raise(&reached).await,
        }
    }

    /// What a member shows that was told of this store before. One who invents something is not heard.
    pub(super) async fn witness<S: Storage>(
        &self,
        storage: &S,
        proof: Option<&str>,
        by: &str,
    ) -> Result<(), Problem> {
        let Some(proof) = proof else {
            return Ok(());
        };
        let failed = |error| super::storage_problem(&error);
        let reached = storage.reached(Seen::default()).await.map_err(failed)?;
        let Some(seal) = reached.seal.filter(|seal| !seal.is_broken()) else {
            return self.refusal().map_or(Ok(()), Err);
        };
        let is_there = match Link::proven(proof, &seal) {
            None => true,
            Some(Proven::Later) => false,
            Some(Proven::Link(link)) => {
                let seen = Seen {
                    link: Some(link),
                    ..Seen::default()
                };
                storage.reached(seen).await.map_err(failed)?.has_seen
            }
        };
        if !is_there {
            tracing::error!(
                what = self.what,
                by,
                proof,
                "was proven to somebody, and is not there"
            );
            // IMPORTANT: into the store, for all who decide by it and for every later start. Where it cannot be written, this
            // process at least decides nothing more.
            let written = storage.reseal(seal.broken()).await;
            self.sink(broken(&self.what), written.is_ok());
        }
        self.refusal().map_or(Ok(()), Err)
    }

    /// For a member to show again.
    pub(super) async fn proof<S: Storage>(&self, storage: &S) -> Option<String> {
        let reached = storage.reached(Seen::default()).await.ok()?;
        let seal = reached.seal.filter(|seal| !seal.is_broken())?;
        Some(reached.link?.proof(&seal))
    }

    /// IMPORTANT: after the commit, before the answer. A caller that goes away meanwhile stops nothing: two who write one file
    /// would take it from each other, and the older mark could be the last.
    pub(super) async fn raise(&self, reached: &Reached) -> Result<(), Problem> {
        let mut mark = Arc::clone(&self.mark).lock_owned().await;
        if !mark.is_behind(reached) {
            return Ok(());
        }
        let next = Mark::of(reached);
        let (folder, store) = (self.folder.clone(), self.store.clone());
        let written = tokio::spawn(async move {
            write(&folder, store.as_ref(), &next).await?;
            *mark = next;
            Ok::<(), EffectsError>(())
        });
        let written = written.await.map_err(std::io::Error::other);
        written.map_err(EffectsError::from).flatten().map_err(|error| match error {
            EffectsError::Store(error) => store_problem(&error),
            error => Problem::new(ErrorCode::StorageUnavailable, format!("{}: {error}", FILES[0]))
                .next("Nothing more was begun by this call; what was decided or done before it stands. Free some space on the disk where it is full, or mend it, and try again; `heddle effect status` with the key says what stands."),
        })
    }
}

async fn write(folder: &Path, store: Option<&Store>, mark: &Mark) -> Result<(), EffectsError> {
    let (folder, written) = (folder.to_owned(), mark.clone());
    let written = tokio::task::spawn_blocking(move || mark::write(&folder, &written)).await;
    written.map_err(std::io::Error::other)??;
    if let Some(store) = store {
        store.use_effects(mark.rows).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn reached(rows: u64) -> Reached {
        Reached {
            rows,
            last: None,
            link: None,
            seal: None,
            has_seen: true,
            gone: 0,
        }
    }

    /// A runner that is killed takes its request along; the mark that it was waiting for is written all the same.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_caller_that_goes_away_leaves_the_mark_whole_and_the_next_one_undisturbed() {
        let folder = tempfile::tempdir().unwrap();
        let high = HighWater {
            folder: folder.path().to_owned(),
            what: "effects.db".to_owned(),
            store: None,
            mark: Arc::default(),
            older: RwLock::default(),
        };
        for round in 0..100 {
            let (early, late) = (reached(2 * round + 1), reached(2 * round + 2));
            {
                // Polled once, so that it has begun, and dropped.
                let mut gone = Box::pin(high.raise(&early));
                let mut context = Context::from_waker(Waker::noop());
                assert!(gone.as_mut().poll(&mut context).is_pending());
            }
            high.raise(&late).await.unwrap();
            let kept = Remembered::new(folder.path(), None).newest();
            assert_eq!(kept.rows, late.rows);
        }
    }
}
