//! `GET /v1/inbox/known`: whether an id names a message that an agent was sent or has sent.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::ids::{ClientMessageId, Party};
use heddle_store::{AckedItems, InboxFilter, OutboxFind};
use heddle_wire::broker::RosterAgent;
use heddle_wire::from_wire;
use heddle_wire::ipc::KnownAnswer;
use heddle_wire::problem::Problem;
use serde::Deserialize;

use super::inbox::{InboxQuery, filter, must_be_own};
use super::send::agent;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

/// Possible senders that are tried; in a mesh with more of them nothing is said against an id.
const SENDERS_MAX: usize = 2_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Query {
    id: String,
    agent: Option<String>,
    mesh: Option<String>,
}

pub(super) async fn known(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: Query = body::query(&request.into_parts().0)?;
    let id = ClientMessageId::parse(&query.id);
    let id = id.map_err(|error| from_wire::invalid(error.to_string()))?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let owner = agent(&ipc, query.agent.as_deref())?;
    must_be_own(mesh, &owner)?;
    let known = is_known(&ipc, mesh, mesh.party(owner.clone()), &id).await?;
    let instead = if known {
        None
    } else {
        at_place(&ipc, mesh, mesh.party(owner), &query.id).await?
    };
    ok(&KnownAnswer {
        id: query.id,
        known,
        instead,
    })
}

async fn is_known(
    ipc: &Ipc,
    mesh: &MeshState,
    owner: Party,
    id: &ClientMessageId,
) -> Result<bool, Problem> {
    let senders: Vec<Party> = mesh.with_known(|known| {
        let party = |one: RosterAgent| Party {
            member: one.member,
            agent: one.agent,
        };
        known.agents().into_iter().map(party).collect()
    });
    if senders.len() > SENDERS_MAX {
        return Ok(true);
    }
    let store = &ipc.shared.store;
    let received = store.inbox_knows(mesh.mesh.mesh, senders, id.clone(), owner.agent);
    if received.await.map_err(|error| store_problem(&error))? {
        return Ok(true);
    }
    let sent = store.outbox_find(OutboxFind::ClientMessageId {
        id: id.clone(),
        mesh: Some(mesh.mesh.mesh),
        agent: None,
    });
    let sent = sent.await.map_err(|error| store_problem(&error))?;
    Ok(!sent.is_empty())
}

/// A list shows a message's place first, and people take that for its id.
async fn at_place(
    ipc: &Ipc,
    mesh: &MeshState,
    owner: Party,
    text: &str,
) -> Result<Option<String>, Problem> {
    let Ok(place) = text.parse::<i64>() else {
        return Ok(None);
    };
    let one = InboxFilter {
        agent: Some(owner.agent),
        after: Some(place.saturating_sub(1)),
        acked: AckedItems::All,
        limit: 1,
        ..filter(Some(mesh.mesh.mesh), &InboxQuery::default())?
    };
    let found = ipc.shared.store.inbox_page(one).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let row = found.into_iter().find(|row| row.arrival == place);
    Ok(row.map(|row| row.client_message_id.to_string()))
}
