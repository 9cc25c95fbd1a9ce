//! The mailboxes of this home.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_store::AgentRow;
use heddle_wire::ipc::{AgentBody, AgentList, AgentView};
use serde::Deserialize;

use super::send::agent;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

pub(super) async fn register(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: AgentBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let agent = agent(&ipc, Some(&body.agent))?;
    let fresh = mesh.register(&ipc.shared, &agent).await?;
    let rows = ipc.shared.store.agents(mesh.mesh.mesh).await;
    let rows = rows.map_err(|error| store_problem(&error))?;
    let row = rows.into_iter().find(|row| row.agent == agent);
    let now = ipc.shared.clock.wall();
    let row = row.unwrap_or(AgentRow {
        agent,
        registered_at: now,
        unread: 0,
    });
    ok(&AgentView {
        duplicate: (!fresh).then_some(true),
        ..view(mesh, &row)
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    mesh: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let rows = ipc.shared.store.agents(mesh.mesh.mesh).await;
    let rows = rows.map_err(|error| store_problem(&error))?;
    ok(&AgentList {
        agents: rows.iter().map(|row| view(mesh, row)).collect(),
    })
}

fn view(mesh: &MeshState, row: &AgentRow) -> AgentView {
    AgentView {
        agent: row.agent.to_string(),
        mesh: mesh.mesh.name.to_string(),
        address: mesh.address(mesh.mesh.member, &row.agent),
        unread: row.unread,
        registered_at: row.registered_at.to_rfc3339(),
        duplicate: None,
    }
}
