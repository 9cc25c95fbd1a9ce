//! A peer's memory: remember, forget, and taking in what other homes remembered.

use heddle_core::data::DataKey;
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::Stamp;
use heddle_core::op::{DataOp, MemoryChange, NewMemory, OpBody};
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};

use crate::cells::{Cells, count_cell};
use crate::data::dump::Sink;
use crate::data::floor::{Noun, floor};
use crate::data::lost_writes::{Replaced, note};
use crate::data::request::{Applied, ChangeKey, Plan, apply};
use crate::data::seal::{MEMORY, memory_head, memory_whole};
use crate::data::take::Taken;
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::{LeftOut, or_without};

pub(crate) const STAMP: &str = concat!(
    "SELECT key, lamport, peer, op_id, tombstone, ",
    memory_head!(),
    " FROM memory WHERE mesh_id = ?1 AND key = ?2 AND peer = ?3"
);

const DUMP: &str = concat!(
    "SELECT key, lamport, peer, op_id, tags, value, incarnation, updated_at, ",
    memory_whole!(),
    " FROM memory WHERE mesh_id = ?1 ORDER BY key, peer"
);

pub(crate) const VALUE: &str = concat!(
    "SELECT value, tags, ",
    memory_whole!(),
    " FROM memory WHERE mesh_id = ?1 AND key = ?2 AND peer = ?3"
);

const WRITE: &str = "
    INSERT INTO memory (mesh_id, peer, key, tags, created_at, updated_at, lamport, incarnation,
        op_id, tombstone, value, digest)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    ON CONFLICT (mesh_id, key, peer) DO UPDATE SET
        tags = excluded.tags, updated_at = excluded.updated_at, lamport = excluded.lamport,
        incarnation = excluded.incarnation, op_id = excluded.op_id,
        tombstone = excluded.tombstone, value = excluded.value, digest = excluded.digest";

impl Store {
    /// `fresh` is what to keep if the id is free, or why nothing new can be kept. A known id is
    /// answered whatever `fresh` says.
    pub async fn remember<R: Send + 'static>(
        &self,
        id: ChangeKey,
        key: DataKey,
        fresh: Result<NewMemory, R>,
    ) -> Result<Applied<R>, StoreError> {
        self.write(move |connection| {
            apply(connection, &id, |_| {
                Ok(Plan::keep(fresh.map(|new| body(key, Some(new)))))
            })
        })
        .await
    }

    /// Leaves a tombstone; a memory that is not there is [`Applied::Absent`].
    pub async fn forget<R: Send + 'static>(
        &self,
        id: ChangeKey,
        key: DataKey,
    ) -> Result<Applied<R>, StoreError> {
        self.write(move |connection| {
            let owner = id.peer.to_string();
            apply(connection, &id, |connection| {
                Ok(match stamp(connection, id.mesh, &key, &owner) {
                    // One that is not what was written is mended by being forgotten.
                    Ok(Some((_, false))) | Err(StoreError::Corrupt(_)) => Plan::go(body(key, None)),
                    Ok(_) => Plan::Absent,
                    Err(error) => return Err(error),
                })
            })
        })
        .await
    }
}

/// Every memory, tombstones included, as every replica has it.
pub(crate) fn dump(
    connection: &Connection,
    mesh: MeshId,
    left_out: Option<&LeftOut>,
    sink: Sink<'_>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(DUMP)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    while let Some(row) = rows.next()? {
        if let Some(line) = or_without(dumped(row), left_out, ("memory", row, 0))? {
            sink(line)?;
        }
    }
    Ok(())
}

fn dumped(row: &Row<'_>) -> Result<Value, StoreError> {
    MEMORY.check(row)?;
    let mut cells = Cells::of("memory", row);
    let key: String = cells.get()?;
    let stamp = cells.stamp()?;
    let tags: String = cells.get()?;
    let value = cells.value_or_null()?;
    Ok(json!({
        "table": "memory",
        "key": key,
        "peer": stamp.peer.as_str(),
        "tags": tags,
        "value": value,
        "lamport": stamp.lamport,
        "op_id": stamp.op.to_string(),
        "incarnation": cells.count()?,
        "updated_at": cells.wall()?.0,
    }))
}

