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
                session.forget_idle_words();
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
        Ok(false) => unleased(shared, session).await,
        // The lease runs for two more rounds.
        Err(error) => tracing::warn!(%error, "a session could not be renewed"),
    }
}

/// Its lease had run out while this process slept, and the connection lives all the same; or its member was shut
/// out or blocked, and the hint that says so was lost (T-30).
async fn unleased<S: Storage, L: Limiter>(shared: &Shared<S, L>, session: &Session) {
    let (mesh, member, generation) = (session.mesh, session.member, session.generation);
    let looked = shared.storage().credentials(mesh, member).await;
    let standing = looked.ok().and_then(|credentials| credentials.standing);
    match standing.and_then(|standing| standing.bar()) {
        Some(bar) => session.cut(bar),
        None => tracing::debug!(%member, generation, "a live session has no lease"),
    }
}
