//! Rows that SQLite takes for whole and nobody can read, that are gone as a whole, or that were never sent: looked for after a start
//! and now and then, and told as long as it is so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heddle_store::{LeftOut, StoreError};
use tokio::sync::Notify;

use crate::open_store::home_name;
use crate::shared::Shared;

/// Rows of each table that a status reads where it is known that something is wrong; the look of its own reads all of them, as
/// `heddle doctor` does.
const ROWS_MAX: u64 = 2_000;
/// Rows of each table that are read in one go, and not in pieces: a snapshot that stays long keeps the log from ending.
const AT_ONCE_MAX: u64 = 20_000;
/// Behind the start, which has its own work to do.
const AFTER_START: Duration = Duration::from_secs(2);
/// A disk changes rows while nobody asks for them: only a look finds those.
const AGAIN: Duration = Duration::from_secs(10 * 60);
/// A look that takes long comes seldom: it may take one part in so many of the time.
const SHARE: u32 = 200;
/// Rows that one sentence names.
const NAMED_MAX: usize = 5;

/// What this process knows of such rows.
#[derive(Debug, Default)]
pub(crate) struct Suspect {
    /// Somebody has met one. A hint: the tables are the truth, and are asked when somebody wants to know.
    is_met: AtomicBool,
    /// What the last look at everything found, in words.
    seen: Mutex<Option<String>>,
    /// Somebody has told of what was seen: it may have been mended since.
    look: Notify,
}

impl Suspect {
    pub(crate) fn suspect(&self, is_there: bool) {
        if is_there {
            self.is_met.store(true, Ordering::Relaxed);
        }
    }

    /// What a read went on without, for its answer.
    pub(crate) fn left_out(&self, left_out: &LeftOut) -> Vec<String> {
        let names = left_out.take();
        self.suspect(!names.is_empty());
        names
    }

    fn seen(&self) -> MutexGuard<'_, Option<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look at everything some time after the start, and now and then from then on.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut wait = AFTER_START;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.unreadable.look.notified() => {}
            () = shared.shutdown.cancelled() => return,
        }
        let started = shared.clock.mono();
        match found(&shared, u64::MAX).await {
            Ok(found) => {
                let is_there = !found.is_empty();
                shared.unreadable.suspect(is_there);
                *shared.unreadable.seen() = is_there.then(|| found.in_words());
            }
            Err(error) => tracing::warn!(%error, "rows could not be looked at"),
        }
        let took = shared.clock.mono().saturating_sub(started);
        wait = AGAIN.max(took.saturating_mul(SHARE));
    }
}

/// A sentence for the status; none where all is well, which costs nothing then.
pub(crate) async fn degraded(shared: &Shared) -> Option<String> {
    let suspect = &shared.unreadable;
    suspect.suspect(shared.store.take_met_damage());
    if !suspect.is_met.load(Ordering::Relaxed) {
        return None;
    }
    let found = found(shared, ROWS_MAX).await.unwrap_or_else(|error| Found {
        rows: vec![error.to_string()],
        ..Found::default()
    });
    if !found.is_empty() {
        return Some(found.in_words());
    }
    // Not among the first: then as it was last seen, until another look has seen that it is mended.
    let seen = suspect.seen().clone();
    if seen.is_some() {
        suspect.look.notify_one();
    } else {
        suspect.is_met.store(false, Ordering::Relaxed);
    }
    seen
}

/// What cannot be read, by what helps against it.
#[derive(Default)]
struct Found {
    /// Meshes whose row is lost: nothing that stands under them is served by the next start.
    meshes: Vec<String>,
    /// Models whose row or table is not theirs: no vector of theirs is read or written before a repair.
    models: Vec<String>,
    /// Models whose row is lost: nobody knows what they were called.
    nameless: Vec<String>,
    rows: Vec<String>,
    /// Rows that stand under no mesh of this home.
    strays: Vec<String>,
    /// Stamps and clocks that cannot be right: only a repair helps.
    ahead: Vec<String>,
    /// Changes of this home whose rows of the outbox are gone.
    unsent: Vec<String>,
    /// Rows of the data that must be there and are not.
    missing: Vec<String>,
    /// Rows that are gone from the outbox.
    outbox_gone: u64,
}

impl Found {
    fn is_empty(&self) -> bool {
        let all = [
            &self.meshes,
            &self.models,
            &self.nameless,
            &self.rows,
            &self.strays,
            &self.ahead,
            &self.unsent,
            &self.missing,
        ];
        all.into_iter().all(Vec::is_empty) && self.outbox_gone == 0
    }

    fn in_words(&self) -> String {
        let mut says = Vec::from_iter(self.unread());
        if !self.unsent.is_empty() {
            says.push(format!(
                "changes of this home were never sent to the others, and their rows of the outbox are gone: {}. `heddle down`, then `heddle doctor --repair` sends them",
                shown(&self.unsent)
            ));
        }
        if !self.missing.is_empty() {
            says.push(format!(
                "rows are gone from data.db: {}. In a shared mesh `heddle doctor --resume-sync MESH` brings back what its log has; `heddle down`, then `heddle doctor --repair` brings back what the outbox or a log has, and names the rest once",
                shown(&self.missing)
            ));
        }
        if self.outbox_gone > 0 {
            says.push(format!(
                "{} rows are gone from the outbox, and what they carried may not have been sent. `heddle down`, then `heddle doctor --repair` sends what the data still holds of it, and says what else helps",
                self.outbox_gone
            ));
        }
        says.join("; ")
    }

