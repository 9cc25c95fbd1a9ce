//! The effects of this home: the authority over its own meshes (`effects.db`), the way to the authorities of
//! the meshes that it has joined, and who is running what here.
//!
//! A run is held by a lock file in `effects/`: the runner takes it before it starts, its command inherits
//! it, and the kernel gives it back when both are gone. A run that began, has not ended, is held by nobody and of
//! which no process lives has an unknown outcome.

mod alive;
mod approvers;
mod ask;
mod attempts;
mod count;
mod desk;
mod desks;
mod differs;
mod end_file;
mod ended;
mod ends;
mod hand_over;
mod high_water;
mod keep;
mod looks;
mod mark;
mod named;
mod pages;
mod policy_file;
mod said;
mod steps;
mod story;
mod team;
mod used;
mod view;
mod waiting;
mod witness;
mod words;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use heddle_core::clock::{Clock, Ids};
use heddle_core::error_code::ErrorCode;
use heddle_core::fingerprint::hex;
use heddle_core::ids::MeshId;
use heddle_core::names::{AgentName, MemberName};
use heddle_core::shell::quoted;
use heddle_registrar::RegistrarError;
use heddle_registrar::code::Code;
use heddle_registrar::storage::sqlite::Sqlite;
use heddle_registrar::storage::{Storage as _, StorageError};
use heddle_store::{Store, StoreError};
use heddle_wire::problem::Problem;

use alive::Holder;
pub use alive::{PROCESS, RUNNER, process_mark};
pub(crate) use ask::{Scope, is_passing};
pub use desk::Desk;
pub use desks::HomeDesks;
pub use end_file::{END, end_text};
use ends::Unread;
use high_water::HighWater;
pub(crate) use high_water::OLDER_NEXT;
use looks::Looks;
pub(crate) use mark::older;
pub use policy_file::PolicyFile;
pub use team::{TeamCaller, TeamDesk};
use used::Used;
pub(crate) use waiting::run;
use witness::Witness;

use crate::home::{Home, create_private_folder, open_private};
use crate::shared::lock;
use crate::standing::Wrong;
use crate::upkeep::look_effects;

/// The authority of a home: on a file of its own.
pub type HomeDesk = Desk<Sqlite>;

pub(crate) struct Effects {
    pub(crate) desks: Arc<HomeDesks>,
    mesh: MeshId,
    locks: PathBuf,
    speaks: Speaks,
    /// What waits is told by one at a time, in its order.
    telling: tokio::sync::Mutex<()>,
    /// Something may wait for a broker. A hint: the table is the truth.
    may_wait: AtomicBool,
    /// A runner may have left the end of its command in `effects/`. A hint, too.
    may_end: AtomicBool,
    /// Those among them that cannot be read.
    unread: Unread,
    /// One at a time hands over what was decided about a mesh that has moved.
    handing: tokio::sync::Mutex<()>,
    /// Meshes that have moved, and whose broker has all that was decided here.
    handed: Mutex<HashSet<MeshId>>,
    /// Meshes at a broker that does not know them as moved from here.
    not_ours: Mutex<HashSet<MeshId>>,
    witness: Witness,
    /// Questions to brokers that many ask at once.
    looks: Looks,
    /// What the brokers of other meshes said that decide about no effect now.
    undecided: Mutex<HashMap<MeshId, String>>,
    /// Effects of this home's store that are not as they were written, as the start has found.
    changed: Mutex<Vec<String>>,
}

/// Who speaks in this home.
#[derive(Debug, Clone)]
pub(crate) struct Speaks {
    /// Its person, by the name of its mailbox.
    pub(crate) person: AgentName,
    /// Callers that name nobody.
    pub(crate) default: AgentName,
}

