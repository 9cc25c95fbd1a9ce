//! What a task was when it was folded: its row with what blocks it, and its record. As with every other row
//! (`data::seal`), but over what the cells mean: it is folded from ops, and written anew from them where it differs.

use heddle_core::ids::MeshId;
use heddle_core::task::TaskId;
use heddle_core::task::fold::{Task, TaskEvent};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use super::{page, row};
use crate::data::seal::{Digest, Print, half, joined};
use crate::error::StoreError;

pub(super) type Half = [u8; 16];

const ROWS: &str =
    "SELECT place, mesh_id, task_id FROM tasks WHERE place > ?1 ORDER BY place LIMIT ?2";
const KEEP: &str = "UPDATE tasks SET digest = ?2 WHERE place = ?1";

pub(super) fn digest(mesh: MeshId, id: TaskId, task: &Task) -> Result<Digest, StoreError> {
    let record = record(&task.events)?;
    Ok(joined(head(mesh, id, task, record)?, record))
}

/// Of the row, and of the digest of its record.
pub(super) fn head(
    mesh: MeshId,
    id: TaskId,
    task: &Task,
    record: Half,
) -> Result<Half, StoreError> {
    half("tasks", |print| {
        print.bytes(&mesh.0.to_bytes());
        print.bytes(&id.to_bytes());
        text(print, task.title.as_str());
        text(print, task.description.as_str());
        number(print, task.blocked_by.as_slice().len() as u64);
        for blocker in task.blocked_by.as_slice() {
            print.bytes(&blocker.to_bytes());
        }
        text(print, task.created_by.as_str());
        time(print, task.created_at.0);
        text(print, task.status.as_str());
        number(print, task.lamport);
        time(print, task.updated_at.0);
        match &task.claim {
            None => print.cell(ValueRef::Null),
            Some(claim) => {
                text(print, claim.by.as_str());
                time(print, claim.at.0);
                number(print, claim.fence);
                number(print, claim.lease.get());
                number(print, claim.renewed);
                time(print, claim.renewed_at.0);
            }
        }
        match &task.end {
            None => print.cell(ValueRef::Null),
            Some(end) => {
                text(print, end.by.as_str());
                time(print, end.at.0);
            }
        }
        print.bytes(&record);
        Ok(())
    })
}

pub(super) fn record(events: &[TaskEvent]) -> Result<Half, StoreError> {
    half("task_claim_events", |print| {
        for event in events {
            print.bytes(&event.op.to_bytes());
            text(print, event.kind.as_str());
            text(print, event.peer.as_str());
            number(print, event.lamport);
            time(print, event.at.0);
            match event.fence {
                None => print.cell(ValueRef::Null),
                Some(fence) => number(print, fence),
            }
            match &event.conflict {
                None => print.cell(ValueRef::Null),
                Some((peer, lamport)) => {
                    text(print, peer.as_str());
                    number(print, *lamport);
                }
            }
        }
        Ok(())
    })
}

fn text(print: &mut Print, text: &str) {
    print.cell(ValueRef::Text(text.as_bytes()));
}

fn number(print: &mut Print, number: u64) {
    print.cell(ValueRef::Integer(number.cast_signed()));
}

fn time(print: &mut Print, at: i64) {
    print.cell(ValueRef::Integer(at));
}

/// Gives some rows of before there were digests theirs; where to go on, none at the end. One that cannot be read gets none,
/// and is told as any other such row.
pub(crate) fn fill(
    connection: &Connection,
    after: i64,
    limit: i64,
) -> Result<Option<i64>, StoreError> {
    let mut rows = connection.prepare_cached(ROWS)?;
    let rows = rows.query_map(params![after, limit], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let rows: Vec<(i64, [u8; 16], [u8; 16])> = rows.collect::<rusqlite::Result<_>>()?;
    for (place, mesh, task) in &rows {
        let mesh = MeshId(ulid::Ulid::from_bytes(*mesh));
        let id = TaskId::from_bytes(*task);
        let found = row::unsealed(connection, mesh, id).and_then(|found| match found {
            Some(mut task) => {
                task.events = page::events(connection, mesh, id)?;
                Ok(Some(task))
            }
            None => Ok(None),
        });
        match found {
            Ok(Some(task)) => {
                let digest = digest(mesh, id, &task)?;
                let mut keep = connection.prepare_cached(KEEP)?;
                keep.execute(params![place, digest])?;
            }
            Ok(None) | Err(StoreError::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(rows.last().map(|(place, ..)| *place))
}
