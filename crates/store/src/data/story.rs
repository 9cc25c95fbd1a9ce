//! What this home knows of an id or a key of the data: which request made it, which rows it left, and how
//! it came in. For people who ask; nothing is decided here, and rows are looked for without an index.

use heddle_core::clock::WallMs;
use heddle_core::file::FilePath;
use heddle_core::ids::{HistoryId, MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::names::nfc;
use heddle_core::op::DataOp;
use heddle_core::task::TaskId;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::cells::Cells;
use crate::data::seal::{
    FILES, MEMORY, STATE, Seal, TASK_OP, VECTORS, file_head, memory_head, state_head,
    task_op_whole, vector_head,
};
use crate::data::task::{TaskDamage, damage};
use crate::error::StoreError;
use crate::missing::{is_missing, told};
use crate::store::Store;

/// Rows of each table that are told of.
const ROWS_MAX: i64 = 20;

/// A row that the op made, or that has the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryRow {
    /// `memory`, `state`, `file`, `vector` or `task`.
    pub noun: &'static str,
    pub key: String,
    /// The op that stands there, or the op of a task by its name.
    pub op: String,
    pub stamp: Stamp,
    pub incarnation: u64,
    pub at: WallMs,
    pub is_deleted: bool,
}

/// The request of this home that made the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryRequest {
    pub key: String,
    pub agent: String,
    pub at: WallMs,
    pub op: OpId,
    pub lamport: u64,
    pub peer: PeerId,
    /// As it was given.
    pub(crate) answer: String,
}

/// How the op came from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryArrival {
    pub at: HistoryId,
    pub sender: String,
    /// `waiting`, `applied`, `parked`, `quarantined` or `dropped`.
    pub state: String,
    pub reason: Option<String>,
    pub received_at: WallMs,
    pub applied_at: Option<WallMs>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataStory {
    /// The op that the id stands for, if it stands for one.
    pub op: Option<OpId>,
    pub rows: Vec<StoryRow>,
    /// The task that the id names or whose step it is, where it is not what was written.
    pub damaged: Option<(TaskId, TaskDamage)>,
    pub request: Option<StoryRequest>,
    pub arrival: Option<StoryArrival>,
    /// What is known of an op that no row holds.
    pub left: Option<StoryLeft>,
}

/// What became of an op that no row holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoryLeft {
    /// A row under its name is younger: it is among the rows.
    Younger,
    /// What stood there was deleted, and the mark of that was collected.
    Collected,
    /// Nothing stands under its name, and nothing took its place: `state "k"`, say.
    Gone(String),
    /// Nobody here knows any more under which name it stood.
    Unknown,
}

impl DataStory {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.damaged.is_none()
            && self.request.is_none()
            && self.arrival.is_none()
    }
}

// One statement for each table: key, stamp, incarnation, time, whether it is gone.
const TABLES: [Table; 4] = [
    (
        "memory",
        MEMORY,
        concat!(
            "SELECT key, lamport, peer, op_id, incarnation, updated_at, tombstone, ",
            memory_head!(),
            " FROM memory
         WHERE mesh_id = ?1 AND (op_id = ?2 OR key = ?3) ORDER BY key, peer LIMIT ?4"
        ),
    ),
    (
        "state",
        STATE,
        concat!(
            "SELECT key, lamport, updated_by, op_id, incarnation, updated_at, tombstone, ",
            state_head!(),
            " FROM state_kv
         WHERE mesh_id = ?1 AND (op_id = ?2 OR key = ?3) ORDER BY key LIMIT ?4"
        ),
    ),
    (
        "file",
        FILES,
        concat!(
            "SELECT path, lamport, peer, op_id, incarnation, updated_at, tombstone, ",
            file_head!(),
            " FROM files
         WHERE mesh_id = ?1 AND (op_id = ?2 OR path = ?3) ORDER BY path, peer LIMIT ?4"
        ),
    ),
    (
        "vector",
        VECTORS,
        concat!(
            "SELECT key, lamport, peer, op_id, incarnation, updated_at, tombstone, ",
            vector_head!(),
            " FROM vector_metadata
         WHERE mesh_id = ?1 AND (op_id = ?2 OR key = ?3) ORDER BY key, peer LIMIT ?4"
        ),
    ),
];

