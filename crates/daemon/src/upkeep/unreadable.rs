//! Rows that SQLite takes for whole and nobody can read: looked for after a start and now and then, and told as long as they are
//! there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heddle_store::{LeftOut, StoreError};

use crate::shared::Shared;

/// Rows of each table that one look reads; `heddle doctor` reads all of them.
const ROWS_MAX: u64 = 20_000;
/// Behind the start, which has its own work to do.
const AFTER_START: Duration = Duration::from_secs(2);
/// Nobody meets a row that stands under no mesh any more: only a look finds it.
const AGAIN: Duration = Duration::from_secs(60 * 60);
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

/// A look some time after the start, and one an hour from then on.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut wait = AFTER_START;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.shutdown.cancelled() => return,
        }
        match found(&shared).await {
            Ok(found) => shared.unreadable.suspect(!found.is_empty()),
            Err(error) => tracing::warn!(%error, "rows could not be looked at"),
        }
        wait = AGAIN;
    }
}

/// A sentence for the status; none where all is well, which costs nothing then.
pub(crate) async fn degraded(shared: &Shared) -> Option<String> {
    shared.unreadable.suspect(shared.store.take_met_damage());
    if !shared.unreadable.0.load(Ordering::Relaxed) {
        return None;
    }
    let found = found(shared).await.unwrap_or_else(|error| Found {
        models: Vec::new(),
        rows: vec![error.to_string()],
        strays: Vec::new(),
        ahead: Vec::new(),
    });
    if found.is_empty() {
        shared.unreadable.0.store(false, Ordering::Relaxed);
        return None;
    }
    Some(found.in_words())
}

/// What cannot be read, by what helps against it.
struct Found {
    /// Models whose row or table is not theirs: no vector of theirs is read or written before a repair.
    models: Vec<String>,
    rows: Vec<String>,
    /// Rows that stand under no mesh of this home.
    strays: Vec<String>,
    /// Stamps and clocks that cannot be right: only a repair helps.
    ahead: Vec<String>,
}

impl Found {
    fn is_empty(&self) -> bool {
        let all = [&self.models, &self.rows, &self.strays, &self.ahead];
        all.into_iter().all(Vec::is_empty)
    }

    fn in_words(&self) -> String {
        let (all, what_helps) = if !self.ahead.is_empty() {
            (
                &self.ahead,
                "nothing that is written there would count. `heddle down`, then `heddle doctor --repair` mends it",
            )
        } else if self.models.is_empty() && self.rows.is_empty() {
            (
                &self.strays,
                "it stands under no mesh of this home, so that nothing finds it. `heddle down`, then `heddle doctor --repair` takes it out, brings it back from the others of a shared mesh and keeps the file",
            )
        } else if self.models.is_empty() {
            (
                &self.rows,
                "lists and searches go on without it. Writing or deleting that key mends it, and `heddle doctor` says more",
            )
        } else {
            // Its vectors cannot be read either; they are as whole as before when it is mended.
            (
                &self.models,
                "vectors of that model are neither found nor stored, everything else goes on. `heddle down`, then `heddle doctor --repair` mends it",
            )
        };
        let shown = all.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
        let more = if all.len() > NAMED_MAX {
            " and more"
        } else {
            ""
        };
        format!(
            "data.db holds what cannot be read: {}{more}; {what_helps}",
            shown.join(", ")
        )
    }
}

async fn found(shared: &Shared) -> Result<Found, StoreError> {
    let models = shared.store.model_problems().await?;
    let mut rows = shared.store.spoilt(ROWS_MAX).await?;
    let mut ahead = shared.store.clock_problems().await?;
    for mesh in &shared.meshes {
        let unread = shared.store.unreadable(mesh.mesh.mesh, ROWS_MAX).await?;
        let (beyond, bad): (Vec<_>, Vec<_>) = unread.iter().partition(|row| row.is_ahead());
        ahead.extend(beyond.iter().map(ToString::to_string));
        rows.extend(bad.iter().map(ToString::to_string));
    }
    let strays = shared.store.strays().await?;
    Ok(Found {
        models,
        rows,
        strays: strays.iter().map(ToString::to_string).collect(),
        ahead,
    })
}
