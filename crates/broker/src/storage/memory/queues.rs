//! Work queues of the oracle.

use std::collections::BTreeMap;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::ids::{HistoryId, MeshId, Party};
use heddle_core::names::QueueName;
use heddle_core::work::{Settle, Settled, WorkState, settle};

use super::super::error::StorageError;
use super::super::presence::LeaseMs;
use super::super::queues::{Leased, QueueCount, Queues, Taken, Taker};
use super::super::rows::PageLimit;
use super::MemoryStorage;
use super::tables::{Tables, page};

#[derive(Default)]
pub(super) struct Queue {
    /// The number of the latest lease.
    pub(super) fence: u64,
    pub(super) items: BTreeMap<HistoryId, Work>,
}

pub(super) struct Work {
    pub(super) priority: Priority,
    pub(super) fence: u64,
    pub(super) delivery_count: u64,
    pub(super) holder: Option<Party>,
    pub(super) leased_until: Option<LeaseMs>,
    pub(super) taken_at: Option<WallMs>,
    pub(super) acked_at: Option<WallMs>,
}

impl Work {
    /// Whether this is the holder of the latest lease.
    fn is_held(&self, by: &Party, fence: u64) -> bool {
        self.fence == fence && self.holder.as_ref() == Some(by)
    }

    pub(super) fn state(&self) -> WorkState {
        match (self.acked_at, self.leased_until) {
            (Some(_), _) => WorkState::Acked,
            (None, Some(_)) => WorkState::Leased,
            (None, None) => WorkState::Waiting,
        }
    }
}

impl Queue {
    pub(super) fn push(&mut self, at: HistoryId, priority: Priority) {
        let work = Work {
            priority,
            fence: 0,
            delivery_count: 0,
            holder: None,
            leased_until: None,
            taken_at: None,
            acked_at: None,
        };
        self.items.insert(at, work);
    }

    /// What may be taken now, in order.
    fn available(&self, now: LeaseMs) -> Vec<HistoryId> {
        let mut free: Vec<(u8, HistoryId)> = self
            .items
            .iter()
            .filter(|(_, work)| work.acked_at.is_none())
            .filter(|(_, work)| work.leased_until.is_none_or(|until| until <= now))
            .map(|(at, work)| (work.priority.rank(), *at))
            .collect();
        free.sort_unstable();
        free.into_iter().map(|(_, at)| at).collect()
    }
}

impl Tables {
    /// Places begin anew, and leases of before are over.
    pub(super) fn begin_epoch(&mut self, epoch: u64) {
        (self.epoch, self.next_seq) = (epoch, 1);
        let queues = self.queues.values_mut();
        for work in queues.flat_map(|queue| queue.items.values_mut()) {
            work.leased_until = None;
        }
    }

    pub(super) fn create_queue(&mut self, queue: &QueueName) -> bool {
        let is_new = !self.queues.contains_key(queue);
        self.queues.entry(queue.clone()).or_default();
        is_new
    }

    fn take(&mut self, name: &QueueName, taker: &Taker, limit: PageLimit) -> Vec<Taken> {
        self.lease_time = self.lease_time.max(taker.now);
        let Some(queue) = self.queues.get(name) else {
            return Vec::new();
        };
        let free = queue.available(taker.now);
        let agent = &taker.agent.agent;
        let found = free.iter().filter_map(|at| self.delivery(*at, agent));
        let deliveries = page(found, limit);
        let Some(queue) = self.queues.get_mut(name) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        for delivery in deliveries {
            let Some(work) = queue.items.get_mut(&delivery.history_id) else {
                continue;
            };
            queue.fence = queue.fence.max(taker.floor) + 1;
            work.fence = queue.fence;
            work.delivery_count += 1;
            work.holder = Some(taker.agent.clone());
            work.leased_until = Some(taker.until);
            work.taken_at = Some(taker.at);
            taken.push(Taken {
                delivery,
                fence: work.fence,
                delivery_count: work.delivery_count,
            });
        }
        taken
    }

