//! The authority of this home's own mesh: the registrar on `effects.db`, and who is running what.
//!
//! A run is held by a lock file in `effects/`: the runner takes it before it starts, its command inherits
//! it, and the kernel gives it back when both are gone. A run that began, has not ended and is held by
//! nobody has an unknown outcome.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_core::clock::{Clock, Ids};
use heddle_core::error_code::ErrorCode;
use heddle_core::fingerprint::hex;
use heddle_core::ids::MeshId;
use heddle_registrar::binding::LogicalKey;
use heddle_registrar::code::Code;
use heddle_registrar::policy::Policy;
use heddle_registrar::storage::StorageError;
use heddle_registrar::storage::sqlite::Sqlite;
use heddle_registrar::{Registrar, RegistrarError};
use heddle_wire::problem::Problem;

use crate::home::{Home, create_private_folder, open_private};

/// A policy file beyond this is not one.
const POLICY_BYTES_MAX: u64 = 1 << 20;

pub(crate) struct Effects {
    pub(crate) registrar: Registrar<Sqlite>,
    pub(crate) mesh: MeshId,
    locks: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum EffectsError {
    #[error("effects.db: {0}")]
    Registrar(#[from] RegistrarError),
    #[error("effects.db: {0}")]
    Storage(#[from] StorageError),
    #[error("{0}")]
    Policy(String),
    #[error(
        "effects.db is missing or empty, but effects/ is there: put effects.db back from a backup, or move effects/ away to begin anew; keys that were used before could then be used again"
    )]
    Lost,
    #[error("effects/: {0}")]
    Io(#[from] std::io::Error),
}

impl Effects {
    /// Opens and checks the store; an unfit one ends the start.
    pub(crate) async fn open(
        home: &Home,
        mesh: MeshId,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, EffectsError> {
        let (file, locks) = (home.effects_data(), home.path().join("effects"));
        let is_there = std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 0);
        if locks.exists() && !is_there {
            return Err(EffectsError::Lost);
        }
        let policy = read_policy(&home.path().join("effects.toml"))?;
        let storage = Sqlite::open(file)?;
        let registrar = Registrar::open(storage, clock, ids, policy, mesh).await?;
        // After the file: from now on its loss is noticed.
        create_private_folder(&locks)?;
        Ok(Self {
            registrar,
            mesh,
            locks,
        })
    }

    /// The file whose lock the runner of this key holds.
    pub(crate) fn lock(&self, key: &LogicalKey) -> PathBuf {
        use sha2::{Digest as _, Sha256};
        let name = hex(&Sha256::digest(key.as_str().as_bytes())[..16]);
        self.locks.join(format!("{name}.lock"))
    }

    /// Whether somebody holds the run of this key. An error means that nobody can know, and counts as
    /// held: nothing is run again on a guess.
    pub(crate) fn is_held(&self, key: &LogicalKey) -> bool {
        let path = self.lock(key);
        if !path.exists() {
            return false;
        }
        // The look's own lock is shared and gone at once; a runner tries more than once.
        let looked = open_private(&path).map(|file: File| file.try_lock_shared());
        !matches!(looked, Ok(Ok(())))
    }

    pub(crate) fn stop(&self) {
        self.registrar.storage().stop();
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

fn read_policy(path: &Path) -> Result<Policy, EffectsError> {
    let wrong = |why: String| EffectsError::Policy(format!("effects.toml: {why}"));
    match std::fs::metadata(path) {
        Err(error) if is_gone(&error) => return Ok(Policy::default()),
        Err(error) => return Err(wrong(error.to_string())),
        Ok(metadata) if metadata.len() > POLICY_BYTES_MAX => {
            return Err(wrong("the file is larger than 1 MB".to_owned()));
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Policy::parse(&text).map_err(|error| EffectsError::Policy(error.to_string()))
}

/// The door's view of a store that failed.
pub(crate) fn storage_problem(error: &StorageError) -> Problem {
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
pub(crate) fn refusal(code: Code, detail: String) -> Problem {
    let known = match code {
        Code::ReplayNonceConsumed => ErrorCode::ReplayNonceConsumed,
        Code::NonceUnbound => ErrorCode::NonceUnbound,
        Code::ReplayStaleRequest => ErrorCode::ReplayStaleRequest,
        Code::ReplayBindingMismatch => ErrorCode::ReplayBindingMismatch,
        Code::ApprovalNeeded => ErrorCode::ApprovalNeeded,
        Code::ApprovalRefused => ErrorCode::ApprovalRefused,
        Code::OutcomeUnknown => ErrorCode::EffectOutcomeUnknown,
        Code::NotFound => ErrorCode::EffectNotFound,
        Code::ReplaySurfaceNotFit => ErrorCode::StorageUnavailable,
        // A prior result is no refusal; where it comes here all the same, the step was not possible.
        Code::StepRefused
        | Code::ReplayDuplicate
        | Code::ReplayAttemptNoBypass
        | Code::AttemptCollision => ErrorCode::EffectStepRefused,
    };
    Problem::new(known, detail)
}
