//! The line of a mesh: its writes, one after the other, many in one commit.
//!
//! A write takes its place when it is first polled. Whoever finds nobody leading starts a leader, which takes
//! everything that waits through one transaction and ends when nothing waits any more. The transaction
//! begins with the lock of the mesh's row, so the writers of all brokers stand in the same line: commit
//! order is seq order (C4), and a write sees everything that was committed before it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Object, Pool, Transaction};
use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::super::error::StorageError;
use super::super::rows::{Accepted, Ack, NewMessage};
use super::super::seen::Seen;
use super::accept::{self, Kept, Undo};
use super::acks::{self, AckJob};
use super::columns::{Columns, mesh_key};
use super::error::JobError;
use super::job::{AcceptJob, Job, Settle as _};
use super::pace::Paces;
use super::sql;
use super::trial::Trouble;

/// Work of one mesh that waits for its commit. More is told to come back.
const WAITING_MAX: usize = 4096;
/// What one transaction takes, so that it stays short.
pub(super) const GROUP_JOBS_MAX: usize = 256;
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How long a group may take, whatever the server or the network do.
const GROUP_WAIT: Duration = Duration::from_secs(30);

/// The row as it is once the lock is given, whatever was committed while it was waited for.
pub(super) const LOCK: &str =
    "SELECT epoch, next_seq, roster_mark FROM mesh WHERE mesh_id = $1 FOR UPDATE";

/// A piece of work in line.
pub(super) enum Waiting {
    Accept(AcceptJob),
    Ack(AckJob),
    Job(Box<dyn Job>),
}

impl Waiting {
    /// Messages or acknowledgements, and bytes of envelopes.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::Accept(job) => job.size(),
            Self::Ack(job) => (job.items.len(), 0),
            Self::Job(_) => (0, 0),
        }
    }

    fn settle(self, committed: Result<(), StorageError>) {
        match self {
            Self::Accept(job) => Box::new(job).settle(committed),
            Self::Ack(job) => Box::new(job).settle(committed),
            Self::Job(job) => job.settle(committed),
        }
    }
}

/// The writes of one mesh that wait, in order.
#[derive(Default)]
struct Line {
    /// Each with the number of groups that were taken before it came.
    waiting: VecDeque<(u64, Waiting)>,
    groups_taken: u64,
}

impl Line {
    fn push(&mut self, work: Waiting) {
        self.waiting.push_back((self.groups_taken, work));
    }
}

/// The lines of all meshes. A mesh has an entry as long as somebody leads it.
pub(super) struct Lines {
    pool: Pool,
    waiting: Mutex<HashMap<MeshId, Line>>,
    paces: Paces,
    kept: Kept,
    seen: Seen,
    trouble: Trouble,
    leaders: TaskTracker,
    /// The most groups that a write ever saw taken until its own was, that one included.
    groups_waited_max: AtomicU64,
}

