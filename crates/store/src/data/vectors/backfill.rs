//! A vector's row as an op: what belongs to it and its numbers, or that it was taken away under its model.

use heddle_core::data::{DataKey, DataValue};
use heddle_core::op::{NewVector, OpBody, VectorChange, VectorContent};
use heddle_core::vector::ModelFingerprint;
use rusqlite::Connection;

use super::{models, numbers};
use crate::cells::Cells;
use crate::data::seal::vector_whole;
use crate::error::StoreError;

pub(crate) const BACKFILL: &str = concat!(
    "SELECT place, lamport, peer, op_id, incarnation, updated_at, key, model_id, tombstone, metadata,
        content, ",
    vector_whole!(),
    " FROM vector_metadata WHERE place > ?2 AND +mesh_id = ?1 ORDER BY place LIMIT ?3"
);

/// Of a vector that can be read, but not said to others: the row of its model is lost.
pub(crate) const NAMELESS: &str = "its model is missing";

pub(crate) fn backfill(
    connection: &Connection,
    place: i64,
    cells: &mut Cells<'_, '_>,
) -> Result<OpBody, StoreError> {
    let key = cells.parsed(DataKey::kept)?;
    let model: ModelFingerprint = cells.parsed(str::parse)?;
    if cells.get::<bool>()? {
        let models = vec![model];
        return Ok(OpBody::Vector(VectorChange::Delete { key, models }));
    }
    let metadata = DataValue::kept(cells.get()?).map_err(|error| cells.bad(error))?;
    let content = VectorContent::new(cells.get()?).map_err(|error| cells.bad(error))?;
    let known = models::known(connection, model)?;
    let known = known.ok_or_else(|| cells.bad(NAMELESS))?;
    let embedding = numbers::of(connection, place, model)?;
    let new = NewVector::new(known.identity, embedding, content, metadata);
    let new = Box::new(new.map_err(|error| cells.bad(error))?);
    Ok(OpBody::Vector(VectorChange::Store {
        key,
        new,
        replaces: None,
    }))
}
