//! How far the files may grow on a disk where little is free: never so far that their logs cannot be moved into them.

use std::sync::atomic::Ordering;

use heddle_core::pressure::FileSystem;

use crate::shared::Shared;

/// Holds the store's file back where little is free, and lets go of it where much is.
pub(super) async fn bound_growth(shared: &Shared, around: Option<FileSystem>) {
    if let Some(around) = around {
        shared.store.bound_log(around.free);
    }
    let growth = around.and_then(FileSystem::growth_max);
    if growth.is_none() && !shared.disk.is_bounded.load(Ordering::Relaxed) {
        return;
    }
    match shared.store.bound_growth(growth).await {
        Ok(()) => shared
            .disk
            .is_bounded
            .store(growth.is_some(), Ordering::Relaxed),
        Err(error) => tracing::warn!(%error, "the growth of the store's file could not be bounded"),
    }
    bound_broker(shared, around).await;
}

/// The same for the file of our own broker, which lies on the same disk.
async fn bound_broker(shared: &Shared, around: Option<FileSystem>) {
    let growth = around.and_then(FileSystem::broker_growth_max);
    let free = around.map_or(u64::MAX, |around| around.free);
    for mesh in &shared.meshes {
        let Some(connector) = mesh.connector() else {
            continue;
        };
        let Some(bounding) = connector.bound(growth, free) else {
            continue;
        };
        if let Err(error) = bounding.await {
            tracing::warn!(%error, "the growth of the broker's file could not be bounded");
        }
        // Every mesh that is hosted here lies in that one file.
        return;
    }
}