impl Lines {
    pub(super) fn new(pool: Pool) -> Arc<Self> {
        Arc::new(Self {
            pool,
            waiting: Mutex::default(),
            paces: Paces::default(),
            kept: Kept::default(),
            seen: Seen::default(),
            trouble: Trouble::default(),
            leaders: TaskTracker::new(),
            groups_waited_max: AtomicU64::new(0),
        })
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    pub(super) fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    #[cfg(test)]
    pub(super) fn groups_waited_max(&self) -> u64 {
        self.groups_waited_max.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn messages_max(&self, mesh: MeshId) -> usize {
        self.paces.messages_max(mesh)
    }

    /// Waits until every line is empty, and takes nothing more.
    pub(super) async fn stop(&self) {
        self.leaders.close();
        self.leaders.wait().await;
    }

    /// Takes a place in the line of a mesh.
    pub(super) fn enter(self: &Arc<Self>, mesh: MeshId, work: Waiting) -> Result<(), StorageError> {
        if self.leaders.is_closed() {
            return Err(StorageError::Unavailable("the broker stops".to_owned()));
        }
        let mut lines = self.lock();
        if let Some(line) = lines.get_mut(&mesh) {
            if line.waiting.len() >= WAITING_MAX {
                let why = "too many writes of this mesh wait".to_owned();
                return Err(StorageError::Unavailable(why));
            }
            line.push(work);
            return Ok(());
        }
        lines.entry(mesh).or_default().push(work);
        drop(lines);
        let this = Arc::clone(self);
        self.leaders.spawn(async move { this.lead(mesh).await });
        Ok(())
    }

    /// Each time after all others that are ready have had their turn: what they bring is in the same group, so groups grow
    /// with the load and nobody waits for company by the clock.
    async fn lead(&self, mesh: MeshId) {
        loop {
            yield_now().await;
            let Some(group) = self.next(mesh) else {
                return;
            };
            self.commit(mesh, group).await;
        }
    }

    /// What the next transaction takes; `None` ends the line.
    fn next(&self, mesh: MeshId) -> Option<Vec<Waiting>> {
        let messages_max = self.paces.messages_max(mesh);
        let mut lines = self.lock();
        let line = lines.get_mut(&mesh)?;
        let mut group = Vec::new();
        let (mut messages, mut bytes) = (0, 0);
        line.groups_taken += 1;
        let taken = line.groups_taken;
        while let Some((before, work)) = line.waiting.front() {
            let (more_messages, more_bytes) = work.size();
            messages += more_messages;
            bytes += more_bytes;
            let fits = group.len() < GROUP_JOBS_MAX
                && messages <= messages_max
                && bytes <= GROUP_BYTES_MAX;
            if !fits && !group.is_empty() {
                break;
            }
            self.groups_waited_max
                .fetch_max(taken - before, Ordering::Relaxed);
            group.extend(line.waiting.pop_front().map(|(_, work)| work));
        }
        if group.is_empty() {
            lines.remove(&mesh);
            return None;
        }
        Some(group)
    }

    /// Commits a group and answers it. If one of them breaks a rule of the tables, or no message can be accepted now, each is
    /// tried alone.
    async fn commit(&self, mesh: MeshId, mut group: Vec<Waiting>) {
        let tried = self.attempt(mesh, &mut group, Undo::Group).await;
        let messages = group.iter().map(|work| work.size().0).sum();
        match &tried {
            Ok(()) => self.paces.in_time(mesh, messages),
            Err(error) if error.is_too_slow() => self.paces.too_slow(mesh, messages),
            Err(_) => {}
        }
        let is_alone = group.len() == 1;
        match tried {
            Err(error) if error.spares_others() && !is_alone => {
                tracing::warn!(%error, %mesh, "a write failed; those beside it are tried alone");
                for work in group {
                    self.alone(mesh, work).await;
                }
            }
            Err(error) if error.is_violation() => {
                for work in group {
                    self.alone(mesh, work).await;
                }
            }
            other => answer(group, other),
        }
    }

    async fn alone(&self, mesh: MeshId, work: Waiting) {
        let mut group = vec![work];
        let tried = self.attempt(mesh, &mut group, Undo::Message).await;
        answer(group, tried);
    }

    async fn attempt(
        &self,
        mesh: MeshId,
        group: &mut [Waiting],
        undo: Undo,
    ) -> Result<(), JobError> {
        let tried = self.run(mesh, group, undo).await;
        let has_accepts = group.iter().any(|work| matches!(work, Waiting::Accept(_)));
        self.trouble.note(&tried, has_accepts);
        tried
    }

    /// One transaction. After an error nothing of it was written, unless the commit itself failed: then
    /// nobody knows, and the callers are told so.
    async fn run(&self, mesh: MeshId, group: &mut [Waiting], undo: Undo) -> Result<(), JobError> {
        let mut client = self.pool.get().await?;
        let done = timeout(GROUP_WAIT, self.transact(&mut client, mesh, group, undo)).await;
        let Ok(done) = done else {
            // It may still be at work there: nobody else gets this connection.
            drop(Object::take(client));
            return Err(JobError::TimedOut(GROUP_WAIT.as_secs()));
        };
        let is_outdated = done.as_ref().is_err_and(JobError::is_outdated);
        if is_outdated || (done.is_err() && !is_undone(&client).await) {
            drop(Object::take(client));
        }
        if done.is_ok() {
            self.committed(mesh, group);
        }
        done
    }

    fn committed(&self, mesh: MeshId, group: &[Waiting]) {
        let mut has_accepts = false;
        for work in group {
            if let Waiting::Accept(job) = work {
                has_accepts = true;
                if let Some(newest) = job.newest() {
                    self.seen.note(mesh, newest);
                }
            }
        }
        if has_accepts {
            metrics::counter!("heddle_broker_groups_total").increment(1);
        }
    }

    async fn transact(
        &self,
        client: &mut Object,
        mesh: MeshId,
        group: &mut [Waiting],
        undo: Undo,
    ) -> Result<(), JobError> {
        let is_plain = !group.iter().any(|work| matches!(work, Waiting::Job(_)));
        if is_plain && undo == Undo::Group {
            return self.at_once(client, mesh, group).await;
        }
        let transaction = client.transaction().await?;
        let key = mesh_key(mesh);
        let Some(line) = sql::query_opt(&transaction, LOCK, &[&key]).await? else {
            return Err(StorageError::UnknownMesh(mesh).into());
        };
        if group.iter().any(|work| matches!(work, Waiting::Accept(_))) {
            let next = Columns::of(&line).history_id()?;
            self.seen.check(mesh, next).map_err(JobError::Older)?;
        }
        let mut rest = group;
        while !rest.is_empty() {
            let accepts = rest
                .iter()
                .take_while(|work| matches!(work, Waiting::Accept(_)))
                .count();
            let (now, later) = rest.split_at_mut(accepts.max(1));
            rest = later;
            match now {
                [Waiting::Job(job)] => job.run(&transaction).await?,
                [Waiting::Ack(_)] => {
                    let changed = acks::mark(&transaction, mesh, &acks_of(now)).await?;
                    note_acks(now, changed);
                }
                _ => accept_all(&transaction, mesh, now, undo).await?,
            }
        }
        // Whether a commit whose answer was lost took place, only a look-up tells: `Unavailable` (BR-09).
        Ok(transaction.commit().await?)
    }

    /// Accepts and acknowledgements, in two trips to the server or in one. Neither asks about the other: what is
    /// acknowledged was committed before it could be pushed.
    async fn at_once(
        &self,
        client: &Object,
        mesh: MeshId,
        group: &mut [Waiting],
    ) -> Result<(), JobError> {
        let (messages, jobs) = (messages_of(group), acks_of(group));
        if messages.is_empty() && !jobs.is_empty() {
            let changed = acks::at_once(client, mesh, &jobs).await?;
            note_acks(group, changed);
            return Ok(());
        }
        let known = (&self.kept, &self.seen);
        let done = accept::at_once(client, mesh, &messages, &jobs, known);
        let (accepted, changed) = done.await?;
        hand_out(group, accepted);
        note_acks(group, changed);
        Ok(())
    }

    /// Nothing that can panic half way runs under this lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<MeshId, Line>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves nothing open on a connection that somebody else gets next.
async fn is_undone(client: &Object) -> bool {
    let undone = timeout(GROUP_WAIT, client.batch_execute("ROLLBACK")).await;
    matches!(undone, Ok(Ok(())))
}

fn answer(group: Vec<Waiting>, committed: Result<(), JobError>) {
    let committed = committed.map_err(StorageError::from);
    for work in group {
        work.settle(committed.clone());
    }
}

/// Accepts that stand side by side are one set.
async fn accept_all(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    group: &mut [Waiting],
    undo: Undo,
) -> Result<(), JobError> {
    let accepted = accept::accept(transaction, mesh, &messages_of(group), undo).await?;
    hand_out(group, accepted);
    Ok(())
}

fn messages_of(group: &[Waiting]) -> Vec<&NewMessage> {
    let messages = group.iter().flat_map(|work| match work {
        Waiting::Accept(job) => job.messages.as_slice(),
        Waiting::Ack(_) | Waiting::Job(_) => &[],
    });
    messages.collect()
}

fn acks_of(group: &[Waiting]) -> Vec<&AckJob> {
    let jobs = group.iter().filter_map(|work| match work {
        Waiting::Ack(job) => Some(job),
        Waiting::Accept(_) | Waiting::Job(_) => None,
    });
    jobs.collect()
}

fn note_acks(group: &mut [Waiting], changed: Vec<usize>) {
    let mut changed = changed.into_iter();
    for work in group {
        if let Waiting::Ack(job) = work {
            job.changed = changed.next().unwrap_or(0);
        }
    }
}

fn hand_out(group: &mut [Waiting], accepted: Vec<Accepted>) {
    let mut accepted = accepted.into_iter();
    for work in group {
        if let Waiting::Accept(job) = work {
            job.accepted = accepted.by_ref().take(job.messages.len()).collect();
        }
    }
}

/// Where an answer will be.
pub(super) type Answer<T> = oneshot::Receiver<Result<T, StorageError>>;

/// The answer; a leader that vanished leaves the outcome unknown.
pub(super) async fn awaited<T>(answer: Answer<T>) -> Result<T, StorageError> {
    answer.await.unwrap_or_else(|_| {
        let why = "the write was given up".to_owned();
        Err(StorageError::Unavailable(why))
    })
}

/// An accept that takes its place.
pub(super) fn accept_job(messages: Vec<NewMessage>) -> (Waiting, Answer<Vec<Accepted>>) {
    let (sender, receiver) = oneshot::channel();
    let job = AcceptJob {
        messages,
        accepted: Vec::new(),
        answer: sender,
    };
    (Waiting::Accept(job), receiver)
}

/// Acknowledgements that take their place.
pub(super) fn ack_job(member: MemberId, items: Vec<Ack>, at: WallMs) -> (Waiting, Answer<usize>) {
    let (sender, receiver) = oneshot::channel();
    let job = AckJob {
        member,
        items,
        at,
        changed: 0,
        answer: sender,
    };
    (Waiting::Ack(job), receiver)
}
