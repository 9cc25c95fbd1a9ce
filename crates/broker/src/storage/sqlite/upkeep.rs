//! Upkeep in SQL. Candidates are found by readers; the writer only changes what is still due, a few
//! hundred rows at a time.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::names::MeshName;
use rusqlite::Connection;

use super::super::error::StorageError;
use super::super::rows::Orphan;
use super::super::upkeep::{Job, JobClaim, Upkeep};
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::{SqliteStorage, ages, expiry, orphans, retention, traffic};

const MESHES: &str = "SELECT mesh_id, name FROM mesh ORDER BY mesh_id";

const EFFECT_ROWS: &str = "
SELECT (SELECT count(*) FROM client_message_dedupe WHERE mesh_id = ?1)
    + (SELECT count(*) FROM message WHERE mesh_id = ?1)
    + (SELECT count(*) FROM message_history WHERE mesh_id = ?1)
    + (SELECT count(*) FROM delivery_queue WHERE mesh_id = ?1)
    + (SELECT count(*) FROM queue_item WHERE mesh_id = ?1)
    + (SELECT count(*) FROM log_row WHERE mesh_id = ?1)
    + (SELECT count(*) FROM mention_index WHERE mesh_id = ?1)";

fn meshes(connection: &Connection) -> Result<Vec<(MeshId, MeshName)>, JobError> {
    let found = connection
        .prepare_cached(MESHES)?
        .query_map([], |row| {
            let mut columns = Columns::of(row);
            Ok((columns.mesh()?, columns.mesh_name()?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(found)
}

impl Upkeep for SqliteStorage {
    async fn meshes(&self) -> Result<Vec<(MeshId, MeshName)>, StorageError> {
        Ok(self.database.read(meshes).await?)
    }

    async fn claim_job(&self, wanted: JobClaim) -> Result<Option<(String, WallMs)>, StorageError> {
        self.claim(wanted).await
    }

    async fn release_job(&self, mesh: MeshId, job: Job, holder: &str) -> Result<(), StorageError> {
        self.release(mesh, job, holder).await
    }

    async fn age(&self, mesh: MeshId) -> Result<Option<AgeMark>, StorageError> {
        self.read(mesh, move |c| ages::read(c, mesh)).await
    }

    async fn keep_age(
        &self,
        mesh: MeshId,
        mark: AgeMark,
        births_from: Duration,
    ) -> Result<Duration, StorageError> {
        self.write(mesh, move |c| ages::keep(c, mesh, mark, births_from))
            .await
    }

    async fn sweep_expired(&self, mesh: MeshId, age: Duration) -> Result<usize, StorageError> {
        let mut after = expiry::Walk::default();
        let mut count = 0;
        let births = self.read(mesh, move |c| ages::births(c, mesh)).await?;
        let births = Arc::new(births);
        loop {
            let births = Arc::clone(&births);
            let found = self.read(mesh, move |c| {
                Ok(expiry::find(c, mesh, (&births, age), after)?)
            });
            let (due, next) = found.await?;
            if !due.is_empty() {
                let swept = self.write(mesh, move |c| Ok(expiry::sweep(c, mesh, &due)?));
                count += swept.await?;
            }
            match next {
                None => return Ok(count),
                Some(next) => after = next,
            }
        }
    }

    async fn prune_messages(&self, mesh: MeshId, born: Duration) -> Result<usize, StorageError> {
        let mut after = retention::Walk::default();
        let mut count = 0;
        let through = self.read(mesh, move |c| ages::born_by(c, mesh, born));
        let Some(through) = through.await? else {
            return Ok(0);
        };
        loop {
            let found = self.read(mesh, move |c| Ok(retention::find(c, mesh, through, after)?));
            let (old, next) = found.await?;
            if !old.is_empty() {
                let pruned = self.write(mesh, move |c| Ok(retention::prune(c, mesh, &old)?));
                count += pruned.await?;
            }
            match next {
                None => return Ok(count),
                Some(next) => after = next,
            }
        }
    }

    async fn count_traffic(&self, mesh: MeshId) -> Result<u64, StorageError> {
        let mut count = 0;
        loop {
            let counted = self.write(mesh, move |c| Ok(traffic::count(c, mesh)?));
            match counted.await? {
                0 => return Ok(count),
                some => count += some,
            }
        }
    }

    async fn traffic(&self, mesh: MeshId) -> Result<Vec<(WallMs, u64)>, StorageError> {
        self.read(mesh, move |c| Ok(traffic::read(c, mesh)?)).await
    }

    async fn orphan_check(&self, mesh: MeshId) -> Result<Vec<Orphan>, StorageError> {
        self.read(mesh, move |c| orphans::check(c, mesh)).await
    }

    async fn effect_rows(&self, mesh: MeshId) -> Result<u64, StorageError> {
        self.read(mesh, move |c| {
            let mut statement = c.prepare_cached(EFFECT_ROWS)?;
            let count = statement.query_row([mesh_key(mesh)], |row| Columns::of(row).number())?;
            Ok(count)
        })
        .await
    }
}

/// How a limit is bound.
pub(super) fn rows(count: usize) -> i64 {
    integer(u64::try_from(count).unwrap_or(u64::MAX))
}
