//! `/v1/state/{set,get,list,delete}`: what the agents of a mesh agree on, on this disk first.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::data::DataValue;
use heddle_core::limits::DATA_KEY_BYTES_MAX;
use heddle_core::names::nfc;
use heddle_core::op::NewState;
use heddle_store::{StateFilter, StateRow};
use heddle_wire::from_wire;
use heddle_wire::ipc::{KeyBody, StatePage, StateSetBody, StateView};
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

pub(super) async fn set(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: StateSetBody = body::read(&parts, incoming).await?;
    let value = DataValue::new(&body.value).map_err(|error| data_problem(&error))?;
    let key = data_key(&body.key)?;
    let asked = Asked {
        verb: "state.set",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let fields = json!({"key": key.as_str(), "value": body.value});
    let new = change.if_there_is_room(NewState { value });
    let store = &ipc.shared.store;
    let applied = store.set_state(change.key(&fields)?, key.clone(), new);
    ok(&change.answer(&key, applied.await)?)
}

pub(super) async fn delete(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: KeyBody = body::read(&parts, incoming).await?;
    let key = data_key(&body.key)?;
    let asked = Asked {
        verb: "state.delete",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let fields = json!({"key": key.as_str()});
    let store = &ipc.shared.store;
    let applied = store.delete_state(change.key(&fields)?, key.clone());
    ok(&change.answer(&key, applied.await)?)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    key: String,
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    mesh: Option<String>,
}

pub(super) async fn get(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: GetQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    warnings::hears(mesh, &agent(&ipc, query.agent.as_deref())?);
    let key = data_key(&query.key)?;
    let row = ipc
        .shared
        .store
        .get_state(mesh.mesh.mesh, key.clone())
        .await;
    let row = row.map_err(|error| store_problem(&error))?;
    let row = row.ok_or_else(|| unknown_key(&key))?;
    ok(&view(mesh, &row)?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    prefix: String,
    cursor: Option<String>,
    limit: Option<usize>,
    agent: Option<String>,
    mesh: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    warnings::hears(mesh, &agent(&ipc, query.agent.as_deref())?);
    let prefix = nfc(&query.prefix);
    if prefix.len() > DATA_KEY_BYTES_MAX || prefix.chars().any(char::is_control) {
        let detail = format!(
            "the prefix is longer than {DATA_KEY_BYTES_MAX} bytes or holds a control character; no key begins so"
        );
        return Err(from_wire::invalid(detail).into());
    }
    let after = query.cursor.as_deref().map(data_key).transpose()?;
    let filter = StateFilter {
        mesh: mesh.mesh.mesh,
        prefix,
        after: after.map(|key| key.as_str().to_owned()),
        limit: body::page_rows(query.limit)?,
        bytes_max: VALUE_BYTES_MAX,
    };
    let (store, left_out) = ipc.shared.store.leniently();
    let found = store.list_state(filter).await;
    let (rows, more) = found.map_err(|error| store_problem(&error))?;
    ok(&StatePage {
        cursor: rows.last().filter(|_| more).map(|row| row.key.clone()),
        items: rows
            .iter()
            .map(|row| view(mesh, row))
            .collect::<Result<_, _>>()?,
        warnings: Vec::new(),
        left_out: ipc.shared.unreadable.left_out(&left_out),
    })
}

fn view(mesh: &MeshState, row: &StateRow) -> Result<StateView, Problem> {
    Ok(StateView {
        key: row.key.clone(),
        value: stored_value(&row.value)?,
        updated_by: address(mesh, row.stamp.peer.as_str()),
        updated_at: row.updated_at.to_rfc3339(),
        stamp: stamp_view(&row.stamp, row.incarnation),
        warnings: Vec::new(),
    })
}
