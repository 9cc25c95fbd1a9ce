//! Old tombstones go, and a floor stays in their place: what is older than a collected mark cannot bring
//! its row back (LF-11).
//!
//! Only marks of personal meshes are collected. There every op was made in this home, on a clock that only
//! rises, so that nothing at or below the floor can be new. A mesh that has others keeps its marks: an op
//! that one of them made long ago may still be on its way, and a replica that had forgotten the mark would
//! differ from the others. A mark holds a key and a stamp, no content.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::limits::SWEEP_BLOBS_MAX;
use rusqlite::{Connection, params};

use crate::cells::{Cells, count_cell};
use crate::data::seal::{MEMORY, STATE, Seal, VECTORS, memory_whole, state_whole, vector_whole};
use crate::error::StoreError;

/// The tables that have marks of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noun {
    Memory,
    State,
    Vector,
}

impl Noun {
    const ALL: [Self; 3] = [Self::Memory, Self::State, Self::Vector];

    fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::State => "state",
            Self::Vector => "vector",
        }
    }

    /// A memory or a vector has an owner, and only his ops are about it. An entry of the state is
    /// everybody's: there the floor is for the member that had the mesh for itself, and for no guest.
    fn scope(self, peer: &PeerId) -> &str {
        let peer = peer.as_str();
        match self {
            Self::Memory | Self::Vector => peer,
            Self::State => peer.split('/').next().unwrap_or(peer),
        }
    }

    fn old_marks(self) -> &'static str {
        match self {
            Self::Memory => OLD_MEMORY,
            Self::State => OLD_STATE,
            Self::Vector => OLD_VECTORS,
        }
    }

    fn seal(self) -> Seal {
        match self {
            Self::Memory => MEMORY,
            Self::State => STATE,
            Self::Vector => VECTORS,
        }
    }

    fn take_mark(self) -> &'static str {
        match self {
            Self::Memory => "DELETE FROM memory WHERE place = ?1 AND tombstone = 1",
            Self::State => "DELETE FROM state_kv WHERE place = ?1 AND tombstone = 1",
            Self::Vector => "DELETE FROM vector_metadata WHERE place = ?1 AND tombstone = 1",
        }
    }
}

pub(crate) const OLD_MEMORY: &str = concat!(
    "SELECT place, lamport, peer, op_id, ",
    memory_whole!(),
    " FROM memory INDEXED BY memory_deleted
    WHERE tombstone = 1 AND mesh_id = ?1 AND updated_at < ?2 ORDER BY updated_at LIMIT ?3"
);

pub(crate) const OLD_STATE: &str = concat!(
    "SELECT place, lamport, updated_by, op_id, ",
    state_whole!(),
    " FROM state_kv INDEXED BY state_kv_deleted
    WHERE tombstone = 1 AND mesh_id = ?1 AND updated_at < ?2 ORDER BY updated_at LIMIT ?3"
);

pub(crate) const OLD_VECTORS: &str = concat!(
    "SELECT place, lamport, peer, op_id, ",
    vector_whole!(),
    " FROM vector_metadata INDEXED BY vector_deleted
    WHERE tombstone = 1 AND mesh_id = ?1 AND updated_at < ?2 ORDER BY updated_at LIMIT ?3"
);

pub(crate) const FLOOR: &str = "
    SELECT mesh_id, lamport, peer, op_id FROM data_floor
    WHERE mesh_id = ?1 AND noun = ?2 AND scope = ?3";

const RAISE: &str = "
    INSERT INTO data_floor (mesh_id, noun, scope, lamport, peer, op_id)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (mesh_id, noun, scope) DO UPDATE SET
        lamport = excluded.lamport, peer = excluded.peer, op_id = excluded.op_id
    WHERE (excluded.lamport, excluded.peer, excluded.op_id) > (lamport, peer, op_id)";

pub(crate) const PERSONAL_MESHES: &str = "SELECT mesh_id FROM mesh WHERE kind = 'personal'";

/// What stands in the place of a row that is not there.
pub(crate) fn floor(
    connection: &Connection,
    mesh: MeshId,
    noun: Noun,
    peer: &PeerId,
) -> Result<Option<Stamp>, StoreError> {
    let mut statement = connection.prepare_cached(FLOOR)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), noun.as_str(), noun.scope(peer)])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut cells = Cells::of("data_floor", row);
    let _: [u8; 16] = cells.get()?;
    cells.stamp().map(Some)
}

/// The meshes whose marks may go.
pub(super) fn personal_meshes(connection: &Connection) -> Result<Vec<[u8; 16]>, StoreError> {
    let mut statement = connection.prepare_cached(PERSONAL_MESHES)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A batch of marks from before `cutoff`; how many went.
pub(super) fn collect(connection: &Connection, cutoff: WallMs) -> Result<u64, StoreError> {
    let mut taken = 0;
    for mesh in personal_meshes(connection)? {
        for noun in Noun::ALL {
            taken += collect_of(connection, mesh, noun, cutoff)?;
        }
    }
    Ok(taken)
}

fn collect_of(
    connection: &Connection,
    mesh: [u8; 16],
    noun: Noun,
    cutoff: WallMs,
) -> Result<u64, StoreError> {
    let limit = i64::try_from(SWEEP_BLOBS_MAX).unwrap_or(i64::MAX);
    let mut marks = Vec::new();
    let mut statement = connection.prepare_cached(noun.old_marks())?;
    let mut rows = statement.query(params![mesh, cutoff.0, limit])?;
    while let Some(row) = rows.next()? {
        // One that is not what was written must not become the measure of others; it stays, and is told of.
        if let Err(StoreError::Corrupt(_)) = noun.seal().check(row) {
            continue;
        }
        let mut cells = Cells::of("a mark", row);
        let place: i64 = cells.get()?;
        marks.push((place, cells.stamp()?));
    }
    drop(rows);
    let mut taken = 0;
    for (place, stamp) in marks {
        connection.prepare_cached(RAISE)?.execute(params![
            mesh,
            noun.as_str(),
            noun.scope(&stamp.peer),
            count_cell(stamp.lamport)?,
            stamp.peer.as_str(),
            stamp.op.to_bytes(),
        ])?;
        taken += connection
            .prepare_cached(noun.take_mark())?
            .execute([place])? as u64;
    }
    Ok(taken)
}
