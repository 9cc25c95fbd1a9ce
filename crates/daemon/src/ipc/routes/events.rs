//! `GET /v1/events`: server-sent events, resumed with `Last-Event-ID`.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_store::InboxFilter;
use heddle_wire::from_wire;

use super::inbox::{InboxQuery, filter, must_be_own};
use super::send::agent;
use crate::ipc::reply::Answered;
use crate::ipc::{Ipc, body, stream};
use crate::shared::store_problem;

/// With `agent`, that mailbox; without, every mailbox of the home.
pub(super) async fn events(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, _) = request.into_parts();
    let query: InboxQuery = body::query(&parts)?;
    let mesh = ipc.shared.mesh(None)?;
    let owner = match query.agent.as_deref() {
        None => None,
        Some(name) => {
            let owner = agent(&ipc, Some(name))?;
            must_be_own(mesh, &owner)?;
            Some(owner)
        }
    };
    let base = filter(mesh, &query)?;
    let resumed = match parts.headers.get("last-event-id") {
        None => base.after,
        Some(value) => {
            let parsed = value
                .to_str()
                .ok()
                .and_then(|text| text.trim().parse().ok());
            Some(parsed.ok_or_else(|| from_wire::invalid("Last-Event-ID is not an event id"))?)
        }
    };
    let after = match resumed {
        Some(after) => after,
        // From now on: what is older is in the inbox.
        None => ipc
            .shared
            .store
            .last_arrival()
            .await
            .map_err(|error| store_problem(&error))?,
    };
    let filter = InboxFilter {
        agent: owner,
        after: Some(after),
        include_acked: true,
        ..base
    };
    Ok(stream::open(Arc::clone(&ipc), filter)?)
}
