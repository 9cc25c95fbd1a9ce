//! An op comes in: it is kept, and everything that is derived from the task's ops is written anew.

use heddle_core::ids::MeshId;
use heddle_core::op::{DataOp, OpBody, TaskChange};
use heddle_core::task::TaskId;
use heddle_core::task::fold::{Task, TaskOp, fold_task};
use rusqlite::{Connection, params};

use super::row::TaskRow;
use super::{lease, losses, row, seal};
use crate::cells::{Cells, count_cell};
use crate::data::Taken;
use crate::data::seal::{TASK_OP, changed_step, task_op_whole};
use crate::error::StoreError;

pub(crate) const KEEP_OP: &str = "
    INSERT INTO task_op (mesh_id, task_id, op_id, body, digest) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO NOTHING";

pub(crate) const OPS: &str = concat!(
    "SELECT op_id, body, ",
    task_op_whole!(),
    " FROM task_op WHERE mesh_id = ?1 AND task_id = ?2"
);

/// By its id alone: what it says it is about may be what was changed.
pub(crate) const KEPT_OP: &str = concat!(
    "SELECT ",
    task_op_whole!(),
    " FROM task_op WHERE mesh_id = ?1 AND op_id = ?2"
);

const DROP_OP: &str = "DELETE FROM task_op WHERE mesh_id = ?1 AND op_id = ?2";
const DROP_ROW: &str = "DELETE FROM tasks WHERE mesh_id = ?1 AND task_id = ?2";
const DROP_BLOCKERS: &str = "DELETE FROM task_blocker WHERE mesh_id = ?1 AND task_id = ?2";

const WRITE: &str = "
    INSERT INTO tasks (mesh_id, task_id, status, created_by, created_at, updated_at, lamport,
        claimed_by, claimed_at, fence, lease_ms, renewed, renewed_at, finished_by, finished_at,
        title, description, digest)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
    ON CONFLICT (mesh_id, task_id) DO UPDATE SET
        status = excluded.status, updated_at = excluded.updated_at, lamport = excluded.lamport,
        claimed_by = excluded.claimed_by, claimed_at = excluded.claimed_at,
        fence = excluded.fence, lease_ms = excluded.lease_ms, renewed = excluded.renewed,
        renewed_at = excluded.renewed_at, finished_by = excluded.finished_by,
        finished_at = excluded.finished_at, digest = excluded.digest";

pub(crate) const BLOCK: &str = "
    INSERT INTO task_blocker (mesh_id, task_id, blocked_by) VALUES (?1, ?2, ?3)
    ON CONFLICT DO NOTHING";

macro_rules! waits_for {
    () => {
        "UPDATE tasks SET waits_for = (
            SELECT count(*) FROM task_blocker AS edge
            WHERE edge.mesh_id = tasks.mesh_id AND edge.task_id = tasks.task_id
                AND NOT EXISTS (
                    SELECT 1 FROM tasks AS other
                    WHERE other.mesh_id = edge.mesh_id AND other.task_id = edge.blocked_by
                        AND (other.status = 'completed' OR other.status = 'cancelled')))"
    };
}

/// Counted, never added to: a task can be finished and, by an op that comes late, unfinished again.
pub(crate) const WAIT_SELF: &str = concat!(waits_for!(), " WHERE mesh_id = ?1 AND task_id = ?2");

pub(crate) const WAIT_BEHIND: &str = concat!(
    waits_for!(),
    " WHERE mesh_id = ?1 AND task_id IN (
        SELECT back.task_id FROM task_blocker AS back
        WHERE back.mesh_id = ?1 AND back.blocked_by = ?2)"
);

pub(crate) const DROP_EVENTS: &str =
    "DELETE FROM task_claim_events WHERE mesh_id = ?1 AND task_id = ?2";

pub(crate) const NOTE_EVENT: &str = "
    INSERT INTO task_claim_events (mesh_id, task_id, number, op_id, peer, event_type, lamport,
        event_time, fence, conflict_peer, conflict_lamport)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Everything of tasks that is folded.
pub(super) const FORGET_DERIVED: &str =
    "DELETE FROM tasks; DELETE FROM task_blocker; DELETE FROM task_claim_events;";

pub(super) const FORGET_LEASES: &str = "
    DELETE FROM task_lease WHERE NOT EXISTS (SELECT 1 FROM tasks
        WHERE tasks.mesh_id = task_lease.mesh_id AND tasks.task_id = task_lease.task_id)";

