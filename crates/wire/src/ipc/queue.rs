//! `/v1/queue/{push,take,ack,release,renew,list}`: work for one consumer each, under a lease.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::broker::QueueVerdict;

/// Body of `push`: a send whose destination is the queue. A leading `queue:` of the name is taken off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueuePushBody {
    pub queue: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueTakeBody {
    pub queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// 300 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
    /// 0 by default: the answer is there at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
}

/// A message of a queue that is this consumer's until its lease ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueItem {
    /// Its history id; what `ack` and `release` take.
    pub id: String,
    pub client_message_id: String,
    pub broker_message_id: String,
    pub history_id: String,
    pub mesh: String,
    pub queue: String,
    /// The consumer. Only it can settle the message.
    pub agent: String,
    /// `@member/agent` of the sender.
    pub from: String,
    pub body: String,
    pub priority: String,
    pub meta: Value,
    pub reply_to_id: Option<String>,
    /// Rises with every lease of the queue; `ack` and `release` must name it.
    pub fence: u64,
    /// How long the lease lasts from now on.
    pub lease_seconds: u64,
    /// 1 at first; more means that an earlier lease ended without an ack.
    pub delivery_count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueTaken {
    pub items: Vec<QueueItem>,
    /// Whether there is such a queue. A misspelt name must not look like an empty queue (C29).
    pub exists: bool,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// Body of `ack` and `release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSettleBody {
    pub queue: String,
    pub items: Vec<LeasedBody>,
    /// The agent that took them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

/// Body of `renew`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueRenewBody {
    pub queue: String,
    pub items: Vec<LeasedBody>,
    /// How long from now on; 300 by default. A lease never becomes shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
    /// The agent that took them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeasedBody {
    pub id: String,
    pub fence: u64,
}

/// One verdict each, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledItems {
    pub items: Vec<SettledItem>,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledItem {
    pub id: String,
    pub verdict: QueueVerdict,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    pub queue: String,
    pub mesh: String,
    /// What can be taken now; absent where the broker could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<u64>,
    /// What is with somebody, under a lease that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueList {
    pub queues: Vec<QueueView>,
    pub stale: bool,
    pub as_of: Option<String>,
}
