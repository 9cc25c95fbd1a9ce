//! `POST /v1/send`: the accept of a message.

use std::fmt::Display;
use std::sync::{Arc, LazyLock};

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use heddle_core::envelope::SendRequest;
use heddle_core::ids::ClientMessageId;
use heddle_core::names::AgentName;
use heddle_store::OutboxFind;
use heddle_wire::from_wire;
use heddle_wire::ipc::SendBody;
use heddle_wire::problem::Problem;
use http::StatusCode;
use http_body::Body;

use crate::hooks::{Outgoing, ask_before_send};
use crate::ipc::reply::{Answered, json};
use crate::ipc::{Ipc, body, hook_caller};
use crate::mesh::MeshState;
use crate::outbox::accept::{Answer, accept};
use crate::shared::store_problem;

/// Looked up once: a look-up for each message would cost more than what it counts.
static ACCEPT_SECONDS: LazyLock<metrics::Histogram> =
    LazyLock::new(|| metrics::histogram!("heddle_ipc_accept_seconds"));

/// The header that carries the caller's id.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

pub(super) async fn send(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    accept_one(&ipc, request).await
}

/// The same for the door, which brings the one request that must be fast past the router.
pub(in crate::ipc) async fn accept_one<B>(ipc: &Ipc, request: http::Request<B>) -> Answered
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let (parts, incoming) = request.into_parts();
    body::no_query(&parts)?;
    let body: SendBody = body::read(&parts, incoming).await?;
    let body = hook_caller::limit(ipc, &parts, body)?;
    let key = idempotency_key(&parts.headers)?;
    Ok(send_body(ipc, key.as_deref(), body).await?)
}

/// The header as text; two of them, or one that is not text, name no id.
pub(super) fn idempotency_key(headers: &http::HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = std::str::from_utf8(value.as_bytes())
        .map_err(|_| from_wire::invalid("the Idempotency-Key is not UTF-8"))?;
    if values.next().is_some() {
        return Err(from_wire::invalid("there are two Idempotency-Key headers"));
    }
    Ok(Some(text.to_owned()))
}

/// Everything behind the parsing; also what a topic post goes through.
pub(super) async fn send_body(
    ipc: &Ipc,
    key: Option<&str>,
    body: SendBody,
) -> Result<Response, Problem> {
    Ok(match answer(ipc, key, body).await? {
        Answer::Accepted(answer) => json(StatusCode::ACCEPTED, &answer),
        Answer::Duplicate(answer) => json(StatusCode::OK, &answer),
    })
}

/// The same before it is rendered, for the lane, which does that by itself.
pub(in crate::ipc) async fn answer(
    ipc: &Ipc,
    key: Option<&str>,
    mut body: SendBody,
) -> Result<Answer, Problem> {
    let started = ipc.shared.clock.mono();
    let id = from_wire::client_message_id(key, body.client_message_id.as_deref())?;
    let request = from_wire::take_send_request(&mut body)?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let agent = agent(ipc, body.agent.as_deref())?;
    mesh.register(&ipc.shared, &agent).await?;
    if ipc.hooks.guards_sends() {
        ask_first(ipc, mesh, &agent, id.as_ref(), &request).await?;
    }
    let answer = accept(&ipc.shared, mesh, agent, id, request).await?;
    let elapsed = ipc.shared.clock.mono().saturating_sub(started);
    ACCEPT_SECONDS.record(elapsed.as_secs_f64());
    Ok(answer)
}

/// Asks the home's own hook, but only about what is new: a known id is answered from its row (C47).
async fn ask_first(
    ipc: &Ipc,
    mesh: &MeshState,
    agent: &AgentName,
    id: Option<&ClientMessageId>,
    request: &SendRequest,
) -> Result<(), Problem> {
    if let Some(id) = id {
        let found = ipc.shared.store.outbox_find(OutboxFind::ClientMessageId {
            id: id.clone(),
            mesh: Some(mesh.mesh.mesh),
            agent: Some(agent.clone()),
        });
        let found = found.await.map_err(|error| store_problem(&error))?;
        if !found.is_empty() {
            return Ok(());
        }
    }
    let outgoing = Outgoing {
        mesh: &mesh.mesh.name,
        agent,
        id,
        request,
    };
    ask_before_send(&ipc.shared, &ipc.hooks, outgoing).await
}

/// The mailbox that the caller speaks for; the person's by default. A call is a sign of life.
pub(in crate::ipc) fn agent(ipc: &Ipc, name: Option<&str>) -> Result<AgentName, Problem> {
    let agent = match name {
        None => ipc.default_agent.clone(),
        Some(name) => AgentName::parse(name.strip_prefix('@').unwrap_or(name))
            .map_err(|error| from_wire::invalid(error.to_string()))?,
    };
    let shared = &ipc.shared;
    shared.tasks.note(shared.clock.as_ref(), &agent);
    Ok(agent)
}
