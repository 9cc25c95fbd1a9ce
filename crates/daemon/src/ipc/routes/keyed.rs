//! The `Idempotency-Key` of every call that has no gate of its own (CONTRACT): the same key and request get the first answer with
//! `duplicate: true`, another request 409. It stands before the handler, so that a route obeys by being in the table.
//!
//! Which calls have a gate of their own, the table says ([`super::route::Key`]). What a crash or a lost connection leaves open is
//! told by [`heddle_store::Called`].

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use heddle_core::data::change_fingerprint;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{ClientMessageId, MeshId, OpId};
use heddle_core::limits::RESPONSE_BYTES_MAX;
use heddle_core::names::AgentName;
use heddle_store::{Called, ChangeKey};
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;
use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::send::{IDEMPOTENCY_KEY, idempotency_key};
use crate::ipc::reply::{Refuse, json as reply};
use crate::ipc::{Ipc, body};
use crate::shared::{lock, store_problem};

/// A longer answer is not kept: the call counts as one whose end nobody knows, and is run again.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The calls under a key that run now.
pub(in crate::ipc) type Running = Mutex<HashSet<(MeshId, AgentName, ClientMessageId)>>;

pub(super) async fn gate(
    State(ipc): State<Arc<Ipc>>,
    request: Request,
    next: Next,
) -> Result<Response, Refuse> {
    if request.method() != Method::POST {
        return Ok(next.run(request).await);
    }
    if !request.headers().contains_key(IDEMPOTENCY_KEY) {
        return Ok(next.run(request).await);
    }
    let (parts, incoming) = request.into_parts();
    // Before anything is refused: a client that still writes would be cut off, and never read why.
    let bytes = body::bytes(&parts, incoming).await?;
    let id = idempotency_key(&parts.headers)?.unwrap_or_default();
    let id = ClientMessageId::parse(&id).map_err(|error| from_wire::invalid(error.to_string()))?;
    let again = |parts: Parts| Request::from_parts(parts, Body::from(bytes.clone()));
    // What is no request at all consumes no key: its handler says what is wrong with it.
    let Some(key) = key(&ipc, &parts, &bytes, id)? else {
        return Ok(next.run(again(parts)).await);
    };
    let _turn = Turn::take(&ipc.load.calls, &key)?;
    let called = ipc.shared.store.begin_call(key.clone()).await;
    let is_again = match called.map_err(|error| store_problem(&error))? {
        Called::Fresh => false,
        Called::Unknown => true,
        Called::Duplicate(answer) => return Ok(reply(StatusCode::OK, &as_duplicate(answer))),
        Called::Conflict { stored, at } => {
            let detail = format!(
                "id {} belongs to another request of {}",
                key.id,
                at.to_rfc3339()
            );
            let problem = Problem::new(ErrorCode::IdempotencyKeyReused, detail)
                .with("conflict", "request_fingerprint_mismatch")
                .with("client_message_id", key.id.to_string())
                .with("daemon_fingerprint_prefix", stored.prefix());
            return Err(problem.into());
        }
    };
    let answered = next.run(again(parts)).await;
    settle(&ipc, key, answered, is_again).await
}

/// Keeps the answer, or gives the key back where it was refused.
async fn settle(
    ipc: &Ipc,
    key: ChangeKey,
    answered: Response,
    is_again: bool,
) -> Result<Response, Refuse> {
    let (head, body) = answered.into_parts();
    let store = &ipc.shared.store;
    let kept = if head.status.is_success() {
        let bytes = to_bytes(body, RESPONSE_BYTES_MAX.saturating_mul(2)).await;
        let bytes = bytes.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
        let answer: Option<Value> = serde_json::from_slice(&bytes).ok();
        let kept = match answer.clone().filter(|_| bytes.len() <= ANSWER_BYTES_MAX) {
            Some(answer) => store.end_call(key, answer).await,
            None => Ok(()),
        };
        let answered = match answer {
            // That it was asked for before is all that is known of the first time.
            Some(answer) if is_again => reply(head.status, &as_duplicate(answer)),
            _ => Response::from_parts(head, Body::from(bytes)),
        };
        (kept, answered)
    } else if head.status.is_client_error() && !is_again {
        let given_back = store.take_back_call(key).await;
        (given_back, Response::from_parts(head, body))
    } else {
        (Ok(()), Response::from_parts(head, body))
    };
    let (kept, answered) = kept;
    if let Err(error) = kept {
        // It was done, and the same call again does it once more; both are true, and the caller needs not wait for it.
        tracing::warn!(%error, "the answer of a call is not kept under its key");
    }
    Ok(answered)
}

fn as_duplicate(mut answer: Value) -> Value {
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("duplicate".to_owned(), Value::Bool(true));
    }
    answer
}

/// Whose key it is, and what it stands for. Nothing where the request cannot be one.
fn key(
    ipc: &Ipc,
    parts: &Parts,
    bytes: &[u8],
    id: ClientMessageId,
) -> Result<Option<ChangeKey>, Problem> {
    let fields: Value = match bytes {
        [] => Value::Null,
        bytes => match serde_json::from_slice(bytes) {
            Ok(fields) => fields,
            Err(_) => return Ok(None),
        },
    };
    let path = parts.uri.path();
    let named = fields["mesh"].as_str();
    let named = named.filter(|_| !super::OF_ALL_MESHES.contains(&path));
    let Ok(mesh) = ipc.shared.mesh(named) else {
        return Ok(None);
    };
    // A mailbox that is made is what the call is about, and nobody's caller.
    let named = fields["agent"]
        .as_str()
        .filter(|_| path != super::AGENT_REGISTER);
    let agent = match named {
        None => ipc.default_agent.clone(),
        Some(name) => match AgentName::parse(name.strip_prefix('@').unwrap_or(name)) {
            Ok(agent) => agent,
            Err(_) => return Ok(None),
        },
    };
    let what = json!({"query": parts.uri.query(), "body": fields});
    let fingerprint = change_fingerprint(path, &what);
    Ok(Some(ChangeKey {
        mesh: mesh.mesh.mesh,
        peer: mesh.party(agent),
        id,
        fingerprint: fingerprint.map_err(|error| from_wire::invalid(error.to_string()))?,
        op: OpId::from_bytes([0; 16]),
        now: ipc.shared.clock.wall(),
    }))
}

/// One call at a time under a key: the second one would not know of the first.
struct Turn<'r> {
    running: &'r Running,
    key: (MeshId, AgentName, ClientMessageId),
}

impl<'r> Turn<'r> {
    fn take(running: &'r Running, key: &ChangeKey) -> Result<Self, Problem> {
        let key = (key.mesh, key.peer.agent.clone(), key.id.clone());
        if !lock(running).insert(key.clone()) {
            let detail = format!("the first call under id {} still runs", key.2);
            return Err(Problem::new(ErrorCode::DaemonBusy, detail)
                .next("Ask again under the same id in a moment."));
        }
        Ok(Self { running, key })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(self.running).remove(&self.key);
    }
}
