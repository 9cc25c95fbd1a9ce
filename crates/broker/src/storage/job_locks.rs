//! The locks on jobs that this process has: of the database server, or of a file. Whoever dies gives its locks back at
//! once; the rows beside them are for people, and for claims that were made in one process.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heddle_core::ids::MeshId;

use super::error::StorageError;
use super::upkeep::{Job, JobClaim};

/// What keeps others away from a job for as long as it is there.
pub(super) trait Lock {
    /// Whether it was taken from us.
    fn is_gone(&self) -> bool;

    /// It is free when this is over.
    fn give_back(self) -> impl Future<Output = ()> + Send;
}

/// Each lock with whoever asked for it.
pub(super) struct JobLocks<L>(Arc<Mutex<Locks<L>>>);

type Locks<L> = HashMap<(MeshId, Job), Held<L>>;

struct Held<L> {
    lock: L,
    holder: String,
}

/// How a lock stands in this process.
pub(super) enum Here {
    Nobody,
    Own,
    Other,
}

impl<L> Clone for JobLocks<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L> Default for JobLocks<L> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<L: Lock> JobLocks<L> {
    /// Nothing that can panic half way runs under this lock.
    fn lock(&self) -> MutexGuard<'_, Locks<L>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn here(&self, wanted: &JobClaim) -> Here {
        let mut held = self.lock();
        let key = (wanted.mesh, wanted.job);
        match held.get(&key) {
            Some(one) if one.lock.is_gone() => {
                held.remove(&key);
                Here::Nobody
            }
            Some(one) if one.holder == wanted.holder => Here::Own,
            Some(_) => Here::Other,
            None => Here::Nobody,
        }
    }

    pub(super) fn keep(&self, wanted: &JobClaim, lock: L) {
        let holder = wanted.holder.clone();
        let held = Held { lock, holder };
        self.lock().insert((wanted.mesh, wanted.job), held);
    }

    pub(super) fn pass_on(&self, wanted: &JobClaim) {
        if let Some(held) = self.lock().get_mut(&(wanted.mesh, wanted.job)) {
            held.holder.clone_from(&wanted.holder);
        }
    }

    /// Gives a claim of this holder back, which `forgotten` takes out of the tables.
    pub(super) async fn release(
        &self,
        (mesh, job, holder): (MeshId, Job, &str),
        forgotten: impl Future<Output = Result<(), StorageError>>,
    ) -> Result<(), StorageError> {
        let forgotten = forgotten.await;
        // IMPORTANT: behind the row, which would otherwise name somebody who has given it back.
        if let Some(lock) = self.take(mesh, job, holder) {
            lock.give_back().await;
        }
        forgotten
    }

    fn take(&self, mesh: MeshId, job: Job, holder: &str) -> Option<L> {
        let mut held = self.lock();
        let is_own = held
            .get(&(mesh, job))
            .is_some_and(|one| one.holder == holder);
        let taken = if is_own {
            held.remove(&(mesh, job))
        } else {
            None
        };
        taken.map(|held| held.lock)
    }

    /// Dropping them gives them back.
    pub(super) fn give_all_back(&self) {
        self.lock().clear();
    }
}
