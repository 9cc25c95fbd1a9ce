//! Lists of tasks, the record of one, and the canonical dump of all.

use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::PeerId;
use heddle_core::task::fold::{TaskEvent, fold_task};
use heddle_core::task::{EventKind, TaskId, TaskStatus};
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};

use super::fold;
use super::row::{self, TaskRow, task_columns, task_tables};
use crate::cells::Cells;
use crate::data::seal::changed;
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::LeftOut;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskWhich {
    All,
    With(TaskStatus),
    /// Open, and nothing unfinished blocks it.
    Ready,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFilter {
    pub mesh: MeshId,
    pub which: TaskWhich,
    /// The last task of the page before.
    pub after: Option<TaskId>,
    pub limit: usize,
    /// Bytes of texts on one page, but at least one row.
    pub bytes_max: usize,
}

macro_rules! page {
    ($index:literal, $which:literal) => {
        concat!(
            "SELECT ",
            task_columns!(),
            task_tables!($index),
            $which,
            " AND tasks.task_id > ?2 ORDER BY tasks.task_id LIMIT ?3"
        )
    };
}

pub(crate) const EVERY: &str = page!("tasks_by_id", "");
pub(crate) const BY_STATUS: &str = page!("tasks_by_status", "AND status = ?4");
pub(crate) const READY: &str = page!("tasks_ready", "AND status = 'open' AND waits_for = 0");

pub(crate) const EVENTS: &str = "
    SELECT op_id, event_type, peer, lamport, event_time, fence, conflict_peer, conflict_lamport
    FROM task_claim_events WHERE mesh_id = ?1 AND task_id = ?2 ORDER BY number";

impl Store {
    /// The oldest first; and whether there are more behind the last of them.
    pub async fn list_tasks(&self, filter: TaskFilter) -> Result<(Vec<TaskRow>, bool), StoreError> {
        let left_out = self.left_out.clone();
        self.read(move |connection| list(connection, &filter, left_out.as_ref()))
            .await
    }

    /// Every task of a mesh with its record, as every replica that saw the same ops holds it (LF-09).
    pub async fn dump_tasks(&self, mesh: MeshId) -> Result<Vec<Value>, StoreError> {
        self.read(move |connection| {
            let mut lines = Vec::new();
            dump(connection, mesh, None, &mut |line| {
                lines.push(line);
                Ok(())
            })?;
            Ok(lines)
        })
        .await
    }

    /// A task and its record.
    pub async fn task_story(
        &self,
        mesh: MeshId,
        id: TaskId,
    ) -> Result<Option<TaskRow>, StoreError> {
        self.read(move |connection| {
            let found = row::whole(connection, mesh, id)?;
            let is_lost = found.is_none() && fold_task(&fold::ops(connection, mesh, id)?).is_some();
            if is_lost {
                return Err(changed("tasks", &id.to_bytes()));
            }
            Ok(found)
        })
        .await
    }
}

fn list(
    connection: &Connection,
    filter: &TaskFilter,
    left_out: Option<&LeftOut>,
) -> Result<(Vec<TaskRow>, bool), StoreError> {
    let mesh = filter.mesh.0.to_bytes();
    let after = filter.after.map_or(Vec::new(), |id| id.to_bytes().to_vec());
    let limit = i64::try_from(filter.limit.saturating_add(1)).unwrap_or(i64::MAX);
    let sql = match filter.which {
        TaskWhich::All => EVERY,
        TaskWhich::With(_) => BY_STATUS,
        TaskWhich::Ready => READY,
    };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = match filter.which {
        TaskWhich::With(status) => statement.query(params![mesh, after, limit, status.as_str()])?,
        TaskWhich::All | TaskWhich::Ready => statement.query(params![mesh, after, limit])?,
    };
    let (mut found, mut bytes, mut seen) = (Vec::new(), 0, 0);
    while let Some(row) = rows.next()? {
        if seen == filter.limit || bytes > filter.bytes_max {
            return Ok((found, true));
        }
        seen += 1;
        let read = row::read(connection, filter.mesh, row);
        let Some(row) = or_without_task(read, left_out, row)? else {
            continue;
        };
        bytes += row.task.title.as_str().len() + row.task.description.as_str().len();
        found.push(row);
    }
    Ok((found, false))
}

/// A task is known by its id, whatever else of it cannot be read. Its steps are what it is made of again.
fn or_without_task(
    read: Result<TaskRow, StoreError>,
    left_out: Option<&LeftOut>,
    row: &Row<'_>,
) -> Result<Option<TaskRow>, StoreError> {
    match (read, left_out) {
        (Err(StoreError::Corrupt(_)), Some(left_out)) => {
            let id = row.get::<_, [u8; 16]>(0).map(OpId::from_bytes);
            let id = id.map_or_else(|_| String::new(), |id| id.to_string());
            left_out.note("task", id.as_bytes());
            Ok(None)
        }
        (read, _) => read.map(Some),
    }
}

pub(super) fn events(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
) -> Result<Vec<TaskEvent>, StoreError> {
    let mut statement = connection.prepare_cached(EVENTS)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), id.to_bytes()])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(event(row)?);
    }
    Ok(events)
}

