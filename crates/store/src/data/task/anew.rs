//! After a salvage: everything that is folded from ops is written anew from those that are left.
//!
//! Where ops were lost, the row that was folded from them is all that is left of what they did. In a mesh of one's own
//! nobody else has them, so the row is said once more as ops, and the task lives on as it stood. In a shared mesh the
//! log has them, and must not hear of ops that were made up here: what the outbox has as it was made (`heard`) comes from
//! there, and else the row goes and the log brings the task back. But what no log ever heard of (`unheard`) is said once
//! more there, too, and goes out. Whatever is left of its steps, no task becomes freer than its row says.

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
use super::{heard, page, row, seal, unheard};
use crate::data::clock;
use crate::data::seal::{TASK_OP, task_op_whole};
use crate::error::StoreError;

/// What became of the tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refolded {
    /// Ops whose bytes are no ops of their task any more.
    pub(crate) bad_ops: u64,
    /// The titles of tasks whose ops were lost, said once more as they were or as their rows said it.
    pub(crate) restated: Vec<String>,
    /// The titles of tasks of one's own meshes of which too little is left.
    pub(crate) dropped: Vec<String>,
    /// The titles of tasks of shared meshes that the log has to bring.
    pub(crate) from_log: Vec<String>,
    /// Tasks whose row knew more than the ops that are left.
    pub(crate) behind: u64,
    /// Which they are, by the task that they say they are of.
    bad: BTreeMap<Key, Vec<OpId>>,
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

impl Was {
    /// One whose row was lost.
    fn unknown(key: Key, ops: &[TaskOp]) -> Self {
        let title = fold_task(ops).map(|task| task.title.as_str().to_owned());
        Self {
            title: title.unwrap_or_else(|| ids(key).1.to_string()),
            task: None,
            key,
        }
    }
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
    for Bad { of, op } in &bad {
        connection.execute(DROP_OP, params![of.0, op])?;
        let of = told.bad.entry(*of).or_default();
        of.push(OpId::from_bytes(*op));
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
    for (key, mut ops) in known {
        let has_bad = salvaged.has_lost_ops || told.bad.contains_key(&key);
        if has_bad && !is_own(ids(key).0) && fold_task(&ops).is_some() {
            let was = Was::unknown(key, &ops);
            say_shared(
                connection,
                &was,
                (&mut ops, Vec::new()),
                salvaged,
                &mut told,
            )?;
        }
        all.push((key, ops));
    }
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
    let made = was.task.as_ref().and_then(|task| restated(id, task, ops));
    let has_lost = match &made {
        Some(made) => !made.is_empty(),
        None => fold_task(ops).is_none(),
    };
    told.behind += u64::from(has_lost);
    let made = made.unwrap_or_default();
    if !is_own(mesh) {
        return say_shared(connection, was, (ops, made), salvaged, told);
    }
    if !made.is_empty() {
        told.restated.push(was.title.clone());
    }
    take_in(connection, was.key, made, ops)?;
    if fold_task(ops).is_none() {
        told.dropped.push(was.title.clone());
    }
    Ok(())
}

/// Keeps steps that are said again, beside those that are here.
fn take_in(
    connection: &Connection,
    key: Key,
    made: Vec<DataOp>,
    ops: &mut Vec<TaskOp>,
) -> Result<(), StoreError> {
    let (mesh, id) = ids(key);
    for op in made {
        keep(connection, mesh, id, &op)?;
        ops.extend(step_of(op, id));
    }
    Ok(())
}

/// Of a task that others are in: what this home still has as it was made, then what no log heard of; the rest is the log's.
fn say_shared(
    connection: &Connection,
    was: &Was,
    (ops, made): (&mut Vec<TaskOp>, Vec<DataOp>),
    salvaged: Salvaged,
    told: &mut Refolded,
) -> Result<(), StoreError> {
    let (mesh, id) = ids(was.key);
    let known = told.bad.get(&was.key).into_iter().flatten().copied();
    let recorded = was.task.iter().flat_map(|task| &task.events);
    let known = known.chain(recorded.map(|event| event.op));
    let mut lost: BTreeSet<OpId> = known.chain(made.iter().map(|op| op.stamp.op)).collect();
    lost.retain(|op| ops.iter().all(|left| left.stamp.op != *op));
    let mut sent = Vec::new();
    for op in lost {
        sent.extend(heard::as_sent(connection, mesh, op)?);
    }
    let mut is_said = !sent.is_empty() || told.bad.contains_key(&was.key);
    take_in(connection, was.key, sent, ops)?;
    let Some(task) = &was.task else {
        // Nobody knows any more what it was.
        if salvaged.has_lost_ops || told.bad.contains_key(&was.key) {
            leave(connection, was, (ops, &[]), told)?;
        } else if fold_task(ops).is_none() {
            told.from_log.push(was.title.clone());
        }
        return Ok(());
    };
    let mut is_whole = heard::is_made(task, ops, salvaged.is_sealed);
    // Whether an op went out is looked up as this schema keeps it.
    if !is_whole && salvaged.is_sealed {
        let made = restated(id, task, ops).unwrap_or_default();
        let unheard = unheard::send(connection, (mesh, task, ops), made, salvaged.now)?;
        let is_told_anew = !unheard.is_empty();
        is_said |= is_told_anew;
        take_in(connection, was.key, unheard, ops)?;
        is_whole = is_told_anew && heard::is_made(task, ops, false);
    }
    let again = restated(id, task, ops).unwrap_or_default();
    if !is_whole && !leave(connection, was, (ops, &again), told)? {
        // Nobody else was ever told of it.
        (is_said, is_whole) = (true, true);
        take_in(connection, was.key, again, ops)?;
    }
    if is_said && is_whole {
        told.restated.push(was.title.clone());
    }
    Ok(())
}

/// Whether the task is the log's to bring.
fn leave(
    connection: &Connection,
    was: &Was,
    left: (&mut Vec<TaskOp>, &[DataOp]),
    told: &mut Refolded,
) -> Result<bool, StoreError> {
    let (mesh, id) = ids(was.key);
    let own = unheard::own_member(connection, mesh)?;
    let is_left = heard::leave_to_log(connection, (mesh, own), id, left)?;
    if is_left {
        told.from_log.push(was.title.clone());
        told.behind += 1;
    }
    Ok(is_left)
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
