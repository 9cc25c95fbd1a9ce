//! What is wrong with one task, by what mends it, and which tasks of a mesh are damaged.

use heddle_core::ids::MeshId;
use heddle_core::task::TaskId;
use heddle_core::task::fold::fold_task;
use rusqlite::{Connection, params};

use super::{fold, row};
use crate::error::StoreError;

/// None of them is served as somebody's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskDamage {
    /// Its row or its record is gone, or not what was folded from its steps. Those are what was written, so its next step mends it.
    Row,
    /// One of its steps is not what was written. Only a repair, or the log of a shared mesh, has it.
    Step,
    /// Its row knows of steps that are not here.
    Lost,
}

pub(crate) fn damage(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
) -> Result<Option<TaskDamage>, StoreError> {
    let ops = match fold::ops(connection, mesh, id) {
        Err(StoreError::Corrupt(_)) => return Ok(Some(TaskDamage::Step)),
        ops => ops?,
    };
    let row = match row::whole(connection, mesh, id) {
        Err(StoreError::Corrupt(_)) => return Ok(Some(TaskDamage::Row)),
        row => row?.map(|row| row.task),
    };
    let made = fold_task(&ops);
    if row.is_none() && made.is_some() {
        return Ok(Some(TaskDamage::Row));
    }
    Ok((row != made).then_some(TaskDamage::Lost))
}

/// Tasks that are looked at in one go: each is folded.
const TASKS_AT_ONCE: usize = 200;
const IDS: &str = "
    SELECT task_id FROM tasks WHERE mesh_id = ?1 AND task_id > ?2
    UNION SELECT task_id FROM task_op WHERE mesh_id = ?1 AND task_id > ?2
    ORDER BY task_id LIMIT ?3";

/// Some tasks of a mesh, in the order of their ids.
pub(crate) struct BadPart {
    /// Those whose row, record or steps are gone, or whose row is not what was written. A step that is not is another look's.
    pub bad: Vec<TaskId>,
    pub looked: u64,
    /// Behind which to go on; none at the end.
    pub next: Option<TaskId>,
}

pub(crate) fn bad_part(
    connection: &Connection,
    mesh: MeshId,
    after: TaskId,
) -> Result<BadPart, StoreError> {
    let limit = i64::try_from(TASKS_AT_ONCE).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(IDS)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), after.to_bytes(), limit])?;
    let mut ids = Vec::new();
    let mut looked = 0;
    while let Some(row) = rows.next()? {
        looked += 1;
        // An id of another length is told of by who looks at cells.
        let id = row.get_ref(0)?.as_bytes().ok();
        ids.extend(id.and_then(|id| <[u8; 16]>::try_from(id).ok()));
    }
    let ids: Vec<TaskId> = ids.into_iter().map(TaskId::from_bytes).collect();
    let next = ids.last().copied().filter(|_| looked == TASKS_AT_ONCE);
    let mut bad = Vec::new();
    for id in ids {
        match damage(connection, mesh, id)? {
            Some(TaskDamage::Row | TaskDamage::Lost) => bad.push(id),
            Some(TaskDamage::Step) | None => {}
        }
    }
    let looked = looked as u64;
    Ok(BadPart { bad, looked, next })
}
