//! SQLite group commit in process: one writer thread takes what its callers have queued, commits it
//! as one FULL transaction and answers. No HTTP, no look-up, no checks: the floor of P1.

use std::path::Path;
use std::sync::mpsc;
use std::thread;

use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::outbox_table::{NewRow, open};
use crate::error::{BenchError, Outcome};
use crate::load::{Caller, Load, drive};

/// As many as the product puts into one transaction.
const BATCH_JOBS_MAX: usize = 512;

pub struct GroupCommit {
    connection: Connection,
    payload: Vec<u8>,
}

struct Job {
    row: NewRow,
    committed: oneshot::Sender<()>,
}

/// A way to the writer; when the last is gone, the writer ends.
#[derive(Clone)]
pub struct Door {
    queue: mpsc::SyncSender<Job>,
}

impl Door {
    /// Returns when the row is committed. Never blocks as long as there are no more callers than
    /// the queue has places.
    pub async fn commit_one(&self) -> Outcome<()> {
        let (committed, answer) = oneshot::channel();
        let row = NewRow::next();
        let gone = || BenchError::new("the writer of the floor ended");
        self.queue
            .send(Job { row, committed })
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

impl Caller for Door {
    async fn call(&mut self) -> Outcome<()> {
        self.commit_one().await
    }
}

impl GroupCommit {
    pub fn open(path: &Path, payload_bytes: usize) -> Outcome<Self> {
        Ok(Self {
            connection: open(path)?,
            payload: vec![b'x'; payload_bytes],
        })
    }

    /// The writer on a thread of its own, which gives the floor back in the end.
    pub fn start(self, callers: usize) -> (Door, thread::JoinHandle<Outcome<Self>>) {
        let (queue, jobs) = mpsc::sync_channel(callers);
        let writer = thread::spawn(move || {
            self.serve(&jobs)?;
            Ok(self)
        });
        (Door { queue }, writer)
    }

    pub async fn round(self, callers: usize, seconds: f64) -> Outcome<(Self, Load)> {
        tokio::task::spawn_blocking(move || {
            let (door, writer) = self.start(callers);
            let load = ask(door, callers, seconds);
            let ended = writer.join();
            let floor =
                ended.map_err(|_| BenchError::new("the writer of the floor panicked"))??;
            Ok((floor, load?))
        })
        .await?
    }

    /// Until the last caller is gone.
    fn serve(&self, jobs: &mpsc::Receiver<Job>) -> Outcome<()> {
        let mut begin = self.connection.prepare("BEGIN IMMEDIATE")?;
        let mut commit = self.connection.prepare("COMMIT")?;
        let mut waiting = Vec::with_capacity(BATCH_JOBS_MAX);
        while let Ok(first) = jobs.recv() {
            begin.execute([])?;
            let mut next = Some(first);
            while let Some(job) = next {
                job.row.insert(&self.connection, &self.payload)?;
                waiting.push(job.committed);
                next = if waiting.len() < BATCH_JOBS_MAX {
                    jobs.try_recv().ok()
                } else {
                    None
                };
            }
            commit.execute([])?;
            for committed in waiting.drain(..) {
                let _ = committed.send(());
            }
        }
        Ok(())
    }
}

/// The callers, as tasks of one thread. Without I/O in its runtime an answer wakes it for little.
fn ask(door: Door, callers: usize, seconds: f64) -> Outcome<Load> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let asking = vec![door; callers];
    LocalSet::new().block_on(&runtime, drive(asking, seconds))
}
