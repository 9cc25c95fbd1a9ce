//! Runs the jobs of a serving broker by the clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::sweep::{Sweep, sweep};
use super::{Ages, orphan_check};
use crate::limiter::Limiter;
use crate::storage::{Job, Storage, StorageError};
use crate::ws::Shared;

/// After a start everybody connects; upkeep can wait, unless it is asked for more often than that.
const FIRST_AFTER: Duration = Duration::from_secs(60);
/// How often the age of the meshes is kept.
const AGES_EVERY: Duration = Duration::from_secs(600);
/// An orphan check reads everything: one in so many rounds.
const CHECK_EVERY_ROUNDS: u32 = 24;

/// For ever; dropped when the broker stops. Whatever fails now is tried in the next round.
pub(crate) async fn run<S: Storage, L: Limiter>(shared: Arc<Shared<S, L>>) {
    let how = Sweep {
        holder: format!("broker {}", shared.accept.ids.ulid()),
        message_retention_days: shared.config.message_retention_days,
        dedupe_retention_days: shared.accept.dedupe.days(),
    };
    let ages = Ages::default();
    sleep(FIRST_AFTER.min(shared.config.upkeep_interval)).await;
    for round in 0_u32.. {
        if let Err(error) = one_round(&shared, &ages, &how, round).await {
            tracing::warn!(%error, "upkeep could not be done; it is tried again");
        }
        let mut left = shared.config.upkeep_interval;
        while left > AGES_EVERY {
            sleep(AGES_EVERY).await;
            left = left.saturating_sub(AGES_EVERY);
            if let Err(error) = keep_ages(&shared, &ages, &how).await {
                // What is old looks younger for it, and is kept longer.
                tracing::warn!(%error, "the age of the meshes could not be kept");
            }
        }
        sleep(left).await;
    }
}

/// Time that passed is kept now and then, so that a machine that is switched off takes little of it along.
async fn keep_ages<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    ages: &Ages,
    how: &Sweep,
) -> Result<(), StorageError> {
    let storage = shared.storage();
    let clock = shared.accept.clock.as_ref();
    for (mesh, _) in storage.meshes().await? {
        ages.keep(storage, clock, mesh, how.births_days()).await?;
    }
    Ok(())
}

async fn one_round<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    ages: &Ages,
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
    for swept in sweep(storage, (clock, ages), how).await? {
        tracing::info!(mesh = %swept.name, swept.expired, swept.pruned, swept.counted, swept.uploads, "swept");
    }
    if round.is_multiple_of(CHECK_EVERY_ROUNDS) && claim_check(shared, how).await? {
        let orphans = orphan_check(storage).await?.orphans;
        shared.orphans.store(orphans.len(), Ordering::Relaxed);
        for orphan in orphans {
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
    let held = storage
        .claim_job(how.claim(mesh, Job::OrphanCheck, now))
        .await?;
    Ok(held.is_none())
}
