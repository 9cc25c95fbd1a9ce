//! The routes, one file per noun. Adding one touches its file and one line in `table`.

mod agent;
mod data;
mod data_story;
mod discover;
mod effect;
mod effect_table;
mod events;
mod explain;
mod explain_own;
mod explain_times;
mod file;
mod file_get;
pub(super) mod inbox;
mod inbox_known;
mod inbox_marks;
mod inbox_search;
mod inbox_thread;
mod kept;
mod keyed;
mod lost_claim;
mod lost_write;
mod memory;
mod mesh;
mod mesh_standing;
mod message_story;
#[cfg(test)]
mod openapi;
mod outbox;
mod peer_grants;
mod peers;
mod publish;
mod queue;
mod re_embed;
mod route;
pub(super) mod send;
mod state;
mod status;
mod sync;
mod table;
mod table_data;
mod task;
mod task_view;
mod topic;
mod upkeep;
mod vector;
mod warnings;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use heddle_core::error_code::ErrorCode;
use heddle_wire::problem::Problem;
use http::Method;

use super::reply::Refuse;
use super::{Ipc, body};
use route::Key;

/// The hot one: the door takes a post to it past the router.
pub(super) const SEND: &str = "/v1/send";
pub(super) const TOPIC_POST: &str = "/v1/topic/post";
const AGENT_REGISTER: &str = "/v1/agent/register";
/// What a home does with its meshes: under one key, whichever it names. A join and a create name one that is not there yet.
const OF_ALL_MESHES: [&str; 3] = [MESH_CREATE, MESH_JOIN, MESH_PUBLISH];
const MESH_CREATE: &str = "/v1/mesh/create";
const MESH_JOIN: &str = "/v1/mesh/join";
const MESH_PUBLISH: &str = "/v1/mesh/publish";

pub(super) use keyed::Running;

pub(super) fn router(ipc: Arc<Ipc>) -> Router {
    let table = table::routes().into_iter();
    let router = table.fold(Router::new(), |router, route| {
        let handler = match route.key {
            Key::Gate => {
                let gate = from_fn_with_state(Arc::clone(&ipc), keyed::gate);
                route.handler.layer(gate)
            }
            Key::Own | Key::None => route.handler,
        };
        let handler = match (route.has_query, route.method) {
            (true, _) => handler,
            // A get beside it may be another route, with parameters of its own.
            (false, "post") => handler.layer(from_fn(refuse_query_of_post)),
            (false, _) => handler.layer(from_fn(refuse_query)),
        };
        router.route(route.path, handler)
    });
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&ipc), warnings::tell))
        .with_state(ipc)
}

/// Whether a path is a stream, which counts against the streams and not the requests.
pub(super) fn is_stream(path: &str) -> bool {
    path == "/v1/events"
}

/// Whether a path is for looking after the daemon: it keeps places of its own.
pub(super) fn is_house(path: &str) -> bool {
    matches!(
        path,
        "/v1/status" | "/v1/health" | "/v1/metrics" | "/v1/version" | "/v1/shutdown"
    )
}

/// For routes without parameters: whoever sends one expects something of it.
async fn refuse_query(request: Request, next: Next) -> Result<Response, Refuse> {
    body::refuse_query(request.uri())?;
    Ok(next.run(request).await)
}

async fn refuse_query_of_post(request: Request, next: Next) -> Result<Response, Refuse> {
    if request.method() == Method::POST {
        body::refuse_query(request.uri())?;
    }
    Ok(next.run(request).await)
}

async fn not_found() -> Refuse {
    let problem = Problem::new(ErrorCode::NotFound, "there is no such route");
    Refuse(problem.next("GET /v1/openapi.json lists every route."))
}

async fn method_not_allowed() -> Refuse {
    let detail = "this route takes another method";
    Refuse(Problem::new(ErrorCode::MethodNotAllowed, detail))
}