    /// Of what is there and cannot be read.
    fn unread(&self) -> Option<String> {
        let there = [
            &self.meshes,
            &self.models,
            &self.nameless,
            &self.rows,
            &self.strays,
            &self.ahead,
        ];
        if there.into_iter().all(Vec::is_empty) {
            return None;
        }
        let (all, what_helps) = if !self.meshes.is_empty() {
            (
                &self.meshes,
                "nothing finds those rows. `heddle down`, then `heddle doctor --repair` puts back what can be put back and keeps the file",
            )
        } else if !self.ahead.is_empty() {
            (
                &self.ahead,
                "nothing that is written there would count. `heddle down`, then `heddle doctor --repair` mends it",
            )
        } else if self.models.is_empty() && self.rows.is_empty() && self.strays.is_empty() {
            (
                &self.nameless,
                "they are listed, searched and deleted as before. A search or a store with that model named in full brings its name back; `heddle advanced re-embed --from MODEL --to ANOTHER` moves them",
            )
        } else if self.models.is_empty() && self.rows.is_empty() {
            (
                &self.strays,
                "it stands under no mesh of this home, so that nothing finds it. `heddle down`, then `heddle doctor --repair` takes it out, brings it back from the others of a shared mesh and keeps the file",
            )
        } else if self.models.is_empty() {
            (
                &self.rows,
                "lists and searches go on without it. Writing or deleting that key mends it; a task is mended by its next step, or by `heddle doctor --repair` after `heddle down`; `heddle doctor` says more",
            )
        } else {
            // Its vectors cannot be read either; they are as whole as before when it is mended.
            (
                &self.models,
                "vectors of that model are neither found nor stored, but listed and deleted; everything else goes on. `heddle down`, then `heddle doctor --repair` mends it; it takes along every vector whose numbers are there",
            )
        };
        Some(format!(
            "data.db holds what cannot be read: {}; {what_helps}",
            shown(all)
        ))
    }
}

/// The first of them.
fn shown(all: &[String]) -> String {
    let first = all.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    let more = if all.len() > NAMED_MAX {
        " and more"
    } else {
        ""
    };
    format!("{}{more}", first.join(", "))
}

/// What is wrong among the first `rows_max` rows of each table.
async fn found(shared: &Shared, rows_max: u64) -> Result<Found, StoreError> {
    let is_all = rows_max > ROWS_MAX;
    let meshes = shared.store.lost_meshes(home_name()?, is_all).await?;
    let models = shared.store.model_problems().await?;
    let nameless = shared.store.nameless_models().await?;
    let mut rows = shared.store.spoilt(rows_max.min(AT_ONCE_MAX)).await?;
    let mut ahead = shared.store.clock_problems().await?;
    let (mut unsent, mut missing) = (Vec::new(), Vec::new());
    for mesh in &shared.meshes {
        let unread = shared.store.look_through(mesh.mesh.mesh, rows_max).await?;
        unsent.extend(unread.unsent.iter().map(ToString::to_string));
        missing.extend(shared.store.missing(mesh.mesh.mesh, rows_max).await?);
        let bad = unread.bad.iter();
        let (beyond, bad): (Vec<_>, Vec<_>) = bad.partition(|row| row.is_ahead());
        ahead.extend(beyond.iter().map(ToString::to_string));
        rows.extend(bad.iter().map(ToString::to_string));
    }
    let strays = shared.store.strays().await?;
    // All of it is counted by the look of its own only.
    let outbox_gone = if is_all {
        shared.store.outbox_gone().await?
    } else {
        shared.store.outbox_gone_known()
    };
    Ok(Found {
        meshes,
        models,
        nameless,
        rows,
        strays: strays.iter().map(ToString::to_string).collect(),
        ahead,
        unsent,
        missing,
        outbox_gone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type List = fn(&mut Found) -> &mut Vec<String>;

    #[test]
    fn whatever_is_found_alone_is_named_with_what_helps() {
        let lists: [List; 8] = [
            |found| &mut found.meshes,
            |found| &mut found.models,
            |found| &mut found.nameless,
            |found| &mut found.rows,
            |found| &mut found.strays,
            |found| &mut found.ahead,
            |found| &mut found.unsent,
            |found| &mut found.missing,
        ];
        for (number, list) in lists.into_iter().enumerate() {
            let mut found = Found::default();
            assert!(found.is_empty());
            list(&mut found).push("state \"k\"".to_owned());
            let said = found.in_words();
            assert!(!found.is_empty());
            assert!(said.contains("state \"k\""), "{number}: {said:?}");
            assert!(said.contains("`heddle "), "{number}: {said:?}");
        }
    }
}
