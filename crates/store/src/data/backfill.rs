//! The rows of a mesh as the ops that would make them anew, tombstones included: what publishing sends.
//!
//! Every row keeps the stamp of the op that made it (C8), so a replica that takes these ops has the same rows,
//! to the byte (LF-09). Each table is read in an order that does not change while rows are written.

use heddle_core::data::{DataKey, DataValue, Tags};
use heddle_core::file::{ContentHash, FileContent, FilePath, MediaType};
use heddle_core::ids::MeshId;
use heddle_core::op::{
    DataOp, FileChange, MemoryChange, NewMemory, NewState, OpBody, Over, StateChange,
};
use rusqlite::{Connection, Row, params};

use crate::cells::Cells;
use crate::data::seal::{self, Seal, file_head, memory_whole, state_whole};
use crate::data::{task, vectors};
use crate::error::StoreError;

/// A row that was read, or why it cannot be read; and where to go on behind it.
pub(crate) struct OldRow {
    pub(crate) through: Vec<u8>,
    pub(crate) op: Result<DataOp, StoreError>,
}

/// Up to so many rows behind a place; an empty place is the beginning.
type Read = fn(&Connection, MeshId, &[u8], i64) -> Result<Vec<OldRow>, StoreError>;

pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) count: &'static str,
    pub(crate) read: Read,
}

/// Any order would do; vectors are the most bytes.
pub(crate) const TABLES: [Table; 5] = [
    Table {
        name: "memory",
        count: "SELECT count(*) FROM memory WHERE mesh_id = ?1",
        read: |connection, mesh, after, limit| {
            let of = (seal::MEMORY, MEMORY);
            by_place(connection, of, (mesh, after, limit), memory)
        },
    },
    Table {
        name: "state_kv",
        count: "SELECT count(*) FROM state_kv WHERE mesh_id = ?1",
        read: |connection, mesh, after, limit| {
            let of = (seal::STATE, STATE);
            by_place(connection, of, (mesh, after, limit), state)
        },
    },
    Table {
        name: "files",
        count: "SELECT count(*) FROM files WHERE mesh_id = ?1",
        read: |connection, mesh, after, limit| {
            let of = (seal::FILES, FILES);
            by_place(connection, of, (mesh, after, limit), file)
        },
    },
    Table {
        name: "task_op",
        count: "SELECT count(*) FROM task_op WHERE mesh_id = ?1",
        read: task::backfill,
    },
    Table {
        name: "vector_metadata",
        count: "SELECT count(*) FROM vector_metadata WHERE mesh_id = ?1",
        read: |connection, mesh, after, limit| {
            let of = (seal::VECTORS, vectors::BACKFILL);
            by_place(connection, of, (mesh, after, limit), vectors::backfill)
        },
    },
];

// The plus keeps the planner from taking an index by mesh and sorting all of it for each chunk.
pub(crate) const MEMORY: &str = concat!(
    "SELECT place, lamport, peer, op_id, incarnation, updated_at, key, tags, value, ",
    memory_whole!(),
    " FROM memory WHERE place > ?2 AND +mesh_id = ?1 ORDER BY place LIMIT ?3"
);

pub(crate) const STATE: &str = concat!(
    "SELECT place, lamport, updated_by, op_id, incarnation, updated_at, key, value, ",
    state_whole!(),
    " FROM state_kv WHERE place > ?2 AND +mesh_id = ?1 ORDER BY place LIMIT ?3"
);

pub(crate) const FILES: &str = concat!(
    "SELECT place, lamport, peer, op_id, incarnation, updated_at, path, tombstone, sha256, size, mime,
        content, storage, ",
    file_head!(),
    " FROM files WHERE place > ?2 AND +mesh_id = ?1 ORDER BY place LIMIT ?3"
);

/// Reads what stands behind place, stamp, incarnation and time in a row.
pub(super) type Body = fn(&Connection, i64, &mut Cells<'_, '_>) -> Result<OpBody, StoreError>;

/// A row stays in its place however often it is written, and a new one gets a higher one.
fn by_place(
    connection: &Connection,
    (seal, sql): (Seal, &str),
    (mesh, after, limit): (MeshId, &[u8], i64),
    body: Body,
) -> Result<Vec<OldRow>, StoreError> {
    let after =
        match after {
            [] => i64::MIN,
            bytes => i64::from_be_bytes(bytes.try_into().map_err(|_| {
                StoreError::Corrupt("a cursor of a publish is no place".to_owned())
            })?),
        };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), after, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let place: i64 = row.get(0)?;
        found.push(OldRow {
            through: place.to_be_bytes().to_vec(),
            op: seal.check(row).and_then(|()| op(connection, row, body)),
        });
    }
    Ok(found)
}

fn op(connection: &Connection, row: &Row<'_>, body: Body) -> Result<DataOp, StoreError> {
    let mut cells = Cells::of("a published table", row);
    let place: i64 = cells.get()?;
    Ok(DataOp {
        stamp: cells.stamp()?,
        incarnation: cells.count()?,
        at: cells.wall()?,
        over: Over::Unsaid,
        body: body(connection, place, &mut cells)?,
    })
}

fn memory(_: &Connection, _: i64, cells: &mut Cells<'_, '_>) -> Result<OpBody, StoreError> {
    let key = cells.parsed(DataKey::kept)?;
    let tags: Vec<String> = cells.parsed(|text| serde_json::from_str(text))?;
    let write = match cells.get::<Option<String>>()? {
        None => None,
        Some(value) => Some(NewMemory {
            value: DataValue::kept(value).map_err(|error| cells.bad(error))?,
            tags: Tags::parse(&tags).map_err(|error| cells.bad(error))?,
        }),
    };
    Ok(OpBody::Memory(MemoryChange { key, write }))
}

fn state(_: &Connection, _: i64, cells: &mut Cells<'_, '_>) -> Result<OpBody, StoreError> {
    let key = cells.parsed(DataKey::kept)?;
    let value = cells.get::<Option<String>>()?.map(DataValue::kept);
    let value = value.transpose().map_err(|error| cells.bad(error))?;
    let write = value.map(|value| NewState { value });
    Ok(OpBody::State(StateChange { key, write }))
}

fn file(_: &Connection, _: i64, cells: &mut Cells<'_, '_>) -> Result<OpBody, StoreError> {
    let path = cells.parsed(FilePath::kept)?;
    if cells.get::<bool>()? {
        return Ok(OpBody::File(FileChange { path, write: None }));
    }
    let hash = ContentHash(cells.get()?);
    let size = cells.count()?;
    let mime = cells.get::<Option<String>>()?;
    let mime = mime.map(|text| MediaType::parse(&text)).transpose();
    let mime = mime.map_err(|error| cells.bad(error))?;
    let bytes: Option<Vec<u8>> = cells.get()?;
    if (cells.get::<String>()? == "inline") != bytes.is_some() {
        return Err(cells.bad(seal::IS_CHANGED));
    }
    let content = FileContent::claimed(hash, size, bytes, mime);
    let write = Some(content.map_err(|error| cells.bad(error))?);
    Ok(OpBody::File(FileChange { path, write }))
}
