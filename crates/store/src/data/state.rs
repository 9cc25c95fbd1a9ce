//! The state that the peers of a mesh share: set, get, list, delete, and taking in from elsewhere.

use heddle_core::clock::WallMs;
use heddle_core::data::DataKey;
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::Stamp;
use heddle_core::op::{DataOp, NewState, OpBody, StateChange};
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};

use crate::cells::{Cells, count_cell};
use crate::data::dump::Sink;
use crate::data::floor::{Noun, floor};
use crate::data::lost_writes::{Replaced, note};
use crate::data::request::{Applied, ChangeKey, Plan, apply};
use crate::data::seal::{STATE, state_head, state_whole};
use crate::data::take::Taken;
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::{LeftOut, or_without};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRow {
    pub key: String,
    /// Canonical JSON.
    pub value: String,
    pub stamp: Stamp,
    pub incarnation: u64,
    pub updated_at: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFilter {
    pub mesh: MeshId,
    /// What the keys begin with; empty for all of them.
    pub prefix: String,
    /// The last key of the page before.
    pub after: Option<String>,
    pub limit: usize,
    /// Bytes of values on one page, but at least one row.
    pub bytes_max: usize,
}

macro_rules! state_columns {
    () => {
        concat!(
            "key, value, lamport, updated_by, op_id, incarnation, updated_at, ",
            state_whole!()
        )
    };
}

pub(crate) const GET: &str = concat!(
    "SELECT ",
    state_columns!(),
    " FROM state_kv WHERE mesh_id = ?1 AND key = ?2"
);

// Keys are compared by bytes, so those with the prefix stand together, from the prefix on; the reader
// stops behind the last of them, and at the end of a page: rows that cannot be read fill none.
pub(crate) const LIST: &str = concat!(
    "SELECT ",
    state_columns!(),
    " FROM state_kv WHERE mesh_id = ?1 AND key >= max(?2, ?3) AND key <> ?3
      ORDER BY key"
);

const DUMP: &str = concat!(
    "SELECT ",
    state_columns!(),
    " FROM state_kv WHERE mesh_id = ?1 ORDER BY key"
);

pub(crate) const STAMP: &str = concat!(
    "SELECT key, lamport, updated_by, op_id, tombstone, ",
    state_head!(),
    " FROM state_kv WHERE mesh_id = ?1 AND key = ?2"
);

pub(crate) const VALUE: &str = concat!(
    "SELECT value, ",
    state_whole!(),
    " FROM state_kv WHERE mesh_id = ?1 AND key = ?2"
);

const WRITE: &str = "
    INSERT INTO state_kv (mesh_id, key, updated_by, created_at, updated_at, lamport, incarnation,
        op_id, tombstone, value, digest)
    VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (mesh_id, key) DO UPDATE SET
        updated_by = excluded.updated_by, updated_at = excluded.updated_at,
        lamport = excluded.lamport, incarnation = excluded.incarnation, op_id = excluded.op_id,
        tombstone = excluded.tombstone, value = excluded.value, digest = excluded.digest";

impl Store {
    /// As [`Store::remember`]: a known id is answered whatever `fresh` says.
    pub async fn set_state<R: Send + 'static>(
        &self,
        id: ChangeKey,
        key: DataKey,
        fresh: Result<NewState, R>,
    ) -> Result<Applied<R>, StoreError> {
        self.write(move |connection| {
            apply(connection, &id, |_| {
                Ok(Plan::keep(fresh.map(|new| body(key, Some(new)))))
            })
        })
        .await
    }

    /// Leaves a tombstone; an entry that is not there is [`Applied::Absent`].
    pub async fn delete_state<R: Send + 'static>(
        &self,
        id: ChangeKey,
        key: DataKey,
    ) -> Result<Applied<R>, StoreError> {
        self.write(move |connection| {
            apply(connection, &id, |connection| {
                Ok(match stamp(connection, id.mesh, &key) {
                    // One that is not what was written is mended by being deleted.
                    Ok(Some((_, false))) | Err(StoreError::Corrupt(_)) => Plan::go(body(key, None)),
                    Ok(_) => Plan::Absent,
                    Err(error) => return Err(error),
                })
            })
        })
        .await
    }

    pub async fn get_state(
        &self,
        mesh: MeshId,
        key: DataKey,
    ) -> Result<Option<StateRow>, StoreError> {
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(GET)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), key.as_str()])?;
            Ok(rows.next()?.map(read).transpose()?.flatten())
        })
        .await
    }

    /// In order of keys; and whether there are more behind the last of them.
    pub async fn list_state(
        &self,
        filter: StateFilter,
    ) -> Result<(Vec<StateRow>, bool), StoreError> {
        let left_out = self.left_out.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(LIST)?;
            let mut rows = statement.query(params![
                filter.mesh.0.to_bytes(),
                &filter.prefix,
                filter.after.as_deref().unwrap_or_default()
            ])?;
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                // Before anything else of it is read: a row behind the last of these is none of this list's.
                let key = row.get_ref(0)?.as_bytes();
                if key.is_ok_and(|key| !key.starts_with(filter.prefix.as_bytes())) {
                    break;
                }
                let read = or_without(read(row), left_out.as_ref(), ("state_kv", row, 0))?;
                let Some(row) = read.flatten() else {
                    continue;
                };
                if found.len() == filter.limit || bytes > filter.bytes_max {
                    return Ok((found, true));
                }
                bytes += row.value.len();
                found.push(row);
            }
            Ok((found, false))
        })
        .await
    }
}

