//! Keeps a session's lease alive as long as its peer shows signs of life.

use std::sync::Arc;

use heddle_core::limits::SESSION_LEASE;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::hub::Session;
use crate::limiter::Limiter;
use crate::storage::{LeaseMs, Storage};

/// Until when a session that shows life now counts as present.
pub(super) fn until<S, L>(shared: &Shared<S, L>) -> LeaseMs {
    let ms = u64::try_from(SESSION_LEASE.as_millis()).unwrap_or(u64::MAX);
    shared.lease.now().after(ms)
}

/// Runs until `stop`. A silent peer is not renewed; the reader ends it at its deadline.
pub(super) async fn run<S: Storage, L: Limiter>(
    shared: Arc<Shared<S, L>>,
    session: Arc<Session>,
    stop: CancellationToken,
) {
    let _ = stop
        .run_until_cancelled(async {
            loop {
                sleep(shared.config.ping_interval).await;
                if session.was_heard() {
                    renew(&shared, &session).await;
                }
            }
        })
        .await;
}

async fn renew<S: Storage, L: Limiter>(shared: &Shared<S, L>, session: &Session) {
    let (mesh, member, generation) = (session.mesh, session.member, session.generation);
    let storage = shared.storage();
    let renewed = storage.renew_session(mesh, member, generation, until(shared));
    match renewed.await {
        Ok(true) => {}
        // Its lease had run out while this process slept; the connection lives all the same.
        Ok(false) => tracing::debug!(%member, generation, "a live session has no lease"),
        // The lease runs for two more rounds.
        Err(error) => tracing::warn!(%error, "a session could not be renewed"),
    }
}
