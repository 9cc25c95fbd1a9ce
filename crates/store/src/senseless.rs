//! Rows that SQLite finds nothing wrong with, and that cannot be right all the same: whatever reads them fails, so the
//! doctor tells of them and a repair mends them.

use heddle_core::ids::OpId;
use heddle_core::op::{DataOp, OpBody};
use rusqlite::Connection;

use crate::backup::has_table;
use crate::data::vector_model_problems;

/// What is wrong, one line for each table; none for a store that is whole.
pub(crate) fn senseless(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    if has_table(connection, "vector_models")? {
        found.extend(vector_model_problems(connection)?);
    }
    if has_table(connection, "task_op")? {
        let bad = bad_ops(connection)?;
        if bad > 0 {
            let says = format!("task_op: {bad} steps of tasks are not what anybody wrote");
            found.push(says);
        }
    }
    Ok(found)
}

fn bad_ops(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare("SELECT task_id, op_id, body FROM task_op")?;
    let mut rows = statement.query([])?;
    let mut bad = 0;
    while let Some(row) = rows.next()? {
        let (task, op): ([u8; 16], [u8; 16]) = (row.get(0)?, row.get(1)?);
        let body = row.get_ref(2)?.as_bytes().unwrap_or_default();
        let is_good = DataOp::parse(body).is_ok_and(|parsed| {
            let of_task = matches!(&parsed.body, OpBody::Task(change)
                if change.task == OpId::from_bytes(task));
            of_task && parsed.stamp.op == OpId::from_bytes(op)
        });
        bad += u64::from(!is_good);
    }
    Ok(bad)
}
