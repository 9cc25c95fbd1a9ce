//! Keeps the search index behind the receive, out of its way.

use std::sync::Arc;
use std::time::Duration;

use heddle_store::StoreError;

use super::damage::readable;
use crate::shared::Shared;

/// Messages come in bursts: a chunk waits this long for the burst to pass, so that under load the
/// index takes a few percent of the writer's time and no more.
const SETTLE: Duration = Duration::from_millis(250);

/// The text of a message; nothing where it cannot be read (C30).
pub(crate) fn body_of(envelope: &[u8]) -> Option<String> {
    Some(readable(envelope, None)?.body)
}

/// Runs until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut hint = shared.arrivals.subscribe();
    while !shared.shutdown.is_cancelled() {
        hint.mark_unchanged();
        match catch_up(&shared, 1).await {
            Ok(false) => {
                // There is more. If more comes in all the time, take it slowly.
                if hint.has_changed().unwrap_or(false) {
                    pause(&shared, SETTLE).await;
                }
                continue;
            }
            Ok(true) => {}
            // Searching catches up by itself, and says what is wrong.
            Err(error) => {
                tracing::warn!(%error, "the search index could not be brought up to date");
            }
        }
        tokio::select! {
            _ = hint.changed() => pause(&shared, SETTLE).await,
            () = shared.shutdown.cancelled() => return,
        }
    }
}

/// Indexes at most so many chunks; true when nothing is left to index.
pub(crate) async fn catch_up(shared: &Shared, chunks_max: usize) -> Result<bool, StoreError> {
    for _ in 0..chunks_max {
        if shared.store.inbox_index_chunk(body_of).await? == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn pause(shared: &Shared, how_long: Duration) {
    tokio::select! {
        () = tokio::time::sleep(how_long) => {}
        () = shared.shutdown.cancelled() => {}
    }
}
