//! Keeps the mark of the store at the height of the store, and notices a store that has sunk below it: at the start,
//! while it is in use, and by what others have seen of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use heddle_core::clock::Ids;
use heddle_core::error_code::ErrorCode;
use heddle_registrar::chain::{Link, Seal};
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
    older: RwLock<Option<String>>,
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
            reached.push(storage.reached(mark.seen()).await?);
        }
        let trouble = remembered.trouble(what, &reached);
        let is_accepted = begins_anew || (trouble.is_some() && folder.join(ANEW).exists());
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
            high.sink(trouble);
        } else {
            storage.expect(high.mark.lock().await.link);
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
        storage.reseal(Seal::mint(ids)).await?;
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
    fn sink(&self, trouble: String) {
        tracing::error!(next = OLDER_NEXT, "{trouble}");
        let mut older = self.older.write().unwrap_or_else(PoisonError::into_inner);
        older.get_or_insert(trouble);
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let older = self.older.read().unwrap_or_else(PoisonError::into_inner);
        older.clone()
    }

    /// For whoever wants something decided by a store that is not the newest one.
    pub(super) fn refusal(&self) -> Option<Problem> {
        let problem = Problem::new(ErrorCode::StorageUnavailable, self.trouble()?);
        Some(problem.next(OLDER_NEXT))
    }

    /// Whether the store is still the one that was last seen, whoever has written to it since. What others have
    /// written is remembered here as well.
    pub(super) async fn look<S: Storage>(&self, storage: &S) -> Result<(), Problem> {
        if let Some(problem) = self.refusal() {
            return Err(problem);
        }
        let seen = self.mark.lock().await.clone();
        let reached = storage.reached(seen.seen()).await;
        let reached = reached.map_err(|error| super::storage_problem(&error))?;
        if let Some(trouble) = seen.trouble(&self.what, &reached) {
            self.sink(trouble);
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
        let proven = reached.seal.and_then(|seal| Link::proven(proof, &seal));
        let Some(link) = proven else {
            return Ok(());
        };
        let seen = Seen {
            last: None,
            link: Some(link),
        };
        let found = storage.reached(seen).await.map_err(failed)?;
        if !found.has_seen {
            let (what, seq) = (&self.what, link.seq);
            self.sink(format!(
                "{what} is an earlier copy of itself, or went another way: {by} was told of change {seq}, which it does not know; used keys would be free again, so no effect is decided about"
            ));
        }
        self.refusal().map_or(Ok(()), Err)
    }

    /// For a member to show again.
    pub(super) async fn proof<S: Storage>(&self, storage: &S) -> Option<String> {
        let reached = storage.reached(Seen::default()).await.ok()?;
        Some(reached.link?.proof(&reached.seal?))
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
                .next("Nothing more was begun by this call; what was decided or done before it stands. Mend the disk and try again; `heddle effect status` with the key says what stands."),
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
