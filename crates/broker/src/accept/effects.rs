//! What follows from a commit: whose deliveries are worth a look. Values only; the door runs them,
//! and a lost one costs time, never a message, because the table is the truth.

use std::collections::BTreeSet;

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::QueueName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects {
    pub mesh: MeshId,
    /// Members with new deliveries.
    pub wake: BTreeSet<MemberId>,
    /// There is a new queue.
    pub roster: bool,
    /// Queues in which there may be new work.
    pub work: BTreeSet<QueueName>,
    /// The log has grown.
    pub log: bool,
}

impl Effects {
    pub(super) fn none(mesh: MeshId) -> Self {
        Self {
            mesh,
            wake: BTreeSet::new(),
            roster: false,
            work: BTreeSet::new(),
            log: false,
        }
    }

    pub(super) fn wake(&mut self, members: &[MemberId]) {
        self.wake.extend(members);
    }
}
