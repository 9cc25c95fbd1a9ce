//! The expiry sweep: ids whose time is over are forgotten, each with the mark at its place in history.

use std::time::Duration;

use heddle_core::ids::{HistoryId, MeshId};
use rusqlite::{Connection, params};

use super::super::births::{Births, cell, kept};
use super::columns::{Columns, integer, mesh_key};

/// Rows looked at in one read.
const LOOK_ROWS: i64 = 10_000;
/// Rows forgotten in one transaction, which has to stay short for everybody else.
const SWEEP_ROWS_MAX: usize = 500;

const LAST: &str = "SELECT coalesce(max(rowid), 0) FROM client_message_dedupe";

// The rows lie in order of arrival, so the walk needs no index of its own.
// Whatever was kept for less than the mesh is old may be over.
const DUE: &str = "
SELECT epoch, seq, rowid, first_seen_at, expires_at FROM client_message_dedupe
WHERE rowid > ?2 AND rowid <= ?3 AND mesh_id = ?1 AND expires_at - first_seen_at < ?4 ORDER BY rowid";

// IMPORTANT: looked at again under the writer, because a row may have been replaced since it was found
// (C36): the id is forgotten here, or answered as known, never both. A place is never given twice.
const MARK: &str = "
UPDATE message_history SET is_expired = 1 WHERE (mesh_id, epoch, seq) = (
    SELECT mesh_id, epoch, seq FROM client_message_dedupe
    WHERE rowid = ?2 AND mesh_id = ?1 AND epoch = ?3 AND seq = ?4)";

const FORGET: &str = "
DELETE FROM client_message_dedupe WHERE rowid = ?2 AND mesh_id = ?1 AND epoch = ?3 AND seq = ?4";

/// A row whose time is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    rowid: i64,
    place: HistoryId,
}

/// How far the walk has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Walk(i64);

/// Rows that are due in the next stretch, and where to go on; `None` at the end.
pub(super) fn find(
    connection: &Connection,
    mesh: MeshId,
    (births, age): (&Births, Duration),
    Walk(after): Walk,
) -> rusqlite::Result<(Vec<Due>, Option<Walk>)> {
    let last: i64 = connection
        .prepare_cached(LAST)?
        .query_row([], |r| r.get(0))?;
    let through = after.saturating_add(LOOK_ROWS).min(last);
    let mut statement = connection.prepare_cached(DUE)?;
    let mut rows = statement.query(params![mesh_key(mesh), after, through, cell(age)])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        let place = Columns::of(row).history_id()?;
        let rowid = row.get(2)?;
        let kept = kept(row.get(3)?, row.get(4)?);
        if !births.is_over(place, kept, age) {
            continue;
        }
        due.push(Due { rowid, place });
        if due.len() == SWEEP_ROWS_MAX {
            return Ok((due, Some(Walk(rowid))));
        }
    }
    Ok((due, (through < last).then_some(Walk(through))))
}

pub(super) fn sweep(connection: &Connection, mesh: MeshId, due: &[Due]) -> rusqlite::Result<usize> {
    let mut mark = connection.prepare_cached(MARK)?;
    let mut forget = connection.prepare_cached(FORGET)?;
    let mut count = 0;
    for Due { rowid, place } in due {
        let (epoch, seq) = (integer(place.epoch), integer(place.seq));
        let key = params![mesh_key(mesh), rowid, epoch, seq];
        mark.execute(key)?;
        count += forget.execute(key)?;
    }
    Ok(count)
}
