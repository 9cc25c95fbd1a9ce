//! The first words: challenge, hello, welcome. Before the welcome nothing else is heard.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use heddle_core::ids::{HistoryId, Party};
use heddle_core::limits::{HELLO_TIMEOUT, NONCE_LIFE};
use heddle_core::membership::{NONCE_BYTES, Nonce};
use heddle_core::names::{AgentName, MeshName};
use heddle_core::negotiate::{ConnectionPolicy, advertise};
use heddle_core::witness::{WITNESSES_MAX, Witness};
use heddle_wire::broker::{BROKER_PROTOCOL, ClientFrame, ServerFrame};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{self, Message};

use super::Shared;
use super::config::WRITE_TIMEOUT;
use super::ending::Ending;
use super::enrol::{self, Claiming};
use super::herald;
use super::hub::Session;
use super::identify::{self, Said};
use super::marks;
use super::pulse;
use super::reader;
use super::writer::Outbox;
use crate::limiter::Limiter;
use crate::principal::{Claim, Principal};
use crate::storage::{Storage, StorageError};

/// A connection that is in. Dropping it takes the connection out of the hub and tells the others.
pub(super) struct Registration<S: Storage, L: Limiter> {
    shared: Arc<Shared<S, L>>,
    pub(super) session: Arc<Session>,
}

impl<S: Storage, L: Limiter> Registration<S, L> {
    /// Gives the lease back and leaves. One that cannot be given back runs out by itself.
    pub(super) async fn end(self) {
        let Session {
            mesh,
            member,
            generation,
            ..
        } = *self.session;
        let at = self.shared.accept.clock.wall();
        let ending = self
            .shared
            .storage()
            .end_session(mesh, member, generation, at);
        match timeout(WRITE_TIMEOUT, ending).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a session's lease was not given back"),
            Err(_) => tracing::warn!("a session's lease was not given back in time"),
        }
    }
}

impl<S: Storage, L: Limiter> Drop for Registration<S, L> {
    fn drop(&mut self) {
        let hub = &self.shared.hub;
        hub.leave(&self.session);
        let unanswered = self.shared.relays.leave(&self.session);
        self.shared.tell_refused(unanswered);
        if !hub.online(self.session.mesh).contains(&self.session.member) {
            self.shared.roster_changed(self.session.mesh, None);
        }
    }
}

/// What a hello says beyond who it is.
struct Hello {
    agents: Vec<AgentName>,
    seen: HistoryId,
    witnesses: Vec<Witness>,
}

/// The first frame of a peer.
enum Heard {
    Hello(Said, Hello),
    Claim(Claiming),
}

/// Takes the connection from its first byte to the welcome.
pub(super) async fn greet<S, L, R>(
    shared: &Arc<Shared<S, L>>,
    claim: &Claim,
    frames: &mut R,
    outbox: &Outbox,
) -> Result<(Principal, Registration<S, L>), Ending>
where
    S: Storage,
    L: Limiter,
    R: Stream<Item = tungstenite::Result<Message>> + Unpin,
{
    // Of this connection alone, and good for its first frame: used once, and not for long.
    let mut nonce = Nonce([0; NONCE_BYTES]);
    shared.accept.ids.fill(&mut nonce.0);
    let answered = async {
        outbox.send(&challenge(shared, nonce).await?).await?;
        hear(frames).await
    };
    let heard = timeout(NONCE_LIFE, answered).await;
    let (said, hello) = match heard.map_err(|_| Ending::HelloTimeout)?? {
        Heard::Hello(said, hello) => (said, hello),
        Heard::Claim(claiming) => return Err(enrol::claim(shared, nonce, claiming, outbox).await),
    };
    let principal = identify::identify(shared, claim, nonce, said).await?;
    if let Claim::Bearer(name) = claim {
        make_mesh(shared, &principal, name).await?;
    }
    let registration = enter(shared, &principal).await?;
    settle(shared, &principal, hello).await?;
    let session = &registration.session;
    let storage = shared.storage();
    let welcome = ServerFrame::Welcome {
        epoch: storage.epoch(principal.mesh).await.map_err(refuse)?,
        generation: session.generation,
        features: serde_json::to_value(advertise(shared.config.dedupe, shared.config.policy))
            .unwrap_or_default(),
        roster: herald::roster(shared, principal.mesh)
            .await
            .map_err(refuse)?,
    };
    tracing::debug!(member = %principal.member, session.generation, "welcome");
    shared.roster_changed(principal.mesh, Some(session));
    outbox.send(&welcome).await?;
    Ok((principal, registration))
}

