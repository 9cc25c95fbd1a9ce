//! A task's row, read back into the type that the fold makes.

use std::time::Duration;

use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::PeerId;
use heddle_core::task::fold::{Claim, End, Task};
use heddle_core::task::lease::Moment;
use heddle_core::task::{Blockers, LeaseMs, TaskId, TaskStatus, TaskText, TaskTitle};
use rusqlite::{Connection, Row, params};

use super::{page, seal};
use crate::cells::Cells;
use crate::data::seal::changed;
use crate::error::StoreError;
use crate::store::Store;

/// A task as this home holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    pub id: TaskId,
    /// Without its events.
    pub task: Task,
    /// How many of its blockers are not finished, or not here.
    pub waits_for: u64,
    /// When this home saw the claim or its last renewal, if it has looked already.
    pub seen: Option<Moment>,
}

impl TaskRow {
    pub fn is_ready(&self) -> bool {
        self.task.status == TaskStatus::Open && self.waits_for == 0
    }
}

macro_rules! task_columns {
    () => {
        "tasks.task_id, status, waits_for, created_by, created_at, updated_at, lamport,
            claimed_by, claimed_at, fence, lease_ms, tasks.renewed, renewed_at,
            finished_by, finished_at, boot, seen_ms, title, description, tasks.digest"
    };
}
pub(super) use task_columns;

macro_rules! task_tables {
    ($index:literal) => {
        concat!(
            " FROM tasks INDEXED BY ",
            $index,
            " LEFT JOIN task_lease AS lease
                ON lease.mesh_id = tasks.mesh_id AND lease.task_id = tasks.task_id
                    AND lease.renewed = tasks.renewed
              WHERE tasks.mesh_id = ?1 "
        )
    };
}
pub(super) use task_tables;

pub(crate) const ONE: &str = concat!(
    "SELECT ",
    task_columns!(),
    task_tables!("tasks_by_id"),
    "AND tasks.task_id = ?2"
);

pub(crate) const BLOCKERS: &str = "
    SELECT blocked_by FROM task_blocker WHERE mesh_id = ?1 AND task_id = ?2 ORDER BY blocked_by";

impl Store {
    pub async fn task(&self, mesh: MeshId, id: TaskId) -> Result<Option<TaskRow>, StoreError> {
        self.read_few(move |connection| one(connection, mesh, id))
            .await
    }
}

pub(super) fn one(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
) -> Result<Option<TaskRow>, StoreError> {
    by_id(connection, mesh, id, read)
}

/// The same with its record.
pub(super) fn whole(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
) -> Result<Option<TaskRow>, StoreError> {
    by_id(connection, mesh, id, read_whole)
}

/// What its own cells say; how much it waits for is another matter.
pub(super) fn sealed_one(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
) -> Result<Option<TaskRow>, StoreError> {
    by_id(connection, mesh, id, sealed)
}

/// As it stands there, with no digest to compare: for rows of before there was one.
pub(super) fn unsealed(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
) -> Result<Option<Task>, StoreError> {
    by_id(connection, mesh, id, |connection, mesh, row| {
        Ok(cells_of(connection, mesh, row)?.task)
    })
}

fn by_id<T>(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
    read: impl FnOnce(&Connection, MeshId, &Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(ONE)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), id.to_bytes()])?;
    match rows.next()? {
        Some(row) => read(connection, mesh, row).map(Some),
        None => Ok(None),
    }
}

/// A row that is what was written, without its record.
pub(super) fn read(
    connection: &Connection,
    mesh: MeshId,
    row: &Row<'_>,
) -> Result<TaskRow, StoreError> {
    let found = sealed(connection, mesh, row)?;
    if found.waits_for != waits_for(connection, mesh, &found)? {
        let why = "how much it waits for is not what its blockers say";
        return Err(StoreError::Corrupt(format!(
            "tasks row {}: {why}",
            found.id
        )));
    }
    Ok(found)
}

/// And its record, which is what was written as well.
pub(super) fn read_whole(
    connection: &Connection,
    mesh: MeshId,
    row: &Row<'_>,
) -> Result<TaskRow, StoreError> {
    let mut found = read(connection, mesh, row)?;
    let kept = digest_of(row)?.1;
    found.task.events = page::events(connection, mesh, found.id)?;
    if seal::record(&found.task.events)? != kept {
        return Err(changed("task_claim_events", &found.id.to_bytes()));
    }
    Ok(found)
}

fn sealed(connection: &Connection, mesh: MeshId, row: &Row<'_>) -> Result<TaskRow, StoreError> {
    let found = cells_of(connection, mesh, row)?;
    let (head, record) = digest_of(row)?;
    if seal::head(mesh, found.id, &found.task, record)? != head {
        return Err(changed("tasks", &found.id.to_bytes()));
    }
    Ok(found)
}

