//! The sweep: ids whose time is over, bodies that are old, uploads that were given up, traffic to be counted.

use heddle_core::clock::{Clock, WallMs};
use heddle_core::ids::MeshId;
use heddle_core::limits::UPLOAD_KEPT;
use heddle_core::names::MeshName;

use super::{Ages, CLAIM_MS, DAY};
use crate::storage::{Job, JobClaim, Storage, StorageError};

/// How a sweep is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Whoever does it, for those who find it at work.
    pub holder: String,
    /// Bodies older than this go; never, if `None`.
    pub message_retention_days: Option<u32>,
    /// For how long ids are kept now; `None` for ever.
    pub dedupe_retention_days: Option<u32>,
}

impl Sweep {
    /// On a job that whoever sweeps is about to do.
    pub(super) fn claim(&self, mesh: MeshId, job: Job, now: WallMs) -> JobClaim {
        JobClaim {
            mesh,
            job,
            holder: self.holder.clone(),
            now,
            until: WallMs(now.0.saturating_add(CLAIM_MS)),
        }
    }

    /// For how many days it must be known what existed by when.
    pub(super) fn births_days(&self) -> u32 {
        let days = self.message_retention_days.max(self.dedupe_retention_days);
        days.unwrap_or(0)
    }
}

/// What a sweep did in one mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshSwept {
    pub mesh: MeshId,
    pub name: MeshName,
    /// Ids forgotten.
    pub expired: usize,
    /// Bodies deleted.
    pub pruned: usize,
    /// Messages added to the counters.
    pub counted: u64,
    /// Uploads that nobody went on with.
    pub uploads: usize,
    /// Somebody else is at it, until then; nothing was done here.
    pub held_by: Option<(String, WallMs)>,
}

/// Sweeps every mesh of a store.
pub async fn sweep<S: Storage>(
    storage: &S,
    (clock, ages): (&dyn Clock, &Ages),
    how: &Sweep,
) -> Result<Vec<MeshSwept>, StorageError> {
    let meshes = storage.meshes().await?;
    sweep_these(storage, (clock, ages), how, meshes).await
}

/// The same for some of them.
pub async fn sweep_these<S: Storage>(
    storage: &S,
    (clock, ages): (&dyn Clock, &Ages),
    how: &Sweep,
    meshes: Vec<(MeshId, MeshName)>,
) -> Result<Vec<MeshSwept>, StorageError> {
    let mut swept = Vec::new();
    for (mesh, name) in meshes {
        swept.push(one(storage, (clock, ages), how, (mesh, name)).await?);
    }
    Ok(swept)
}

async fn one<S: Storage>(
    storage: &S,
    (clock, ages): (&dyn Clock, &Ages),
    how: &Sweep,
    (mesh, name): (MeshId, MeshName),
) -> Result<MeshSwept, StorageError> {
    let now = clock.wall();
    let held_by = storage.claim_job(how.claim(mesh, Job::Sweep, now)).await?;
    let mut done = MeshSwept {
        mesh,
        name,
        expired: 0,
        pruned: 0,
        counted: 0,
        uploads: 0,
        held_by,
    };
    if done.held_by.is_some() {
        return Ok(done);
    }
    // Counted before their bodies go, because the bodies say when they came.
    done.counted = storage.count_traffic(mesh).await?;
    let age = ages.keep(storage, clock, mesh, how.births_days()).await?;
    done.expired = storage.sweep_expired(mesh, age).await?;
    let kept_ms = i64::try_from(UPLOAD_KEPT.as_millis()).unwrap_or(i64::MAX);
    let untouched_since = WallMs(now.0.saturating_sub(kept_ms));
    done.uploads = storage.sweep_uploads(mesh, untouched_since).await?;
    if let Some(days) = how.message_retention_days {
        // Nothing is old enough while the clock itself has not run for that long.
        if let Some(born) = age.checked_sub(DAY.saturating_mul(days)) {
            done.pruned = storage.prune_messages(mesh, born).await?;
        }
    }
    storage.release_job(mesh, Job::Sweep, &how.holder).await?;
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    metrics::counter!("heddle_broker_dedupe_expired_total").increment(number(done.expired));
    metrics::counter!("heddle_broker_messages_pruned_total").increment(number(done.pruned));
    metrics::counter!("heddle_broker_uploads_swept_total").increment(number(done.uploads));
    Ok(done)
}
