//! A row that is not what was written (`seal`) stands in nobody's way: a change of this home under its name takes its place.
//!
//! What it was stamped with cannot be known, but it was below the mesh's clock, as everything is, and the change is above it: so
//! the change wins here and on every replica that has the row as it was. An op from elsewhere may be older than what stood there,
//! so it waits in its quarantine; it is tried again when the row is mended.

use heddle_core::ids::MeshId;
use heddle_core::op::{DataOp, OpBody, VectorChange};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params};

use super::seal::{FILES, MEMORY, STATE, Seal, VECTORS};
use crate::error::StoreError;
use crate::unreadable::take_out_row;

const TRY_AGAIN: &str = "
    UPDATE op_inbox SET state = 'waiting'
    WHERE mesh_id = ?1 AND state <> 'applied' AND state = 'quarantined' AND length(op) > 0";

/// Takes the rows under the op's name away that are not what was written; false where there are none.
pub(super) fn make_way(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
) -> Result<bool, StoreError> {
    let mesh = mesh.0.to_bytes();
    let peer = op.stamp.peer.as_str();
    let places = match &op.body {
        OpBody::Memory(change) => {
            let name = params![mesh, change.key.as_str(), peer];
            changed(connection, MEMORY, "key = ?2 AND peer = ?3", name)?
        }
        OpBody::State(change) => {
            let name = params![mesh, change.key.as_str()];
            changed(connection, STATE, "key = ?2", name)?
        }
        OpBody::File(change) => {
            let name = params![mesh, change.path.as_str(), peer];
            changed(connection, FILES, "path = ?2 AND peer = ?3", name)?
        }
        OpBody::Vector(change) => {
            let (VectorChange::Store { key, .. } | VectorChange::Delete { key, .. }) = change;
            let name = params![mesh, key.as_str(), peer];
            changed(connection, VECTORS, "key = ?2 AND peer = ?3", name)?
        }
        // They are folded anew from their steps (`task::fold`).
        OpBody::Task(_) => return Ok(false),
    };
    for (table, place) in &places {
        tracing::warn!(
            table,
            place,
            "a row was not what was written; a new write takes its place"
        );
        take_out_row(connection, table, *place)?;
    }
    if !places.is_empty() {
        connection.prepare_cached(TRY_AGAIN)?.execute([mesh])?;
    }
    Ok(!places.is_empty())
}

fn changed(
    connection: &Connection,
    seal: Seal,
    is_named: &str,
    name: &[&dyn ToSql],
) -> Result<Vec<(&'static str, i64)>, StoreError> {
    let Seal { table, columns, .. } = seal;
    let sql = format!("SELECT place, {columns} FROM {table} WHERE mesh_id = ?1 AND {is_named}");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(name)?;
    let mut places = Vec::new();
    while let Some(row) = rows.next()? {
        match seal.check(row) {
            Ok(()) => {}
            Err(StoreError::Corrupt(_)) => places.push((table, row.get(0)?)),
            Err(error) => return Err(error),
        }
    }
    Ok(places)
}
