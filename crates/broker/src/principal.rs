//! Who is on the other end of a connection.

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::{MemberName, MeshName};

/// A proven identity. It is proven before anything but a hello is heard, so that no look-up of an id
/// happens for a stranger (C1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub mesh: MeshId,
    pub member: MemberId,
    pub member_name: MemberName,
}

/// What a transport has proven about its peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is this member.
    Member(Principal),
    /// It holds the token of the broker's data folder, and may speak for every member there: the hello
    /// says for which. A mesh that is not here yet is made, under this name.
    ///
    /// A mesh whose members have keys asks for the member's signature all the same.
    Bearer(MeshName),
    /// Nothing: the hello must be signed by the key of an enrolled member.
    Stranger,
}

impl From<Principal> for Claim {
    fn from(principal: Principal) -> Self {
        Self::Member(principal)
    }
}
