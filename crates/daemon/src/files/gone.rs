//! Large files whose bytes are gone from this home, or are other ones, and that nobody else has: met by a read or by a look at
//! the folder, shown in the list and told by the status until somebody shares them again or deletes them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::file::ContentHash;
use heddle_store::{Blobs, StoreError};
use tokio::runtime::Handle;

use crate::shared::{Shared, lock};

/// What is remembered; more of them are told by the doctor.
const GONE_MAX: usize = 100;
/// Paths that one sentence names.
const NAMED_MAX: usize = 5;
/// Behind the start, which has its own work to do.
const AFTER_START: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(10 * 60);
/// A look that takes long comes seldom: it may take one part in so many of the time.
const SHARE: u32 = 200;

/// What lay there when it was met; `None` where nothing did.
type Stamp = Option<(u64, i64, i64)>;

#[derive(Debug, Default)]
pub(crate) struct Gone {
    met: Mutex<BTreeMap<[u8; 32], Stamp>>,
}

impl Gone {
    pub(crate) fn note(&self, blobs: &Blobs, hash: ContentHash) {
        let stamp = blobs.stamp(hash);
        let mut met = lock(&self.met);
        if met.len() < GONE_MAX {
            met.insert(hash.0, stamp);
        }
    }

    /// Whether it was met and nobody has put anything in its place. Looks at the folder for those that were met alone.
    pub(crate) fn is(&self, blobs: &Blobs, hash: ContentHash) -> bool {
        let met = lock(&self.met).get(&hash.0).copied();
        let is_still = met.map(|stamp| blobs.stamp(hash) == stamp);
        if is_still == Some(false) {
            lock(&self.met).remove(&hash.0);
        }
        is_still == Some(true)
    }
}

/// A look at the names and lengths of all blobs some time after the start, and now and then from then on.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut wait = AFTER_START;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.shutdown.cancelled() => return,
        }
        let started = shared.clock.mono();
        match look(&shared).await {
            Ok(gone) => {
                for (hash, _) in gone {
                    shared.gone.note(&shared.blobs, hash);
                }
            }
            Err(error) => tracing::warn!(%error, "the blobs could not be looked at"),
        }
        let took = shared.clock.mono().saturating_sub(started);
        wait = AGAIN.max(took.saturating_mul(SHARE));
    }
}

/// On a thread that may wait for a disk.
async fn look(shared: &Arc<Shared>) -> Result<Vec<(ContentHash, u64)>, StoreError> {
    let (for_thread, runtime) = (Arc::clone(shared), Handle::current());
    let looking = tokio::task::spawn_blocking(move || {
        let Shared { store, blobs, .. } = &*for_thread;
        let stop = || for_thread.shutdown.is_cancelled();
        runtime.block_on(store.look_for_lost(blobs, &stop))
    });
    let looked = looking.await;
    looked.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
}

/// A sentence for the status; none where all is well, which costs nothing then.
pub(crate) async fn degraded(shared: &Shared) -> Option<String> {
    let met: Vec<[u8; 32]> = lock(&shared.gone.met).keys().copied().collect();
    let mut paths = Vec::new();
    for hash in met.into_iter().map(ContentHash) {
        if !shared.gone.is(&shared.blobs, hash) {
            continue;
        }
        match shared.store.path_of_blob(hash).await {
            Ok(Some(path)) => paths.push(format!("{path:?}")),
            // It is shared no more.
            Ok(None) => drop(lock(&shared.gone.met).remove(&hash.0)),
            Err(_) => {}
        }
    }
    let more = if paths.len() > NAMED_MAX {
        " and more"
    } else {
        ""
    };
    paths.truncate(NAMED_MAX);
    (!paths.is_empty()).then(|| {
        format!(
            "the bytes of shared files are gone from the folder blobs, or are not what was shared, and nobody else has them: {}{more}; share the file again (`heddle file share FILE`) or delete it (`heddle file delete PATH`)",
            paths.join(", ")
        )
    })
}
