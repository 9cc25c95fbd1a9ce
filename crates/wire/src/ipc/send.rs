//! `POST /v1/send`: the request and its two answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::explain::LostView;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendBody {
    pub to: String,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendStatus {
    Queued,
    Inflight,
}

/// 202 has `status`, and `duplicate` where the id was known; 200 has `duplicate` with what the broker said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendAnswer {
    pub client_message_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SendStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<bool>,
    pub request_fingerprint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_id: Option<String>,
    /// `local` or `committed`.
    pub durability: String,
    /// Where the broker had it and has lost it since: it is not committed any more, whatever was said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostView>,
    /// Mentioned, and getting no copy of it as far as this home knows: a mention makes nobody a recipient.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<String>,
    /// What to run next, where there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
