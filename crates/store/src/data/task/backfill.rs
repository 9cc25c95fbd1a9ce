//! The ops of all tasks, as they were kept: publishing sends every one, so that the fold is the same elsewhere.

use heddle_core::ids::MeshId;
use heddle_core::op::DataOp;
use rusqlite::{Connection, params};

use crate::cells::Cells;
use crate::data::backfill::OldRow;
use crate::data::seal::{TASK_OP, task_op_whole};
use crate::error::StoreError;

const KEY_BYTES: usize = 16;

pub(crate) const BACKFILL: &str = concat!(
    "SELECT task_id, op_id, body, ",
    task_op_whole!(),
    " FROM task_op
    WHERE mesh_id = ?1 AND (task_id, op_id) > (?2, ?3) ORDER BY task_id, op_id LIMIT ?4"
);

/// `after` is the id of a task and of its op; nothing for the beginning.
pub(crate) fn backfill(
    connection: &Connection,
    mesh: MeshId,
    after: &[u8],
    limit: i64,
) -> Result<Vec<OldRow>, StoreError> {
    let (task, op) = after.split_at(after.len().min(KEY_BYTES));
    let mut statement = connection.prepare_cached(BACKFILL)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), task, op, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("task_op", row);
        let (task, op): ([u8; KEY_BYTES], [u8; KEY_BYTES]) = (cells.get()?, cells.get()?);
        let body: Vec<u8> = cells.get()?;
        found.push(OldRow {
            through: [task, op].concat(),
            op: TASK_OP
                .check(row)
                .and_then(|()| DataOp::parse(&body).map_err(|error| cells.bad(error))),
        });
    }
    Ok(found)
}
