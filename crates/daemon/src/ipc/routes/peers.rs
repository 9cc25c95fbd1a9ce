//! `GET /v1/peers`: who is in the mesh, and how fresh that knowledge is (C29).

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_wire::ipc::{PeerList, PeerView};
use serde::Deserialize;

use super::send::agent;
use super::warnings;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    pub(super) mesh: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeersQuery {
    mesh: Option<String>,
    /// Who asks: what it has lost is told with the answer.
    #[serde(default)]
    agent: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: PeersQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    warnings::hears(mesh, &agent(&ipc, query.agent.as_deref())?);
    mesh.look_alive(ipc.shared.clock.wall()).await;
    let connected = mesh.is_answering();
    let peers = mesh.with_known(|known| {
        let view = |agent: &heddle_wire::broker::RosterAgent| {
            let member = known
                .roster
                .members
                .iter()
                .find(|m| m.member == agent.member);
            PeerView {
                member: known
                    .member_name(agent.member)
                    .map_or_else(|| agent.member.to_string(), ToString::to_string),
                agent: agent.agent.to_string(),
                address: known.address(agent),
                mesh: mesh.mesh.name.to_string(),
                own: agent.member == known.own_member,
                // Unknown is not "offline": without the broker nobody can tell.
                online: if connected {
                    member.map(|m| m.online)
                } else {
                    None
                },
            }
        };
        known.agents().iter().map(view).collect()
    });
    ok(&PeerList {
        peers,
        stale: !connected,
        as_of: mesh.as_of(),
        warnings: Vec::new(),
    })
}
