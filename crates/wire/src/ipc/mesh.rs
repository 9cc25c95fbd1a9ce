//! Meshes and their members.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshInviteBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// How many may join by it; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// How long it lasts; 7 days by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<u64>,
}

/// The link is a secret: whoever has it may join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshInviteAnswer {
    pub link: String,
    pub mesh: String,
    pub invite_id: String,
    pub uses: u32,
    pub expires_at: String,
    /// The mesh was personal until now: with this answer its data is shared with whoever joins.
    #[serde(default)]
    pub published: bool,
    /// It was made before, under the same key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshPublishBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// A broker elsewhere that hosts it from now on; this home's own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// A file with that broker's token, presented once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// A file with the certificates of the authorities that vouch for that broker, instead of the machine's. It stays where
    /// it is, and is read at every connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// How long the answer may wait for the end: 0 by default, at most 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
}

/// How far the publishing of a mesh has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshPublishView {
    pub mesh: String,
    /// `personal`, `shared_owner` or `shared_guest`.
    pub kind: String,
    /// `embedded`, or the URL of the broker that hosts it.
    #[serde(default)]
    pub broker: String,
    /// What the broker calls it, where that is another name: the one here was taken there. Told by the call that moved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_at_broker: Option<String>,
    /// It was personal until this very call.
    pub fresh: bool,
    /// Rows that there were before, and how many of them were looked at.
    pub rows: u64,
    pub rows_done: u64,
    /// Changes that the broker has not confirmed.
    pub out_waiting: u64,
    /// Everything of before is at the broker.
    pub done: bool,
    /// Rows that cannot be read, by name: they stay in this home, and are not at the broker. Told once everything else is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Effects whose rows are not as they were written, each with why: they go to the broker as damaged, and stay used. Told
    /// by the call that moved the mesh.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects_damaged: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshJoinBody {
    pub link: String,
    /// Who we are in the mesh; as in `home` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the mesh is called in this home; as the inviter calls it by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// A file with the certificates of the authorities that vouch for the broker, instead of the machine's. It stays where it
    /// is, and is read at every connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshJoinAnswer {
    /// What the mesh is called in this home.
    pub mesh: String,
    pub member: String,
    pub broker: String,
    pub mesh_id: String,
    pub member_id: String,
    /// It had been joined before.
    pub duplicate: bool,
    pub connected: bool,
    /// What is left to do; nothing where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshView {
    pub mesh: String,
    pub mesh_id: String,
    pub member: String,
    pub member_id: String,
    /// `embedded`, or the broker's URL.
    pub broker: String,
    pub connected: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshList {
    pub meshes: Vec<MeshView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshMember {
    pub member: String,
    pub member_id: String,
    /// `owner` or `member`.
    pub role: String,
    /// What people compare of its key.
    pub key_fingerprint: String,
    pub enrolled_at: String,
    pub revoked_at: Option<String>,
    /// Since when nothing of it is heard; a grant lifts that.
    #[serde(default)]
    pub blocked_at: Option<String>,
    pub online: bool,
    pub last_seen: Option<String>,
    /// This home.
    pub own: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshInfo {
    pub mesh: String,
    pub mesh_id: String,
    pub member: String,
    pub member_id: String,
    /// `embedded`, or the broker's URL.
    pub broker: String,
    /// What the broker calls the mesh; absent while it is out of reach, and at one that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_at_broker: Option<String>,
    pub connected: bool,
    /// Where others reach the broker; absent where they cannot.
    pub url: Option<String>,
    pub broker_id: Option<String>,
    /// Of this home; absent where the mesh's members have no keys, or the broker is out of reach.
    pub role: Option<String>,
    pub members: Vec<MeshMember>,
    /// The broker is out of reach: the members are not known now.
    pub stale: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshRevokeBody {
    /// A member's name or id.
    pub member: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshRevokeAnswer {
    pub member: String,
    pub member_id: String,
    pub mesh: String,
    pub changed: bool,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshBlockBody {
    /// A member's name or id.
    pub member: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshGrantBody {
    /// A member's name or id.
    pub member: String,
    /// `owner` or `member`.
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

/// How a member stands after the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshStandingAnswer {
    pub member: String,
    pub member_id: String,
    pub mesh: String,
    /// `owner` or `member`.
    pub role: String,
    pub blocked: bool,
    /// False: it stood so already.
    pub changed: bool,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshCreateBody {
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshCreateAnswer {
    pub mesh: String,
    pub mesh_id: String,
    pub member: String,
    pub member_id: String,
    /// `personal`, or `shared_owner` once it was published.
    pub kind: String,
    /// It was there already.
    pub duplicate: bool,
}
