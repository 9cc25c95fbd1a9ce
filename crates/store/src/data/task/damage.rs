//! What is wrong with one task, by what mends it.

use heddle_core::ids::MeshId;
use heddle_core::task::TaskId;
use heddle_core::task::fold::fold_task;
use rusqlite::Connection;

use super::{fold, row};
use crate::error::StoreError;

/// None of them is served as somebody's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskDamage {
    /// Its row or its record is not what was folded from its steps. Those are what was written, so its next step mends it.
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
    Ok((row != fold_task(&ops)).then_some(TaskDamage::Lost))
}