/// Local and remote ops alike.
pub(crate) fn take(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &TaskChange,
) -> Result<Taken, StoreError> {
    if !keep(connection, mesh, change.task, op)? {
        return Ok(Taken::Same);
    }
    fold(connection, mesh, change.task)?;
    Ok(Taken::Applied)
}

/// An op of this home, which is younger than all that the task has been through. Where it is not, its mesh's clock has been put
/// back: it would rewrite a record that others have acted on, and its claim's fence would be a lower one.
pub(crate) fn take_own(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &TaskChange,
) -> Result<Taken, StoreError> {
    if !keep(connection, mesh, change.task, op)? {
        return Ok(Taken::Same);
    }
    let ops = ops(connection, mesh, change.task)?;
    let is_other = |known: &TaskOp| known.stamp.op != op.stamp.op;
    let is_behind = |known: &TaskOp| known.stamp.lamport >= op.stamp.lamport;
    if ops.iter().any(|known| is_other(known) && is_behind(known)) {
        return Ok(Taken::Kept);
    }
    if !change.step.is_create() {
        refuse_short(connection, mesh, change.task, (&ops, op))?;
    }
    fold_ops(connection, mesh, change.task, &ops)?;
    Ok(Taken::Applied)
}

/// A task whose row knows of more than its steps: folded from what is left of them it would be another one.
fn refuse_short(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
    (ops, new): (&[TaskOp], &DataOp),
) -> Result<(), StoreError> {
    let others = ops.iter().filter(|op| op.stamp.op != new.stamp.op);
    let before = fold_task(&others.cloned().collect::<Vec<_>>());
    let row = row::sealed_one(connection, mesh, id)?;
    let says = |task: &Task| (task.lamport, task.status, task.claim.clone());
    let is_short = match (row, before) {
        (Some(row), Some(before)) => says(&row.task) != says(&before),
        (row, _) => row.is_some(),
    };
    let why = "it is not here any more, though the task's row knows of it";
    if is_short {
        return Err(StoreError::Corrupt(changed_step(id, why)));
    }
    Ok(())
}

/// Without its create there is nothing to fold yet; the op is here, and counts when that comes.
fn fold(connection: &Connection, mesh: MeshId, id: TaskId) -> Result<(), StoreError> {
    fold_ops(connection, mesh, id, &ops(connection, mesh, id)?)
}

fn fold_ops(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
    ops: &[TaskOp],
) -> Result<(), StoreError> {
    match fold_task(ops) {
        Some(task) => write(connection, mesh, id, &task),
        None => Ok(()),
    }
}

/// The row of a task that is about to be changed. One that is not what was folded, or gone, is folded anew, as long as its steps
/// are what was written.
pub(super) fn standing(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
) -> Result<Option<TaskRow>, StoreError> {
    match row::whole(connection, mesh, id) {
        Ok(None) | Err(StoreError::Corrupt(_)) => {
            fold(connection, mesh, id)?;
            row::one(connection, mesh, id)
        }
        found => found,
    }
}

/// Whether it was not there before.
pub(super) fn keep(
    connection: &Connection,
    mesh: MeshId,
    task: TaskId,
    op: &DataOp,
) -> Result<bool, StoreError> {
    let body = op
        .to_bytes()
        .map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let (mesh, task, op) = (mesh.0.to_bytes(), task.to_bytes(), op.stamp.op.to_bytes());
    let digest = TASK_OP.of(params![mesh, task, op], params![body])?;
    let mut keep = connection.prepare_cached(KEEP_OP)?;
    let cells = params![mesh, task, op, body, digest];
    if keep.execute(cells)? > 0 {
        return Ok(true);
    }
    // It was taken before; but what is not what was written any more is mended by what comes again.
    if is_kept(connection, mesh, op)? {
        return Ok(false);
    }
    connection
        .prepare_cached(DROP_OP)?
        .execute(params![mesh, op])?;
    Ok(keep.execute(cells)? > 0)
}

fn is_kept(connection: &Connection, mesh: [u8; 16], op: [u8; 16]) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(KEPT_OP)?;
    let mut rows = statement.query(params![mesh, op])?;
    match rows.next()?.map(|row| TASK_OP.check(row)) {
        None | Some(Ok(())) => Ok(true),
        Some(Err(StoreError::Corrupt(_))) => Ok(false),
        Some(Err(error)) => Err(error),
    }
}

