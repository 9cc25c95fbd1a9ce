//! After a salvage: everything that is folded from ops is written anew from those that are left.
//!
//! Where ops were lost, the row that was folded from them is all that is left of what they did. In a mesh of one's own
//! nobody else has them, so the row is said once more as ops, and the task lives on as it stood. In a shared mesh the
//! log has them, and must not hear of ops that were made up here: the row goes, and the log brings the task back. But what
//! no log ever heard of (`unheard`) is said once more there, too, and goes out.

use std::collections::{BTreeMap, BTreeSet};

use heddle_core::clock::WallMs;
use heddle_core::ids::{MeshId, OpId};
use heddle_core::op::{DataOp, OpBody};
use heddle_core::task::TaskId;
use heddle_core::task::fold::{Task, TaskOp, fold_task};
use rusqlite::{Connection, params};
use ulid::Ulid;

use super::fold::{FORGET_DERIVED, FORGET_LEASES, keep, write};
use super::restate::restated;
use super::{page, row, seal, unheard};
use crate::data::clock;
use crate::data::seal::{TASK_OP, task_op_whole};
use crate::error::StoreError;

/// What became of the tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refolded {
    /// Ops whose bytes are no ops of their task any more.
    pub(crate) bad_ops: u64,
    /// Tasks of one's own meshes whose ops were lost, said once more as their rows said it.
    pub(crate) restated: u64,
    /// The titles of tasks of one's own meshes of which too little is left.
    pub(crate) dropped: Vec<String>,
    /// The titles of tasks of shared meshes that the log has to bring.
    pub(crate) from_log: Vec<String>,
    /// Tasks whose row knew more than the ops that are left.
    pub(crate) behind: u64,
}

/// What is known before the tasks are folded anew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Salvaged {
    /// Rows of `task_op` may be missing, so that a row of `tasks` knows more than they.
    pub(crate) has_lost_ops: bool,
    /// Every row has its digest, and counts only if it is that.
    pub(crate) is_sealed: bool,
    pub(crate) now: WallMs,
}

type Key = ([u8; 16], [u8; 16]);

const OPS: &str = concat!(
    "SELECT mesh_id, task_id, op_id, body, ",
    task_op_whole!(),
    " FROM task_op"
);
const DROP_OP: &str = "DELETE FROM task_op WHERE mesh_id = ?1 AND op_id = ?2";
const DIGESTS: &str = "SELECT mesh_id, task_id, digest FROM tasks ORDER BY place";
const ROWS: &str = "SELECT mesh_id, task_id, title FROM tasks ORDER BY place";

/// A task as its row said it, while it could be read.
struct Was {
    key: Key,
    title: String,
    task: Option<Task>,
}

/// `is_own` says whether nobody else is in a mesh.
pub(crate) fn fold_anew(
    connection: &Connection,
    salvaged: Salvaged,
    is_own: impl Fn(MeshId) -> bool,
) -> Result<Refolded, StoreError> {
    let mut told = Refolded::default();
    let is_sealed = salvaged.is_sealed;
    let (mut known, bad) = ops(connection, is_sealed)?;
    for Bad { of: (mesh, _), op } in &bad {
        connection.execute(DROP_OP, params![mesh, op])?;
    }
    told.bad_ops = bad.len() as u64;
    let has_lost = salvaged.has_lost_ops || told.bad_ops > 0;
    let rows = rows(connection, is_sealed)?;
    connection.execute_batch(FORGET_DERIVED)?;
    let mut all = Vec::with_capacity(rows.len());
    for was in rows {
        let mut ops = known.remove(&was.key).unwrap_or_default();
        // Where every op is here the row says nothing new, and may be what was damaged. One that is what was folded says
        // by itself whether ops are missing.
        if has_lost || is_sealed {
            say_again(connection, &was, &mut ops, (salvaged, &is_own), &mut told)?;
        }
        all.push((was.key, ops));
    }
    // Those whose rows were lost.
    all.extend(known);
    for (key, ops) in all {
        let (mesh, id) = ids(key);
        if let Some(task) = fold_task(&ops) {
            write(connection, mesh, id, &task)?;
        }
    }
    connection.execute(FORGET_LEASES, [])?;
    Ok(told)
}

