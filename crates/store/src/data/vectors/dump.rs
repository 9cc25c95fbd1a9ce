//! The vectors as every replica must hold them: all columns that are not this home's own, and the numbers.

use heddle_core::ids::MeshId;
use heddle_core::vector::ModelFingerprint;
use rusqlite::{Connection, Row};
use serde_json::{Value, json};

use super::numbers;
use crate::cells::Cells;
use crate::data::seal::{VECTORS, vector_whole};
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::{LeftOut, or_without};

pub(crate) const DUMP: &str = concat!(
    "SELECT place, key, peer, model_id, updated_at, lamport, incarnation, op_id, tombstone, metadata,
        content, ",
    vector_whole!(),
    " FROM vector_metadata WHERE mesh_id = ?1 ORDER BY key, peer, model_id"
);

impl Store {
    /// One value a row, in order of key, peer and model.
    pub async fn dump_vectors(&self, mesh: MeshId) -> Result<Vec<Value>, StoreError> {
        self.read(move |connection| {
            let mut rows = Vec::new();
            dump(connection, mesh, None, &mut |row| {
                rows.push(row);
                Ok(())
            })?;
            Ok(rows)
        })
        .await
    }
}

pub(crate) fn dump(
    connection: &Connection,
    mesh: MeshId,
    left_out: Option<&LeftOut>,
    take: &mut dyn FnMut(Value) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(DUMP)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    while let Some(row) = rows.next()? {
        let of = ("vector_metadata", row, KEY_AT);
        if let Some(line) = or_without(dumped(connection, row), left_out, of)? {
            take(line)?;
        }
    }
    Ok(())
}

/// Where the key stands in a row of the dump.
const KEY_AT: usize = 1;

fn dumped(connection: &Connection, row: &Row<'_>) -> Result<Value, StoreError> {
    VECTORS.check(row)?;
    let mut cells = Cells::of("vector_metadata", row).known_by(KEY_AT);
    let place: i64 = cells.get()?;
    let (key, peer): (String, String) = (cells.get()?, cells.get()?);
    let model: ModelFingerprint = cells.parsed(str::parse)?;
    let updated_at = cells.wall()?.0;
    let (lamport, incarnation) = (cells.count()?, cells.count()?);
    let op = heddle_core::ids::OpId::from_bytes(cells.get()?);
    let is_tombstone: bool = cells.get()?;
    let (metadata, content): (_, Option<String>) = (cells.value_or_null()?, cells.get()?);
    let numbers = if is_tombstone {
        None
    } else {
        Some(numbers::of(connection, place, model)?.to_base64())
    };
    Ok(json!({
        "table": "vector", "key": key, "peer": peer, "model": model.to_string(),
        "updated_at": updated_at, "lamport": lamport, "incarnation": incarnation,
        "op_id": op.to_string(), "tombstone": is_tombstone, "metadata": metadata,
        "content": content, "embedding": numbers,
    }))
}
