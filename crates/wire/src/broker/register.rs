//! What the HTTP door of a team broker takes: meshes with their owner, and invitations by its operator.

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::membership::PublicKey;
use heddle_core::names::{AgentName, MemberName, MeshName, QueueName, TopicName};
use serde::{Deserialize, Serialize};

/// `POST /api/my/meshes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterMeshBody {
    /// What the mesh is called at the broker; one that is taken gets a number behind it.
    pub slug: MeshName,
    /// `shared_owner`, where it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A mesh that moves here, and whose it is. Without it the mesh of that name is meant, or made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<RegisterOwner>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterOwner {
    pub mesh_id: MeshId,
    pub member_id: MemberId,
    pub member: MemberName,
    pub key: PublicKey,
    /// The owner's mailboxes.
    #[serde(default)]
    pub agents: Vec<AgentName>,
    #[serde(default)]
    pub topics: Vec<RegisterTopic>,
    #[serde(default)]
    pub queues: Vec<QueueName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterTopic {
    pub topic: TopicName,
    /// Mailboxes of the owner.
    #[serde(default)]
    pub subscribers: Vec<AgentName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterMeshAnswer {
    /// The broker's id: whom the owner signs for.
    pub server_id: heddle_core::ids::BrokerId,
    pub mesh_id: MeshId,
    pub slug: MeshName,
    pub broker_epoch: u64,
    /// It was there already; nothing was changed.
    pub duplicate: bool,
}

/// `POST /api/my/meshes/SLUG/invites`, for the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerInviteBody {
    /// `owner` or `member`, which it is by default.
    #[serde(default)]
    pub role: Option<String>,
    /// 1 by default.
    #[serde(default)]
    pub uses: Option<u32>,
    /// Like `7d`, which it is by default.
    #[serde(default)]
    pub expires_in: Option<String>,
    /// Where the broker is reached; as this request reached it by default.
    #[serde(default)]
    pub url: Option<String>,
    /// Whether a mesh that is not there is made, which it is by default: false refuses a name that was mistyped.
    #[serde(default)]
    pub create: Option<bool>,
}