fn say_again(
    connection: &Connection,
    was: &Was,
    ops: &mut Vec<TaskOp>,
    (salvaged, is_own): (Salvaged, impl Fn(MeshId) -> bool),
    told: &mut Refolded,
) -> Result<(), StoreError> {
    let (mesh, id) = ids(was.key);
    let is_own = is_own(mesh);
    let made = was.task.as_ref().and_then(|task| restated(id, task, ops));
    let has_lost = match &made {
        Some(made) => !made.is_empty(),
        None => fold_task(ops).is_none(),
    };
    told.behind += u64::from(has_lost);
    let mut made = made.unwrap_or_default();
    if !is_own {
        made = match &was.task {
            // Whether an op went out is looked up as this schema keeps it.
            Some(task) if salvaged.is_sealed => {
                unheard::send(connection, (mesh, task, ops), made, salvaged.now)?
            }
            _ => Vec::new(),
        };
    }
    told.restated += u64::from(!made.is_empty());
    for op in made {
        keep(connection, mesh, id, &op)?;
        ops.extend(step_of(op, id));
    }
    if fold_task(ops).is_none() {
        let lost = if is_own {
            &mut told.dropped
        } else {
            &mut told.from_log
        };
        lost.push(was.title.clone());
    }
    Ok(())
}

type Known = BTreeMap<Key, Vec<TaskOp>>;

/// An op that is none, and of which task it says it is.
struct Bad {
    of: Key,
    op: [u8; 16],
}

/// Every op by its task, and those that are none.
fn ops(connection: &Connection, is_sealed: bool) -> Result<(Known, Vec<Bad>), StoreError> {
    let (mut known, mut bad) = (Known::new(), Vec::new());
    let mut statement = connection.prepare(OPS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (mesh, task, op): ([u8; 16], [u8; 16], [u8; 16]) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let body: Vec<u8> = row.get(3)?;
        let is_kept = !is_sealed || TASK_OP.check(row).is_ok();
        let parsed = DataOp::parse(&body).ok().filter(|_| is_kept);
        // One that is ahead of its mesh's clock was not written as it stands there.
        let clock = clock::read(connection, MeshId(Ulid::from_bytes(mesh)))?.value;
        let fitting = parsed.filter(|parsed| {
            parsed.stamp.op == OpId::from_bytes(op) && parsed.stamp.lamport <= clock
        });
        match fitting.and_then(|parsed| step_of(parsed, OpId::from_bytes(task))) {
            Some(step) => known.entry((mesh, task)).or_default().push(step),
            None => bad.push(Bad {
                of: (mesh, task),
                op,
            }),
        }
    }
    Ok((known, bad))
}

fn step_of(op: DataOp, task: TaskId) -> Option<TaskOp> {
    match op.body {
        OpBody::Task(change) if change.task == task => Some(TaskOp {
            stamp: op.stamp,
            at: op.at,
            step: change.step,
        }),
        _ => None,
    }
}

fn rows(connection: &Connection, is_sealed: bool) -> Result<Vec<Was>, StoreError> {
    let mut statement = connection.prepare(ROWS)?;
    let found = statement.query_map([], |row| {
        let title = row.get_ref(2)?.as_bytes().unwrap_or_default();
        let title = String::from_utf8_lossy(title).into_owned();
        Ok(((row.get(0)?, row.get(1)?), title))
    })?;
    let mut rows = Vec::new();
    for row in found {
        let (key, title) = row?;
        let (mesh, id) = ids(key);
        // A row that cannot be read back is no word of anybody.
        let task = if is_sealed {
            row::sealed_one(connection, mesh, id).map(|row| row.map(|row| row.task))
        } else {
            row::unsealed(connection, mesh, id)
        };
        let mut task = task.ok().flatten();
        if let Some(task) = task.as_mut().filter(|_| is_sealed) {
            task.events = page::events(connection, mesh, id).unwrap_or_default();
        }
        rows.push(Was { key, title, task });
    }
    Ok(rows)
}

/// Tasks that are not what their steps make them, though each step that is here is what was written: rows of steps are
/// lost, or rows of tasks. A step whose task is not here yet makes nothing (C38).
pub(crate) fn unfolded(connection: &Connection) -> Result<Vec<TaskId>, StoreError> {
    let (mut known, bad) = ops(connection, true)?;
    let damaged: BTreeSet<Key> = bad.iter().map(|bad| bad.of).collect();
    let mut found = Vec::new();
    let mut statement = connection.prepare(DIGESTS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key: Key = (row.get(0)?, row.get(1)?);
        let ops = known.remove(&key).unwrap_or_default();
        let (mesh, id) = ids(key);
        let made = fold_task(&ops).map(|task| seal::digest(mesh, id, &task));
        let kept = row.get_ref(2)?.as_bytes().unwrap_or_default();
        let is_made = matches!(made, Some(Ok(digest)) if digest == kept);
        if !is_made && !damaged.contains(&key) {
            found.push(id);
        }
    }
    for (key, ops) in known {
        if fold_task(&ops).is_some() && !damaged.contains(&key) {
            found.push(ids(key).1);
        }
    }
    Ok(found)
}

fn ids((mesh, task): Key) -> (MeshId, TaskId) {
    (MeshId(Ulid::from_bytes(mesh)), OpId::from_bytes(task))
}
