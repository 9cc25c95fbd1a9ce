//! Runs the jobs of a serving broker by the clock.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::WallMs;
use tokio::time::sleep;

use super::sweep::{Sweep, sweep};
use super::{CLAIM_MS, orphan_check};
use crate::limiter::Limiter;
use crate::storage::{Job, Storage, StorageError};
use crate::ws::Shared;

/// After a start everybody connects; upkeep can wait.
const FIRST_AFTER: Duration = Duration::from_secs(60);
/// An orphan check reads everything: one in so many rounds.
const CHECK_EVERY_ROUNDS: u32 = 24;

/// For ever; dropped when the broker stops. Whatever fails now is tried in the next round.
pub(crate) async fn run<S: Storage, L: Limiter>(shared: Arc<Shared<S, L>>) {
    let how = Sweep {
        holder: format!("broker {}", shared.accept.ids.ulid()),
        message_retention_days: shared.config.message_retention_days,
    };
    sleep(FIRST_AFTER).await;
    for round in 0_u32.. {
        if let Err(error) = one_round(&shared, &how, round).await {
            tracing::warn!(%error, "upkeep could not be done; it is tried again");
        }
        sleep(shared.config.upkeep_interval).await;
    }
}

async fn one_round<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    how: &Sweep,
    round: u32,
) -> Result<(), StorageError> {
    let storage = shared.storage();
    let clock = shared.accept.clock.as_ref();
    for (mesh, _) in storage.meshes().await? {
        storage
            .expire_sessions(mesh, shared.lease.now(), clock.wall())
            .await?;
    }
    for swept in sweep(storage, clock, how).await? {
        tracing::info!(mesh = %swept.name, swept.expired, swept.pruned, swept.counted, swept.uploads, "swept");
    }
    if round.is_multiple_of(CHECK_EVERY_ROUNDS) && claim_check(shared, how).await? {
        for orphan in orphan_check(storage).await?.orphans {
            tracing::error!(orphan.problem, %orphan.row, "an orphan: run `heddle broker orphan-check`");
        }
        release_check(shared, how).await?;
    }
    Ok(())
}

async fn release_check<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    how: &Sweep,
) -> Result<(), StorageError> {
    let storage = shared.storage();
    match storage.meshes().await?.into_iter().next() {
        Some((mesh, _)) => {
            storage
                .release_job(mesh, Job::OrphanCheck, &how.holder)
                .await
        }
        None => Ok(()),
    }
}

/// The check is over all meshes; the claim on the first stands for all.
async fn claim_check<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    how: &Sweep,
) -> Result<bool, StorageError> {
    let storage = shared.storage();
    let Some((mesh, _)) = storage.meshes().await?.into_iter().next() else {
        return Ok(false);
    };
    let now = shared.accept.clock.wall();
    let until = WallMs(now.0.saturating_add(CLAIM_MS));
    let held = storage
        .claim_job(mesh, Job::OrphanCheck, &how.holder, now, until)
        .await?;
    Ok(held.is_none())
}