/// Every entry, tombstones included, as every replica has it.
pub(crate) fn dump(
    connection: &Connection,
    mesh: MeshId,
    left_out: Option<&LeftOut>,
    sink: Sink<'_>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(DUMP)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    while let Some(row) = rows.next()? {
        if let Some(line) = or_without(dumped(row), left_out, ("state_kv", row, 0))? {
            sink(line)?;
        }
    }
    Ok(())
}

fn dumped(row: &Row<'_>) -> Result<Value, StoreError> {
    STATE.check(row)?;
    let mut cells = Cells::of("state_kv", row);
    let (key, value): (String, _) = (cells.get()?, cells.value_or_null()?);
    let stamp = cells.stamp()?;
    Ok(json!({
        "table": "state_kv",
        "key": key,
        "value": value,
        "lamport": stamp.lamport,
        "updated_by": stamp.peer.as_str(),
        "op_id": stamp.op.to_string(),
        "incarnation": cells.count()?,
        "updated_at": cells.wall()?.0,
    }))
}

fn body(key: DataKey, write: Option<NewState>) -> OpBody {
    OpBody::State(StateChange { key, write })
}

pub(crate) fn take(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &StateChange,
) -> Result<Taken, StoreError> {
    let row = stamp(connection, mesh, &change.key)?.map(|(stamp, _)| stamp);
    let taken = match &row {
        Some(existing) => Taken::by_stamp(Some(existing), op),
        None => {
            let floor = floor(connection, mesh, Noun::State, &op.stamp.peer)?;
            Taken::by_stamp(floor.as_ref(), op)
        }
    };
    if taken == Taken::Applied {
        if let Some(replaced) = &row {
            note(connection, mesh, op, replaced, || {
                replaced_value(connection, mesh, &change.key)
            })?;
        }
        put(connection, mesh, op, change)?;
    }
    Ok(taken)
}

/// The write that stands under the key, marks of deleted ones included.
pub(super) fn standing(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
) -> Result<Option<OpId>, StoreError> {
    Ok(stamp(connection, mesh, key)?.map(|(stamp, _)| stamp.op))
}

/// The write that stands under the key with its value, null for a mark of a deleted one.
pub(super) fn standing_value(
    connection: &Connection,
    mesh: MeshId,
    key: &str,
) -> Result<Option<(Stamp, Option<String>)>, StoreError> {
    let Ok(key) = DataKey::parse(key) else {
        return Ok(None);
    };
    let Some((stamp, _)) = stamp(connection, mesh, &key)? else {
        return Ok(None);
    };
    let found = replaced_value(connection, mesh, &key)?;
    Ok(found.map(|found| (stamp, found.value)))
}

/// None where it is not what was written: it is overwritten all the same, and nobody is told that he wrote it.
fn replaced_value(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
) -> Result<Option<Replaced>, StoreError> {
    let mut statement = connection.prepare_cached(VALUE)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), key.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    if let Err(StoreError::Corrupt(_)) = STATE.check(row) {
        return Ok(None);
    }
    let (value, tags) = (row.get(0)?, None);
    Ok(Some(Replaced { value, tags }))
}

/// The row's stamp, and whether it is a tombstone.
fn stamp(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
) -> Result<Option<(Stamp, bool)>, StoreError> {
    let mut statement = connection.prepare_cached(STAMP)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), key.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    STATE.check_head(row)?;
    let mut cells = Cells::of("state_kv", row);
    let _: String = cells.get()?;
    Ok(Some((cells.stamp()?, cells.get()?)))
}

fn put(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &StateChange,
) -> Result<(), StoreError> {
    let (mesh, key, by) = (
        mesh.0.to_bytes(),
        change.key.as_str(),
        op.stamp.peer.as_str(),
    );
    let at = op.at.0;
    let lamport = count_cell(op.stamp.lamport)?;
    let incarnation = count_cell(op.incarnation)?;
    let (op, is_gone) = (op.stamp.op.to_bytes(), change.write.is_none());
    let value = change.write.as_ref().map(|new| new.value.as_str());
    let head = params![mesh, key, by, at, lamport, incarnation, op, is_gone];
    let digest = STATE.of(head, params![value])?;
    connection.prepare_cached(WRITE)?.execute(params![
        mesh,
        key,
        by,
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

/// None for the mark of a deleted one.
fn read(row: &Row<'_>) -> Result<Option<StateRow>, StoreError> {
    STATE.check(row)?;
    let mut cells = Cells::of("state_kv", row);
    let key = cells.get()?;
    let Some(value) = cells.value_or_null()? else {
        return Ok(None);
    };
    Ok(Some(StateRow {
        key,
        value,
        stamp: cells.stamp()?,
        incarnation: cells.count()?,
        updated_at: cells.wall()?,
    }))
}
