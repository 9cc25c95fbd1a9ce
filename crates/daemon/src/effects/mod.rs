//! The effects of this home: the authority over its own meshes (`effects.db`), the way to the authorities of
//! the meshes that it has joined, and who is running what here.
//!
//! A run is held by a lock file in `effects/`: the runner takes it before it starts, its command inherits
//! it, and the kernel gives it back when both are gone. A run that began, has not ended and is held by
//! nobody has an unknown outcome.

mod ask;
mod count;
mod desk;
mod desks;
mod policy_file;
mod steps;
mod story;
mod team;
mod view;
mod waiting;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use heddle_core::clock::{Clock, Ids};
use heddle_core::error_code::ErrorCode;
use heddle_core::fingerprint::hex;
use heddle_core::ids::MeshId;
use heddle_core::names::MemberName;
use heddle_registrar::RegistrarError;
use heddle_registrar::code::Code;
use heddle_registrar::storage::StorageError;
use heddle_registrar::storage::sqlite::Sqlite;
use heddle_wire::problem::Problem;

pub(crate) use ask::Scope;
pub use desk::Desk;
pub use desks::HomeDesks;
pub use policy_file::PolicyFile;
pub use team::{TeamCaller, TeamDesk};
pub(crate) use waiting::run;

use crate::home::{Home, create_private_folder, open_private};

/// The authority of a home: on a file of its own.
pub type HomeDesk = Desk<Sqlite>;

pub(crate) struct Effects {
    pub(crate) desks: Arc<HomeDesks>,
    mesh: MeshId,
    locks: PathBuf,
    /// What waits is told by one at a time, in its order.
    telling: tokio::sync::Mutex<()>,
    /// Something may wait for a broker. A hint: the table is the truth.
    may_wait: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
pub enum EffectsError {
    #[error("effects.db: {0}")]
    Registrar(#[from] RegistrarError),
    #[error("effects.db: {0}")]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Policy(#[from] policy_file::PolicyFileError),
    #[error(
        "effects.db is missing or empty, but effects/ is there: put effects.db back from a backup, or move effects/ away to begin anew; keys that were used before could then be used again"
    )]
    Lost,
    #[error("effects/: {0}")]
    Io(#[from] std::io::Error),
}

impl EffectsError {
    /// For a caller who finds the authority in this state.
    fn problem(&self) -> Problem {
        match self {
            Self::Storage(error) | Self::Registrar(RegistrarError::Storage(error)) => {
                storage_problem(error)
            }
            Self::Policy(error) => policy_problem(error),
            Self::Registrar(RegistrarError::NotFit(_)) | Self::Lost | Self::Io(_) => {
                Problem::new(ErrorCode::StorageUnavailable, self.to_string())
            }
        }
    }
}

/// What cannot be read allows nothing.
fn policy_problem(error: &policy_file::PolicyFileError) -> Problem {
    Problem::new(ErrorCode::ApprovalRefused, error.to_string())
        .next("Mend effects.toml and try again; nothing was decided, and no key was used.")
}

/// Opens the file, or makes it where none ever was: `mark` stands beside one that was in use.
fn open_file(file: &Path, mark: &Path) -> Result<Sqlite, EffectsError> {
    let is_there = std::fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0);
    if mark.exists() && !is_there {
        return Err(EffectsError::Lost);
    }
    Ok(Sqlite::open(file.to_owned())?)
}

impl Effects {
    /// Opens and checks the store; an unfit one ends the start.
    pub(crate) async fn open(
        home: &Home,
        (mesh, person): (MeshId, MemberName),
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, EffectsError> {
        let (file, locks) = (home.effects_data(), home.path().join("effects"));
        let policy = PolicyFile::new(home.path().join("effects.toml"));
        let storage = open_file(&file, &locks)?;
        let desks = HomeDesks::open(storage, policy, (clock, ids), (mesh, person)).await?;
        // After the file: from now on its loss is noticed.
        create_private_folder(&locks)?;
        Ok(Self {
            desks: Arc::new(desks),
            mesh,
            locks,
            telling: tokio::sync::Mutex::default(),
            may_wait: AtomicBool::new(true),
        })
    }

    fn storage(&self) -> &Sqlite {
        self.desks.home().storage()
    }

    /// Whether this home decides about the effects of this mesh.
    fn is_own(&self, mesh: MeshId) -> bool {
        self.desks.of(mesh).is_some()
    }

    /// The file whose lock the runner of this key in this mesh holds.
    fn lock(&self, mesh: MeshId, key: &str) -> PathBuf {
        use sha2::{Digest as _, Sha256};
        let mut digest = Sha256::new();
        if mesh != self.mesh {
            digest.update(mesh.0.to_bytes());
        }
        digest.update(key.as_bytes());
        let name = hex(&digest.finalize()[..16]);
        self.locks.join(format!("{name}.lock"))
    }

    /// Whether somebody holds the run of this key. An error means that nobody can know, and counts as
    /// held: nothing is run again on a guess.
    fn is_held(&self, mesh: MeshId, key: &str) -> bool {
        let path = self.lock(mesh, key);
        if !path.exists() {
            return false;
        }
        // The look's own lock is shared and gone at once; a runner tries more than once.
        let looked = open_private(&path).map(|file: File| file.try_lock_shared());
        !matches!(looked, Ok(Ok(())))
    }

    pub(crate) fn stop(&self) {
        self.storage().stop();
    }
}

/// The door's view of a store that failed.
fn storage_problem(error: &StorageError) -> Problem {
    let code = match error {
        StorageError::Busy => ErrorCode::DaemonBusy,
        StorageError::DiskFull => ErrorCode::InsufficientStorage,
        StorageError::Unavailable(_) | StorageError::Refused(_) | StorageError::Open(_) => {
            ErrorCode::StorageUnavailable
        }
        StorageError::Corrupt(_) => ErrorCode::Internal,
    };
    Problem::new(code, error.to_string()).next(
        "Ask `heddle effect status KEY` what became of it before anything else; the same call again is safe.",
    )
}

/// The door's view of a refusal.
fn refusal(code: Code, detail: String) -> Problem {
    let known = match code {
        Code::ReplayNonceConsumed => ErrorCode::ReplayNonceConsumed,
        Code::NonceUnbound => ErrorCode::NonceUnbound,
        Code::ReplayStaleRequest => ErrorCode::ReplayStaleRequest,
        Code::ReplayBindingMismatch => ErrorCode::ReplayBindingMismatch,
        Code::ApprovalNeeded => ErrorCode::ApprovalNeeded,
        Code::ApprovalRefused => ErrorCode::ApprovalRefused,
        Code::OutcomeUnknown => ErrorCode::EffectOutcomeUnknown,
        Code::NotFound => ErrorCode::EffectNotFound,
        Code::CallReused => ErrorCode::IdempotencyKeyReused,
        Code::ReplaySurfaceNotFit => ErrorCode::StorageUnavailable,
        // A prior result is no refusal; where it comes here all the same, the step was not possible.
        Code::StepRefused
        | Code::ReplayDuplicate
        | Code::ReplayAttemptNoBypass
        | Code::AttemptCollision => ErrorCode::EffectStepRefused,
    };
    Problem::new(known, detail)
}