fn event(row: &Row<'_>) -> Result<TaskEvent, StoreError> {
    let mut cells = Cells::of("task_claim_events", row);
    let op = OpId::from_bytes(cells.get()?);
    let kind = cells.word(EventKind::parse)?;
    let peer = PeerId::new(&cells.get::<String>()?);
    let lamport = cells.count()?;
    let at = cells.wall()?;
    let unsigned = |number: i64| u64::try_from(number).ok();
    let fence = cells.get::<Option<i64>>()?.and_then(unsigned);
    let conflict_peer: Option<String> = cells.get()?;
    let conflict_lamport = cells.get::<Option<i64>>()?.and_then(unsigned);
    if conflict_peer.is_some() != conflict_lamport.is_some() {
        return Err(cells.bad("half a conflict"));
    }
    Ok(TaskEvent {
        op,
        kind,
        peer,
        lamport,
        at,
        fence,
        conflict: conflict_peer
            .zip(conflict_lamport)
            .map(|(peer, lamport)| (PeerId::new(&peer), lamport)),
    })
}

/// Every task with its record, in order of ids, without what is this home's own.
pub(crate) fn dump(
    connection: &Connection,
    mesh: MeshId,
    left_out: Option<&LeftOut>,
    each: &mut dyn FnMut(Value) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(EVERY)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), Vec::<u8>::new(), i64::MAX])?;
    while let Some(row) = rows.next()? {
        let read = row::read_whole(connection, mesh, row);
        if let Some(row) = or_without_task(read, left_out, row)? {
            each(dumped(&row))?;
        }
    }
    Ok(())
}

fn dumped(row: &TaskRow) -> Value {
    let task = &row.task;
    let blocked_by = task.blocked_by.as_slice().iter().map(OpId::to_string);
    let event = |event: &TaskEvent| {
        json!({
            "op_id": event.op.to_string(),
            "event": event.kind.as_str(),
            "peer": event.peer.as_str(),
            "lamport": event.lamport,
            "at": event.at.0,
            "fence": event.fence,
            "conflict_peer": event.conflict.as_ref().map(|(peer, _)| peer.as_str()),
            "conflict_lamport": event.conflict.as_ref().map(|(_, lamport)| lamport),
        })
    };
    json!({
        "table": "tasks",
        "id": row.id.to_string(),
        "title": task.title.as_str(),
        "description": task.description.as_str(),
        "blocked_by": blocked_by.collect::<Vec<_>>(),
        "created_by": task.created_by.as_str(),
        "created_at": task.created_at.0,
        "status": task.status.as_str(),
        "lamport": task.lamport,
        "updated_at": task.updated_at.0,
        "claim": task.claim.as_ref().map(|claim| json!({
            "by": claim.by.as_str(),
            "at": claim.at.0,
            "fence": claim.fence,
            "lease_ms": claim.lease.get(),
            "renewed": claim.renewed,
            "renewed_at": claim.renewed_at.0,
        })),
        "finished_by": task.end.as_ref().map(|end| end.by.as_str()),
        "finished_at": task.end.as_ref().map(|end| end.at.0),
        "events": task.events.iter().map(event).collect::<Vec<_>>(),
    })
}