#[derive(Debug, thiserror::Error)]
pub enum EffectsError {
    #[error(transparent)]
    Registrar(#[from] RegistrarError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// One of the two above, and which store it is about.
    #[error("{place}: {source}")]
    At { place: String, source: Box<Self> },
    #[error(transparent)]
    Policy(#[from] policy_file::PolicyFileError),
    #[error("effects.db is missing or empty, but it was in use. {LOST_NEXT}")]
    Lost,
    #[error("data.db: {0}")]
    Store(#[from] StoreError),
    #[error("effects/: {0}")]
    Io(#[from] std::io::Error),
}

impl EffectsError {
    /// With the name of the store that it is about.
    fn at(self, place: &str) -> Self {
        match self {
            Self::Registrar(_) | Self::Storage(_) => Self::At {
                place: place.to_owned(),
                source: Box::new(self),
            },
            other => other,
        }
    }

    /// The schema of a file that a newer Heddle has written.
    pub fn newer(&self) -> Option<u32> {
        match self {
            Self::At { source, .. } => source.newer(),
            Self::Storage(StorageError::Newer { found, .. }) => Some(*found),
            _ => None,
        }
    }

    /// For a caller who finds the authority in this state.
    fn problem(&self) -> Problem {
        match self {
            Self::At { source, .. } => source.problem(),
            Self::Storage(error) | Self::Registrar(RegistrarError::Storage(error)) => {
                storage_problem(error)
            }
            Self::Policy(error) => policy_problem(error),
            Self::Registrar(RegistrarError::NotFit(_))
            | Self::Lost
            | Self::Io(_)
            | Self::Store(_) => Problem::new(ErrorCode::StorageUnavailable, self.to_string()),
        }
    }
}

/// What cannot be read allows nothing.
fn policy_problem(error: &policy_file::PolicyFileError) -> Problem {
    Problem::new(ErrorCode::ApprovalRefused, error.to_string())
        .next("Mend effects.toml and try again; nothing was decided, and no key was used.")
}

/// The file of a home, or of a broker without a database.
const NAME: &str = "effects.db";
/// A person's word that what was decided before is given up: an empty file of this name.
pub(crate) const ANEW: &str = "effects-begin-anew";
/// What to do about a file that was lost.
pub(crate) const LOST_NEXT: &str = "Put effects.db back from a copy of the stopped home. Or begin anew: make an empty file effects-begin-anew beside it and start; keys that were used before can then be used again.";

/// Opens the file in this folder, or makes it where none ever was: `effects/` stands beside one that was in use.
/// With it, whether it begins anew by a person's word.
fn open_file(folder: &Path, was_used: bool) -> Result<(Sqlite, bool), EffectsError> {
    let file = folder.join("effects.db");
    let is_there = std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 0);
    let is_lost = !is_there && (was_used || folder.join("effects").exists());
    if is_lost && !folder.join(ANEW).exists() {
        return Err(EffectsError::Lost);
    }
    if is_lost {
        tracing::warn!(
            "effects.db begins anew by a person's word; what was decided before is not known any more"
        );
    }
    let opened = Sqlite::open(file).map_err(EffectsError::from);
    Ok((opened.map_err(|error| error.at(NAME))?, is_lost))
}

/// A word counts once.
fn begun_anew(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(folder.join(ANEW)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Effects {
    /// Opens and checks the store; an unfit one ends the start.
    pub(crate) async fn open(
        home: &Home,
        (mesh, person): (MeshId, MemberName),
        (speaks, store): (Speaks, Store),
        (clock, ids): (Arc<dyn Clock>, Arc<dyn Ids>),
    ) -> Result<Self, EffectsError> {
        let locks = home.path().join("effects");
        let policy = PolicyFile::new(home.path().join("effects.toml"));
        let was_used = store.effects_used().await?.is_some();
        let (storage, is_anew) = open_file(home.path(), was_used)?;
        if is_anew {
            store.forget_effects().await?;
        }
        let anew = (is_anew, &ids);
        let high = HighWater::open(home.path(), Some(store.clone()), (&storage, NAME), anew);
        let high = Arc::new(high.await?);
        let used = Used::new(store, was_used && !is_anew);
        let files = (storage.clone(), policy, (used, Arc::clone(&high)));
        let desks = HomeDesks::open(files, (clock, Arc::clone(&ids)), (mesh, person)).await;
        let desks = desks.map_err(|error| error.at(NAME))?;
        high.seal(&storage, ids.as_ref()).await;
        // After the file: from now on its loss is noticed.
        create_private_folder(&locks)?;
        begun_anew(home.path())?;
        Ok(Self {
            desks: Arc::new(desks),
            mesh,
            witness: Witness::new(&locks),
            looks: Looks::default(),
            locks,
            speaks,
            telling: tokio::sync::Mutex::default(),
            may_wait: AtomicBool::new(true),
            may_end: AtomicBool::new(true),
            unread: Unread::default(),
            handing: tokio::sync::Mutex::default(),
            handed: Mutex::default(),
            not_ours: Mutex::default(),
            changed: Mutex::default(),
            undecided: Mutex::default(),
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

    /// Whether the run of this key by this attempt is somebody's: a runner or a command has its lock, or what was
    /// started lives without it.
    async fn is_held(&self, mesh: MeshId, key: &str, attempt: Option<&str>) -> bool {
        let note = self.lock(mesh, key).with_extension(PROCESS);
        if self.is_locked(mesh, key) || alive::is_noted(&note) {
            return true;
        }
        match attempt {
            Some(attempt) => alive::has_heirs(attempt).await,
            None => false,
        }
    }

    /// Whether the runner is known to be gone: what has its lock now was left behind by the command.
    fn is_runner_gone(&self, mesh: MeshId, key: &str) -> bool {
        alive::is_gone(&self.lock(mesh, key).with_extension(RUNNER))
    }

    /// What is known of a run that somebody holds.
    fn holder(&self, mesh: MeshId, key: &str) -> Holder {
        let command = self.lock(mesh, key).with_extension(PROCESS);
        if !self.is_runner_gone(mesh, key) || alive::is_noted(&command) {
            return Holder::Run;
        }
        if command.exists() {
            Holder::LeftBehind
        } else {
            Holder::Unknown
        }
    }

    /// Takes the lock away from what was left behind, which has inherited it and never gives it back: the next one makes
    /// the file anew.
    fn free(&self, mesh: MeshId, key: &str) {
        let lock = self.lock(mesh, key);
        let notes = [PROCESS, RUNNER].map(|note| lock.with_extension(note));
        for path in notes.iter().chain([&lock]) {
            if let Err(error) = std::fs::remove_file(path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "a lock that nobody gives back is still there");
            }
        }
    }

    /// An error means that nobody can know, and counts as held: nothing is run again on a guess.
    fn is_locked(&self, mesh: MeshId, key: &str) -> bool {
        let path = self.lock(mesh, key);
        if !path.exists() {
            return false;
        }
        // The look's own lock is shared and gone at once; a runner tries more than once.
        let looked = open_private(&path).map(|file: File| file.try_lock_shared());
        !matches!(looked, Ok(Ok(())))
    }

    /// What people have to know who ask how the home is; under the names that the doctor has for it.
    pub(crate) fn wrong(&self) -> Vec<Wrong> {
        let mut all = self.desks.wrong();
        let undecided: Vec<String> = lock(&self.undecided).values().cloned().collect();
        let other = self.unread.trouble().into_iter().chain(undecided);
        all.extend(other.map(|says| Wrong::new("effects", says, "")));
        let changed = lock(&self.changed);
        let changed = changed.iter().map(|one| format!("{NAME}: {one}"));
        all.extend(changed.map(|says| Wrong::new(look_effects::KEPT, says, "")));
        all
    }

    /// Whether another process keeps this home from deciding about effects.
    pub(crate) async fn is_store_held(&self) -> bool {
        self.storage().is_held().await
    }

    /// Looks once whether every effect is as it was written; what is not is told until the next start.
    async fn look_kept(&self) {
        match self.storage().kept().await {
            Ok(kept) => {
                for one in &kept.changed {
                    tracing::error!("{NAME}: {one}");
                }
                *lock(&self.changed) = kept.changed;
            }
            Err(error) => {
                tracing::warn!(%error, "the effects could not be compared with their digests");
            }
        }
    }

    pub(crate) fn stop(&self) {
        self.storage().stop();
    }
}

/// The door's view of a store that failed.
fn storage_problem(error: &StorageError) -> Problem {
    let code = match error {
        // Who asks again is told by whoever decides now.
        StorageError::Busy | StorageError::GivenAway => ErrorCode::DaemonBusy,
        StorageError::DiskFull => ErrorCode::InsufficientStorage,
        StorageError::Unavailable(_)
        | StorageError::Refused(_)
        | StorageError::Open(_)
        | StorageError::Newer { .. }
        | StorageError::WentBack => ErrorCode::StorageUnavailable,
        StorageError::Changed { .. }
        | StorageError::Gone { .. }
        | StorageError::CameDamaged { .. } => {
            return changed_problem(error);
        }
        StorageError::Corrupt(_) => ErrorCode::Internal,
    };
    let free = match error {
        StorageError::DiskFull => {
            "Free some space on the disk of whoever decides (effects.db, or a broker's PostgreSQL). "
        }
        _ => "",
    };
    Problem::new(code, error.to_string()).next(format!(
        "{free}Ask `heddle effect status KEY` what became of it before anything else; the same call again is safe."
    ))
}

/// What was written is not what is read: nothing is shown as true, run or decided by it.
fn changed_problem(error: &StorageError) -> Problem {
    let mut problem = Problem::new(ErrorCode::Internal, error.to_string()).with("changed", true);
    "What is stored of an effect was changed after it was written".clone_into(&mut problem.title);
    "never".clone_into(&mut problem.retry);
    if let StorageError::CameDamaged { key } = error {
        return problem.next(format!(
            "Nothing was run, and the key stays used: look at the target for what has happened, and take a new key for what is still to be done. `heddle effect log {}` says what was damaged; what is left of it stays in effects.db of the home that the mesh came from.",
            quoted(key)
        ));
    }
    problem.next(
        "Nothing was run, and the key stays used: look at the target for what has happened. Put the store back from a copy that is as new and whole (effects.db, or the schema of a broker's PostgreSQL); `heddle effect surface-check` names everything that was changed.",
    )
}

/// With the key itself, as a shell takes it, wherever our words leave its place open. Of a call that names none, the list
/// has them all.
fn with_key(mut problem: Problem, key: Option<&str>) -> Problem {
    let named = match key {
        Some(key) => format!("heddle effect status {}", quoted(key)),
        None => "heddle effect list".to_owned(),
    };
    problem.next = problem.next.replace("heddle effect status KEY", &named);
    problem
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rg_20_a_store_that_fails_is_asked_again_under_the_same_id_and_one_that_was_changed_is_not() {
        let passing = [
            StorageError::Busy,
            StorageError::DiskFull,
            StorageError::Unavailable("x".into()),
            StorageError::Refused("x".into()),
            StorageError::WentBack,
            StorageError::GivenAway,
        ];
        for error in &passing {
            let problem = storage_problem(error);
            assert_eq!(problem.retry, "same_id", "{error}");
            assert!(problem.status >= 429, "{error}: {}", problem.status);
        }
        let key = || "k".to_owned();
        let damaged = [
            StorageError::Changed {
                key: key(),
                what: "its registration",
            },
            StorageError::Gone {
                key: key(),
                count: 1,
            },
            StorageError::CameDamaged { key: key() },
        ];
        for error in &damaged {
            let problem = storage_problem(error);
            assert_eq!(problem.retry, "never", "{error}");
            assert!(problem.detail.starts_with("k: "), "{}", problem.detail);
            assert!(
                problem.next.contains("the key stays used"),
                "{}",
                problem.next
            );
        }
    }

    #[test]
    fn a_full_disk_is_told_with_what_makes_room() {
        let full = storage_problem(&StorageError::DiskFull);
        assert!(full.next.starts_with("Free some space"), "{}", full.next);
        let busy = storage_problem(&StorageError::Busy);
        assert!(!busy.next.contains("space"), "{}", busy.next);
    }

    #[test]
    fn no_next_step_names_the_word_key_instead_of_a_key() {
        let busy = StorageError::Busy;
        let problems = [
            storage_problem(&busy),
            refusal(Code::StepRefused, String::new()),
            refusal(Code::ApprovalRefused, String::new()),
            refusal(Code::ReplayBindingMismatch, String::new()),
        ];
        for problem in problems {
            assert!(problem.next.contains("status KEY"), "{}", problem.next);
            let named = with_key(problem.clone(), Some("it's"));
            assert!(named.next.contains(r"status 'it'\''s'`"), "{}", named.next);
            let of_none = with_key(problem, None);
            assert!(of_none.next.contains("effect list`"), "{}", of_none.next);
            assert!(!of_none.next.contains("KEY"), "{}", of_none.next);
        }
    }
}
