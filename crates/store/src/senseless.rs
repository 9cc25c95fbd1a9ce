//! Rows that SQLite finds nothing wrong with, and that cannot be right all the same: whatever reads them fails, so the
//! doctor tells of them and a repair mends them.

use std::collections::BTreeSet;

use heddle_core::ids::OpId;
use heddle_core::op::{DataOp, OpBody};
use rusqlite::Connection;

use crate::backup::has_table;
use crate::changed_ops;
use crate::data::seal::{TASK_OP, is_sealed};
use crate::data::{
    miscounted, nameless_vector_models, task_problems, unfolded_tasks, vector_count_problems,
    vector_model_problems, vector_place_problems,
};
use crate::error::StoreError;
use crate::figures::outbox_gone;
use crate::meaning::spoilt;
use crate::meshless::other_members;
use crate::missing;
use crate::own_refused;
use crate::schema;
use crate::stamps::clock_problems;
use crate::unreadable::{all_unreadable, named};
use crate::unsent;
use crate::words;

/// Rows that one sentence names.
const NAMED_MAX: usize = 10;
const STATE: &str = "SELECT 1 FROM store_state";

/// What is wrong, one line for each table; none for a store that is whole.
pub(crate) fn senseless(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    if has_table(connection, "vector_models")? {
        found.extend(vector_model_problems(connection)?);
        found.extend(nameless_vector_models(connection)?);
        found.extend(vector_count_problems(connection)?);
        found.extend(vector_place_problems(connection)?);
    }
    if is_newest(connection)? && !connection.prepare(STATE)?.exists([])? {
        found.push("store_state: its row is gone; the next start puts it back".to_owned());
    }
    found.extend(spoilt_cells(connection)?);
    found.extend(clock_problems(connection)?);
    if has_table(connection, "mesh")? {
        found.extend(own_refused::problems(connection)?);
        found.extend(other_members(connection)?);
        found.extend(unread_rows(connection)?);
    }
    if is_newest(connection)? {
        found.extend(changed_ops::problem(connection)?);
        found.extend(gone_from_outbox(connection)?);
        found.extend(in_words(unsent::problem(connection))?);
        found.extend(in_words(missing::problem(connection))?);
    }
    if has_table(connection, "blob_refs")? {
        found.extend(miscounted_blobs(connection)?);
    }
    if has_table(connection, "task_op")? {
        let bad = bad_ops(connection)?;
        if bad > 0 {
            let says = format!("task_op: {bad} steps of tasks are not what anybody wrote");
            found.push(says);
        }
        found.extend(changed_tasks(connection)?);
    }
    if has_table(connection, "memory_fts")? && is_newest(connection)? {
        found.extend(words::problems(connection)?);
    }
    Ok(found)
}

/// A look that cannot read what it needs says so in its place.
fn in_words(looked: Result<Option<String>, StoreError>) -> rusqlite::Result<Option<String>> {
    match looked {
        Ok(found) => Ok(found),
        Err(StoreError::Sqlite(error)) => Err(error),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Nothing is ever taken out of the outbox: a place without a row is one that the file has lost.
fn gone_from_outbox(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let gone = outbox_gone(connection)?;
    let says = || format!("outbox: rows that are gone from it: {gone}");
    Ok((gone > 0).then(says))
}

/// Rows of the data that nobody can read, by what they are called.
fn unread_rows(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let found = match all_unreadable(connection) {
        Ok(found) => found,
        Err(StoreError::Sqlite(error)) => return Err(error),
        Err(error) => return Ok(Some(error.to_string())),
    };
    Ok(match found.len() {
        0 => None,
        1 => Some(format!("a row cannot be read: {}", named(&found, 1))),
        count => Some(format!(
            "{count} rows cannot be read: {}",
            named(&found, NAMED_MAX)
        )),
    })
}

/// Cells of all other tables that are not what they mean.
fn spoilt_cells(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let found = spoilt(connection, u64::MAX)?;
    let shown: Vec<String> = found
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    let more = if found.len() > NAMED_MAX {
        " and more"
    } else {
        ""
    };
    let says = || format!("what cannot be read: {}{more}", shown.join("; "));
    Ok((!found.is_empty()).then(says))
}

/// Blobs that are not counted as the rows of files name them.
fn miscounted_blobs(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut found = miscounted(connection, NAMED_MAX + 1)?;
    let more = if found.len() > NAMED_MAX {
        " and more"
    } else {
        ""
    };
    found.truncate(NAMED_MAX);
    let says = || {
        let which = found.join(", ");
        format!(
            "blob_refs: who names the bytes of large files is not counted as the files say: {which}{more}"
        )
    };
    Ok((!found.is_empty()).then(says))
}

/// Tasks that are not what was folded from their steps.
fn changed_tasks(connection: &Connection) -> rusqlite::Result<Option<String>> {
    if !has_digests(connection)? {
        return Ok(None);
    }
    let looked = task_problems(connection).and_then(|mut found| {
        found.extend(unfolded_tasks(connection)?);
        Ok(found)
    });
    let found: BTreeSet<_> = match looked {
        Ok(found) => found.into_iter().collect(),
        Err(StoreError::Sqlite(error)) => return Err(error),
        Err(error) => return Ok(Some(error.to_string())),
    };
    let shown = found.iter().take(NAMED_MAX);
    let shown: Vec<String> = shown.map(|id| format!("task {id}")).collect();
    let says = || {
        format!(
            "tasks are not what their steps made them: {}",
            shown.join(", ")
        )
    };
    Ok((!found.is_empty()).then(says))
}

/// Whether a row without a digest is one that lost it.
fn has_digests(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(is_newest(connection)? && is_sealed(connection)?)
}

fn is_newest(connection: &Connection) -> rusqlite::Result<bool> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(version == schema::newest())
}

fn bad_ops(connection: &Connection) -> rusqlite::Result<u64> {
    let is_sealed = has_digests(connection)?;
    let columns = if is_sealed { TASK_OP.columns } else { "body" };
    let sql = format!("SELECT task_id, op_id, body, {columns} FROM task_op");
    let mut statement = connection.prepare(&sql)?;
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
        let is_kept = !is_sealed || TASK_OP.check(row).is_ok();
        bad += u64::from(!is_good || !is_kept);
    }
    Ok(bad)
}
