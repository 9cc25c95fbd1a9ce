//! What the parts of a running daemon have in common.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use heddle_core::age::AgeClock;
use heddle_core::clock::{Clock, Ids, WallMs};
use heddle_core::error_code::ErrorCode;
use heddle_core::names::{AgentName, MeshName, nfc};
use heddle_store::{A_STEP_OF, Blobs, IS_CHANGED, Store, StoreError};
use heddle_wire::ipc::Finding;
use heddle_wire::problem::Problem;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::files::gone::Gone;
use crate::held;
use crate::hooks::Tokens;
use crate::inbox::damage::Damage;
use crate::link::Connector;
use crate::mesh::MeshState;
use crate::meshes::Meshes;
use crate::outbox::disk::Disk;
use crate::start_error::Fatal;
use crate::tasks::Activity;
use crate::upkeep::unreadable::Suspect;
use crate::upkeep::{CHANGED_NEXT, SENSELESS_NEXT, TASK_NEXT};
use crate::vectors::Embedder;

pub(crate) struct Shared {
    /// The home's folder.
    pub(crate) home: PathBuf,
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    /// A hint to the sweep that a file was deleted.
    pub(crate) file_deleted: Notify,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) meshes: Meshes,
    /// Whose home this is: a mailbox in each of its meshes.
    pub(crate) person: AgentName,
    /// This home's own broker, if it has one: it hosts further meshes.
    pub(crate) host: Option<Arc<dyn Connector>>,
    /// The tasks that keep them connected.
    pub(crate) links: Mutex<Vec<JoinHandle<()>>>,
    /// One mesh is joined at a time.
    pub(crate) joining: tokio::sync::Mutex<()>,
    pub(crate) max_age_hours_override: Option<u32>,
    /// How old everything here truly is; set at the start, before anything is sent.
    pub(crate) age: Mutex<Option<AgeClock>>,
    /// Meshes of the store that are not served on purpose.
    pub(crate) left: Vec<MeshName>,
    /// A mesh with more rows is published as one snapshot.
    pub(crate) snapshot_rows: u64,
    /// How long the start took; set once the doors are open.
    pub(crate) cold_start_ms: std::sync::OnceLock<u64>,
    /// The newest arrival in the inbox. A hint: the table is the truth.
    pub(crate) arrivals: watch::Sender<i64>,
    /// What happens beside the messages.
    pub(crate) events: Events,
    /// What running hooks may ask for.
    pub(crate) hook_tokens: Tokens,
    /// How long items stay in the inbox.
    pub(crate) inbox_retention: Duration,
    /// Files that were set aside because their inbox was damaged.
    pub(crate) parked: Vec<PathBuf>,
    /// Those, and the ones that a repair has replaced.
    pub(crate) old_files: Vec<PathBuf>,
    /// Messages that cannot be read any more.
    pub(crate) damage: Damage,
    /// What the doctor's last look at the files has found, with when; the files say it to nobody else.
    pub(crate) looked: Mutex<Option<(WallMs, Vec<Finding>)>>,
    /// Whether rows of the data cannot be read.
    pub(crate) unreadable: Suspect,
    /// Shared files whose bytes nobody has any more.
    pub(crate) gone: Gone,
    /// How full the disk is.
    pub(crate) disk: Disk,
    /// Who was active among those that hold tasks.
    pub(crate) tasks: Activity,
    /// Makes embeddings of texts.
    pub(crate) embedder: Embedder,
    /// Cancelled when the daemon is to stop.
    pub(crate) shutdown: CancellationToken,
    /// Why the daemon cannot go on, once it cannot.
    pub(crate) fatal: Mutex<Option<Fatal>>,
}

impl Shared {
    /// The mesh of that name, or the only one. Its id is a name for it in every home.
    pub(crate) fn mesh(&self, name: Option<&str>) -> Result<&Arc<MeshState>, Problem> {
        let found = match name {
            None => self.meshes.first(),
            Some(name) => {
                let spelled = nfc(name);
                let id = spelled.parse().ok();
                let mut meshes = self.meshes.iter();
                let named = meshes.find(|m| m.mesh.name.as_str() == spelled);
                named.or_else(|| self.meshes.iter().find(|m| Some(m.mesh.mesh) == id))
            }
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = self.meshes.iter().map(|m| m.mesh.name.as_str()).collect();
            Problem::new(
                ErrorCode::UnknownMesh,
                format!("no mesh here is called {:?}", name.unwrap_or_default()),
            )
            .with("candidates", names)
        })
    }

    /// Stops the daemon for a reason that its operator must hear.
    pub(crate) fn fail(&self, why: String) {
        tracing::error!(%why, "stopping");
        self.end(Fatal::Broken(why));
    }

    /// The same for a reason that the next start would meet again: `heddle status` says so.
    pub(crate) fn fail_until_changed(&self, why: Fatal) {
        tracing::error!(%why, starts_again = false, "stopping");
        self.end(why);
    }

    fn end(&self, why: Fatal) {
        lock(&self.fatal).get_or_insert(why);
        self.shutdown.cancel();
    }
}

/// The door's view of a failed write or read.
pub(crate) fn store_problem(error: &StoreError) -> Problem {
    let code = match error {
        StoreError::Busy => ErrorCode::DaemonBusy,
        StoreError::Stopped => ErrorCode::ShuttingDown,
        StoreError::DiskFull => ErrorCode::InsufficientStorage,
        StoreError::Poisoned(_) | StoreError::Held | StoreError::Unavailable(_) => {
            ErrorCode::StorageUnavailable
        }
        _ => ErrorCode::Internal,
    };
    let problem = Problem::new(code, error.to_string());
    match error {
        StoreError::Corrupt(why) if why.starts_with(A_STEP_OF) => problem.next(TASK_NEXT),
        StoreError::Corrupt(why) if why.contains(IS_CHANGED) => problem.next(CHANGED_NEXT),
        StoreError::Corrupt(_) => problem.next(SENSELESS_NEXT),
        StoreError::Held => problem.next(held::REFUSED_NEXT).with("held", "data.db"),
        _ => problem,
    }
}

/// A panic under a lock is caught per request; the data behind these locks is valid at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
