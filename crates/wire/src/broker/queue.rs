//! Work queues on the wire: what is taken comes under a lease, and goes back with its fence.

use heddle_core::ids::HistoryId;
use heddle_core::names::QueueName;
use serde::{Deserialize, Serialize};

use super::frames::Delivery;

/// One message of a queue, for its one consumer until the lease ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakenItem {
    /// Not flattened: an envelope keeps its bytes only in a field of its own (DR-06).
    pub delivery: Delivery,
    /// Rises with every lease of the queue. Acks and releases must name it, and whoever guards
    /// something outside can refuse a lower one.
    pub fence: u64,
    /// How long the lease lasts from now on, as the broker granted it.
    pub lease_ms: u64,
    /// 1 at first; more means that an earlier lease ended without an ack.
    pub delivery_count: u64,
}

/// A taken message, by its place and the lease under which it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedItem {
    pub history_id: HistoryId,
    pub fence: u64,
}

/// What became of one item of a `queue_ack` or `queue_release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueVerdict {
    /// It is done, now or already by this very lease.
    Acked,
    /// It waits again, now or already by this very lease.
    Released,
    /// Its lease lasts longer.
    Renewed,
    /// Another lease has taken over; this one decides nothing any more.
    StaleFence,
    /// There is no such message in the queue.
    Unknown,
}

/// How much work a queue holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCount {
    pub queue: QueueName,
    /// What can be taken now.
    pub ready: u64,
    /// What is with somebody, under a lease that runs.
    pub leased: u64,
}
