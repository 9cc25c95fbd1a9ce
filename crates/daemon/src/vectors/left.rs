//! The job that takes away the tables of models that were left, long after anybody asked for them.

use std::sync::Arc;
use std::time::Duration;

use crate::shared::Shared;

const EVERY: Duration = Duration::from_hours(6);

/// Runs at once and then every few hours, until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.shutdown.is_cancelled() {
        let now = shared.clock.wall();
        match shared.store.drop_left_vector_tables(now).await {
            Ok(0) => {}
            Ok(dropped) => tracing::info!(dropped, "tables of models that were left are gone"),
            Err(error) => tracing::warn!(%error, "tables of left models could not be looked at"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shared.shutdown.cancelled() => {}
        }
    }
}