/// The last column: of the row, and of its record.
fn digest_of(row: &Row<'_>) -> Result<(seal::Half, seal::Half), StoreError> {
    let at = row.as_ref().column_count().saturating_sub(1);
    let both = row.get_ref(at)?.as_blob().ok();
    let both = both.and_then(|both| both.split_at_checked(size_of::<seal::Half>()));
    let both =
        both.and_then(|(head, record)| Some((head.try_into().ok()?, record.try_into().ok()?)));
    both.ok_or_else(|| {
        let id = row.get_ref(0).ok();
        changed(
            "tasks",
            id.and_then(|id| id.as_bytes().ok()).unwrap_or_default(),
        )
    })
}

/// Counted from the tasks that block it. One of those that is not what was written says nothing, so this one cannot be told.
fn waits_for(connection: &Connection, mesh: MeshId, row: &TaskRow) -> Result<u64, StoreError> {
    let mut count = 0;
    for blocker in row.task.blocked_by.as_slice() {
        let found = by_id(connection, mesh, *blocker, sealed)?;
        let is_finished = found.is_some_and(|found| found.task.status.is_finished());
        count += u64::from(!is_finished);
    }
    Ok(count)
}

const ROWS: &str = "SELECT mesh_id, task_id FROM tasks ORDER BY place";

/// Tasks whose row or record is not what was folded.
pub(crate) fn problems(connection: &Connection) -> Result<Vec<TaskId>, StoreError> {
    let mut statement = connection.prepare_cached(ROWS)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let of = MeshId(ulid::Ulid::from_bytes(row.get(0)?));
        let id = OpId::from_bytes(row.get(1)?);
        match whole(connection, of, id) {
            Ok(_) => {}
            Err(StoreError::Corrupt(_)) => found.push(id),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn cells_of(connection: &Connection, mesh: MeshId, row: &Row<'_>) -> Result<TaskRow, StoreError> {
    let mut cells = Cells::of("tasks", row);
    let id = OpId::from_bytes(cells.get()?);
    let status = cells.word(TaskStatus::parse)?;
    let waits_for = cells.count()?;
    let created_by = PeerId::new(&cells.get::<String>()?);
    let created_at = cells.wall()?;
    let updated_at = cells.wall()?;
    let lamport = cells.count()?;
    let claim = claim(&mut cells)?;
    let end = end(&mut cells)?;
    let seen = seen(&mut cells)?;
    Ok(TaskRow {
        id,
        task: Task {
            title: cells.parsed(TaskTitle::parse)?,
            description: cells.parsed(TaskText::parse)?,
            blocked_by: blockers(connection, mesh, id)?,
            created_by,
            created_at,
            status,
            claim,
            end,
            lamport,
            updated_at,
            events: Vec::new(),
        },
        waits_for,
        seen,
    })
}

/// Six cells: all of them or none.
pub(super) fn claim(cells: &mut Cells<'_, '_>) -> Result<Option<Claim>, StoreError> {
    let by: Option<String> = cells.get()?;
    let at = cells.wall_or_null()?;
    let mut number = || cells.get::<Option<i64>>();
    let (fence, lease, renewed) = (number()?, number()?, number()?);
    let renewed_at = cells.wall_or_null()?;
    let unsigned = |number: i64| u64::try_from(number).ok();
    let whole = || {
        Some(Claim {
            by: PeerId::new(by.as_deref()?),
            fence: unsigned(fence?)?,
            at: at?,
            lease: LeaseMs::new(unsigned(lease?)?).ok()?,
            renewed: unsigned(renewed?)?,
            renewed_at: renewed_at?,
        })
    };
    match (by.is_some(), whole()) {
        (true, None) => Err(cells.bad("half a claim")),
        (_, claim) => Ok(claim),
    }
}

fn end(cells: &mut Cells<'_, '_>) -> Result<Option<End>, StoreError> {
    let by: Option<String> = cells.get()?;
    match (by, cells.wall_or_null()?) {
        (Some(by), Some(at)) => Ok(Some(End {
            by: PeerId::new(&by),
            at,
        })),
        (None, None) => Ok(None),
        _ => Err(cells.bad("half an end")),
    }
}

pub(super) fn seen(cells: &mut Cells<'_, '_>) -> Result<Option<Moment>, StoreError> {
    let boot: Option<[u8; 16]> = cells.get()?;
    let ms: Option<i64> = cells.get()?;
    let ms = ms.and_then(|ms| u64::try_from(ms).ok());
    Ok(boot.zip(ms).map(|(boot, ms)| Moment {
        boot: u128::from_be_bytes(boot),
        since: Duration::from_millis(ms),
    }))
}

fn blockers(connection: &Connection, mesh: MeshId, id: TaskId) -> Result<Blockers, StoreError> {
    let mut statement = connection.prepare_cached(BLOCKERS)?;
    let rows = statement.query_map(params![mesh.0.to_bytes(), id.to_bytes()], |row| row.get(0))?;
    let ids = rows
        .map(|bytes| Ok(OpId::from_bytes(bytes?)))
        .collect::<Result<Vec<_>, rusqlite::Error>>()?;
    Blockers::new(ids).map_err(|error| StoreError::Corrupt(format!("task {id}: {error}")))
}
