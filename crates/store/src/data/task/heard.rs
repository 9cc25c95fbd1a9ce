//! What is still known elsewhere of a task of a shared mesh whose steps are not all here: this home's own steps stand in its
//! outbox as they were made, and the log has whatever went out.
//!
//! Until those that nobody has here come back the task is none: what is left of it may say that it is open, while another
//! holds it or has finished it. So its create waits for the log, too, and the rest waits for its create (C38).

use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{MemberId, MeshId, OpId};
use heddle_core::op::{DataOp, is_sealed_as};
use heddle_core::task::TaskId;
use heddle_core::task::fold::{Task, TaskOp, fold_task};
use rusqlite::{Connection, OptionalExtension, params};

use super::restate::as_op;
use super::unheard::{outbox_keys, party, was_heard};
use crate::data::outgoing::IS_QUEUED;
use crate::error::StoreError;

/// Of an op of its own a row of the outbox has the id.
const AS_SENT: &str = "
    SELECT payload, wire_fingerprint FROM outbox
    WHERE row_id = ?2 AND mesh_id = ?1 AND kind = 'op'";
const HOW_SENT: &str = "
    SELECT status, payload, wire_fingerprint FROM outbox WHERE id_key = ?1 AND kind = 'op'";
const DROP_CREATE: &str = "DELETE FROM task_op WHERE mesh_id = ?1 AND op_id = ?2 AND task_id = ?2";

/// A step as it was made here, where the outbox still has its bytes.
pub(super) fn as_sent(
    connection: &Connection,
    mesh: MeshId,
    id: OpId,
) -> Result<Option<DataOp>, StoreError> {
    let mut statement = connection.prepare_cached(AS_SENT)?;
    let cells = params![mesh.0.to_bytes(), id.to_bytes()];
    let found = statement.query_row(cells, |row| Ok((row.get(0)?, row.get(1)?)));
    let Some((payload, made)): Option<(Vec<u8>, [u8; 32])> = found.optional()? else {
        return Ok(None);
    };
    if !is_sealed_as(&payload, Fingerprint(made)) {
        return Ok(None);
    }
    let envelope: serde_json::Value = serde_json::from_slice(&payload).unwrap_or_default();
    let body = envelope["body"].as_str().unwrap_or_default();
    let op = DataOp::parse(body.as_bytes()).ok();
    Ok(op.filter(|op| op.stamp.op == id))
}

/// Whether the steps that are here make the task that its row knows. `with_record`: with everything that is told of it.
pub(super) fn is_made(row: &Task, ops: &[TaskOp], with_record: bool) -> bool {
    let Some(made) = fold_task(ops) else {
        return false;
    };
    let held = |task: &Task| (task.status, task.claim.clone(), task.end.clone());
    if with_record {
        made == *row
    } else {
        held(&made) == held(row)
    }
}

/// Takes the create of a task out until the log brings it again, with what is missing; false where no log ever will. `again`:
/// what its row says of the steps that are lost.
pub(super) fn leave_to_log(
    connection: &Connection,
    (mesh, own): (MeshId, Option<MemberId>),
    id: TaskId,
    (ops, again): (&mut Vec<TaskOp>, &[DataOp]),
) -> Result<bool, StoreError> {
    let is_in_log = match ops.iter().find(|op| op.step.is_create()) {
        Some(create) => went_out(connection, (mesh, own), &as_op(id, create))?,
        None => match again.iter().find(|op| op.stamp.op == id) {
            Some(create) => was_sent(connection, (mesh, own), create)?,
            None => true,
        },
    };
    if is_in_log {
        connection.execute(DROP_CREATE, params![mesh.0.to_bytes(), id.to_bytes()])?;
        ops.retain(|op| !op.step.is_create());
    }
    Ok(is_in_log)
}

/// The same of a create that is lost, as far as anything knows of it.
fn was_sent(
    connection: &Connection,
    (mesh, own): (MeshId, Option<MemberId>),
    create: &DataOp,
) -> Result<bool, StoreError> {
    if went_out(connection, (mesh, own), create)? {
        return Ok(true);
    }
    let Some(sender) = party(&create.stamp.peer) else {
        return Ok(true);
    };
    for key in outbox_keys(mesh, &sender, create) {
        // It was kept back, by a person or by a repair.
        if connection.prepare_cached(IS_QUEUED)?.exists([key.0])? {
            return Ok(false);
        }
    }
    was_heard(connection, mesh, &sender, create)
}

/// Whether it has gone out, or goes out yet: what others have made came from there.
fn went_out(
    connection: &Connection,
    (mesh, own): (MeshId, Option<MemberId>),
    op: &DataOp,
) -> Result<bool, StoreError> {
    let Some(sender) = party(&op.stamp.peer) else {
        return Ok(true);
    };
    if Some(sender.member) != own {
        return Ok(true);
    }
    for key in outbox_keys(mesh, &sender, op) {
        let mut statement = connection.prepare_cached(HOW_SENT)?;
        let found = statement.query_row([key.0], |row| {
            let (status, payload): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
            let waits = status == "pending" || status == "inflight";
            // One that waits with other bytes is kept back, and said again from the row that it made.
            Ok(status != "aborted" && (!waits || is_sealed_as(&payload, Fingerprint(row.get(2)?))))
        });
        if let Some(is_out) = found.optional()? {
            return Ok(is_out);
        }
    }
    Ok(false)
}