const TASK_OPS: &str = concat!(
    "SELECT op_id, task_id, body, ",
    task_op_whole!(),
    " FROM task_op
    WHERE mesh_id = ?1 AND (op_id = ?2 OR task_id = ?2) ORDER BY op_id LIMIT ?3"
);

const REQUEST: &str = "
    SELECT request_key, agent, applied_at, answer FROM applied_request
    WHERE mesh_id = ?1 AND (request_key = ?2 OR json_extract(answer, '$.op') = ?3)
        AND json_extract(answer, '$.note.call') IS NULL
    ORDER BY applied_at DESC LIMIT 1";

const LAST_ABOUT: &str = "
    SELECT request_key, agent, applied_at, answer FROM applied_request
    WHERE mesh_id = ?1 AND json_extract(answer, '$.on[1]') IN (?2, ?3)
    ORDER BY json_extract(answer, '$.lamport') DESC LIMIT 1";

const ARRIVAL: &str = "
    SELECT op_id, epoch, seq, sender, state, reason, received_at, applied_at FROM op_inbox
    WHERE mesh_id = ?1 AND op_id = ?2 ORDER BY epoch, seq LIMIT 1";

impl Store {
    /// By an op's id, by the idempotency key of a change, by a task's id, or by a key of the data.
    pub async fn data_story(&self, mesh: MeshId, id: String) -> Result<DataStory, StoreError> {
        self.read(move |connection| story(connection, mesh, &id))
            .await
    }
}

fn story(connection: &Connection, mesh: MeshId, id: &str) -> Result<DataStory, StoreError> {
    let named: Option<OpId> = id.parse().ok();
    let request = request(connection, mesh, id, named)?;
    let op = named.or(request.as_ref().map(|request| request.op));
    let mut rows = Vec::new();
    // As they are stored: a path and a key are normalised when they are written.
    let path = FilePath::parse(id).ok();
    let spelled = nfc(id);
    for table in &TABLES {
        let key = match (table.0, &path) {
            ("file", Some(path)) => path.as_str(),
            _ => spelled.as_str(),
        };
        rows.extend(rows_of(connection, table, mesh, (op, key))?);
    }
    // A key of which nothing stands: perhaps the last change of it says that something should.
    let request = match request {
        None if rows.is_empty() && named.is_none() => {
            let name = path.as_ref().map_or(spelled.as_str(), FilePath::as_str);
            last_about(connection, mesh, (name, &spelled))?
        }
        known => known,
    };
    let op = op.or(request.as_ref().map(|request| request.op));
    let mut damaged = None;
    if let Some(op) = op {
        let (steps, task) = task_ops(connection, mesh, op)?;
        rows.extend(steps);
        damaged = damage(connection, mesh, task)?.map(|damage| (task, damage));
    }
    let left = match op {
        Some(op) if rows.iter().all(|row| row.stamp.op != op) && damaged.is_none() => {
            Some(left(connection, mesh, request.as_ref(), &mut rows)?)
        }
        _ => None,
    };
    let arrival = match op {
        Some(op) => arrival(connection, mesh, op)?,
        None => None,
    };
    Ok(DataStory {
        op,
        rows,
        damaged,
        request,
        arrival,
        left,
    })
}

type Table = (&'static str, Seal, &'static str);

/// Those that an op made, or that have this key.
fn rows_of(
    connection: &Connection,
    (noun, seal, sql): &Table,
    mesh: MeshId,
    (op, key): (Option<OpId>, &str),
) -> Result<Vec<StoryRow>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let op = op.map(OpId::to_bytes);
    let mut found = statement.query(params![mesh.0.to_bytes(), op, key, ROWS_MAX])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        seal.check_head(row)?;
        let mut cells = Cells::of("a data row", row);
        rows.push(StoryRow {
            noun,
            key: cells.get()?,
            op: String::new(),
            stamp: cells.stamp()?,
            incarnation: cells.count()?,
            at: cells.wall()?,
            is_deleted: cells.get()?,
        });
    }
    Ok(rows)
}

