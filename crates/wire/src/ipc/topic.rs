//! Topics and subscriptions.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Body of create, subscribe and unsubscribe. A leading `#` of the name is taken off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicBody {
    pub topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

/// Body of `topic/post`: a send whose destination is the topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicPostBody {
    pub topic: String,
    pub message: String,
    #[serde(default)]
    pub priority: Option<String>,
    #[serde(default)]
    pub meta: Option<Value>,
    #[serde(default)]
    pub reply_to_id: Option<String>,
    #[serde(default)]
    pub mentions: Vec<String>,
    #[serde(default)]
    pub client_message_id: Option<String>,
    #[serde(default)]
    pub mesh: Option<String>,
    #[serde(default)]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicAnswer {
    pub topic: String,
    pub mesh: String,
    /// Whether this call changed anything; a repeated one does not.
    pub changed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicView {
    pub topic: String,
    pub mesh: String,
    /// `@member/agent` of each subscriber.
    pub subscribers: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicList {
    pub topics: Vec<TopicView>,
    pub stale: bool,
    pub as_of: Option<String>,
}
