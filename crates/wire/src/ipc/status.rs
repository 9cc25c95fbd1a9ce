//! Status, health and version.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxFigures {
    pub pending: u64,
    pub inflight: u64,
    pub done: u64,
    pub dead: u64,
    pub aborted: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxFigures {
    pub items: u64,
    pub unread: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshStatus {
    pub mesh: String,
    pub mesh_id: String,
    pub member: String,
    /// `embedded` or the broker's URL.
    pub broker: String,
    pub connected: bool,
    /// When the broker was last heard of.
    pub as_of: Option<String>,
    /// Why it is not connected, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    pub running: bool,
    pub connected: bool,
    pub meshes: Vec<MeshStatus>,
    pub outbox: OutboxFigures,
    pub inbox: InboxFigures,
    /// `full`, or `normal` where the operator opted out of syncing every commit.
    pub durability: String,
    /// What is wrong, in sentences; empty when all is well.
    pub degraded: Vec<String>,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, `degraded` or `stopping`.
    pub status: String,
    pub degraded: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub name: String,
    pub version: String,
    /// The version of these routes.
    pub ipc: u32,
    /// The version of the frames between daemon and broker.
    pub broker_protocol: u32,
}
