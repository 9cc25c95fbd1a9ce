//! Rows that SQLite takes for whole and nobody can read: looked for once after a start, and told as long as they are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heddle_store::{LeftOut, StoreError};

use crate::shared::Shared;

/// Rows of each table that one look reads; `heddle doctor` reads all of them.
const ROWS_MAX: u64 = 20_000;
/// Behind the start, which has its own work to do.
const AFTER_START: Duration = Duration::from_secs(2);
/// Rows that one sentence names.
const NAMED_MAX: usize = 5;

/// Whether this process has met such a row. A hint: the tables are the truth, and are asked when somebody wants to know.
#[derive(Debug, Default)]
pub(crate) struct Suspect(AtomicBool);

impl Suspect {
    pub(crate) fn suspect(&self, is_there: bool) {
        if is_there {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// What a read went on without, for its answer.
    pub(crate) fn left_out(&self, left_out: &LeftOut) -> Vec<String> {
        let names = left_out.take();
        self.suspect(!names.is_empty());
        names
    }
}

/// One look, some time after the start.
pub(crate) async fn run(shared: Arc<Shared>) {
    tokio::select! {
        () = tokio::time::sleep(AFTER_START) => {}
        () = shared.shutdown.cancelled() => return,
    }
    match found(&shared).await {
        Ok(found) => shared.unreadable.suspect(!found.is_empty()),
        Err(error) => tracing::warn!(%error, "rows could not be looked at"),
    }
}

/// A sentence for the status; none where all is well, which costs nothing then.
pub(crate) async fn degraded(shared: &Shared) -> Option<String> {
    if !shared.unreadable.0.load(Ordering::Relaxed) {
        return None;
    }
    let found = match found(shared).await {
        Ok(found) => found,
        Err(error) => vec![error.to_string()],
    };
    if found.is_empty() {
        shared.unreadable.0.store(false, Ordering::Relaxed);
        return None;
    }
    let shown = found.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    let more = if found.len() > NAMED_MAX {
        " and more"
    } else {
        ""
    };
    Some(format!(
        "data.db holds what cannot be read: {}{more}; lists and searches go on without it. Writing or deleting that key mends it, and `heddle doctor` says more",
        shown.join(", ")
    ))
}

async fn found(shared: &Shared) -> Result<Vec<String>, StoreError> {
    let mut found = shared.store.model_problems().await?;
    found.extend(shared.store.spoilt(ROWS_MAX).await?);
    for mesh in &shared.meshes {
        let rows = shared.store.unreadable(mesh.mesh.mesh, ROWS_MAX).await?;
        found.extend(rows.iter().map(ToString::to_string));
    }
    Ok(found)
}
