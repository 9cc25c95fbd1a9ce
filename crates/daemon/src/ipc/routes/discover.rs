//! What a client may ask before it trusts us: `GET /v1/compat` and `GET /v1/openapi.json`.

use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use heddle_core::negotiate::{CONNECTION_POLICY, DEDUPE};
use heddle_wire::broker::BROKER_PROTOCOL;
use heddle_wire::ipc::{Compat, Span};
use http::StatusCode;

use super::status::IPC_VERSION;
use crate::ipc::reply::{Answered, ok, with_body};
use crate::ipc::{Ipc, body};

/// The oldest client that these routes still serve.
const CLIENT_VERSION_MIN: &str = "0.1.0";

/// The document as it is published; a test of `openapi` holds it against the table of routes.
pub(super) const PUBLISHED: &str = include_str!("../../../../../docs/openapi.json");
/// Where it names the version of the daemon that gives it out.
pub(super) const VERSION: &str = "\"version\": \"0.0.0\"";

/// What a caller can rely on here, by name. Names are added, never taken back.
const FEATURES: [&str; 6] = [
    "idempotency_key",
    "problem_json",
    "sse_resume",
    "outbox_requeue",
    "openapi_3_1",
    "prometheus",
];

pub(super) async fn compat(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    body::no_query(&request.into_parts().0)?;
    let only = |version| Span {
        min: version,
        max: version,
    };
    ok(&Compat {
        version: ipc.version.to_owned(),
        client_version_min: CLIENT_VERSION_MIN.to_owned(),
        ipc: only(IPC_VERSION),
        broker_protocol: only(BROKER_PROTOCOL),
        features: FEATURES.map(str::to_owned).to_vec(),
        required_of_broker: [DEDUPE, CONNECTION_POLICY].map(str::to_owned).to_vec(),
    })
}

pub(super) async fn openapi(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    static DOCUMENT: OnceLock<Vec<u8>> = OnceLock::new();
    body::no_query(&request.into_parts().0)?;
    let bytes = DOCUMENT.get_or_init(|| {
        let version = format!("\"version\": \"{}\"", ipc.version);
        PUBLISHED.replacen(VERSION, &version, 1).into_bytes()
    });
    Ok(with_body(StatusCode::OK, "application/json", bytes.clone()))
}
