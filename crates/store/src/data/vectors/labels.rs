//! What the vectors of a mesh and a model are called, as a search reads it: a row whose key or owner is no text any more
//! stands alone, and the others are found without it.

use std::collections::HashMap;
use std::sync::Arc;

use heddle_core::ids::MeshId;
use heddle_core::vector::{Label, ModelFingerprint};
use rusqlite::{Connection, Row, ToSql, params};

use crate::cells::{Cells, count_cell};
use crate::data::seal::{VECTORS, vector_head};
use crate::error::StoreError;

macro_rules! labels {
    ($and:literal) => {
        concat!(
            "SELECT place, key, peer, tombstone, ",
            vector_head!(),
            " FROM vector_metadata WHERE mesh_id = ?1 AND model_id = ?2",
            $and
        )
    };
}

pub(crate) const LABELS: &str = labels!(" AND changed > ?3");
/// Whatever number they say they were changed by: no digest covers it.
pub(crate) const ALL_LABELS: &str = labels!("");

/// A live vector that cannot be read: its place, and its key as far as that is text.
pub(super) type Unreadable = (i64, String);

/// A row that was written behind some change.
pub(super) enum Changed {
    Live(Label),
    Gone(i64),
    Unreadable(Unreadable),
}

impl Changed {
    pub(super) fn place(&self) -> i64 {
        match self {
            Self::Live(label) => label.place,
            Self::Gone(place) | Self::Unreadable((place, _)) => *place,
        }
    }
}

/// The live rows, by place; and those that cannot be read.
#[derive(Default)]
pub(super) struct Labels {
    pub(super) live: HashMap<i64, Label>,
    pub(super) unreadable: Vec<Unreadable>,
}

impl Labels {
    /// Of every row.
    pub(super) fn read(
        connection: &Connection,
        of: (MeshId, ModelFingerprint),
    ) -> Result<Self, StoreError> {
        let mut labels = Self::default();
        let (mesh, model) = (of.0.0.to_bytes(), of.1.to_string());
        for changed in rows(connection, ALL_LABELS, params![mesh, model])? {
            match changed {
                Changed::Live(label) => {
                    labels.live.insert(label.place, label);
                }
                Changed::Unreadable(row) => labels.unreadable.push(row),
                Changed::Gone(_) => {}
            }
        }
        Ok(labels)
    }
}

/// Rows that were written behind the change `through`.
pub(super) fn changed(
    connection: &Connection,
    (mesh, model): (MeshId, ModelFingerprint),
    through: u64,
) -> Result<Vec<Changed>, StoreError> {
    let (mesh, model) = (mesh.0.to_bytes(), model.to_string());
    rows(
        connection,
        LABELS,
        params![mesh, model, count_cell(through)?],
    )
}

fn rows(
    connection: &Connection,
    sql: &str,
    params: &[&dyn ToSql],
) -> Result<Vec<Changed>, StoreError> {
    let mut peers: HashMap<String, Arc<str>> = HashMap::new();
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let place: i64 = row.get(0)?;
        found.push(match read(row, &mut peers) {
            Ok(Some(label)) => Changed::Live(label),
            Ok(None) => Changed::Gone(place),
            Err(StoreError::Corrupt(_)) => {
                let key = row.get_ref(1)?.as_bytes_or_null().ok().flatten();
                let key = String::from_utf8_lossy(key.unwrap_or_default());
                Changed::Unreadable((place, key.into_owned()))
            }
            Err(error) => return Err(error),
        });
    }
    Ok(found)
}

/// `None` for one that was taken away.
fn read(row: &Row<'_>, peers: &mut HashMap<String, Arc<str>>) -> Result<Option<Label>, StoreError> {
    let mut cells = Cells::of("vector_metadata", row);
    let place = cells.get()?;
    let key: String = cells.get()?;
    let peer: String = cells.get()?;
    if cells.get::<bool>()? {
        // Compared here, for nobody else reads it: a live row that became a mark would be passed over in silence. Live ones are
        // compared where they are shown, and their names with their numbers.
        VECTORS.check_head(row)?;
        return Ok(None);
    }
    let shared = peers
        .entry(peer)
        .or_insert_with_key(|peer| peer.as_str().into());
    let peer = Arc::clone(shared);
    let key = key.into();
    Ok(Some(Label { place, key, peer }))
}
