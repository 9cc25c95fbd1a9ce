//! Members as the broker tells of them.

use heddle_core::ids::MemberId;
use heddle_core::membership::PublicKey;
use heddle_core::names::MemberName;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEntry {
    pub member: MemberId,
    pub name: MemberName,
    /// `owner` or `member`.
    pub role: String,
    pub key: PublicKey,
    pub enrolled_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_at: Option<i64>,
    pub online: bool,
    /// Since when it is here, or when it was last here; absent for one that never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
}

/// A member lets another one send it more, or less.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantAsk {
    pub peer: MemberId,
    /// False: taken back.
    pub grant: bool,
    /// `dm`, `topic`.
    pub capabilities: Vec<String>,
}

/// What a peer may send to the member that asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantEntry {
    pub peer: MemberId,
    /// What it may: `dm`, `topic`.
    pub capabilities: Vec<String>,
    /// The call has changed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
}
