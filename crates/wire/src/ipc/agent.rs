//! Agents of this home and peers of its meshes.

use serde::{Deserialize, Serialize};

use super::WarningView;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentBody {
    pub agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    pub agent: String,
    pub mesh: String,
    /// `@member/agent`.
    pub address: String,
    pub unread: u64,
    pub registered_at: String,
    /// True when this call found it registered already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentList {
    pub agents: Vec<AgentView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    pub member: String,
    pub agent: String,
    pub address: String,
    pub mesh: String,
    /// A mailbox of this home.
    pub own: bool,
    /// Whether the member's daemon is connected now; null when that cannot be known.
    pub online: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerList {
    pub peers: Vec<PeerView>,
    pub stale: bool,
    /// When the broker last said so.
    pub as_of: Option<String>,
    /// What the agent that asks has lost since its last call (`warnings` of DESIGN §13.6).
    #[serde(default)]
    pub warnings: Vec<WarningView>,
}
