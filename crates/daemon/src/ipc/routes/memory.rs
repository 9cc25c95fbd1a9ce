//! `/v1/memory/{remember,recall,forget}`: what an agent keeps for later, on this disk first.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::data::{DataValue, Tags};
use heddle_core::envelope::Address;
use heddle_core::lamport::PeerId;
use heddle_core::op::NewMemory;
use heddle_store::{MemoryFilter, MemoryMatch, MemoryRow, SearchQuery};
use heddle_wire::from_wire;
use heddle_wire::ipc::{KeyBody, MemoryView, RecallPage, RememberBody};
use heddle_wire::problem::Problem;
use serde::Deserialize;
use serde_json::json;

use super::data::{
    Asked, Change, VALUE_BYTES_MAX, address, data_key, data_problem, stamp_view, stored_value,
    unknown_key,
};
use super::send::agent;
use super::warnings;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

pub(super) async fn remember(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: RememberBody = body::read(&parts, incoming).await?;
    let tags = Tags::parse(&body.tags).map_err(|error| data_problem(&error))?;
    let value = DataValue::new(&body.value).map_err(|error| data_problem(&error))?;
    let key = data_key(&body.key)?;
    let asked = Asked {
        verb: "memory.remember",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let fields = json!({"key": key.as_str(), "value": body.value, "tags": tags.as_slice()});
    let new = change.if_there_is_room(NewMemory { value, tags });
    let store = &ipc.shared.store;
    let applied = store.remember(change.key(&fields)?, key.clone(), new);
    ok(&change.answer(&key, applied.await)?)
}

pub(super) async fn forget(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: KeyBody = body::read(&parts, incoming).await?;
    let key = data_key(&body.key)?;
    let asked = Asked {
        verb: "memory.forget",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let fields = json!({"key": key.as_str()});
    let store = &ipc.shared.store;
    let applied = store.forget(change.key(&fields)?, key.clone()).await;
    ok(&change.answer(&key, applied)?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RecallQuery {
    key: Option<String>,
    scope: Option<String>,
    search: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
    agent: Option<String>,
    mesh: Option<String>,
}

pub(super) async fn recall(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: RecallQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let own = agent(&ipc, query.agent.as_deref())?;
    warnings::hears(mesh, &own);
    let peer = match query.scope.as_deref().unwrap_or("self") {
        "self" => Some(mesh.party(own.clone()).to_string()),
        "all" => None,
        other => Some(peer(mesh, other)?),
    };
    let key = query.key.as_deref().map(data_key).transpose()?;
    let filter = MemoryFilter {
        mesh: mesh.mesh.mesh,
        peer: peer.as_deref().map(PeerId::new),
        matches: matches(&query)?,
        limit: body::page_rows(query.limit)?,
        bytes_max: VALUE_BYTES_MAX,
    };
    let is_list = matches!(filter.matches, MemoryMatch::All { .. });
    let (store, left_out) = ipc.shared.store.leniently();
    let (rows, more) = store
        .recall(filter)
        .await
        .map_err(|error| store_problem(&error))?;
    if let Some(key) = key.filter(|_| rows.is_empty() && peer.is_some()) {
        return Err(unknown_key(&key)
            .next("Check the spelling; `heddle recall` shows the keys, `heddle recall --scope all` also those of others.")
            .into());
    }
    let last = rows.last().map(|row| row.place.to_string());
    ok(&RecallPage {
        cursor: last.filter(|_| more && is_list),
        more,
        items: rows
            .iter()
            .map(|row| view(mesh, row))
            .collect::<Result<_, _>>()?,
        warnings: Vec::new(),
        left_out: ipc.shared.unreadable.left_out(&left_out),
    })
}

fn matches(query: &RecallQuery) -> Result<MemoryMatch, Problem> {
    if query.cursor.is_some() && (query.key.is_some() || query.search.is_some()) {
        return Err(
            from_wire::invalid("a cursor goes on with the list of all keys")
                .next("Leave key and search out, or the cursor."),
        );
    }
    match (&query.key, &query.search) {
        (Some(_), Some(_)) => Err(from_wire::invalid("key and search cannot be combined")
            .next("Ask by key, or search for words.")),
        (Some(key), None) => data_key(key).map(MemoryMatch::Key),
        (None, Some(words)) => SearchQuery::parse(words)
            .map(MemoryMatch::Words)
            .map_err(|error| from_wire::invalid(error.to_string())),
        (None, None) => {
            let after = query.cursor.as_deref().map(str::parse).transpose();
            let after = after.map_err(|_| from_wire::invalid("cursor is not one of a list"))?;
            Ok(MemoryMatch::All { after })
        }
    }
}

/// Whose memory: `@agent` or `@member/agent`, with or without the sign.
pub(super) fn peer(mesh: &MeshState, text: &str) -> Result<String, Problem> {
    let text = format!("@{}", text.strip_prefix('@').unwrap_or(text));
    let address = Address::parse(&text).map_err(|error| {
        from_wire::invalid(error.to_string())
            .next("The scope is self, all, or a peer as `heddle peers` shows it.")
    })?;
    mesh.resolve(&address)
}

fn view(mesh: &MeshState, row: &MemoryRow) -> Result<MemoryView, Problem> {
    Ok(MemoryView {
        key: row.key.clone(),
        value: stored_value(&row.value)?,
        tags: row.tags.clone(),
        peer: address(mesh, row.stamp.peer.as_str()),
        updated_at: row.updated_at.to_rfc3339(),
        stamp: stamp_view(&row.stamp, row.incarnation),
    })
}
