//! Which queues a connection waits for, and telling it once when there may be work. A lost hint costs
//! time only: whoever waits also looks by itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heddle_core::limits::QUEUE_WAITS_MAX;
use heddle_core::names::QueueName;
use heddle_wire::broker::ServerFrame;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::hub::Session;
use super::writer::Outbox;

#[derive(Default)]
pub(super) struct Waits {
    queues: Mutex<Queues>,
    told: Notify,
}

#[derive(Default)]
struct Queues {
    awaited: BTreeSet<QueueName>,
    /// In which there may be work, and the connection has not been told.
    came: BTreeSet<QueueName>,
}

impl Waits {
    /// From now on, until it is told. IMPORTANT: to be called before the look that finds nothing, or
    /// what comes in between is missed.
    pub(super) fn begin(&self, queue: &QueueName) {
        let mut queues = self.lock();
        if queues.awaited.len() < QUEUE_WAITS_MAX {
            queues.awaited.insert(queue.clone());
        }
    }

    /// The look found something.
    pub(super) fn end(&self, queue: &QueueName) {
        self.lock().awaited.remove(queue);
    }

    pub(super) fn came(&self, queue: &QueueName) {
        let mut queues = self.lock();
        if queues.awaited.remove(queue) {
            queues.came.insert(queue.clone());
            self.told.notify_one();
        }
    }

    /// There may be work in each of them.
    pub(super) fn all_came(&self) {
        let mut queues = self.lock();
        let awaited = std::mem::take(&mut queues.awaited);
        if !awaited.is_empty() {
            queues.came.extend(awaited);
            self.told.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until `stop`, or until nobody writes any more.
pub(super) async fn run(session: Arc<Session>, outbox: Outbox, stop: CancellationToken) {
    let _ = stop
        .run_until_cancelled(async {
            loop {
                session.waits.told.notified().await;
                let came = std::mem::take(&mut session.waits.lock().came);
                for queue in came {
                    if outbox.send(&ServerFrame::Work { queue }).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
}
