//! `/v1/effect/…`: effects that happen once. Whoever decides about the mesh answers; this carries.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_wire::broker::{EffectAnswer, EffectCall};
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    EffectApproveBody, EffectCompensateBody, EffectEndBody, EffectRegisterBody, EffectRequestBody,
    EffectResolveBody, EffectStartBody, EffectVerifyBody,
};
use heddle_wire::problem::Problem;
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::send::{agent, idempotency_key};
use crate::effects::Scope;
use crate::ipc::reply::{Answered, json, ok};
use crate::ipc::{Ipc, body};

/// A call for a mesh and a mailbox of this home.
pub(super) async fn asked(
    ipc: &Ipc,
    (mesh, name): (Option<&str>, Option<&str>),
    id: Option<String>,
    call: EffectCall,
) -> Result<EffectAnswer, Problem> {
    let agent = agent(ipc, name)?;
    let scope = Scope {
        shared: &ipc.shared,
        mesh: ipc.shared.mesh(mesh)?,
        agent: &agent,
    };
    ipc.effects.ask(&scope, id, call).await
}

fn shown(answer: EffectAnswer) -> Answered {
    match answer {
        EffectAnswer::Requested(answer) if answer.status == "waiting_for_broker" => {
            Ok(json(StatusCode::ACCEPTED, &answer))
        }
        EffectAnswer::Requested(answer) => ok(&answer),
        EffectAnswer::Approved(answer) => ok(&answer),
        EffectAnswer::View(view) => ok(&view),
        EffectAnswer::List(list) => ok(&list),
        EffectAnswer::Log(log) => ok(&log),
        EffectAnswer::Story(story) => ok(&story),
        EffectAnswer::Surface(surface) => ok(&surface),
        // Between a home and a broker; nobody asks for it here.
        handed @ EffectAnswer::HandedOver { .. } => ok(&handed),
    }
}

/// Every call that changes something takes an `Idempotency-Key` (CONTRACT).
async fn change<T: DeserializeOwned>(
    ipc: &Ipc,
    request: Request,
    call: fn(T) -> EffectCall,
) -> Answered {
    let (parts, incoming) = request.into_parts();
    let call = call(body::read(&parts, incoming).await?);
    let header = idempotency_key(&parts.headers)?;
    let id = from_wire::client_message_id(header.as_deref(), None)?;
    let (mesh, agent) = call.scope();
    let id = id.map(|id| id.to_string());
    // Boxed: it holds whole calls between a home and a broker, and eight routes would each hold it.
    let asked = Box::pin(asked(ipc, (mesh.as_deref(), agent.as_deref()), id, call));
    shown(asked.await?)
}

pub(super) async fn request(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectRequestBody>(&ipc, request, EffectCall::Request).await
}

pub(super) async fn approve(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectApproveBody>(&ipc, request, EffectCall::Approve).await
}

pub(super) async fn deny(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectApproveBody>(&ipc, request, EffectCall::Deny).await
}

pub(super) async fn register(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectRegisterBody>(&ipc, request, EffectCall::Register).await
}

pub(super) async fn start(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectStartBody>(&ipc, request, EffectCall::Start).await
}

pub(super) async fn finish(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectEndBody>(&ipc, request, EffectCall::Finish).await
}

pub(super) async fn resolve(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectResolveBody>(&ipc, request, EffectCall::Resolve).await
}

pub(super) async fn verify(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectVerifyBody>(&ipc, request, EffectCall::Verify).await
}

pub(super) async fn compensate(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectCompensateBody>(&ipc, request, EffectCall::Compensate).await
}

pub(super) async fn compensated(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change::<EffectEndBody>(&ipc, request, EffectCall::Compensated).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusQuery {
    key: String,
    mesh: Option<String>,
    agent: Option<String>,
}

/// What became of a key: the way back after a lost answer (C14). 404 when it was never consumed.
pub(super) async fn status(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: StatusQuery = body::query(&request.into_parts().0)?;
    let scope = (query.mesh.as_deref(), query.agent.as_deref());
    let call = EffectCall::Status { key: query.key };
    shown(asked(&ipc, scope, None, call).await?)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    limit: Option<usize>,
    /// The cursor of the page before.
    cursor: Option<String>,
    mesh: Option<String>,
    agent: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let scope = (query.mesh.as_deref(), query.agent.as_deref());
    let limit = body::page_rows(query.limit)?;
    let cursor = query.cursor;
    let call = EffectCall::List { limit, cursor };
    shown(asked(&ipc, scope, None, call).await?)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    key: Option<String>,
    limit: Option<usize>,
    /// The cursor of the page before.
    cursor: Option<String>,
    mesh: Option<String>,
    agent: Option<String>,
}

pub(super) async fn log(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: LogQuery = body::query(&request.into_parts().0)?;
    let scope = (query.mesh.as_deref(), query.agent.as_deref());
    let limit = body::page_rows(query.limit)?;
    let call = EffectCall::Log {
        key: query.key,
        limit,
        cursor: query.cursor,
    };
    shown(asked(&ipc, scope, None, call).await?)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SurfaceQuery {
    mesh: Option<String>,
    agent: Option<String>,
}

pub(super) async fn surface_check(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: SurfaceQuery = body::query(&request.into_parts().0)?;
    let scope = (query.mesh.as_deref(), query.agent.as_deref());
    shown(asked(&ipc, scope, None, EffectCall::SurfaceCheck).await?)
}

/// `GET /v1/explain/{id}` where the id is one of an effect, or a key of one behind `effect:`.
pub(super) async fn story(
    ipc: &Ipc,
    scope: (Option<&str>, Option<&str>),
    id: &str,
) -> Result<EffectAnswer, Problem> {
    let id = id.strip_prefix("effect:").unwrap_or(id).to_owned();
    asked(ipc, scope, None, EffectCall::Story { id }).await
}

/// The story as an answer.
pub(super) fn told(answer: EffectAnswer) -> Answered {
    shown(answer)
}
