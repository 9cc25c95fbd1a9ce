//! The vectors of a mesh in order of keys, and those that wait to be moved to another model.

use heddle_core::ids::MeshId;
use heddle_core::lamport::PeerId;
use heddle_core::vector::ModelFingerprint;
use rusqlite::{Row, params};

use super::search::{VectorRow, read, vector_columns};
use crate::cells::Cells;
use crate::data::seal::vector_whole;
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::or_without;

/// Where a page goes on: key, peer and model of the last row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VectorCursor {
    pub key: String,
    pub peer: String,
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorFilter {
    pub mesh: MeshId,
    /// Only this model's.
    pub model: Option<ModelFingerprint>,
    /// Only of other models than this one.
    pub model_not: Option<ModelFingerprint>,
    /// Whose; `None` for everybody's.
    pub peer: Option<PeerId>,
    /// What the owners begin with: a member's id and a slash for all agents of one member.
    pub peer_prefix: String,
    pub after: VectorCursor,
    pub limit: usize,
    /// Bytes of contents on one page, but at least one row.
    pub bytes_max: usize,
}

// The reader stops at the end of a page: rows that cannot be read fill none.
pub(crate) const LIST: &str = concat!(
    "SELECT ",
    vector_columns!(),
    " FROM vector_metadata
      WHERE mesh_id = ?1 AND (key, peer, model_id) > (?2, ?3, ?4)
        AND (?5 IS NULL OR model_id = ?5) AND (?6 IS NULL OR model_id <> ?6)
        AND (?7 IS NULL OR peer = ?7) AND substr(peer, 1, length(?8)) = ?8
      ORDER BY key, peer, model_id"
);

pub(crate) const COUNT: &str = "
    SELECT model_id, count(*), total(substr(peer, 1, length(?2)) = ?2) FROM vector_metadata
    WHERE mesh_id = ?1 AND tombstone = 0 GROUP BY model_id";

/// How many vectors of a model there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorCount {
    pub model: ModelFingerprint,
    pub all: u64,
    /// Of the peers that were asked about.
    pub own: u64,
}

impl Store {
    /// In order of keys, peers and models; and whether there are more behind the last of them.
    pub async fn list_vectors(
        &self,
        filter: VectorFilter,
    ) -> Result<(Vec<VectorRow>, bool), StoreError> {
        let left_out = self.left_out.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(LIST)?;
            let mut rows = statement.query(params![
                filter.mesh.0.to_bytes(),
                filter.after.key,
                filter.after.peer,
                filter.after.model,
                filter.model.map(|model| model.to_string()),
                filter.model_not.map(|model| model.to_string()),
                filter.peer.as_ref().map(PeerId::as_str),
                filter.peer_prefix
            ])?;
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                if found.len() == filter.limit || bytes > filter.bytes_max {
                    return Ok((found, true));
                }
                let of = ("vector_metadata", row, 0);
                let Some(row) = or_without(read(row), left_out.as_ref(), of)?.flatten() else {
                    continue;
                };
                bytes += row.content.len() + row.metadata.len();
                found.push(row);
            }
            Ok((found, false))
        })
        .await
    }

    /// By model, and how many of them belong to peers that begin with this.
    pub async fn count_vectors(
        &self,
        mesh: MeshId,
        own_prefix: String,
    ) -> Result<Vec<VectorCount>, StoreError> {
        let left_out = self.left_out.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(COUNT)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), own_prefix])?;
            let mut counts = Vec::new();
            while let Some(row) = rows.next()? {
                let of = ("vector_metadata", row, 0);
                counts.extend(or_without(count(row), left_out.as_ref(), of)?);
            }
            Ok(counts)
        })
        .await
    }
}

fn count(row: &Row<'_>) -> Result<VectorCount, StoreError> {
    let mut cells = Cells::of("vector_metadata", row);
    let model = cells.parsed(str::parse)?;
    let all = cells.count()?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count"
    )]
    let own = cells.get::<f64>()? as u64;
    Ok(VectorCount { model, all, own })
}
