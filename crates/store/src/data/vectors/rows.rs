//! One vector's rows: what belongs to it, and its numbers in the table of its model (LF-32).

use heddle_core::clock::WallMs;
use heddle_core::data::{DataKey, DataValue};
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::lww::{Merge, merge};
use heddle_core::vector::{Embedding, ModelFingerprint, ModelIdentity};
use rusqlite::{Connection, params};

use super::numbers::Name;
use super::place;
use super::{models, numbers};
use crate::cells::{Cells, count_cell};
use crate::data::floor::{Noun, floor};
use crate::data::seal::{VECTORS, vector_head};
use crate::error::StoreError;

/// When a row was written, in both kinds of time. The stamp's peer is the owner.
pub(super) struct Written<'o> {
    pub(super) mesh: MeshId,
    pub(super) stamp: &'o Stamp,
    pub(super) incarnation: u64,
    pub(super) at: WallMs,
}

pub(super) struct Live<'o> {
    pub(super) model: &'o ModelIdentity,
    pub(super) embedding: &'o Embedding,
    pub(super) content: &'o str,
    pub(super) metadata: &'o DataValue,
}

pub(crate) const STAMP: &str = concat!(
    "SELECT place, lamport, op_id, tombstone, ",
    vector_head!(),
    " FROM vector_metadata
    WHERE mesh_id = ?1 AND key = ?2 AND peer = ?3 AND model_id = ?4"
);

macro_rules! newest {
    () => {
        "(SELECT min(coalesce(max(changed), 0), 1 << 62) FROM vector_metadata
          WHERE mesh_id = ?1 AND model_id = ?2)"
    };
}

// A head that was lost, or put back behind its rows, begins anew above them: what is in memory must not take a number for one
// that it has read before.
pub(crate) const COUNT_CHANGE: &str = concat!(
    "INSERT INTO vector_head (mesh_id, model_id, changes, whole_from)
     VALUES (?1, ?2, 1 + ",
    newest!(),
    ", 1 + ",
    newest!(),
    ")
    ON CONFLICT (mesh_id, model_id) DO UPDATE SET changes = max(changes + 1, excluded.changes),
        whole_from = iif(changes + 1 < excluded.changes, excluded.changes, whole_from)
    RETURNING changes"
);

const WRITE: &str = "
    INSERT INTO vector_metadata (mesh_id, peer, key, model_id, created_at, updated_at, lamport,
        incarnation, op_id, tombstone, changed, metadata, content, digest)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (mesh_id, key, peer, model_id) DO UPDATE SET
        updated_at = excluded.updated_at, lamport = excluded.lamport,
        incarnation = excluded.incarnation, op_id = excluded.op_id,
        tombstone = excluded.tombstone, changed = excluded.changed, metadata = excluded.metadata,
        content = excluded.content, digest = excluded.digest
    RETURNING place";

/// What is there now under a key and a model.
pub(super) struct Existing {
    pub(super) place: i64,
    pub(super) stamp: Stamp,
    pub(super) is_live: bool,
}

pub(super) fn existing(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
    owner: &PeerId,
    model: ModelFingerprint,
) -> Result<Option<Existing>, StoreError> {
    let mut statement = connection.prepare_cached(STAMP)?;
    let mut rows = statement.query(params![
        mesh.0.to_bytes(),
        key.as_str(),
        owner.as_str(),
        model.to_string()
    ])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    VECTORS.check_head(row)?;
    let mut cells = Cells::of("vector_metadata", row);
    Ok(Some(Existing {
        place: cells.get()?,
        stamp: Stamp {
            lamport: cells.count()?,
            peer: owner.clone(),
            op: OpId::from_bytes(cells.get()?),
        },
        is_live: !cells.get::<bool>()?,
    }))
}

/// Against what is there, or against the floor where a mark was collected (LF-11).
fn verdict(
    connection: &Connection,
    written: &Written<'_>,
    existing: Option<&Existing>,
) -> Result<Merge, StoreError> {
    let floor = match existing {
        Some(_) => None,
        None => floor(connection, written.mesh, Noun::Vector, &written.stamp.peer)?,
    };
    let known = existing.map(|row| &row.stamp).or(floor.as_ref());
    Ok(merge(known, written.stamp))
}

/// Last writer wins, for one key under one model. Both rows of a vector change together or not at all.
pub(super) fn put(
    connection: &Connection,
    written: &Written<'_>,
    key: &DataKey,
    live: &Live<'_>,
) -> Result<Merge, StoreError> {
    let model = live.model.fingerprint();
    let existing = existing(connection, written.mesh, key, &written.stamp.peer, model)?;
    let verdict = verdict(connection, written, existing.as_ref())?;
    if verdict != Merge::Take {
        return Ok(verdict);
    }
    let table = models::ensure(connection, live.model, written.at)?.table();
    models::come_back(connection, model)?;
    let place = write(connection, written, key, model, Some(live))?;
    let bytes = live.embedding.to_bytes();
    place::put(
        connection,
        &table,
        place,
        (&bytes, existing.is_some_and(|row| row.is_live)),
    )?;
    let model = model.to_string();
    let name = Name {
        mesh: written.mesh.0.to_bytes(),
        model: model.as_bytes(),
        key: key.as_str().as_bytes(),
        peer: written.stamp.peer.as_str().as_bytes(),
    };
    numbers::keep(connection, place, (name, &bytes))?;
    Ok(verdict)
}

/// Leaves a tombstone, also where nothing was: an older op may still come.
pub(super) fn take_away(
    connection: &Connection,
    written: &Written<'_>,
    key: &DataKey,
    model: ModelFingerprint,
) -> Result<Merge, StoreError> {
    let existing = existing(connection, written.mesh, key, &written.stamp.peer, model)?;
    let verdict = verdict(connection, written, existing.as_ref())?;
    if verdict != Merge::Take {
        return Ok(verdict);
    }
    write(connection, written, key, model, None)?;
    if let Some(row) = existing.filter(|row| row.is_live) {
        // By the name that its fingerprint gives it, whatever is known of the model: what is taken away needs none.
        let table = model.table();
        if models::has_table(connection, &table)? {
            place::clear(connection, &table, row.place)?;
        }
        numbers::forget(connection, row.place)?;
    }
    Ok(verdict)
}

fn write(
    connection: &Connection,
    written: &Written<'_>,
    key: &DataKey,
    model: ModelFingerprint,
    live: Option<&Live<'_>>,
) -> Result<i64, StoreError> {
    let (mesh, model) = (written.mesh.0.to_bytes(), model.to_string());
    let mut count = connection.prepare_cached(COUNT_CHANGE)?;
    let changed: i64 = count.query_row(params![mesh, model], |row| row.get(0))?;
    let (peer, key, at) = (written.stamp.peer.as_str(), key.as_str(), written.at.0);
    let lamport = count_cell(written.stamp.lamport)?;
    let incarnation = count_cell(written.incarnation)?;
    let (op, is_gone) = (written.stamp.op.to_bytes(), live.is_none());
    let metadata = live.map(|live| live.metadata.as_str());
    let content = live.map(|live| live.content);
    let head = params![
        mesh,
        peer,
        key,
        model,
        at,
        lamport,
        incarnation,
        op,
        is_gone
    ];
    let digest = VECTORS.of(head, params![metadata, content])?;
    let mut write = connection.prepare_cached(WRITE)?;
    let place = write.query_row(
        params![
            mesh,
            peer,
            key,
            model,
            at,
            lamport,
            incarnation,
            op,
            is_gone,
            changed,
            metadata,
            content,
            digest
        ],
        |row| row.get(0),
    )?;
    Ok(place)
}
