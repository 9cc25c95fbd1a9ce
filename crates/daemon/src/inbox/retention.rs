//! The hourly job that empties the inbox of what is old and was seen.

use std::sync::Arc;
use std::time::Duration;

use heddle_store::StoreError;

use crate::shared::Shared;

const EVERY: Duration = Duration::from_hours(1);
/// Between two steps of a run: others want the writer, too.
const BREATH: Duration = Duration::from_millis(20);

/// Runs at once and then every hour, until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    // How far this process has come; the run before it is of unknown age.
    let mut last_run = None;
    while !shared.shutdown.is_cancelled() {
        let now = shared.clock.mono();
        let elapsed = last_run.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        last_run = Some(now);
        match run_once(&shared, elapsed).await {
            Ok(0) => {}
            Ok(taken) => {
                metrics::counter!("heddle_inbox_pruned_total").increment(taken);
                tracing::info!(taken, "retention took old messages out of the inbox");
            }
            Err(error) => tracing::warn!(%error, "retention could not be carried out"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shared.shutdown.cancelled() => {}
        }
    }
}

async fn run_once(shared: &Shared, elapsed: Duration) -> Result<u64, StoreError> {
    let (store, now) = (&shared.store, shared.clock.wall());
    let cutoff = store
        .inbox_prune_begin(now, elapsed, shared.inbox_retention)
        .await?;
    let mut taken = 0;
    let mut from = 0;
    loop {
        let step = store.inbox_prune_step(cutoff, from).await?;
        taken += u64::try_from(step.taken).unwrap_or(u64::MAX);
        match step.next {
            Some(next) if !shared.shutdown.is_cancelled() => from = next,
            _ => return Ok(taken),
        }
        tokio::time::sleep(BREATH).await;
    }
}