fn body(key: DataKey, write: Option<NewMemory>) -> OpBody {
    OpBody::Memory(MemoryChange { key, write })
}

pub(crate) fn take(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &MemoryChange,
) -> Result<Taken, StoreError> {
    let peer = op.stamp.peer.as_str();
    let row = stamp(connection, mesh, &change.key, peer)?.map(|(stamp, _)| stamp);
    let taken = match &row {
        Some(existing) => Taken::by_stamp(Some(existing), op),
        None => {
            let floor = floor(connection, mesh, Noun::Memory, &op.stamp.peer)?;
            Taken::by_stamp(floor.as_ref(), op)
        }
    };
    if taken == Taken::Applied {
        if let Some(replaced) = &row {
            note(connection, mesh, op, replaced, || {
                replaced_value(connection, mesh, &change.key, peer)
            })?;
        }
        put(connection, mesh, op, change)?;
    }
    Ok(taken)
}

/// The write that stands under the key, marks of forgotten ones included.
pub(super) fn standing(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
    owner: &str,
) -> Result<Option<OpId>, StoreError> {
    Ok(stamp(connection, mesh, key, owner)?.map(|(stamp, _)| stamp.op))
}

/// The write that stands under the key with its value, null for a mark of a forgotten one.
pub(super) fn standing_value(
    connection: &Connection,
    mesh: MeshId,
    key: &str,
    owner: &str,
) -> Result<Option<(Stamp, Option<String>)>, StoreError> {
    let Ok(key) = DataKey::parse(key) else {
        return Ok(None);
    };
    let Some((stamp, _)) = stamp(connection, mesh, &key, owner)? else {
        return Ok(None);
    };
    let found = replaced_value(connection, mesh, &key, owner)?;
    Ok(found.map(|found| (stamp, found.value)))
}

/// None where it is not what was written: it is overwritten all the same, and nobody is told that he wrote it.
fn replaced_value(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
    owner: &str,
) -> Result<Option<Replaced>, StoreError> {
    let mut statement = connection.prepare_cached(VALUE)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), key.as_str(), owner])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    if let Err(StoreError::Corrupt(_)) = MEMORY.check(row) {
        return Ok(None);
    }
    Ok(Some(Replaced {
        value: row.get(0)?,
        tags: Some(row.get(1)?),
    }))
}

/// The tags of a write as its row has them.
pub(super) fn tags_cell(change: &MemoryChange) -> String {
    let write = change.write.as_ref();
    let tags = write.map(|new| new.tags.as_slice()).unwrap_or_default();
    serde_json::Value::from(tags.to_vec()).to_string()
}

/// The row's stamp, and whether it is a tombstone.
fn stamp(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
    owner: &str,
) -> Result<Option<(Stamp, bool)>, StoreError> {
    let mut statement = connection.prepare_cached(STAMP)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), key.as_str(), owner])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    MEMORY.check_head(row)?;
    let mut cells = Cells::of("memory", row);
    let _: String = cells.get()?;
    Ok(Some((cells.stamp()?, cells.get()?)))
}

fn put(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &MemoryChange,
) -> Result<(), StoreError> {
    let (mesh, peer, key) = (
        mesh.0.to_bytes(),
        op.stamp.peer.as_str(),
        change.key.as_str(),
    );
    let (tags, at) = (tags_cell(change), op.at.0);
    let lamport = count_cell(op.stamp.lamport)?;
    let incarnation = count_cell(op.incarnation)?;
    let (op, is_gone) = (op.stamp.op.to_bytes(), change.write.is_none());
    let value = change.write.as_ref().map(|new| new.value.as_str());
    let head = params![mesh, peer, key, tags, at, lamport, incarnation, op, is_gone];
    let digest = MEMORY.of(head, params![value])?;
    connection.prepare_cached(WRITE)?.execute(params![
        mesh,
        peer,
        key,
        tags,
        at,
        lamport,
        incarnation,
        op,
        is_gone,
        value,
        digest
    ])?;
    Ok(())
}