pub(super) fn ops(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
) -> Result<Vec<TaskOp>, StoreError> {
    let mut statement = connection.prepare_cached(OPS)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), id.to_bytes()])?;
    let mut ops = Vec::new();
    while let Some(row) = rows.next()? {
        TASK_OP.check(row)?;
        let mut cells = Cells::of("task_op", row);
        let _: [u8; 16] = cells.get()?;
        let bytes: Vec<u8> = cells.get()?;
        let op = DataOp::parse(&bytes).map_err(|error| cells.bad(error))?;
        match op.body {
            OpBody::Task(change) => ops.push(TaskOp {
                stamp: op.stamp,
                at: op.at,
                step: change.step,
            }),
            _ => return Err(cells.bad("not an op of a task")),
        }
    }
    Ok(ops)
}

pub(super) fn write(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
    task: &Task,
) -> Result<(), StoreError> {
    let key = params![mesh.0.to_bytes(), id.to_bytes()];
    // With its record: what is written over it must not be told as its own.
    let (before, was_damaged) = match row::whole(connection, mesh, id) {
        Err(StoreError::Corrupt(_)) => (None, true),
        found => (found?, false),
    };
    if was_damaged {
        connection.prepare_cached(DROP_ROW)?.execute(key)?;
        connection.prepare_cached(DROP_BLOCKERS)?.execute(key)?;
    }
    write_row(connection, mesh, id, task)?;
    if before.is_none() {
        let mut block = connection.prepare_cached(BLOCK)?;
        for blocker in task.blocked_by.as_slice() {
            block.execute(params![
                mesh.0.to_bytes(),
                id.to_bytes(),
                blocker.to_bytes()
            ])?;
        }
        connection.prepare_cached(WAIT_SELF)?.execute(key)?;
    }
    let was_finished = before.is_some_and(|row| row.task.status.is_finished());
    if was_damaged || was_finished != task.status.is_finished() {
        connection.prepare_cached(WAIT_BEHIND)?.execute(key)?;
    }
    write_events(connection, mesh, id, task)?;
    if task.claim.is_none() {
        connection.prepare_cached(lease::FORGET)?.execute(key)?;
    }
    losses::reconcile(connection, mesh, id, task)
}

fn write_row(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
    task: &Task,
) -> Result<(), StoreError> {
    let (claim, end) = (task.claim.as_ref(), task.end.as_ref());
    let cell = |number: Option<u64>| number.map(count_cell).transpose();
    connection.prepare_cached(WRITE)?.execute(params![
        mesh.0.to_bytes(),
        id.to_bytes(),
        task.status.as_str(),
        task.created_by.as_str(),
        task.created_at.0,
        task.updated_at.0,
        count_cell(task.lamport)?,
        claim.map(|claim| claim.by.as_str()),
        claim.map(|claim| claim.at.0),
        cell(claim.map(|claim| claim.fence))?,
        cell(claim.map(|claim| claim.lease.get()))?,
        cell(claim.map(|claim| claim.renewed))?,
        claim.map(|claim| claim.renewed_at.0),
        end.map(|end| end.by.as_str()),
        end.map(|end| end.at.0),
        task.title.as_str(),
        task.description.as_str(),
        seal::digest(mesh, id, task)?,
    ])?;
    Ok(())
}

fn write_events(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
    task: &Task,
) -> Result<(), StoreError> {
    let (mesh, id) = (mesh.0.to_bytes(), id.to_bytes());
    connection
        .prepare_cached(DROP_EVENTS)?
        .execute(params![mesh, id])?;
    let mut note = connection.prepare_cached(NOTE_EVENT)?;
    for (number, event) in (0_i64..).zip(&task.events) {
        let conflict = event.conflict.as_ref();
        note.execute(params![
            mesh,
            id,
            number,
            event.op.to_bytes(),
            event.peer.as_str(),
            event.kind.as_str(),
            count_cell(event.lamport)?,
            event.at.0,
            event.fence.map(count_cell).transpose()?,
            conflict.map(|(peer, _)| peer.as_str()),
            conflict
                .map(|(_, lamport)| count_cell(*lamport))
                .transpose()?,
        ])?;
    }
    Ok(())
}
