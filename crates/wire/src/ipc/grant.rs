//! What a home lets its peers send it.

use serde::{Deserialize, Serialize};

/// For `grant`, `revoke` and `block`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerGrantBody {
    /// A member's name or id.
    pub peer: String,
    /// `dm`, `topic`; absent or empty means both. A block takes all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

/// What a peer may send to this home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerGrantView {
    /// The member's name, or its id where nobody here knows its name.
    pub peer: String,
    pub peer_id: String,
    pub mesh: String,
    /// What it may: `dm`, `topic`.
    pub capabilities: Vec<String>,
    /// It may do nothing at all.
    pub blocked: bool,
    /// The call has changed it.
    pub changed: bool,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// Those from whom something is withheld; everybody else may everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerGrantList {
    pub mesh: String,
    pub grants: Vec<PeerGrantView>,
}
