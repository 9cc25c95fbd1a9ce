//! What members let each other send them, and what every store promises about it.
//!
//! **Asked once, at accept.** The accept transaction sees what each recipient has granted the sender; whoever
//! has not granted what the message needs gets no delivery row, now or later: a grant that comes after brings
//! nothing back. That this was so is written beside the effects, so that a missing delivery can be told from a lost one.
//!
//! **The sender is told nothing.** Its message is accepted like any other.
//!
//! **Whoever was never spoken of has everything.** Only what is withheld has a row.

use std::future::Future;

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::membership::{Capabilities, GrantChange};

use crate::storage::StorageError;

type Answer<T> = Result<T, StorageError>;

/// What a peer has been granted, after a call that may have changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    pub capabilities: Capabilities,
    /// False: it was so already.
    pub changed: bool,
}

pub trait Grants: Send + Sync + 'static {
    /// `member` grants `peer` something, or takes it back. `UnknownMember` if either is none of the mesh.
    fn change_grant(
        &self,
        mesh: MeshId,
        member: MemberId,
        peer: MemberId,
        change: GrantChange,
    ) -> impl Future<Output = Answer<Granted>> + Send;

    /// Peers from whom this member withholds something, with what they have; sorted.
    fn grants(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> impl Future<Output = Answer<Vec<(MemberId, Capabilities)>>> + Send;
}
