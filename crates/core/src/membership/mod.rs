//! Who belongs to a mesh: keys, what a signature covers, invitations, and who is let in.
//!
//! All of it is bytes and decisions. Keys are made of bytes that are handed in, and every signed text
//! begins with a label of its own, so that a signature for one purpose is good for no other.

mod admit;
mod grant;
mod invite;
mod key;
mod name;
mod proof;
mod standing;

pub use admit::{Denied, Proof, Proven, admit};
pub use grant::{Capabilities, Capability, GrantChange};
pub use invite::{Invite, LINK_PREFIX, LinkError, SignedInvite};
pub use key::{KeyError, MemberKey, PublicKey, Signature};
pub use name::free_name;
pub use proof::{ClaimProof, HelloProof, NONCE_BYTES, Nonce};
pub use standing::{Bar, Change, ChangeVerdict, Facts, decide_change};

/// What a member may do beyond sending and receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Invites and revokes.
    Owner,
    Member,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Member => "member",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Owner, Self::Member]
            .into_iter()
            .find(|role| role.as_str() == text)
    }
}
