//! `/v1/task/{create,claim,release,complete,cancel}`: work that nobody does twice, on this disk first.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::OpId;
use heddle_core::limits::TASK_LEASE_MS_DEFAULT;
use heddle_core::outbox_status::OutboxStatus;
use heddle_core::task::lease::left;
use heddle_core::task::{Blockers, LeaseMs, TaskError, TaskId, TaskText, TaskTitle};
use heddle_store::{
    Applied, ChangeKey, HeldTask, NewTask, TaskRefusal, TaskRow, TaskStop, TaskWish,
};
use heddle_wire::from_wire;
use heddle_wire::ipc::{TaskAnswer, TaskCancelBody, TaskClaimBody, TaskCreateBody, TaskSettleBody};
use heddle_wire::problem::Problem;
use serde_json::{Value, json};

use super::data::{Asked, Change, Settled, address, stamp_view};
use super::data_story::row_of_op;
use super::task_view::{task_id, unknown_task, until, view};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;
use crate::tasks;

pub(super) async fn create(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: TaskCreateBody = body::read(&parts, incoming).await?;
    let title = TaskTitle::parse(&body.title).map_err(|error| task_problem(&error))?;
    let description = TaskText::parse(&body.description).map_err(|error| task_problem(&error))?;
    let asked = Asked {
        verb: "task.create",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let blocked_by = body.blocked_by.iter().map(|text| task_id(text));
    let blocked_by = match blocked_by.collect::<Result<Vec<_>, _>>() {
        Ok(ids) => Blockers::new(ids).map_err(|error| task_problem(&error))?,
        Err(problem) => return Err(change.refusal(problem).await.into()),
    };
    let blockers = blocked_by.as_slice().iter().map(TaskId::to_string);
    let fields = json!({
        "title": title.as_str(),
        "description": description.as_str(),
        "blocked_by": blockers.collect::<Vec<_>>(),
    });
    let new = change.if_there_is_room(NewTask {
        title,
        description,
        blocked_by,
    });
    let applied = ipc
        .shared
        .store
        .create_task(change.key(&fields)?, new)
        .await;
    let applied =
        applied.map(|applied| refused(applied, |stop| problem(&ipc, change.mesh, None, stop)));
    let settled = change.settle(applied, || unknown_task(""))?;
    let id = settled.receipt.note["task"].as_str().unwrap_or_default();
    let id = task_id(id)?;
    ok(&answer(&ipc, &change, id, settled).await?)
}

pub(super) async fn claim(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: TaskClaimBody = body::read(&parts, incoming).await?;
    let lease_ms = match body.lease_seconds {
        Some(seconds) => seconds.saturating_mul(1000),
        None => TASK_LEASE_MS_DEFAULT,
    };
    let lease = LeaseMs::new(lease_ms).map_err(|error| task_problem(&error))?;
    let asked = Asked {
        verb: "task.claim",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let id = named(&change, &body.id).await?;
    let fields = json!({"id": id.to_string(), "lease_ms": lease.get()});
    let answer = step(&ipc, &change, id, &fields, TaskWish::Claim { lease }).await?;
    ipc.shared.tasks.holds(&change.agent);
    ok(&answer)
}

pub(super) async fn release(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    settle(&ipc, request, "task.release", |fence| TaskWish::Release {
        fence,
    })
    .await
}

pub(super) async fn complete(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    settle(&ipc, request, "task.complete", |fence| TaskWish::Complete {
        fence,
    })
    .await
}

async fn settle(
    ipc: &Ipc,
    request: Request,
    verb: &'static str,
    wish: impl FnOnce(Option<u64>) -> TaskWish,
) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: TaskSettleBody = body::read(&parts, incoming).await?;
    let asked = Asked {
        verb,
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(ipc, &parts.headers, asked).await?;
    let id = named(&change, &body.id).await?;
    let fields = json!({"id": id.to_string(), "fence": body.fence});
    ok(&step(ipc, &change, id, &fields, wish(body.fence)).await?)
}

pub(super) async fn cancel(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: TaskCancelBody = body::read(&parts, incoming).await?;
    let asked = Asked {
        verb: "task.cancel",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let id = named(&change, &body.id).await?;
    let fields = json!({"id": id.to_string()});
    ok(&step(&ipc, &change, id, &fields, TaskWish::Cancel).await?)
}

/// The task that a step names. What cannot be one is unknown, unless the step's id is known.
async fn named(change: &Change<'_>, text: &str) -> Result<TaskId, Problem> {
    match task_id(text) {
        Ok(id) => Ok(id),
        Err(problem) => Err(change.refusal(problem).await),
    }
}

/// One step of a task through the gate. A claim of another whose lease has run out is ended first.
async fn step(
    ipc: &Ipc,
    change: &Change<'_>,
    id: TaskId,
    fields: &Value,
    wish: TaskWish,
) -> Result<TaskAnswer, Problem> {
    let key = change.key(fields)?;
    let mut applied = try_step(ipc, change, &key, id, &wish).await;
    if let Ok(Applied::Refused(TaskStop::Task(TaskRefusal::Lost { row, .. }))) = &applied
        && matches!(wish, TaskWish::Claim { .. })
        && end_if_over(ipc, change.mesh, &key, row).await?
    {
        applied = try_step(ipc, change, &key, id, &wish).await;
    }
    let mesh = change.mesh;
    let applied =
        applied.map(|applied| refused(applied, |stop| problem(ipc, mesh, Some(&wish), stop)));
    let settled = change.settle(applied, || unknown_task(&id.to_string()))?;
    answer(ipc, change, id, settled).await
}

type Stepped = Result<Applied<TaskStop<Problem>>, heddle_store::StoreError>;

async fn try_step(
    ipc: &Ipc,
    change: &Change<'_>,
    key: &ChangeKey,
    id: TaskId,
    wish: &TaskWish,
) -> Stepped {
    let now = ipc.shared.tasks.now(ipc.shared.clock.as_ref());
    // Ending work frees more than it takes; only what begins needs room.
    let room = match wish {
        TaskWish::Claim { .. } => change.if_there_is_room(()),
        _ => Ok(()),
    };
    let store = &ipc.shared.store;
    store
        .step_task(key.clone(), id, wish.clone(), now, room)
        .await
}

async fn end_if_over(
    ipc: &Ipc,
    mesh: &MeshState,
    key: &ChangeKey,
    row: &TaskRow,
) -> Result<bool, Problem> {
    let now = ipc.shared.tasks.now(ipc.shared.clock.as_ref());
    let (Some(claim), Some(seen)) = (row.task.claim.clone(), row.seen) else {
        return Ok(false);
    };
    if !left(claim.lease, seen, now).is_zero() {
        return Ok(false);
    }
    let held = HeldTask {
        id: row.id,
        claim,
        seen,
    };
    let ended = tasks::end(&ipc.shared, mesh, key.peer.clone(), &held, now).await;
    ended.map_err(|error| store_problem(&error))
}

/// The receipt, and the task as it stands now.
async fn answer(
    ipc: &Ipc,
    change: &Change<'_>,
    id: TaskId,
    settled: Settled,
) -> Result<TaskAnswer, Problem> {
    let row = ipc.shared.store.task(change.mesh.mesh.mesh, id).await;
    let row = row.map_err(|error| store_problem(&error))?;
    let row = row.ok_or_else(|| unknown_task(&id.to_string()))?;
    let Settled { duplicate, receipt } = settled;
    // A claim that begins is called by its own number.
    let fence = match receipt.note.get("fence") {
        Some(Value::Null) if change.verb == "task.claim" => Some(receipt.stamp.lamport),
        Some(fence) => fence.as_u64(),
        None => None,
    };
    let is_claim = change.verb == "task.claim";
    Ok(TaskAnswer {
        tentative: is_claim && is_tentative(ipc, change.mesh, receipt.stamp.op).await?,
        already_yours: is_claim && fence.is_some_and(|fence| fence != receipt.stamp.lamport),
        task: view(ipc, change.mesh, &row),
        fence,
        client_message_id: change.id.to_string(),
        mesh: change.mesh.mesh.name.to_string(),
        agent: change.agent.to_string(),
        duplicate,
        durability: "local".to_owned(),
        stamp: stamp_view(&receipt.stamp, receipt.incarnation),
        at: receipt.at.to_rfc3339(),
        warnings: Vec::new(),
    })
}

/// Whether others may know of a claim before this one: its op is not in the log yet, and nobody can be asked now.
async fn is_tentative(ipc: &Ipc, mesh: &MeshState, op: OpId) -> Result<bool, Problem> {
    if !mesh.sync.is_shared() || mesh.is_answering() {
        return Ok(false);
    }
    let row = row_of_op(ipc, mesh, op).await?;
    Ok(row.is_some_and(|row| row.status != OutboxStatus::Done))
}

fn refused(
    applied: Applied<TaskStop<Problem>>,
    problem: impl FnOnce(TaskStop<Problem>) -> Problem,
) -> Applied<Problem> {
    match applied {
        Applied::Fresh(receipt) => Applied::Fresh(receipt),
        Applied::Duplicate(receipt) => Applied::Duplicate(receipt),
        Applied::Conflict { stored, at } => Applied::Conflict { stored, at },
        Applied::Absent => Applied::Absent,
        Applied::Refused(stop) => Applied::Refused(problem(stop)),
    }
}

fn problem(
    ipc: &Ipc,
    mesh: &MeshState,
    wish: Option<&TaskWish>,
    stop: TaskStop<Problem>,
) -> Problem {
    match stop {
        TaskStop::NoRoom(problem) => problem,
        TaskStop::Task(TaskRefusal::UnknownBlockers(missing)) => {
            let missing: Vec<String> = missing.iter().map(TaskId::to_string).collect();
            let detail = format!(
                "blocked_by names no task of this mesh: {}",
                missing.join(", ")
            );
            Problem::new(ErrorCode::UnknownTask, detail)
                .next("Add those tasks first, or leave them out; `heddle task list` shows the tasks that exist.")
        }
        TaskStop::Task(TaskRefusal::Lost { row, .. }) => lost(ipc, mesh, wish, &row),
    }
}

/// Why the step would not count, with whoever stands against it.
fn lost(ipc: &Ipc, mesh: &MeshState, wish: Option<&TaskWish>, row: &TaskRow) -> Problem {
    let task = &row.task;
    let title = format!("{:?}", task.title.as_str());
    let given = match wish {
        Some(TaskWish::Release { fence } | TaskWish::Complete { fence }) => *fence,
        _ => None,
    };
    let with_task = |problem: Problem| {
        let problem = problem.with("task_id", row.id.to_string());
        problem.with("task_status", task.status.as_str())
    };
    if let Some(end) = &task.end {
        let by = address(mesh, end.by.as_str());
        let status = task.status.as_str();
        let detail = format!("{title} was {status} by {by} at {}", end.at.to_rfc3339());
        let next = match wish {
            Some(TaskWish::Claim { .. }) => {
                "It cannot be claimed any more; `heddle task ready` shows what can be begun."
                    .to_owned()
            }
            _ => format!(
                "Nothing is left to do on it; `heddle task show {}` shows how it ended.",
                row.id
            ),
        };
        return with_task(Problem::new(ErrorCode::TaskFinished, detail))
            .with("finished_by", by)
            .next(next);
    }
    let Some(claim) = &task.claim else {
        let detail = match given {
            Some(fence) => {
                format!("{title} is held by nobody: the claim with fence {fence} was ended")
            }
            None => format!("{title} is held by nobody"),
        };
        return with_task(Problem::new(ErrorCode::StaleFence, detail)).next(format!(
            "Claim it with `heddle task claim {}` before you go on.",
            row.id
        ));
    };
    let (holder, until) = (address(mesh, claim.by.as_str()), until(ipc, row, claim));
    let is_claim = matches!(wish, Some(TaskWish::Claim { .. }));
    let problem = match given {
        Some(fence) => Problem::new(
            ErrorCode::StaleFence,
            format!(
                "fence {fence} is not the latest: {holder} holds {title} under {} until {until}",
                claim.fence
            ),
        )
        .next(format!(
            "Stop working on it; `heddle task show {}` says who holds it now.",
            row.id
        )),
        None => Problem::new(
            ErrorCode::TaskClaimed,
            format!("{holder} holds {title} until {until}"),
        ),
    };
    let problem = with_task(problem)
        .with("holder", holder)
        .with("until", until)
        .with("fence", claim.fence);
    if is_claim {
        problem.next("Take another one (`heddle task ready`), or try again after that time: a lease that ran out can be taken over.")
    } else {
        problem
    }
}

fn task_problem(error: &TaskError) -> Problem {
    match error {
        TaskError::TooLong { .. } => Problem::new(ErrorCode::PayloadTooLarge, error.to_string())
            .next("Say it in fewer words, or share a file and name it; nothing was changed and no id was consumed."),
        _ => from_wire::invalid(error.to_string()),
    }
}
