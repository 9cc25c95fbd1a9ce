//! Topics and subscriptions. The broker keeps them; the answer waits for its commit.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::names::TopicName;
use heddle_wire::broker::{ReplyResult, Request as Ask};
use heddle_wire::from_wire;
use heddle_wire::ipc::{TopicAnswer, TopicBody, TopicList, TopicPostBody, TopicView};
use heddle_wire::problem::Problem;
use serde::Deserialize;

use super::send::{agent, idempotency_key, send_body};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body, hook_caller};
use crate::mesh::MeshState;

pub(super) async fn create(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: TopicBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let topic = from_wire::topic_name(&body.topic)?;
    let ask = Ask::CreateTopic {
        topic: topic.clone(),
    };
    let changed = change(&ipc, mesh, ask).await?;
    ok(&answer(mesh, topic, changed, None))
}

pub(super) async fn subscribe(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    membership(&ipc, request, |topic, agent| Ask::Subscribe {
        topic,
        agent,
    })
    .await
}

pub(super) async fn unsubscribe(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    membership(&ipc, request, |topic, agent| Ask::Unsubscribe {
        topic,
        agent,
    })
    .await
}

async fn membership(
    ipc: &Ipc,
    request: Request,
    ask: impl FnOnce(TopicName, heddle_core::names::AgentName) -> Ask,
) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: TopicBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let topic = from_wire::topic_name(&body.topic)?;
    let agent = agent(ipc, body.agent.as_deref())?;
    mesh.register(&ipc.shared, &agent).await?;
    let changed = change(ipc, mesh, ask(topic.clone(), agent.clone())).await?;
    ok(&answer(mesh, topic, changed, Some(agent.to_string())))
}

pub(super) async fn post(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: TopicPostBody = body::read(&parts, incoming).await?;
    let key = idempotency_key(&parts.headers)?;
    let body = hook_caller::limit(&ipc, &parts, from_wire::post_as_send(body)?)?;
    Ok(send_body(&ipc, key.as_deref(), body).await?)
}

/// Asks for a change; the caller's next send must resolve.
async fn change(ipc: &Ipc, mesh: &MeshState, ask: Ask) -> Result<bool, Problem> {
    let changed = matches!(mesh.ask(ask).await?, ReplyResult::Ok { changed: true });
    mesh.ask_for_roster(&ipc.shared).await;
    Ok(changed)
}

fn answer(mesh: &MeshState, topic: TopicName, changed: bool, agent: Option<String>) -> TopicAnswer {
    TopicAnswer {
        duplicate: false,
        topic: topic.to_string(),
        mesh: mesh.mesh.name.to_string(),
        changed,
        agent,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    mesh: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    mesh.look_alive(ipc.shared.clock.wall()).await;
    let topics = mesh.with_known(|known| {
        let view = |topic: &heddle_wire::broker::RosterTopic| TopicView {
            topic: topic.topic.to_string(),
            mesh: mesh.mesh.name.to_string(),
            subscribers: topic.subscribers.iter().map(|a| known.address(a)).collect(),
        };
        known.roster.topics.iter().map(view).collect()
    });
    ok(&TopicList {
        topics,
        stale: !mesh.is_answering(),
        as_of: mesh.as_of(),
    })
}
