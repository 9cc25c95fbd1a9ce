//! Memory and state: what a change says, its receipt, and what is read back.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WarningView;

/// Body of `memory/remember`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RememberBody {
    pub key: String,
    pub value: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `state/set`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateSetBody {
    pub key: String,
    pub value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `memory/forget` and `state/delete`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyBody {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// What orders a write among all others of the mesh: first `lamport`, then `peer`, then `op_id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampView {
    pub lamport: u64,
    /// `MEMBER_ID/agent`.
    pub peer: String,
    pub op_id: String,
    pub incarnation: u64,
}

/// The receipt of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeAnswer {
    pub client_message_id: String,
    pub key: String,
    pub mesh: String,
    pub agent: String,
    /// True when this very change was made before: then all of this is what was answered first.
    pub duplicate: bool,
    /// `local`: it is on this home's disk.
    pub durability: String,
    pub stamp: StampView,
    pub at: String,
    /// What the agent lost since its last call; told once.
    #[serde(default)]
    pub warnings: Vec<WarningView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryView {
    pub key: String,
    pub value: Value,
    pub tags: Vec<String>,
    /// `@member/agent` of the owner.
    pub peer: String,
    pub updated_at: String,
    pub stamp: StampView,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecallPage {
    /// Asked by key: the youngest first. By words: the best match first. Else in order of keys.
    pub items: Vec<MemoryView>,
    /// Goes on behind the last item; of a search there are no further pages.
    pub cursor: Option<String>,
    /// Whether there are more.
    pub more: bool,
    #[serde(default)]
    pub warnings: Vec<WarningView>,
    /// Rows that cannot be read and are therefore not among them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateView {
    pub key: String,
    pub value: Value,
    /// `@member/agent` of the last writer.
    pub updated_by: String,
    pub updated_at: String,
    pub stamp: StampView,
    /// What the reader lost since its last call; of a list, the list has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatePage {
    pub items: Vec<StateView>,
    pub cursor: Option<String>,
    #[serde(default)]
    pub warnings: Vec<WarningView>,
    /// Rows that cannot be read and are therefore not among them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}
