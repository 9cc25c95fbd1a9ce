//! The last roster of a mesh that the broker told us, kept as text so that it survives an outage.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::params;

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

impl Store {
    pub async fn save_roster(
        &self,
        mesh: MeshId,
        document: String,
        as_of: WallMs,
    ) -> Result<(), StoreError> {
        self.write_relaxed(move |connection| {
            connection
                .prepare_cached(
                    "INSERT INTO roster (mesh_id, document, as_of) VALUES (?1, ?2, ?3)
                     ON CONFLICT (mesh_id)
                     DO UPDATE SET document = excluded.document, as_of = excluded.as_of",
                )?
                .execute(params![mesh.0.to_bytes(), document, as_of.0])?;
            Ok(())
        })
        .await
    }

    /// The document and the time at which it was true.
    pub async fn roster(&self, mesh: MeshId) -> Result<Option<(String, WallMs)>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection
                .prepare_cached("SELECT mesh_id, document, as_of FROM roster WHERE mesh_id = ?1")?;
            let mut rows = statement.query([mesh.0.to_bytes()])?;
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let mut cells = Cells::of("roster", row);
            cells.ulid()?;
            Ok(Some((cells.get()?, cells.wall()?)))
        })
        .await
    }
}
