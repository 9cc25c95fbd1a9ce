//! What a broker tells of one id: its dedupe row, the limiter's decision, who got it and how far.

use heddle_core::envelope::DestinationKind;
use heddle_core::ids::{BrokerMessageId, HistoryId};
use serde::{Deserialize, Serialize};

use super::frames::Sender;

/// The whole story of a committed id, as the broker's tables hold it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    pub broker_message_id: BrokerMessageId,
    pub history_id: HistoryId,
    pub wire_fingerprint: String,
    pub first_seen_at: i64,
    /// When the id may be forgotten; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// False once the body was pruned: accepted, and no longer readable.
    pub history_available: bool,
    pub destination_kind: DestinationKind,
    pub destination_ref: String,
    /// Telemetry; absent for rows older than its recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limiter: Option<LimiterRecord>,
    /// Per recipient, sorted by member and agent. Empty for a queue.
    pub deliveries: Vec<DeliveryReceipt>,
    /// Recipients beyond the ones listed.
    #[serde(default)]
    pub deliveries_left_off: u64,
    /// Present for a message to a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueState>,
    /// The body that lies at the broker is not the one that was accepted: a disk has changed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    /// Its body does not lie at the broker any more, though the broker has pruned none: somebody or something else took it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// What the limiter said when the message was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimiterRecord {
    /// The limiter's own number of the window.
    pub window: u64,
    /// False: this request was free, because the id had been counted in this window already.
    pub counted: bool,
}

/// How far a message has come with one recipient. A later level implies the earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryReceipt {
    pub recipient: Sender,
    /// In the recipient's inbox, synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<i64>,
    /// Put before the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_at: Option<i64>,
    /// Acknowledged by the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueStatus {
    Waiting,
    /// With a consumer, until its lease ends.
    Leased,
    Acked,
}

/// Where a message to a queue stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    pub status: QueueStatus,
    /// The number of the latest lease; 0 before the first.
    pub fence: u64,
    pub delivery_count: u64,
    /// Whoever holds or held the latest lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Sender>,
    /// What is left of the lease, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
    /// When the latest lease began; absent where nobody noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_at: Option<i64>,
}

/// How far a recipient's side says it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptLevel {
    Shown,
    Acked,
}
