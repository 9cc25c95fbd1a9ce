//! Why a storage operation has no answer.

use heddle_core::ids::{MemberId, MeshId, Party};
use heddle_core::limits::RECIPIENTS_MAX;
use heddle_core::names::TopicName;

/// Told apart by what the caller may do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// Nothing was written.
    #[error("there is no mesh {0} here")]
    UnknownMesh(MeshId),
    /// Nothing was written.
    #[error("there is no member {0} in this mesh")]
    UnknownMember(MemberId),
    /// Nothing was written.
    #[error("there is no agent {0} in this mesh")]
    UnknownAgent(Party),
    /// Nothing was written; there is room again when somebody unsubscribes.
    #[error(
        "#{0} has {RECIPIENTS_MAX} subscribers already, the most that one message reaches; make a further topic for the others"
    )]
    TopicFull(TopicName),
    /// Nothing was written; it works again when there is space.
    #[error("the disk is full")]
    Full,
    /// Nothing was written; it works again when the other one lets go.
    #[error("another program holds a lock on it; nothing was written")]
    Held,
    /// Whether a write happened is unknown. A later look-up tells.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
}
