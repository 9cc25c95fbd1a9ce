//! `GET /v1/inbox/thread`: a reply thread as an agent has it, what came and what it sent, in one order. A peek.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use heddle_store::OutboxRow;
use heddle_wire::broker::Envelope;
use heddle_wire::from_wire;
use heddle_wire::ipc::{InboxItem, ThreadItem, ThreadPage};
use heddle_wire::problem::Problem;
use serde::Deserialize;
use serde_json::Value;

use super::inbox::{Freshness, item, must_be_own};
use super::send::agent;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Query {
    /// The sender's id of any message of the thread.
    id: String,
    agent: Option<String>,
    mesh: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn thread(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: Query = body::query(&request.into_parts().0)?;
    let id = ClientMessageId::parse(&query.id);
    let id = id.map_err(|error| from_wire::invalid(error.to_string()))?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let owner = agent(&ipc, query.agent.as_deref())?;
    must_be_own(mesh, &owner)?;
    let limit = body::page_rows(query.limit)?;
    let party = mesh.party(owner.clone());
    let asked = ipc.shared.store.thread(
        mesh.mesh.mesh,
        party,
        id.to_string(),
        (limit, |bytes| {
            Envelope::parse(bytes).ok().map(|one| one.reply_to)
        }),
    );
    let thread = asked.await.map_err(|error| store_problem(&error))?;
    let received = thread.received.iter();
    let mut items: Vec<(WallMs, ThreadItem)> = received
        .map(|row| (row.received_at, came(item(&ipc.shared, row))))
        .collect();
    let sent = thread.sent.iter();
    items.extend(sent.map(|row| (row.enqueued_at, went(mesh, row))));
    if items.is_empty() {
        return Err(Problem::new(
            ErrorCode::NotFound,
            format!("@{owner} has no message with the id {id}, and none that answers it"),
        )
        .next("`heddle inbox --all --json` shows ids as client_message_id; name the agent whose messages they are.")
        .into());
    }
    // Stable: what came in one moment stays in its order.
    items.sort_by_key(|(at, _)| *at);
    let mut more = thread.is_cut;
    if items.len() > limit {
        more = true;
        items.drain(..items.len() - limit);
    }
    let freshness = Freshness::of(mesh);
    ok(&ThreadPage {
        id: id.to_string(),
        items: items.into_iter().map(|(_, item)| item).collect(),
        more,
        stale: freshness.stale,
        as_of: freshness.as_of,
    })
}

fn came(message: InboxItem) -> ThreadItem {
    ThreadItem {
        sent: false,
        to: None,
        status: None,
        message,
    }
}

/// A message of the agent's own. One whose payload was given back has its place and no text.
fn went(mesh: &MeshState, row: &OutboxRow) -> ThreadItem {
    let envelope = Envelope::parse(&row.payload).ok();
    let is_whole = envelope
        .as_ref()
        .and_then(|one| one.wire_fingerprint().ok())
        == Some(row.wire_fingerprint);
    let envelope = envelope.filter(|_| is_whole);
    let topic = row.to.strip_prefix('#').map(str::to_owned);
    let name = |id: Option<String>| id.unwrap_or_default();
    let time = |at: WallMs| at.to_rfc3339();
    ThreadItem {
        sent: true,
        to: Some(row.to.clone()),
        status: Some(row.status.as_str().to_owned()),
        message: InboxItem {
            id: row.row.to_string(),
            client_message_id: row.client_message_id.to_string(),
            broker_message_id: name(row.broker_message_id.map(|id| id.to_string())),
            history_id: name(row.history_id.map(|id| id.to_string())),
            mesh: mesh.mesh.name.to_string(),
            agent: row.sender.agent.to_string(),
            topic,
            from: mesh.address(row.sender.member, &row.sender.agent),
            damaged: !row.payload.is_empty() && envelope.is_none(),
            priority: row.priority.as_str().to_owned(),
            mentions: row.mentions.clone(),
            received_at: time(row.enqueued_at),
            shown_at: None,
            acked_at: None,
            meta: envelope
                .as_ref()
                .and_then(|one| one.meta.clone())
                .unwrap_or(Value::Null),
            reply_to_id: envelope
                .as_ref()
                .map(|one| one.reply_to.clone())
                .filter(|id| !id.is_empty()),
            body: envelope.map(|one| one.body).unwrap_or_default(),
        },
    }
}
