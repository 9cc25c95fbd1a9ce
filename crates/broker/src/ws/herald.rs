//! Tells a connection of roster changes, and that the log has grown: what comes close together is told
//! once, the latest last.

use std::collections::BTreeMap;
use std::sync::Arc;

use heddle_core::ids::{MemberId, MeshId, Party};
use heddle_wire::broker::{
    Roster, RosterAgent, RosterMember, RosterQueue, RosterTopic, ServerFrame,
};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::config::ROSTER_PAUSE;
use super::hub::Session;
use super::writer::Outbox;
use crate::limiter::Limiter;
use crate::storage::{Present, Storage, StorageError};

/// Runs until `stop`, or until nobody writes any more.
pub(super) async fn run<S: Storage, L: Limiter>(
    shared: Arc<Shared<S, L>>,
    session: Arc<Session>,
    outbox: Outbox,
    stop: CancellationToken,
) {
    let _ = stop
        .run_until_cancelled(async {
            loop {
                tokio::select! {
                    () = session.roster.notified() => {}
                    () = session.log.notified() => {
                        if outbox.send(&ServerFrame::LogGrew {}).await.is_err() {
                            return;
                        }
                        continue;
                    }
                }
                match roster(&shared, session.mesh).await {
                    Ok(roster) => {
                        if outbox.send(&ServerFrame::Roster { roster }).await.is_err() {
                            return;
                        }
                    }
                    // The next change, or the next hello, tells it.
                    Err(error) => tracing::warn!(%error, "the roster could not be read"),
                }
                pause(&session, &outbox).await;
            }
        })
        .await;
}

/// The roster rests for a while; the log does not.
async fn pause(session: &Session, outbox: &Outbox) {
    let rest = tokio::time::sleep(ROSTER_PAUSE);
    tokio::pin!(rest);
    loop {
        tokio::select! {
            () = &mut rest => return,
            () = session.log.notified() => {
                // A writer that has ended is noticed by the next send.
                let _ = outbox.send(&ServerFrame::LogGrew {}).await;
            }
        }
    }
}

/// The roster with who is online, as it is now.
pub(super) async fn roster<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
) -> Result<Roster, StorageError> {
    let as_of = shared.accept.clock.wall();
    let stored = shared.storage().roster(mesh).await?;
    let present = shared.storage().presence(mesh, shared.lease.now()).await?;
    let present: BTreeMap<MemberId, Present> =
        present.into_iter().map(|one| (one.member, one)).collect();
    Ok(Roster {
        members: stored
            .members
            .into_iter()
            .map(|(member, name)| {
                let present = present.get(&member);
                RosterMember {
                    member,
                    name,
                    online: present.is_some_and(|present| present.is_online),
                    since: present.and_then(|present| present.since).map(|at| at.0),
                    as_of: as_of.0,
                }
            })
            .collect(),
        agents: agents(stored.agents),
        topics: stored
            .topics
            .into_iter()
            .map(|entry| RosterTopic {
                topic: entry.topic,
                subscribers: agents(entry.subscribers),
            })
            .collect(),
        queues: stored
            .queues
            .into_iter()
            .map(|queue| RosterQueue { queue })
            .collect(),
    })
}

fn agents(parties: Vec<Party>) -> Vec<RosterAgent> {
    parties
        .into_iter()
        .map(|Party { member, agent }| RosterAgent { member, agent })
        .collect()
}
