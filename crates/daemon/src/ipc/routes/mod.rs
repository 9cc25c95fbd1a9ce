//! The routes, one file per noun. Adding one touches its file and one line here.

mod agent;
mod events;
pub(super) mod inbox;
mod inbox_marks;
mod inbox_search;
mod outbox;
mod peers;
pub(super) mod send;
mod status;
mod topic;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use heddle_core::error_code::ErrorCode;
use heddle_wire::problem::Problem;

use super::Ipc;
use super::reply::Refuse;

/// The hot one: the door takes a post to it past the router.
pub(super) const SEND: &str = "/v1/send";

pub(super) fn router(ipc: Arc<Ipc>) -> Router {
    Router::new()
        .route(SEND, post(send::send))
        .route("/v1/topic/create", post(topic::create))
        .route("/v1/topic/post", post(topic::post))
        .route("/v1/topic/subscribe", post(topic::subscribe))
        .route("/v1/topic/unsubscribe", post(topic::unsubscribe))
        .route("/v1/topic/list", get(topic::list))
        .route("/v1/inbox", get(inbox::page))
        .route("/v1/inbox/search", get(inbox_search::search))
        .route("/v1/inbox/ack", post(inbox_marks::ack))
        .route("/v1/inbox/shown", post(inbox_marks::shown))
        .route("/v1/inbox/seen", post(inbox_marks::seen))
        .route("/v1/outbox", get(outbox::page))
        .route(
            "/v1/outbox/prune",
            post(outbox::prune).get(outbox::show_prune),
        )
        .route("/v1/outbox/{id}", get(outbox::show))
        .route("/v1/outbox/{id}/requeue", post(outbox::requeue))
        .route("/v1/agent/register", post(agent::register))
        .route("/v1/agent/list", get(agent::list))
        .route("/v1/peers", get(peers::list))
        .route("/v1/events", get(events::events))
        .route("/v1/status", get(status::status))
        .route("/v1/health", get(status::health))
        .route("/v1/version", get(status::version))
        .route("/v1/metrics", get(status::metrics))
        .route("/v1/shutdown", post(status::shutdown))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(ipc)
}

/// Whether a path is a stream, which counts against the streams and not the requests.
pub(super) fn is_stream(path: &str) -> bool {
    path == "/v1/events"
}

async fn not_found() -> Refuse {
    Refuse(Problem::new(ErrorCode::NotFound, "there is no such route"))
}

async fn method_not_allowed() -> Refuse {
    Refuse(Problem::new(
        ErrorCode::MethodNotAllowed,
        "this route takes another method",
    ))
}
