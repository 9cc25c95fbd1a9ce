//! The other brokers on the same store: what they tell us, what we tell them, and the time that we share.
//!
//! What follows from a commit here goes to the connections of this process and, as a hint, to the other
//! processes; theirs come in and do the same. Losing all of them delays, and loses nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::limits::SESSION_LEASE;
use heddle_core::membership::Bar;
use heddle_core::names::QueueName;
use heddle_core::negotiate::ConnectionPolicy;
use tokio::time::{MissedTickBehavior, interval};

use super::Shared;
use super::hub::Session;
use crate::accept::Effects;
use crate::limiter::Limiter;
use crate::storage::{Hint, HintLook, Storage, StorageError};

/// How often brokers that share a store compare their lease time and look for sessions that ran out: well
/// within a lease.
const TOGETHER: Duration = Duration::from_secs(5);

impl<S: Storage, L> Shared<S, L> {
    /// Runs what follows from a commit, here and elsewhere.
    pub(super) fn run(&self, effects: &Effects) {
        self.hub.run(effects);
        self.tell(HintLook {
            members: effects.wake.clone(),
            queues: effects.work.clone(),
            roster: effects.roster,
            log: effects.log,
            ..HintLook::at(effects.mesh)
        });
    }

    /// Tells every connection of the mesh to look at the roster, but the one that knows already.
    pub(super) fn roster_changed(&self, mesh: MeshId, except: Option<&Session>) {
        self.hub.roster_changed(mesh, except);
        self.tell(HintLook {
            roster: true,
            ..HintLook::at(mesh)
        });
    }

    /// Many ops became readable at once.
    pub(super) fn log_grew(&self, mesh: MeshId) {
        self.hub.log_grew(mesh);
        self.tell(HintLook {
            log: true,
            ..HintLook::at(mesh)
        });
    }

    /// Everything of a mesh may stand at another place: every connection looks again.
    pub(super) fn look_again(&self, mesh: MeshId) {
        self.hub.look_at_everything(Some(mesh));
        self.tell(HintLook {
            all: true,
            ..HintLook::at(mesh)
        });
    }

    pub(super) fn work_came(&self, mesh: MeshId, queue: &QueueName) {
        self.hub.work_came(mesh, queue);
        self.tell(HintLook {
            queues: [queue.clone()].into(),
            ..HintLook::at(mesh)
        });
    }

    /// Ends every connection of a member that was shut out or blocked, wherever it is (T-30).
    pub(super) fn cut(&self, mesh: MeshId, member: MemberId, bar: Bar) {
        self.hub.cut(mesh, member, bar);
        self.storage().tell(Hint::Cut { mesh, member, bar });
    }

    /// A connection has begun: those that it replaces may be elsewhere.
    pub(super) fn session_began(&self, session: &Session) {
        self.storage().tell(Hint::Session {
            mesh: session.mesh,
            member: session.member,
            generation: session.generation,
        });
    }

    fn tell(&self, look: HintLook) {
        if !look.is_empty() {
            self.storage().tell(Hint::Look(look));
        }
    }

    fn take(&self, hint: Hint) {
        match hint {
            Hint::Look(look) if look.all => self.hub.look_at_everything(Some(look.mesh)),
            Hint::Look(look) => self.hub.run(&Effects {
                mesh: look.mesh,
                wake: look.members,
                roster: look.roster,
                work: look.queues,
                log: look.log,
            }),
            Hint::Session {
                mesh,
                member,
                generation,
            } => {
                if self.config.policy == ConnectionPolicy::PreferNewest {
                    self.hub.replace_older(mesh, member, generation);
                }
            }
            Hint::Cut { mesh, member, bar } => self.hub.cut(mesh, member, bar),
            Hint::PartAsked { ask, holder, part } => self.asked_elsewhere(ask, holder, part),
            // Taken up by whoever hears it, because it takes time.
            Hint::PartGiven { .. } => {}
            Hint::Missed => self.hub.look_at_everything(None),
        }
    }
}

/// For ever; dropped when the broker stops. Does nothing for a store that this process has to itself.
///
/// Hearing and comparing go on side by side: a comparison writes to each mesh in turn, and a row that somebody holds must
/// not keep the hints of all others waiting.
pub(super) async fn run<S: Storage, L: Limiter>(shared: Arc<Shared<S, L>>) {
    if !shared.storage().is_shared() {
        return std::future::pending().await;
    }
    tokio::join!(hear(&shared), keep_all_together(&shared));
}

async fn hear<S: Storage, L: Limiter>(shared: &Shared<S, L>) {
    // As many as there are open questions here, which are bounded.
    let mut fetching = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(()) = fetching.next() => {}
            hint = shared.storage().heard() => match hint {
                Hint::PartGiven { ask, outcome } => fetching.push(shared.fetch(ask, outcome)),
                hint => shared.take(hint),
            },
        }
    }
}

async fn keep_all_together<S: Storage, L: Limiter>(shared: &Shared<S, L>) {
    let mut together = interval(TOGETHER);
    together.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // After an outage everybody has the length of a lease to renew, before anybody counts as gone.
    let mut patient_until = Duration::ZERO;
    loop {
        together.tick().await;
        let now = shared.accept.clock.mono();
        for mesh in shared.hub.meshes() {
            let kept = keep_together(shared, mesh, now >= patient_until).await;
            if let Err(error) = kept {
                tracing::warn!(%error, %mesh, "lease time could not be compared");
                patient_until = now + SESSION_LEASE;
            }
        }
    }
}

/// Goes by whoever is furthest, and ends the sessions of brokers that are gone.
async fn keep_together<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    may_expire: bool,
) -> Result<(), StorageError> {
    let storage = shared.storage();
    let reached = storage.pass_lease_time(mesh, shared.lease.now()).await?;
    shared.lease.go_on_from(reached);
    if !may_expire {
        return Ok(());
    }
    let at = shared.accept.clock.wall();
    let ended = storage
        .expire_sessions(mesh, shared.lease.now(), at)
        .await?;
    if ended > 0 {
        tracing::info!(%mesh, ended, "sessions of a broker that is gone have ended");
        shared.roster_changed(mesh, None);
    }
    Ok(())
}
