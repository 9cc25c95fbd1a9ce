//! The expiry sweep: ids whose time is over are forgotten, each with the mark at its place in history.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::{Connection, params};

use super::columns::mesh_key;

/// Rows looked at in one read.
const LOOK_ROWS: i64 = 10_000;
/// Rows forgotten in one transaction, which has to stay short for everybody else.
const SWEEP_ROWS_MAX: usize = 500;

const LAST: &str = "SELECT coalesce(max(rowid), 0) FROM client_message_dedupe";

// The rows lie in order of arrival, so the walk needs no index of its own.
const DUE: &str = "
SELECT rowid FROM client_message_dedupe
WHERE rowid > ?2 AND rowid <= ?3 AND mesh_id = ?1 AND expires_at < ?4 ORDER BY rowid LIMIT ?5";

// IMPORTANT: looked at again under the writer, because a row may have been replaced since it was found
// (C36): the id is forgotten here, or answered as known, never both.
const MARK: &str = "
UPDATE message_history SET is_expired = 1 WHERE (mesh_id, epoch, seq) = (
    SELECT mesh_id, epoch, seq FROM client_message_dedupe
    WHERE rowid = ?2 AND mesh_id = ?1 AND expires_at < ?3)";

const FORGET: &str = "
DELETE FROM client_message_dedupe WHERE rowid = ?2 AND mesh_id = ?1 AND expires_at < ?3";

/// How far the walk has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Walk(i64);

/// Rows that are due in the next stretch, and where to go on; `None` at the end.
pub(super) fn find(
    connection: &Connection,
    mesh: MeshId,
    now: WallMs,
    Walk(after): Walk,
) -> rusqlite::Result<(Vec<i64>, Option<Walk>)> {
    let last: i64 = connection
        .prepare_cached(LAST)?
        .query_row([], |r| r.get(0))?;
    let through = after.saturating_add(LOOK_ROWS).min(last);
    let limit = super::upkeep::rows(SWEEP_ROWS_MAX);
    let due = connection
        .prepare_cached(DUE)?
        .query_map(
            params![mesh_key(mesh), after, through, now.0, limit],
            |row| row.get(0),
        )?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    let next = match due.last() {
        Some(rowid) if due.len() == SWEEP_ROWS_MAX => Some(Walk(*rowid)),
        _ if through < last => Some(Walk(through)),
        _ => None,
    };
    Ok((due, next))
}

pub(super) fn sweep(
    connection: &Connection,
    mesh: MeshId,
    now: WallMs,
    due: &[i64],
) -> rusqlite::Result<usize> {
    let mut mark = connection.prepare_cached(MARK)?;
    let mut forget = connection.prepare_cached(FORGET)?;
    let mut count = 0;
    for rowid in due {
        let key = params![mesh_key(mesh), rowid, now.0];
        mark.execute(key)?;
        count += forget.execute(key)?;
    }
    Ok(count)
}
