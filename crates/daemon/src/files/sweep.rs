//! The daily job that takes away blobs that no file names; also after each delete, and at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heddle_core::limits::{SWEEP_EVERY, SWEEP_GRACE};
use heddle_store::{StoreError, Swept};
use tokio::runtime::Handle;

use crate::shared::Shared;

/// Of a shutdown's time, what the last sweep may take.
const LAST_SWEEP: Duration = Duration::from_secs(1);

/// Runs at once and then every day, until the daemon stops; in between, after each delete, for what
/// the delete left.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.shutdown.is_cancelled() {
        say(once(&shared, SWEEP_GRACE).await);
        let next = tokio::time::sleep(SWEEP_EVERY);
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = &mut next => break,
                () = shared.file_deleted.notified() => say(deleted(&shared).await),
                () = shared.shutdown.cancelled() => return,
            }
        }
    }
}

/// One whole sweep, ended early by a shutdown.
pub(crate) async fn once(shared: &Arc<Shared>, grace: Duration) -> Result<Swept, StoreError> {
    let for_thread = Arc::clone(shared);
    on_a_thread(move |runtime| {
        let Shared { store, blobs, .. } = &*for_thread;
        let stop = || for_thread.shutdown.is_cancelled();
        let now = for_thread.clock.wall();
        runtime.block_on(store.sweep_files(blobs, now, grace, &stop))
    })
    .await
}

/// The last one, as much of it as fits. Nothing may write any more but this.
pub(crate) async fn at_the_end(shared: &Arc<Shared>) {
    let is_late = Arc::new(AtomicBool::new(false));
    let (for_thread, late) = (Arc::clone(shared), Arc::clone(&is_late));
    let sweep = on_a_thread(move |runtime| {
        let Shared { store, blobs, .. } = &*for_thread;
        let stop = || late.load(Ordering::Relaxed);
        let now = for_thread.clock.wall();
        runtime.block_on(store.sweep_files(blobs, now, SWEEP_GRACE, &stop))
    });
    tokio::pin!(sweep);
    match tokio::time::timeout(LAST_SWEEP, &mut sweep).await {
        Ok(swept) => say(swept),
        Err(_) => {
            // It ends at its next step; the store is closed behind it.
            is_late.store(true, Ordering::Relaxed);
            say(sweep.await);
        }
    }
}

async fn deleted(shared: &Arc<Shared>) -> Result<Swept, StoreError> {
    let for_thread = Arc::clone(shared);
    on_a_thread(move |runtime| {
        let Shared { store, blobs, .. } = &*for_thread;
        runtime.block_on(store.sweep_deleted(blobs))
    })
    .await
}

async fn on_a_thread(
    work: impl FnOnce(Handle) -> Result<Swept, StoreError> + Send + 'static,
) -> Result<Swept, StoreError> {
    let runtime = Handle::current();
    let done = tokio::task::spawn_blocking(move || work(runtime)).await;
    done.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
}

fn say(swept: Result<Swept, StoreError>) {
    match swept {
        Ok(swept) if swept.blobs + swept.failed + swept.tombstones > 0 => {
            metrics::counter!("heddle_blobs_swept_total").increment(swept.blobs);
            tracing::info!(
                blobs = swept.blobs,
                bytes = swept.bytes,
                failed = swept.failed,
                tombstones = swept.tombstones,
                "took away bytes of deleted or replaced files, which no shared file names any more, and old marks"
            );
        }
        // What is stopped is swept by the next start.
        Ok(_) | Err(StoreError::Stopped) => {}
        Err(error) => tracing::warn!(%error, "the blobs could not be swept"),
    }
}
