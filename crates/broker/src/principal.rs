//! Who is on the other end of a connection.

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::MemberName;

/// A proven identity. Whoever opens a connection proves it before the broker reads a byte, so that
/// no look-up of an id happens for a stranger (C1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub mesh: MeshId,
    pub member: MemberId,
    pub member_name: MemberName,
}
