//! The outbox as rows, requeue and prune.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::age::is_outcome_unknown;
use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use heddle_core::outbox_status::OutboxStatus;
use heddle_store::{Attempt, OutboxFilter, OutboxFind, OutboxRow as Row, PruneFilter};
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    AttemptView, OutboxPage, OutboxRow, PruneAnswer, PruneBody, RequeueAnswer, RequeueBody,
};
use heddle_wire::problem::Problem;
use serde::Deserialize;

use super::message_story::ambiguous;
use super::send::{agent, idempotency_key};
use crate::ipc::body::Id;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::outbox::drain::DAMAGED;
use crate::outbox::window::pause_of;
use crate::outbox::{disk, prune, requeue};
use crate::refusals::is_limited;
use crate::shared::{Shared, store_problem};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    status: Option<String>,
    mesh: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub(super) async fn page(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: PageQuery = body::query(&request.into_parts().0)?;
    let status = query.status.as_deref().map(parse_status).transpose()?;
    let mesh = match query.mesh.as_deref() {
        None => None,
        Some(name) => Some(ipc.shared.mesh(Some(name))?.mesh.mesh),
    };
    let before = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let filter = OutboxFilter {
        status,
        mesh,
        before,
        limit: body::page_rows(query.limit)?,
    };
    let page = ipc.shared.store.outbox_page(filter).await;
    let page = page.map_err(|error| store_problem(&error))?;
    let is_damaged = page.rows.iter().any(|row| row.damaged.is_some());
    ipc.shared.unreadable.suspect(is_damaged);
    ok(&OutboxPage {
        rows: page.rows.iter().map(|row| view(&ipc.shared, row)).collect(),
        cursor: page.next.map(|cursor| cursor.to_string()),
    })
}

fn parse_status(text: &str) -> Result<OutboxStatus, Problem> {
    OutboxStatus::parse(text).ok_or_else(|| {
        from_wire::invalid(format!(
            "status {text:?} is not one of pending, inflight, done, dead, aborted"
        ))
    })
}

