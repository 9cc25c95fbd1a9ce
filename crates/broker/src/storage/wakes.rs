//! Hints between the brokers that share a store, and the promises about them.
//!
//! **A hint is no truth.** It says that a look is worth it. Every one may be lost, come twice or come late:
//! whoever waits also looks by itself, and what a hint is about stands in the tables before it is told.
//!
//! A store that one process has to itself has nobody to tell, and hears nothing.

use std::collections::BTreeSet;
use std::future::Future;

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::membership::Bar;
use heddle_core::names::QueueName;

use super::parts::{PartAsk, PartOutcome, PartPlace};
use super::seen::Seen;

/// What one broker tells the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// Something of a mesh has changed.
    Look(Look),
    /// A connection of this member has begun; older ones are replaced, where the policy says so.
    Session {
        mesh: MeshId,
        member: MemberId,
        generation: u64,
    },
    /// This member was shut out, or blocked.
    Cut {
        mesh: MeshId,
        member: MemberId,
        bar: Bar,
    },
    /// A home at the broker that says so wants bytes of a file from this member. In no table: if the hint is lost,
    /// the home asks again.
    PartAsked {
        ask: PartAsk,
        holder: MemberId,
        part: PartPlace,
    },
    /// What became of such a question.
    PartGiven { ask: PartAsk, outcome: PartOutcome },
    /// Nobody knows what was missed: everything is worth a look.
    Missed,
}

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub mesh: MeshId,
    /// There may be deliveries for these members.
    pub members: BTreeSet<MemberId>,
    /// There may be work in these queues.
    pub queues: BTreeSet<QueueName>,
    /// The roster may have changed.
    pub roster: bool,
    /// The log may have grown.
    pub log: bool,
    /// Too much to name: everybody in the mesh looks at everything.
    pub all: bool,
}

impl Look {
    pub fn at(mesh: MeshId) -> Self {
        Self {
            mesh,
            members: BTreeSet::new(),
            queues: BTreeSet::new(),
            roster: false,
            log: false,
            all: false,
        }
    }

    /// Whether there is anything to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::at(self.mesh)
    }

    /// Both in one.
    pub fn join(&mut self, other: Self) {
        self.members.extend(other.members);
        self.queues.extend(other.queues);
        self.roster |= other.roster;
        self.log |= other.log;
        self.all |= other.all;
    }
}

pub trait Wakes: Send + Sync + 'static {
    /// Whether other processes may serve the store at the same time.
    fn is_shared(&self) -> bool {
        false
    }

    /// What this process has seen of the histories, where an older store can be put under it while it runs. What is accepted
    /// is noted by the store, and so is what it reads to be pushed.
    fn seen(&self) -> Option<&Seen> {
        None
    }

    /// Tells the other brokers. Never waits.
    fn tell(&self, hint: Hint) {
        drop(hint);
    }

    /// The next hint of another broker.
    fn heard(&self) -> impl Future<Output = Hint> + Send {
        std::future::pending()
    }
}