    fn renew_one(&mut self, queue: &QueueName, taker: &Taker, leased: Leased) -> Settled {
        let queue = self.queues.get_mut(queue);
        let mut work = queue.and_then(|queue| queue.items.get_mut(&leased.history_id));
        let found = work
            .as_ref()
            .map(|work| (work.state(), work.is_held(&taker.agent, leased.fence)));
        let settled = settle(found, Settle::Renew);
        if let (Settled::Apply, Some(work)) = (settled, work.as_mut()) {
            work.leased_until = work.leased_until.max(Some(taker.until));
        }
        settled
    }

    fn settle_one(
        &mut self,
        queue: &QueueName,
        agent: &Party,
        leased: Leased,
        what: Settle,
        at: WallMs,
    ) -> Settled {
        let queue = self.queues.get_mut(queue);
        let mut work = queue.and_then(|queue| queue.items.get_mut(&leased.history_id));
        let found = work
            .as_ref()
            .map(|work| (work.state(), work.is_held(agent, leased.fence)));
        let settled = settle(found, what);
        if let (Settled::Apply, Some(work)) = (settled, work.as_mut()) {
            work.leased_until = None;
            if what == Settle::Ack {
                work.acked_at = Some(at);
            }
        }
        settled
    }
}

impl Queues for MemoryStorage {
    async fn create_queue(&self, mesh: MeshId, queue: &QueueName) -> Result<bool, StorageError> {
        self.on(mesh, |tables| Ok(tables.create_queue(queue)))
    }

    async fn queue_take(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        limit: PageLimit,
    ) -> Result<Vec<Taken>, StorageError> {
        self.on(mesh, |tables| {
            if !tables.agents.contains(&taker.agent) {
                return Err(StorageError::UnknownAgent(taker.agent.clone()));
            }
            Ok(tables.take(queue, &taker, limit))
        })
    }

    async fn queue_renew(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        items: Vec<Leased>,
    ) -> Result<Vec<Settled>, StorageError> {
        self.on(mesh, |tables| {
            tables.lease_time = tables.lease_time.max(taker.now);
            let items = items.into_iter();
            Ok(items
                .map(|leased| tables.renew_one(queue, &taker, leased))
                .collect())
        })
    }

    async fn queue_settle(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        agent: &Party,
        (what, items): (Settle, Vec<Leased>),
        at: WallMs,
    ) -> Result<Vec<Settled>, StorageError> {
        self.on(mesh, |tables| {
            let items = items.into_iter();
            Ok(items
                .map(|leased| tables.settle_one(queue, agent, leased, what, at))
                .collect())
        })
    }

    async fn queue_hold_back(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        items: Vec<Leased>,
    ) -> Result<(), StorageError> {
        self.on(mesh, |tables| {
            let Some(queue) = tables.queues.get_mut(queue) else {
                return Ok(());
            };
            for leased in items {
                let work = queue.items.get_mut(&leased.history_id);
                let is_it = |work: &&mut Work| {
                    work.fence == leased.fence && work.acked_at.is_none() && work.holder.is_some()
                };
                if let Some(work) = work.filter(is_it) {
                    (work.holder, work.taken_at) = (None, None);
                    work.delivery_count -= 1;
                }
            }
            Ok(())
        })
    }

    async fn queue_counts(
        &self,
        mesh: MeshId,
        now: LeaseMs,
    ) -> Result<Vec<QueueCount>, StorageError> {
        self.on(mesh, |tables| {
            let count = |(name, queue): (&QueueName, &Queue)| {
                let open = queue.items.values().filter(|work| work.acked_at.is_none());
                let ready = queue.available(now).len();
                QueueCount {
                    queue: name.clone(),
                    ready: ready as u64,
                    leased: (open.count() - ready) as u64,
                }
            };
            Ok(tables.queues.iter().map(count).collect())
        })
    }
}
