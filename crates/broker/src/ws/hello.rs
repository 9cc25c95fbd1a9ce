//! The first words: challenge, hello, welcome. Before the welcome nothing else is heard.

use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use heddle_core::fingerprint::hex;
use heddle_core::ids::{HistoryId, Party};
use heddle_core::limits::HELLO_TIMEOUT;
use heddle_core::names::AgentName;
use heddle_core::negotiate::advertise;
use heddle_wire::broker::{BROKER_PROTOCOL, ClientFrame, ServerFrame};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{self, Message};

use super::Shared;
use super::ending::Ending;
use super::herald;
use super::hub::Session;
use super::reader;
use super::writer::Outbox;
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{Storage, StorageError};

/// A connection that is in. Dropping it takes the connection out of the hub and tells the others.
pub(super) struct Registration<S, L> {
    shared: Arc<Shared<S, L>>,
    pub(super) session: Arc<Session>,
}

impl<S, L> Drop for Registration<S, L> {
    fn drop(&mut self) {
        let hub = &self.shared.hub;
        hub.leave(&self.session);
        if !hub.online(self.session.mesh).contains(&self.session.member) {
            hub.roster_changed(self.session.mesh, None);
        }
    }
}

/// What a hello says beyond who it is.
struct Hello {
    agents: Vec<AgentName>,
    seen: HistoryId,
}

/// Takes the connection from its first byte to the welcome.
pub(super) async fn greet<S, L, R>(
    shared: &Arc<Shared<S, L>>,
    principal: &Principal,
    frames: &mut R,
    outbox: &Outbox,
) -> Result<Registration<S, L>, Ending>
where
    S: Storage,
    L: Limiter,
    R: Stream<Item = tungstenite::Result<Message>> + Unpin,
{
    outbox.send(&challenge(shared)).await?;
    let hello = timeout(HELLO_TIMEOUT, hear(principal, frames))
        .await
        .map_err(|_| Ending::HelloTimeout)??;
    let registration = enter(shared, principal).await?;
    settle(shared, principal, &hello).await?;
    let session = &registration.session;
    let storage = shared.storage();
    let welcome = ServerFrame::Welcome {
        epoch: storage.epoch(principal.mesh).await.map_err(refuse)?,
        generation: session.generation,
        features: advertise(shared.config.dedupe, shared.config.policy),
        roster: herald::roster(shared, principal.mesh)
            .await
            .map_err(refuse)?,
    };
    tracing::debug!(member = %principal.member, session.generation, "welcome");
    shared.hub.roster_changed(principal.mesh, Some(session));
    outbox.send(&welcome).await?;
    Ok(registration)
}

fn challenge<S, L>(shared: &Shared<S, L>) -> ServerFrame {
    let mut nonce = [0; 32];
    shared.accept.ids.fill(&mut nonce);
    ServerFrame::Challenge {
        protocol: BROKER_PROTOCOL,
        nonce: hex(&nonce),
    }
}

async fn hear<R>(principal: &Principal, frames: &mut R) -> Result<Hello, Ending>
where
    R: Stream<Item = tungstenite::Result<Message>> + Unpin,
{
    loop {
        match reader::frame(frames.next().await)? {
            None => {}
            Some(ClientFrame::Hello {
                protocol,
                mesh,
                member,
                agents,
                seen,
                ..
            }) => {
                // The name is not compared: the one that was proven counts.
                return match (protocol, mesh, member) {
                    (BROKER_PROTOCOL, m, n) if (m, n) == (principal.mesh, principal.member) => {
                        Ok(Hello { agents, seen })
                    }
                    (BROKER_PROTOCOL, ..) => Err(Ending::IdentityMismatch),
                    _ => Err(Ending::ProtocolMismatch),
                };
            }
            Some(_) => return Err(Ending::Malformed("hello_expected")),
        }
    }
}

/// Numbers the connection and lets it in. Those that it replaces are at rest when this returns, so
/// nothing of theirs can be committed behind the back of the new one.
async fn enter<S: Storage, L: Limiter>(
    shared: &Arc<Shared<S, L>>,
    principal: &Principal,
) -> Result<Registration<S, L>, Ending> {
    let (mesh, member) = (principal.mesh, principal.member);
    let storage = shared.storage();
    storage
        .ensure_member(mesh, member, &principal.member_name)
        .await
        .map_err(refuse)?;
    let generation = storage.begin_session(mesh, member).await.map_err(refuse)?;
    let session = Arc::new(Session::new(mesh, member, generation));
    let replaced = shared.hub.enter(&session, shared.config.policy)?;
    let registration = Registration {
        shared: Arc::clone(shared),
        session,
    };
    for older in replaced {
        if timeout(HELLO_TIMEOUT, older.ended.cancelled())
            .await
            .is_err()
        {
            tracing::warn!(%member, older.generation, "a replaced connection does not end");
        }
    }
    Ok(registration)
}

/// Registers the agents.
async fn settle<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    hello: &Hello,
) -> Result<(), Ending> {
    let (mesh, member) = (principal.mesh, principal.member);
    let storage = shared.storage();
    for agent in &hello.agents {
        let party = Party {
            member,
            agent: agent.clone(),
        };
        storage.register_agent(mesh, &party).await.map_err(refuse)?;
    }
    let _ = hello.seen;
    Ok(())
}

fn refuse(error: StorageError) -> Ending {
    tracing::warn!(%error, "a hello could not be served");
    match error {
        StorageError::UnknownMesh(_) => Ending::UnknownMesh,
        _ => Ending::StorageUnavailable,
    }
}