/// A bearer's mesh exists from its first hello on, and keeps the name that it was given then.
async fn make_mesh<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    name: &MeshName,
) -> Result<(), Ending> {
    let storage = shared.storage();
    match storage.epoch(principal.mesh).await {
        Err(StorageError::UnknownMesh(mesh)) => {
            storage.ensure_mesh(mesh, name).await.map_err(refuse)?;
            tracing::info!(%mesh, %name, "a new mesh");
            Ok(())
        }
        other => other.map(|_| ()).map_err(refuse),
    }
}

async fn challenge<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    nonce: Nonce,
) -> Result<ServerFrame, Ending> {
    Ok(ServerFrame::Challenge {
        protocol: BROKER_PROTOCOL,
        nonce: nonce.to_string(),
        broker: Some(shared.broker_id().await.map_err(refuse)?),
    })
}

async fn hear<R>(frames: &mut R) -> Result<Heard, Ending>
where
    R: Stream<Item = tungstenite::Result<Message>> + Unpin,
{
    let checked = |protocol: u32| match protocol {
        BROKER_PROTOCOL => Ok(()),
        _ => Err(Ending::ProtocolMismatch),
    };
    loop {
        match reader::frame(frames.next().await)? {
            None => {}
            Some(ClientFrame::Hello {
                protocol,
                mesh,
                member,
                member_name,
                agents,
                seen,
                witnesses,
                signature,
            }) => {
                checked(protocol)?;
                if !seen.is_possible() {
                    return Err(Ending::Malformed("no_such_place"));
                }
                if witnesses.len() > WITNESSES_MAX {
                    return Err(Ending::Malformed("too_many_witnesses"));
                }
                let said = Said {
                    principal: Principal {
                        mesh,
                        member,
                        member_name,
                    },
                    signature,
                };
                let hello = Hello {
                    agents,
                    seen,
                    witnesses,
                };
                return Ok(Heard::Hello(said, hello));
            }
            Some(ClientFrame::Claim {
                protocol,
                link,
                name,
                key,
                signature,
            }) => {
                checked(protocol)?;
                return Ok(Heard::Claim(Claiming {
                    link,
                    name,
                    key,
                    signature,
                }));
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
    shared
        .lease
        .go_on_from(storage.lease_time(mesh).await.map_err(refuse)?);
    if is_elsewhere(shared, principal).await? {
        return Err(Ending::RefusedForOlder);
    }
    let since = shared.accept.clock.wall();
    let generation = storage
        .begin_session(mesh, member, since, pulse::until(shared))
        .await
        .map_err(refuse)?;
    let session = Arc::new(Session::new(mesh, member, generation));
    let registration = Registration {
        shared: Arc::clone(shared),
        session,
    };
    let entered = shared
        .hub
        .enter(&registration.session, shared.config.policy);
    let replaced = match entered {
        Ok(replaced) => replaced,
        Err(ending) => {
            registration.end().await;
            return Err(ending);
        }
    };
    shared.session_began(&registration.session);
    // It may have been shut out or blocked after its proof was looked at and before it could be cut.
    let credentials = storage.credentials(mesh, member).await.map_err(refuse)?;
    if let Some(bar) = credentials.standing.and_then(|standing| standing.bar()) {
        registration.end().await;
        return Err(Ending::Denied(bar.into()));
    }
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

/// Where the oldest connection stays: whether another broker has one of this member.
async fn is_elsewhere<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
) -> Result<bool, Ending> {
    let storage = shared.storage();
    if shared.config.policy != ConnectionPolicy::PreferOldest || !storage.is_shared() {
        return Ok(false);
    }
    let present = storage.presence(principal.mesh, shared.lease.now()).await;
    let present = present.map_err(refuse)?;
    let mut own = present.iter().filter(|one| one.member == principal.member);
    Ok(own.any(|one| one.is_online))
}

/// Registers the agents, and makes sure that the history is not behind its readers.
async fn settle<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    hello: Hello,
) -> Result<(), Ending> {
    let (mesh, member) = (principal.mesh, principal.member);
    let storage = shared.storage();
    let known = storage.roster(mesh).await.map_err(refuse)?.agents;
    let known: HashSet<&AgentName> = known
        .iter()
        .filter(|one| one.member == member)
        .map(|one| &one.agent)
        .collect();
    // A home that comes back has no new one, as a rule: each would be a write of its own.
    for agent in hello.agents.iter().filter(|agent| !known.contains(agent)) {
        let party = Party {
            member,
            agent: agent.clone(),
        };
        storage.register_agent(mesh, &party).await.map_err(refuse)?;
    }
    let by = marks::By::Member(member);
    let compared = marks::compare(shared, mesh, (hello.seen, hello.witnesses), by);
    compared.await.map_err(refuse)?;
    Ok(())
}

pub(super) fn refuse(error: StorageError) -> Ending {
    tracing::warn!(%error, "a hello could not be served");
    match error {
        StorageError::UnknownMesh(_) => Ending::UnknownMesh,
        _ => Ending::StorageUnavailable,
    }
}
