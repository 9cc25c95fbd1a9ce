//! A peer's memory: remember, forget, and merging what other homes remembered.

use heddle_core::clock::WallMs;
use heddle_core::data::{DataKey, DataValue, Tags};
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::lww::{Merge, merge};
use rusqlite::{Connection, params};

use crate::cells::{Cells, count_cell};
use crate::data::request::{Applied, ChangeKey, Fresh, Receipt, apply};
use crate::data::{Merged, clock};
use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMemory {
    pub value: DataValue,
    pub tags: Tags,
}

/// An op on a memory, as its origin made it. The stamp's peer is the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryOp {
    pub key: DataKey,
    pub stamp: Stamp,
    pub incarnation: u64,
    pub at: WallMs,
    /// `None` forgets.
    pub write: Option<NewMemory>,
}

pub(crate) const STAMP: &str = "
    SELECT key, lamport, op_id, tombstone FROM memory
    WHERE mesh_id = ?1 AND key = ?2 AND peer = ?3";

const WRITE: &str = "
    INSERT INTO memory (mesh_id, peer, key, tags, created_at, updated_at, lamport, incarnation,
        op_id, tombstone, value)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (mesh_id, key, peer) DO UPDATE SET
        tags = excluded.tags, updated_at = excluded.updated_at, lamport = excluded.lamport,
        incarnation = excluded.incarnation, op_id = excluded.op_id,
        tombstone = excluded.tombstone, value = excluded.value";

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
            let (new, refusal) = match fresh {
                Ok(new) => (Some(new), None),
                Err(refusal) => (None, Some(refusal)),
            };
            let may = |_: &Connection| Ok(refusal.map_or(Fresh::Go, Fresh::Refused));
            apply(connection, &id, may, |connection, receipt| {
                put(connection, id.mesh, &op(key, receipt, new))
            })
        })
        .await
    }

    /// Leaves a tombstone; a memory that is not there is [`Applied::Absent`].
    pub async fn forget(
        &self,
        id: ChangeKey,
        key: DataKey,
    ) -> Result<Applied<std::convert::Infallible>, StoreError> {
        self.write(move |connection| {
            let owner = PeerId::new(&id.peer.to_string());
            let may = |connection: &Connection| {
                let row = stamp(connection, id.mesh, &key, &owner)?;
                Ok(match row {
                    Some((_, false)) => Fresh::Go,
                    _ => Fresh::Absent,
                })
            };
            apply(connection, &id, may, |connection, receipt| {
                put(connection, id.mesh, &op(key.clone(), receipt, None))
            })
        })
        .await
    }

    /// Takes in an op of another home, or one of our own that comes back (C9).
    pub async fn merge_memory(&self, mesh: MeshId, op: MemoryOp) -> Result<Merged, StoreError> {
        self.write(move |connection| {
            let existing = stamp(connection, mesh, &op.key, &op.stamp.peer)?;
            let verdict = merge(existing.as_ref().map(|(stamp, _)| stamp), &op.stamp);
            if verdict == Merge::Same {
                return Ok(Merged::Applied(verdict));
            }
            if let Err(refusal) = clock::take_in(connection, mesh, op.stamp.lamport)? {
                return Ok(Merged::Refused(refusal));
            }
            if verdict == Merge::Take {
                put(connection, mesh, &op)?;
            }
            Ok(Merged::Applied(verdict))
        })
        .await
    }
}

fn op(key: DataKey, receipt: &Receipt, write: Option<NewMemory>) -> MemoryOp {
    MemoryOp {
        key,
        stamp: receipt.stamp.clone(),
        incarnation: receipt.incarnation,
        at: receipt.at,
        write,
    }
}

/// The row's stamp, and whether it is a tombstone.
fn stamp(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
    owner: &PeerId,
) -> Result<Option<(Stamp, bool)>, StoreError> {
    let mut statement = connection.prepare_cached(STAMP)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), key.as_str(), owner.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut cells = Cells::of("memory", row);
    let _: String = cells.get()?;
    let stamp = Stamp {
        lamport: cells.count()?,
        peer: owner.clone(),
        op: OpId::from_bytes(cells.get()?),
    };
    Ok(Some((stamp, cells.get()?)))
}

fn put(connection: &Connection, mesh: MeshId, op: &MemoryOp) -> Result<(), StoreError> {
    let write = op.write.as_ref();
    let tags = write.map(|new| new.tags.as_slice()).unwrap_or_default();
    connection.prepare_cached(WRITE)?.execute(params![
        mesh.0.to_bytes(),
        op.stamp.peer.as_str(),
        op.key.as_str(),
        serde_json::Value::from(tags.to_vec()).to_string(),
        op.at.0,
        count_cell(op.stamp.lamport)?,
        count_cell(op.incarnation)?,
        op.stamp.op.to_bytes(),
        write.is_none(),
        write.map(|new| new.value.as_str()),
    ])?;
    Ok(())
}
