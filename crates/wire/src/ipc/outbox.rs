//! `GET /v1/outbox`, one row, and `requeue`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxRow {
    pub id: String,
    pub client_message_id: String,
    pub mesh: String,
    pub agent: String,
    pub status: String,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub enqueued_at: String,
    pub delivered_at: Option<String>,
    pub broker_message_id: Option<String>,
    pub history_id: Option<String>,
    pub superseded_by: Option<String>,
    pub aborted_at: Option<String>,
    pub aborted_by: Option<String>,
    pub to: String,
    pub request_fingerprint: String,
    /// Oldest first, this row included; only where one row was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<OutboxRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxPage {
    pub rows: Vec<OutboxRow>,
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequeueBody {
    /// The successor's id; null mints one.
    #[serde(default)]
    pub new_client_id: Option<String>,
    /// Fields of a send body that replace those of the old row (`message`, `to`, …).
    #[serde(default)]
    pub patch_payload: Option<Value>,
    /// Requeue although the broker cannot be asked whether it has the old id.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequeueAnswer {
    pub old: OutboxRow,
    /// Null when the broker had committed the old id: the old row is `done` then.
    pub new: Option<OutboxRow>,
}