/// What is left of the op of this request. The row that took its place is added to the others.
fn left(
    connection: &Connection,
    mesh: MeshId,
    request: Option<&StoryRequest>,
    rows: &mut Vec<StoryRow>,
) -> Result<StoryLeft, StoreError> {
    let told = match request {
        Some(request) => told(connection, mesh, &request.answer)?,
        None => None,
    };
    let Some((stamp, about)) = told else {
        return Ok(StoryLeft::Unknown);
    };
    if is_missing(connection, mesh, &stamp, &about)? {
        return Ok(StoryLeft::Gone(about.called()));
    }
    if !about.is_there(connection, mesh, &stamp.peer)? {
        return Ok(StoryLeft::Collected);
    }
    let of = TABLES.iter().find(|(noun, ..)| *noun == about.noun());
    if let Some(table) = of {
        let name = about.name();
        // Of a memory, a file or a vector only its owner's.
        let is_its = |row: &StoryRow| about.is_everybodys() || row.stamp.peer == stamp.peer;
        let found = rows_of(connection, table, mesh, (None, &name))?;
        for row in found.into_iter().filter(is_its) {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    Ok(StoryLeft::Younger)
}

/// The last change of this home under a name.
fn last_about(
    connection: &Connection,
    mesh: MeshId,
    (path, key): (&str, &str),
) -> Result<Option<StoryRequest>, StoreError> {
    let mut statement = connection.prepare_cached(LAST_ABOUT)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), path, key])?;
    rows.next()?.map(request_of).transpose()
}

/// The steps of the task that are what was written, and which task that is: the id itself where it is no step's.
fn task_ops(
    connection: &Connection,
    mesh: MeshId,
    id: OpId,
) -> Result<(Vec<StoryRow>, TaskId), StoreError> {
    let mut statement = connection.prepare_cached(TASK_OPS)?;
    let mut found = statement.query(params![mesh.0.to_bytes(), id.to_bytes(), ROWS_MAX])?;
    let (mut rows, mut of) = (Vec::new(), id);
    while let Some(row) = found.next()? {
        let mut cells = Cells::of("task_op", row);
        let _: [u8; 16] = cells.get()?;
        let task = OpId::from_bytes(cells.get()?);
        let body: Vec<u8> = cells.get()?;
        of = task;
        let op = match TASK_OP.check(row).map(|()| DataOp::parse(&body)) {
            Ok(Ok(op)) => op,
            Ok(Err(_)) | Err(StoreError::Corrupt(_)) => continue,
            Err(error) => return Err(error),
        };
        rows.push(StoryRow {
            noun: "task",
            key: task.to_string(),
            op: op.body.name().to_owned(),
            stamp: op.stamp,
            incarnation: op.incarnation,
            at: op.at,
            is_deleted: false,
        });
    }
    rows.sort_by(|a, b| a.stamp.cmp(&b.stamp));
    Ok((rows, of))
}

fn request(
    connection: &Connection,
    mesh: MeshId,
    id: &str,
    op: Option<OpId>,
) -> Result<Option<StoryRequest>, StoreError> {
    let op = op.map(|op| op.to_string());
    let mut statement = connection.prepare_cached(REQUEST)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), id, op])?;
    rows.next()?.map(request_of).transpose()
}

fn request_of(row: &Row<'_>) -> Result<StoryRequest, StoreError> {
    let mut cells = Cells::of("applied_request", row);
    let (key, agent) = (cells.get()?, cells.get()?);
    let at = cells.wall()?;
    let mut answer = String::new();
    let receipt = cells.parsed(|text| {
        text.clone_into(&mut answer);
        super::request::receipt_of(text, at).ok_or("not an answer of ours")
    })?;
    Ok(StoryRequest {
        key,
        agent,
        at,
        op: receipt.stamp.op,
        lamport: receipt.stamp.lamport,
        peer: receipt.stamp.peer,
        answer,
    })
}

fn arrival(
    connection: &Connection,
    mesh: MeshId,
    op: OpId,
) -> Result<Option<StoryArrival>, StoreError> {
    let mut statement = connection.prepare_cached(ARRIVAL)?;
    let found = statement
        .query_row(params![mesh.0.to_bytes(), op.to_string()], |row| {
            let mut cells = Cells::of("op_inbox", row);
            Ok(arrival_of(&mut cells))
        })
        .optional()?;
    found.transpose()
}

fn arrival_of(cells: &mut Cells<'_, '_>) -> Result<StoryArrival, StoreError> {
    let _: String = cells.get()?;
    Ok(StoryArrival {
        at: cells.history()?,
        sender: cells.get()?,
        state: cells.get()?,
        reason: cells.get()?,
        received_at: cells.wall()?,
        applied_at: cells.wall_or_null()?,
    })
}
