//! B0's look-ups of a mesh, many in one statement: those that come while one is under way are the next. Nobody waits
//! for company, and sixty senders cost the server a few questions, not sixty.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deadpool_postgres::{Object, Pool};
use heddle_core::ids::MeshId;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::super::error::StorageError;
use super::super::rows::{Look, SendId};
use super::error::JobError;
use super::line::awaited;
use super::{READ_WAIT, look};

/// Callers of one mesh that wait for their look-up. More are told to come back.
const WAITING_MAX: usize = 4096;
/// Ids that one statement looks up.
const IDS_MAX: usize = 1024;

type Answered = Result<Vec<Look>, StorageError>;

struct Asked {
    ids: Vec<SendId>,
    answer: oneshot::Sender<Answered>,
}

/// The look-ups of all meshes. A mesh has an entry as long as somebody leads it.
pub(super) struct Looks {
    pool: Pool,
    waiting: Mutex<HashMap<MeshId, VecDeque<Asked>>>,
    leaders: TaskTracker,
    statements: AtomicU64,
}

impl Looks {
    pub(super) fn new(pool: Pool) -> Arc<Self> {
        Arc::new(Self {
            pool,
            waiting: Mutex::default(),
            leaders: TaskTracker::new(),
            statements: AtomicU64::new(0),
        })
    }

    #[cfg(test)]
    pub(super) fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    pub(super) async fn stop(&self) {
        self.leaders.close();
        self.leaders.wait().await;
    }

    /// From a snapshot that is taken after this call.
    pub(super) async fn known(self: &Arc<Self>, mesh: MeshId, ids: Vec<SendId>) -> Answered {
        let (answer, receiver) = oneshot::channel();
        self.enter(mesh, Asked { ids, answer })?;
        awaited(receiver).await
    }

    fn enter(self: &Arc<Self>, mesh: MeshId, asked: Asked) -> Result<(), StorageError> {
        if self.leaders.is_closed() {
            return Err(StorageError::Unavailable("the broker stops".to_owned()));
        }
        let mut all = self.lock();
        if let Some(line) = all.get_mut(&mesh) {
            if line.len() >= WAITING_MAX {
                let why = "too many look-ups of this mesh wait".to_owned();
                return Err(StorageError::Unavailable(why));
            }
            line.push_back(asked);
            return Ok(());
        }
        all.insert(mesh, VecDeque::from([asked]));
        drop(all);
        let this = Arc::clone(self);
        self.leaders.spawn(async move {
            loop {
                // All others that are ready have their turn first, and are answered along.
                yield_now().await;
                let Some(group) = this.next(mesh) else {
                    return;
                };
                this.answer(mesh, group).await;
            }
        });
        Ok(())
    }

    /// Those whom the next statement answers; `None` ends the line.
    fn next(&self, mesh: MeshId) -> Option<Vec<Asked>> {
        let mut all = self.lock();
        let line = all.get_mut(&mesh)?;
        let (mut group, mut ids) = (Vec::new(), 0);
        while let Some(asked) = line.front() {
            ids += asked.ids.len();
            if ids > IDS_MAX && !group.is_empty() {
                break;
            }
            group.extend(line.pop_front());
        }
        if group.is_empty() {
            all.remove(&mesh);
            return None;
        }
        Some(group)
    }

    async fn answer(&self, mesh: MeshId, group: Vec<Asked>) {
        let ids: Vec<&SendId> = group.iter().flat_map(|asked| &asked.ids).collect();
        match self.look(mesh, &ids).await {
            Ok(looks) => {
                let mut looks = looks.into_iter();
                for Asked { ids, answer } in group {
                    // Whoever does not wait any more asks again.
                    let _ = answer.send(Ok(looks.by_ref().take(ids.len()).collect()));
                }
            }
            Err(error) => {
                let error = StorageError::from(error);
                for asked in group {
                    let _ = asked.answer.send(Err(error.clone()));
                }
            }
        }
    }

    async fn look(&self, mesh: MeshId, ids: &[&SendId]) -> Result<Vec<Look>, JobError> {
        let client = self.pool.get().await?;
        self.statements.fetch_add(1, Ordering::Relaxed);
        let looking = timeout(READ_WAIT, look::known(&client, mesh, ids)).await;
        let late = |_| Err(JobError::TimedOut(READ_WAIT.as_secs()));
        let looked = looking.unwrap_or_else(late);
        // It may still be at work there, or what it has prepared is of no use: nobody else gets this connection.
        let is_unfit =
            |error: &JobError| matches!(error, JobError::TimedOut(_)) || error.is_outdated();
        if looked.as_ref().is_err_and(is_unfit) {
            drop(Object::take(client));
        }
        looked
    }

    /// Nothing that can panic half way runs under this lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<MeshId, VecDeque<Asked>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
