//! Tasks are folded anew from the ops that came over: what was folded from others, or is damaged, does not count (C7).

use std::collections::BTreeSet;

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::Connection;
use ulid::Ulid;

use super::Kept;
use super::after::has_column;
use crate::backup::{BackupError, has_table};
use crate::data::seal::is_sealed;
use crate::data::{Refolded, Salvaged, fold_tasks_anew};

const OPS: &str = "task_op";
/// What is folded from the ops.
const FOLDED: [&str; 3] = ["tasks", "task_blocker", "task_claim_events"];
/// Titles that are named.
const NAMED_MAX: usize = 20;
const STUCK: &str = "
    SELECT title FROM tasks JOIN mesh USING (mesh_id)
    WHERE kind = 'personal' AND status = 'open' AND EXISTS (
        SELECT 1 FROM task_blocker AS edge
        WHERE edge.mesh_id = tasks.mesh_id AND edge.task_id = tasks.task_id AND NOT EXISTS (
            SELECT 1 FROM tasks AS other
            WHERE other.mesh_id = edge.mesh_id AND other.task_id = edge.blocked_by))
    ORDER BY tasks.task_id LIMIT ?1";

/// What became of the tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairedTasks {
    /// Their history was lost; they stand as they stood.
    pub restated: u64,
    /// The titles of the first of them.
    pub restated_titles: Vec<String>,
    /// Their rows knew of steps that are not here any more.
    pub behind: u64,
    /// Too little was left of them: how many, and the titles of the first.
    pub dropped: u64,
    pub dropped_titles: Vec<String>,
    /// Tasks of shared meshes that the log has to bring.
    pub from_log: u64,
    /// Titles of tasks that wait for one that is lost.
    pub stuck: Vec<String>,
}

/// With the names of tasks of shared meshes that only the log can bring back, if it has them: nobody here knows that.
pub(super) fn fold(
    new: &Connection,
    kept: &mut [Kept],
    now: WallMs,
) -> Result<(RepairedTasks, Vec<String>), BackupError> {
    if !has_table(new, OPS)? {
        return Ok(Default::default());
    }
    let has_kinds = has_column(new, "mesh", "kind")?;
    let own = own_meshes(new, has_kinds)?;
    let has_lost = kept
        .iter()
        .any(|kept| kept.table == OPS && !kept.is_whole());
    let told = fold_anew(new, (has_lost, now), &own)?;
    if let Some(ops) = kept.iter_mut().find(|kept| kept.table == OPS) {
        ops.rows = ops.rows.saturating_sub(told.bad_ops);
        ops.refused += told.bad_ops;
    }
    // What is folded from ops that are all here is all here.
    if !has_lost && told.bad_ops == 0 && told.behind == 0 {
        for kept in kept
            .iter_mut()
            .filter(|kept| FOLDED.contains(&kept.table.as_str()))
        {
            let count = format!("SELECT count(*) FROM {}", kept.table);
            kept.rows = new
                .query_row(&count, [], |row| row.get::<_, u32>(0))?
                .into();
            (kept.refused, kept.gaps) = (0, 0);
        }
    }
    let gone = told.from_log.iter().take(NAMED_MAX);
    let gone = gone.map(|title| format!("task {title:?}")).collect();
    let tasks = RepairedTasks {
        restated: told.restated.len() as u64,
        restated_titles: told.restated.into_iter().take(NAMED_MAX).collect(),
        behind: told.behind,
        dropped: told.dropped.len() as u64,
        from_log: told.from_log.len() as u64,
        stuck: if has_kinds { stuck(new)? } else { Vec::new() },
        dropped_titles: told.dropped.into_iter().take(NAMED_MAX).collect(),
    };
    Ok((tasks, gone))
}

const LEND: &str = "
    ALTER TABLE tasks ADD COLUMN digest BLOB; ALTER TABLE task_op ADD COLUMN digest BLOB;";
const GIVE_BACK: &str = "
    ALTER TABLE tasks DROP COLUMN digest; ALTER TABLE task_op DROP COLUMN digest;";

/// A file of before rows had digests has the columns while it is folded, and gets digests when it is next opened.
fn fold_anew(
    new: &Connection,
    (has_lost_ops, now): (bool, WallMs),
    own: &BTreeSet<MeshId>,
) -> Result<Refolded, BackupError> {
    let has_digests = has_column(new, "tasks", "digest")?;
    if !has_digests {
        new.execute_batch(LEND)?;
    }
    let salvaged = Salvaged {
        has_lost_ops,
        is_sealed: has_digests && is_sealed(new)?,
        now,
    };
    let told = fold_tasks_anew(new, salvaged, |mesh| own.contains(&mesh))
        .map_err(|error| BackupError::Prepare(error.to_string()))?;
    new.flush_prepared_statement_cache();
    if !has_digests {
        new.execute_batch(GIVE_BACK)?;
    }
    Ok(told)
}

/// Those that nobody else is in. Before there were shared ones, all of them.
fn own_meshes(new: &Connection, has_kinds: bool) -> rusqlite::Result<BTreeSet<MeshId>> {
    let only = if has_kinds {
        " WHERE kind = 'personal'"
    } else {
        ""
    };
    let mut statement = new.prepare(&format!("SELECT mesh_id FROM mesh{only}"))?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.map(|row| Ok(MeshId(Ulid::from_bytes(row?)))).collect()
}

fn stuck(new: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = new.prepare(STUCK)?;
    let rows = statement.query_map([i64::try_from(NAMED_MAX).unwrap_or(i64::MAX)], |row| {
        row.get(0)
    })?;
    rows.collect()
}
