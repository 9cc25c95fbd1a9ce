//! What goes into the tables of members and what comes out: plain values, never wire types.

use heddle_core::clock::WallMs;
use heddle_core::ids::{InviteId, MemberId};
use heddle_core::membership::{Bar, Facts, PublicKey, Role};
use heddle_core::names::MemberName;

/// A member that has, or had, a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub member: MemberId,
    pub name: MemberName,
    pub role: Role,
    /// The one it has now.
    pub key: PublicKey,
    pub enrolled_at: WallMs,
    pub revoked_at: Option<WallMs>,
    pub blocked_at: Option<WallMs>,
    /// It came with the mesh, by no invitation.
    pub is_founder: bool,
}

impl Standing {
    /// What keeps it from being heard.
    pub fn bar(&self) -> Option<Bar> {
        match (self.revoked_at, self.blocked_at) {
            (Some(_), _) => Some(Bar::Revoked),
            (None, Some(_)) => Some(Bar::Blocked),
            (None, None) => None,
        }
    }

    /// What a change of it is decided by.
    pub fn facts(&self) -> Facts {
        Facts {
            role: self.role,
            bar: self.bar(),
            is_founder: self.is_founder,
        }
    }

    pub fn is_owner(&self) -> bool {
        self.facts().is_owner()
    }
}

/// What a hello is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Somebody of this mesh has a key; then everybody needs one.
    pub mesh_has_keys: bool,
    pub standing: Option<Standing>,
}

/// An invitation as it is kept: not the link, only how to know it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInvite {
    pub invite: InviteId,
    pub digest: [u8; 32],
    pub inviter: MemberId,
    pub role: Role,
    pub uses_max: u32,
    pub created_at: WallMs,
    pub expires_at: WallMs,
}

/// Somebody who proved that it holds this key wants to be a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    pub invite: InviteId,
    pub digest: [u8; 32],
    /// Its id, if it becomes one.
    pub member: MemberId,
    pub name: MemberName,
    pub key: PublicKey,
    pub at: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrolVerdict {
    /// Committed now, and one use is taken.
    Enrolled {
        member: MemberId,
        name: MemberName,
    },
    /// The key is a member's already; nothing was written.
    Duplicate {
        member: MemberId,
        name: MemberName,
    },
    /// There is no such invitation, or this is not it.
    UnknownInvite,
    Expired {
        at: WallMs,
    },
    UsedUp,
    NameTaken {
        suggestion: Option<MemberName>,
    },
    /// The key was a member's, and is not any more.
    Revoked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevokeVerdict {
    Revoked,
    /// It was already; nothing was written.
    Already,
    UnknownMember,
    /// Only an owner may.
    NotOwner,
    /// An owner stays.
    IsOwner,
}