fn parse_cursor(text: &str) -> Result<i64, Problem> {
    text.parse()
        .map_err(|_| from_wire::invalid("the cursor is not one that a page gave"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FindQuery {
    mesh: Option<String>,
    agent: Option<String>,
}

impl FindQuery {
    pub(super) fn new(mesh: Option<String>, agent: Option<String>) -> Self {
        Self { mesh, agent }
    }
}

pub(super) async fn show(State(ipc): State<Arc<Ipc>>, Id(id): Id, request: Request) -> Answered {
    let query: FindQuery = body::query(&request.into_parts().0)?;
    let row = find(&ipc, &id, &query).await?;
    ok(&told(&ipc, &row).await?)
}

/// Everything that this home knows of a row.
pub(super) async fn told(ipc: &Ipc, row: &Row) -> Result<OutboxRow, Problem> {
    let store = &ipc.shared.store;
    let chain = store.outbox_chain(row.row).await;
    let chain = chain.map_err(|error| store_problem(&error))?;
    let attempts = store.outbox_attempts(row.row).await;
    let attempts = attempts.map_err(|error| store_problem(&error))?;
    Ok(OutboxRow {
        chain: chain.iter().map(|row| view(&ipc.shared, row)).collect(),
        attempts_log: attempts.into_iter().map(attempt).collect(),
        wire_fingerprint_prefix: Some(row.wire_fingerprint.prefix()),
        pruned: Some(row.payload.is_empty()),
        ..view(&ipc.shared, row)
    })
}

fn attempt(attempt: Attempt) -> AttemptView {
    AttemptView {
        number: attempt.number,
        at: attempt.at.to_rfc3339(),
        outcome: attempt.outcome,
        detail: attempt.detail,
    }
}

/// A row whose client id is `prune`: the route of that name must not hide it.
pub(super) async fn show_prune(state: State<Arc<Ipc>>, request: Request) -> Answered {
    show(state, Id("prune".to_owned()), request).await
}

/// Stretches of the outbox that one call goes through; the caller comes back with the cursor.
const PRUNE_STRETCHES_MAX: usize = 32;

pub(super) async fn prune(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: PruneBody = body::read(&parts, incoming).await?;
    let age_ms = i64::try_from(body.older_than_seconds)
        .ok()
        .and_then(|seconds| seconds.checked_mul(1000))
        .ok_or_else(|| from_wire::invalid("older_than_seconds is out of range"))?;
    // Exclusive: with 0 seconds the rows of this very millisecond belong to it too.
    let before = ipc.shared.clock.wall().0.saturating_sub(age_ms);
    let statuses = prunable(&body.status)?;
    if body.retire && statuses != [OutboxStatus::Dead] {
        return Err(from_wire::invalid("only dead rows are retired")
            .next("Name them with the status dead, and no other.")
            .into());
    }
    let filter = PruneFilter {
        statuses,
        before: WallMs(before.saturating_add(1)),
        with_empty: body.retire,
    };
    let what = match (body.confirm, body.retire) {
        (false, _) => prune::Prune::Count,
        (true, false) => prune::Prune::Empty,
        (true, true) => prune::Prune::Retire,
    };
    let after = body.cursor.as_deref().map_or(Ok(0), parse_cursor)?;
    let stretches = PRUNE_STRETCHES_MAX;
    let pruned = prune::run(&ipc.shared, filter, after, stretches, what).await;
    let pruned = pruned.map_err(|error| store_problem(&error))?;
    if body.confirm {
        disk::look_for_dead(&ipc.shared).await;
        disk::refresh(&ipc.shared).await;
    }
    ok(&PruneAnswer {
        duplicate: false,
        rows: pruned.rows,
        bytes: pruned.bytes,
        confirmed: body.confirm,
        cursor: pruned.next.map(|cursor| cursor.to_string()),
    })
}

/// States whose rows need their payloads no more.
fn prunable(names: &[String]) -> Result<Vec<OutboxStatus>, Problem> {
    let all = [
        OutboxStatus::Done,
        OutboxStatus::Dead,
        OutboxStatus::Aborted,
    ];
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let parse = |name: &String| {
        let status = parse_status(name)?;
        if all.contains(&status) {
            return Ok(status);
        }
        Err(
            from_wire::invalid(format!("a row that is {name} still needs its payload"))
                .next("Prune done, dead or aborted rows."),
        )
    };
    names.iter().map(parse).collect()
}

pub(super) async fn requeue(State(ipc): State<Arc<Ipc>>, Id(id): Id, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let query: FindQuery = body::query(&parts)?;
    let body: RequeueBody = body::read(&parts, incoming).await?;
    // The new id is what makes a second call the same one.
    let key = idempotency_key(&parts.headers)?;
    let new_id = from_wire::client_message_id(key.as_deref(), body.new_client_id.as_deref())?;
    let old = find(&ipc, &id, &query).await?;
    let mesh = ipc.shared.meshes.iter().find(|m| m.mesh.mesh == old.mesh);
    let mesh =
        mesh.ok_or_else(|| Problem::new(ErrorCode::UnknownMesh, "the row's mesh is gone"))?;
    let outcome = requeue::requeue(&ipc.shared, mesh, old, new_id, body).await?;
    ok(&RequeueAnswer {
        old: view(&ipc.shared, &outcome.old),
        new: outcome.new.as_ref().map(|row| view(&ipc.shared, row)),
    })
}

/// By row id first, then by client id, which several senders may have used (C1), then by the broker's names.
pub(super) async fn find(ipc: &Ipc, id: &str, query: &FindQuery) -> Result<Row, Problem> {
    if let Ok(row) = id.parse()
        && let Ok(found) = requeue::find_row(&ipc.shared, row).await
    {
        return Ok(found);
    }
    let mesh = match query.mesh.as_deref() {
        None => None,
        Some(name) => Some(ipc.shared.mesh(Some(name))?.mesh.mesh),
    };
    let agent = match query.agent.as_deref() {
        None => None,
        Some(name) => Some(agent(ipc, Some(name))?),
    };
    let client_message_id =
        ClientMessageId::parse(id).map_err(|error| from_wire::invalid(error.to_string()))?;
    let found = ipc
        .shared
        .store
        .outbox_find(OutboxFind::ClientMessageId {
            id: client_message_id,
            mesh,
            agent,
        })
        .await;
    let mut rows = found.map_err(|error| store_problem(&error))?;
    if rows.is_empty() {
        rows = find_by_broker(ipc, id).await?;
        rows.retain(|row| mesh.is_none_or(|mesh| row.mesh == mesh));
    }
    if query.agent.is_none() && rows.len() > 1 {
        // Who names no agent means the same one as with a send that names none.
        let own = |row: &Row| row.sender.agent.as_str() == ipc.default_agent.as_str();
        if rows.iter().filter(|row| own(row)).count() == 1 {
            rows.retain(own);
        }
    }
    match (rows.pop(), rows.is_empty()) {
        (None, _) => Err(Problem::new(
            ErrorCode::NotFound,
            format!("no outbox row has the id {id}"),
        )
        .next("`heddle daemon outbox list` shows what this home has sent; a message of another home is told there.")),
        (Some(row), true) => Ok(row),
        (Some(row), false) => {
            rows.push(row);
            let name = |row: &Row| {
                let mesh = ipc.shared.meshes.iter().find(|m| m.mesh.mesh == row.mesh);
                mesh.map_or_else(|| row.mesh.to_string(), |m| m.mesh.name.to_string())
            };
            let sender = |row: &Row| (row.sender.agent.to_string(), name(row));
            Err(ambiguous(rows.iter().map(sender)))
        }
    }
}

/// By the id that the broker gave it, or by its place in the history.
async fn find_by_broker(ipc: &Ipc, id: &str) -> Result<Vec<Row>, Problem> {
    let find = match (id.parse(), id.parse()) {
        (Ok(message), _) => OutboxFind::BrokerMessageId(message),
        (_, Ok(place)) => OutboxFind::HistoryId(place),
        _ => return Ok(Vec::new()),
    };
    let found = ipc.shared.store.outbox_find(find).await;
    found.map_err(|error| store_problem(&error))
}

pub(super) fn view(shared: &Shared, row: &Row) -> OutboxRow {
    let mesh = shared.meshes.iter().find(|m| m.mesh.mesh == row.mesh);
    OutboxRow {
        id: row.row.to_string(),
        client_message_id: row.client_message_id.to_string(),
        mesh: mesh.map_or_else(|| row.mesh.to_string(), |m| m.mesh.name.to_string()),
        agent: row.sender.agent.to_string(),
        status: row.status.as_str().to_owned(),
        attempts: row.attempts,
        last_error: row.last_error.clone(),
        waits_for: mesh.and_then(|mesh| waits_for(shared, mesh, row)),
        enqueued_at: row.enqueued_at.to_rfc3339(),
        delivered_at: row.delivered_at.map(WallMs::to_rfc3339),
        broker_message_id: row.broker_message_id.map(|id| id.to_string()),
        history_id: row.history_id.map(|id| id.to_string()),
        superseded_by: row.superseded_by.map(|id| id.to_string()),
        aborted_at: row.aborted_at.map(WallMs::to_rfc3339),
        aborted_by: row.aborted_by.clone(),
        to: row.to.clone(),
        request_fingerprint: row.request_fingerprint.to_hex(),
        priority: row.priority.as_str().to_owned(),
        outcome: (row.status == OutboxStatus::Dead).then(|| outcome(row).to_owned()),
        damaged: row.damaged.clone(),
        wire_fingerprint_prefix: None,
        pruned: None,
        attempts_log: Vec::new(),
        chain: Vec::new(),
    }
}

/// Why a row that is on its way does not go out now: its broker is out of reach, or takes nothing.
fn waits_for(shared: &Shared, mesh: &MeshState, row: &Row) -> Option<String> {
    if !matches!(row.status, OutboxStatus::Pending | OutboxStatus::Inflight) {
        return None;
    }
    if row.damaged.is_some() {
        let down = "somebody to mend it: `heddle down`, then `heddle doctor --repair`";
        return Some(down.to_owned());
    }
    // Its own bytes keep it back, whatever the broker does.
    if let Some(why) = row
        .last_error
        .as_deref()
        .and_then(|why| why.strip_prefix(DAMAGED))
    {
        return Some(format!(
            "somebody to mend it: {why}, so it is not sent. `heddle daemon outbox requeue --id {} --auto --patch-payload FILE`, with what was meant in FILE, sends it under a new id",
            row.row
        ));
    }
    if !mesh.is_connected() {
        let why = mesh.last_error();
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        return Some(format!("no connection to the broker{why}"));
    }
    if let Some(why) = mesh.out_of_reach() {
        return Some(why);
    }
    if let Some(pause) = pause_of(shared, mesh) {
        let what = if pause
            .why
            .starts_with(ErrorCode::LimiterUnavailable.as_str())
        {
            "the limiter of the broker, which does not answer; it is asked again"
        } else {
            "the rate window of the mesh, until"
        };
        return Some(format!(
            "{what} about {} ({}); it is safe on disk and goes on by itself",
            pause.until, pause.why
        ));
    }
    let limited = row.last_error.clone().filter(|why| is_limited(why));
    if let Some(why) = limited {
        return Some(format!(
            "its turn: the limiter did not let it in the last time ({why}); it is tried again by itself"
        ));
    }
    let (why, _) = mesh.refusals.told(shared.clock.mono())?;
    Some(format!("the broker takes nothing for now ({why})"))
}

/// What is known of a dead row's message.
fn outcome(row: &Row) -> &'static str {
    if is_outcome_unknown(row.last_error.as_deref()) {
        "unknown"
    } else {
        "not_delivered"
    }
}
