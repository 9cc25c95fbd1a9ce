//! `GET /v1/events`: server-sent events, resumed with `Last-Event-ID`.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_store::{AckedItems, InboxFilter};
use heddle_wire::from_wire;

use super::inbox::{InboxQuery, filter, must_be_own};
use super::send::agent;
use crate::ipc::reply::Answered;
use crate::ipc::{Ipc, body, stream};
use crate::shared::store_problem;

/// With `agent`, that mailbox; without, every mailbox of the home. With `mesh`, that mesh; without, all of
/// them: every event names its own.
pub(super) async fn events(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, _) = request.into_parts();
    let query: InboxQuery = body::query(&parts)?;
    if query.session.is_some() || query.advance {
        return Err(from_wire::invalid(
            "a stream has no session: it resumes behind its Last-Event-ID",
        )
        .into());
    }
    let mesh = match query.mesh.as_deref() {
        None => None,
        Some(name) => Some(ipc.shared.mesh(Some(name))?),
    };
    let owner = match query.agent.as_deref() {
        None => None,
        Some(name) => {
            let owner = agent(&ipc, Some(name))?;
            let is_own = mesh.is_none() && ipc.shared.meshes.iter().any(|m| m.is_own(&owner));
            if !is_own {
                must_be_own(mesh.map_or_else(|| ipc.shared.mesh(None), Ok)?, &owner)?;
            }
            Some(owner)
        }
    };
    let base = filter(mesh.map(|mesh| mesh.mesh.mesh), &query)?;
    let resumed = match parts.headers.get("last-event-id") {
        None => base.after,
        Some(value) => {
            let parsed = value
                .to_str()
                .ok()
                .and_then(|text| text.trim().parse::<i64>().ok())
                .filter(|id| *id >= 0);
            Some(parsed.ok_or_else(|| from_wire::invalid("Last-Event-ID is not an event id"))?)
        }
    };
    let store = &ipc.shared.store;
    let last = store.last_arrival().await.map_err(|e| store_problem(&e))?;
    let pruned = store.inbox_pruned_through().await;
    let pruned = pruned.map_err(|error| store_problem(&error))?;
    // Without a place to resume from: from now on, what is older is in the inbox. A place that was
    // never given (of another store, say) must not make the reader wait for it.
    let after = resumed.unwrap_or(last).min(last);
    let filter = InboxFilter {
        agent: owner,
        after: Some(after),
        acked: AckedItems::All,
        ..base
    };
    let gap = Some(pruned).filter(|pruned| after < *pruned);
    Ok(stream::open(Arc::clone(&ipc), filter, gap)?)
}
