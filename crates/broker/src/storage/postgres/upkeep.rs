//! Upkeep in SQL: small steps in the mesh's line, each decided under its lock.

use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::names::MeshName;

use super::super::error::StorageError;
use super::super::rows::Orphan;
use super::super::upkeep::{Job, JobClaim, Upkeep};
use super::columns::{Columns, mesh_key};
use super::error::JobError;
use super::roster::require_mesh;
use super::sql::{query, query_opt};
use super::{PostgresStorage, ages, orphans, retention, traffic};

const MESHES: &str = "SELECT mesh_id, name FROM mesh ORDER BY mesh_id";

const EFFECT_ROWS: &str = "
SELECT (SELECT count(*) FROM client_message_dedupe WHERE mesh_id = $1)
    + (SELECT count(*) FROM message WHERE mesh_id = $1)
    + (SELECT count(*) FROM message_history WHERE mesh_id = $1)
    + (SELECT count(*) FROM delivery_queue WHERE mesh_id = $1)
    + (SELECT count(*) FROM queue_item WHERE mesh_id = $1)
    + (SELECT count(*) FROM log_row WHERE mesh_id = $1)
    + (SELECT count(*) FROM mention_index WHERE mesh_id = $1)";

impl Upkeep for PostgresStorage {
    async fn meshes(&self) -> Result<Vec<(MeshId, MeshName)>, StorageError> {
        let client = self.reader().await?;
        let found = query(&client, MESHES, &[]).await?;
        let read = |row| {
            let mut columns = Columns::of(row);
            Ok((columns.mesh()?, columns.mesh_name()?))
        };
        let meshes: Result<_, JobError> = found.iter().map(read).collect();
        Ok(meshes?)
    }

    async fn claim_job(&self, wanted: JobClaim) -> Result<Option<(String, WallMs)>, StorageError> {
        self.claim(wanted).await
    }

    async fn release_job(&self, mesh: MeshId, job: Job, holder: &str) -> Result<(), StorageError> {
        self.release(mesh, job, holder).await
    }

    async fn age(&self, mesh: MeshId) -> Result<Option<AgeMark>, StorageError> {
        self.snapshot(mesh, |tx, mesh| {
            Box::pin(async move {
                require_mesh(tx, *mesh).await?;
                ages::read(tx, *mesh).await
            })
        })
        .await
    }

    async fn keep_age(
        &self,
        mesh: MeshId,
        mark: AgeMark,
        births_from: Duration,
    ) -> Result<Duration, StorageError> {
        self.write(mesh, (mesh, mark, births_from), |tx, (mesh, mark, from)| {
            Box::pin(ages::keep(tx, *mesh, *mark, *from))
        })
        .await
    }

    async fn sweep_expired(&self, mesh: MeshId, age: Duration) -> Result<usize, StorageError> {
        let mut total = 0;
        let mut longest = i64::MIN;
        loop {
            let next = self.snapshot((mesh, longest), |tx, (mesh, longest)| {
                Box::pin(async move {
                    require_mesh(tx, *mesh).await?;
                    ages::next_length(tx, *mesh, *longest).await
                })
            });
            let Some(length) = next.await? else {
                return Ok(total);
            };
            longest = length;
            loop {
                let step = self.write(mesh, (mesh, length, age), |tx, (mesh, length, age)| {
                    Box::pin(ages::sweep(tx, *mesh, *length, *age))
                });
                match step.await? {
                    0 => break,
                    swept => total += swept,
                }
            }
        }
    }

    async fn prune_messages(&self, mesh: MeshId, born: Duration) -> Result<usize, StorageError> {
        let mut after = HistoryId::ZERO;
        let mut total = 0;
        let through = self.snapshot((mesh, born), |tx, (mesh, born)| {
            Box::pin(async move {
                require_mesh(tx, *mesh).await?;
                ages::born_by(tx, *mesh, *born).await
            })
        });
        let Some(through) = through.await? else {
            return Ok(0);
        };
        loop {
            let found = self.snapshot((mesh, through, after), |tx, (mesh, through, after)| {
                Box::pin(retention::find(tx, *mesh, *through, *after))
            });
            let (old, next) = found.await?;
            if !old.is_empty() {
                let step = self.write(mesh, (mesh, old), |tx, (mesh, old)| {
                    Box::pin(retention::prune(tx, *mesh, old))
                });
                total += step.await?;
            }
            match next {
                None => return Ok(total),
                Some(next) => after = next,
            }
        }
    }

    async fn count_traffic(&self, mesh: MeshId) -> Result<u64, StorageError> {
        let mut total = 0;
        loop {
            let step = self.write(mesh, mesh, |tx, mesh| Box::pin(traffic::count(tx, *mesh)));
            match step.await? {
                0 => return Ok(total),
                counted => total += counted,
            }
        }
    }

    async fn traffic(&self, mesh: MeshId) -> Result<Vec<(WallMs, u64)>, StorageError> {
        self.snapshot(mesh, |tx, mesh| Box::pin(traffic::read(tx, *mesh)))
            .await
    }

    async fn orphan_check(&self, mesh: MeshId) -> Result<Vec<Orphan>, StorageError> {
        self.survey(mesh, |tx, mesh| Box::pin(orphans::check(tx, *mesh)))
            .await
    }

    async fn effect_rows(&self, mesh: MeshId) -> Result<u64, StorageError> {
        self.survey(mesh, |tx, mesh| {
            Box::pin(async move {
                require_mesh(tx, *mesh).await?;
                let row = query_opt(tx, EFFECT_ROWS, &[&mesh_key(*mesh)]).await?;
                row.map_or(Ok(0), |row| Columns::of(&row).number())
            })
        })
        .await
    }
}
