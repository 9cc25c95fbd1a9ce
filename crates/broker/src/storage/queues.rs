//! Work queues: each message goes to one consumer, under a lease; and the promises about that.
//!
//! **One consumer.** A message that is under a running lease, or acknowledged, is taken by nobody.
//!
//! **Nothing is lost.** A lease that runs out without an ack makes the message available again, with a
//! higher delivery count, in its old place of the order.
//!
//! **Fenced.** Every lease of a queue has a number higher than every one before it, also than those that the
//! store has forgotten: a number is never below the time at which it was given ([`Taker::floor`]), so an older
//! copy of the store that is put back gives none out a second time. Only the holder of the latest one settles
//! a message (`core::work` decides), and an ack counts once.
//!
//! **Ended with its epoch.** A new epoch begins where the store was noticed to be an older copy. It does not know who
//! gave which work back since, and whom it was given to then: the leases that it holds settle nothing any more, and
//! what they were about can be taken again.
//!
//! **Held back.** What cannot be given out is nobody's: no fence settles it, and it counts as never taken.
//!
//! **Order.** `now` before `next` before `low`, within one priority by `(epoch, seq)`.

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId, Party};
use heddle_core::names::QueueName;
use heddle_core::work::{Settle, Settled, WorkState};

use super::contract::Answer;
use super::presence::LeaseMs;
use super::rows::{Delivery, PageLimit};

/// A message under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub delivery: Delivery,
    pub fence: u64,
    pub delivery_count: u64,
}

/// One message of a queue under the lease that the caller had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    pub history_id: HistoryId,
    pub fence: u64,
}

/// Who takes, when, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    pub agent: Party,
    pub now: LeaseMs,
    pub until: LeaseMs,
    /// The same moment on the wall, for receipts; it decides nothing.
    pub at: WallMs,
    /// Every lease that begins now has a number above this one.
    pub floor: u64,
}

/// A number that no lease of before had, whatever became of the store since: the time in microseconds. Leases of one
/// queue would have to begin faster than that for as long as the store is, to get ahead of it. Where the clock itself
/// was set back, the store's own count goes on; only both together, an older store and an older time, could meet.
pub fn fence_floor(now: WallMs) -> u64 {
    u64::try_from(now.0).unwrap_or(0).saturating_mul(1000)
}

/// A piece of work as a store keeps it.
pub(super) struct Item {
    pub(super) fence: u64,
    pub(super) delivery_count: u64,
    pub(super) holder: Option<Party>,
    pub(super) leased_until: Option<LeaseMs>,
    /// When the latest lease began; of leases before this was noted nobody knows.
    pub(super) taken_at: Option<WallMs>,
    pub(super) acked_at: Option<WallMs>,
}

impl Item {
    /// Whether this is the holder of the latest lease.
    pub(super) fn is_held(&self, by: &Party, fence: u64) -> bool {
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

/// How much work a queue holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueCount {
    pub queue: QueueName,
    pub ready: u64,
    pub leased: u64,
}

pub trait Queues: Send + Sync + 'static {
    /// True if it is new. A message to a missing queue creates it as well.
    fn create_queue(
        &self,
        mesh: MeshId,
        queue: &QueueName,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Takes what is available, at most a page of it. Nothing from a queue that does not exist.
    fn queue_take(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        limit: PageLimit,
    ) -> impl Future<Output = Answer<Vec<Taken>>> + Send;

    /// Makes the leases of the taker last until `taker.until`, never shorter than they were; one verdict
    /// each, in order. Fences and delivery counts stay.
    fn queue_renew(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        items: Vec<Leased>,
    ) -> impl Future<Output = Answer<Vec<Settled>>> + Send;

    /// Acknowledges or gives back, one verdict each, in order. To renew is `queue_renew`.
    fn queue_settle(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        agent: &Party,
        settle: (Settle, Vec<Leased>),
        at: WallMs,
    ) -> impl Future<Output = Answer<Vec<Settled>>> + Send;

    /// Takes leases back that cannot be used, because what they are about is not what was accepted: nobody holds
    /// it, it was not given out, and it is passed over until the lease would have ended.
    fn queue_hold_back(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        items: Vec<Leased>,
    ) -> impl Future<Output = Answer<()>> + Send;

    /// One for each queue of the mesh, by name. A lease that ran out by `now` holds nothing. A store that
    /// cannot count says nothing, and the list of queues has no figures then.
    fn queue_counts(
        &self,
        _mesh: MeshId,
        _now: LeaseMs,
    ) -> impl Future<Output = Answer<Vec<QueueCount>>> + Send {
        std::future::ready(Ok(Vec::new()))
    }
}
