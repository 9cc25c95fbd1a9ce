//! `/v1/task/{list,get}`, and a task as every answer shows it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_core::limits::RESPONSE_BYTES_MAX;
use heddle_core::task::fold::{Claim, TaskEvent};
use heddle_core::task::lease::{Moment, left};
use heddle_core::task::{TaskId, TaskStatus};
use heddle_store::{TaskFilter, TaskRow, TaskWhich};
use heddle_wire::from_wire;
use heddle_wire::ipc::{TaskClaimView, TaskEventView, TaskPage, TaskStory, TaskView};
use heddle_wire::problem::Problem;
use serde::Deserialize;

use super::data::address;
use super::send::agent;
use super::warnings;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

/// Of a page's bytes, what its texts may take; ids, names and JSON's escapes need the rest.
const TEXT_BYTES_MAX: usize = RESPONSE_BYTES_MAX / 8;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    status: Option<String>,
    ready: Option<bool>,
    cursor: Option<String>,
    limit: Option<usize>,
    agent: Option<String>,
    mesh: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    warnings::hears(mesh, &agent(&ipc, query.agent.as_deref())?);
    let after = query.cursor.as_deref().map(str::parse).transpose();
    let filter = TaskFilter {
        mesh: mesh.mesh.mesh,
        which: which(&query)?,
        after: after.map_err(|_| from_wire::invalid("cursor is not one of a list"))?,
        limit: body::page_rows(query.limit)?,
        bytes_max: TEXT_BYTES_MAX,
    };
    let (store, left_out) = ipc.shared.store.leniently();
    let found = store.list_tasks(filter).await;
    let (rows, more) = found.map_err(|error| store_problem(&error))?;
    ok(&TaskPage {
        cursor: rows.last().filter(|_| more).map(|row| row.id.to_string()),
        items: rows.iter().map(|row| view(&ipc, mesh, row)).collect(),
        warnings: Vec::new(),
        left_out: ipc.shared.unreadable.left_out(&left_out),
    })
}

fn which(query: &ListQuery) -> Result<TaskWhich, Problem> {
    match (query.ready.unwrap_or(false), query.status.as_deref()) {
        (true, None | Some("open")) => Ok(TaskWhich::Ready),
        (true, Some(_)) => Err(from_wire::invalid("only open tasks are ready")
            .next("Leave the status out, or ask without ready.")),
        (false, None | Some("")) => Ok(TaskWhich::All),
        (false, Some(status)) => TaskStatus::parse(status)
            .map(TaskWhich::With)
            .ok_or_else(|| {
                from_wire::invalid(format!("{status:?} is no status of a task"))
                    .next("Ask for open, claimed, completed or cancelled.")
            }),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    id: String,
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    mesh: Option<String>,
}

pub(super) async fn get(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: GetQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    warnings::hears(mesh, &agent(&ipc, query.agent.as_deref())?);
    let id = task_id(&query.id)?;
    let row = ipc.shared.store.task_story(mesh.mesh.mesh, id).await;
    let row = row.map_err(|error| store_problem(&error))?;
    let row = row.ok_or_else(|| unknown_task(&query.id))?;
    ok(&TaskStory {
        task: view(&ipc, mesh, &row),
        events: row.task.events.iter().map(|one| event(mesh, one)).collect(),
        warnings: Vec::new(),
    })
}

/// What is no id at all names no task either.
pub(super) fn task_id(text: &str) -> Result<TaskId, Problem> {
    text.parse().map_err(|_| unknown_task(text))
}

pub(super) fn unknown_task(text: &str) -> Problem {
    let shown: String = text.chars().take(64).collect();
    Problem::new(
        ErrorCode::UnknownTask,
        format!("there is no task {shown:?}"),
    )
}

pub(super) fn view(ipc: &Ipc, mesh: &MeshState, row: &TaskRow) -> TaskView {
    let task = &row.task;
    let blocked_by = task.blocked_by.as_slice().iter();
    TaskView {
        id: row.id.to_string(),
        mesh: mesh.mesh.name.to_string(),
        title: task.title.as_str().to_owned(),
        description: task.description.as_str().to_owned(),
        status: task.status.as_str().to_owned(),
        ready: row.is_ready(),
        waits_for: row.waits_for,
        blocked_by: blocked_by.map(TaskId::to_string).collect(),
        created_by: address(mesh, task.created_by.as_str()),
        created_at: task.created_at.to_rfc3339(),
        updated_at: task.updated_at.to_rfc3339(),
        lamport: task.lamport,
        claimed_by: task
            .claim
            .as_ref()
            .map(|claim| address(mesh, claim.by.as_str())),
        claim: task.claim.as_ref().map(|claim| TaskClaimView {
            by: address(mesh, claim.by.as_str()),
            at: claim.at.to_rfc3339(),
            fence: claim.fence,
            lease_seconds: claim.lease.get() / 1000,
            until: until(ipc, row, claim),
        }),
        finished_by: task.end.as_ref().map(|end| address(mesh, end.by.as_str())),
        finished_at: task.end.as_ref().map(|end| end.at.to_rfc3339()),
    }
}

/// What is left of the lease, told by the clock on the wall. A claim that was not looked at yet counts
/// from now.
pub(super) fn until(ipc: &Ipc, row: &TaskRow, claim: &Claim) -> String {
    let clock = ipc.shared.clock.as_ref();
    let now = ipc.shared.tasks.now(clock);
    let left = left(claim.lease, row.seen.unwrap_or(now), now);
    let end = match row.seen.filter(|seen| seen.boot == now.boot) {
        // Counted from the one moment that stays, and not from now.
        Some(seen) if !left.is_zero() => Moment {
            since: seen.since + Duration::from_millis(claim.lease.get()),
            ..seen
        },
        _ => Moment {
            since: now.since + left,
            ..now
        },
    };
    ipc.shared.tasks.wall_of(clock, end).to_rfc3339()
}

fn event(mesh: &MeshState, event: &TaskEvent) -> TaskEventView {
    let conflict = event.conflict.as_ref();
    TaskEventView {
        event: event.kind.as_str().to_owned(),
        peer: address(mesh, event.peer.as_str()),
        lamport: event.lamport,
        at: event.at.to_rfc3339(),
        fence: event.fence,
        conflict_peer: conflict.map(|(peer, _)| address(mesh, peer.as_str())),
        conflict_lamport: conflict.map(|(_, lamport)| *lamport),
    }
}
