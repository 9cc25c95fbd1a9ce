//! Hooks of a home: small programs of its owner that run when something happened (`docs/HOOKS.md`).
//!
//! A message's hooks are owed by its row: planned behind the mark in the store, run at least once, paid
//! after the process ended (C45, IN-04). Events without a row (start, lost and regained links) are told
//! at most once. What a hook may do with its token is decided in `scope` (IN-07). `pre-send` alone is asked
//! before something happens, and may say no.

mod audit;
mod event;
mod file;
mod one;
mod policy;
mod pre_send;
pub(crate) mod process;
mod scope;
mod tokens;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use policy::PolicyError;
pub(crate) use pre_send::{Outgoing, ask as ask_before_send};
pub(crate) use scope::{Asked, Grant};
pub(crate) use tokens::{PREFIX, Tokens};
pub(crate) use work::{prepare, run};

use heddle_core::limits::HOOKS_AT_ONCE_MAX;
use tokio::sync::Semaphore;

use audit::{Audit, Line};
use policy::{PRE_SEND, Policy};

/// Whether hooks run in this home, and where they lie.
pub(crate) struct Hooks {
    state: State,
    home: PathBuf,
    folder: PathBuf,
    audit: Arc<Audit>,
    /// Sends that are being asked about now.
    asking: Semaphore,
}

enum State {
    /// There is no policy: nothing is owed.
    None,
    /// There may be one, but not here (CI): what is owed waits.
    Paused,
    On(Policy),
}

impl Hooks {
    /// A policy that cannot be trusted or understood ends the start.
    pub(crate) fn load(home: &Path, is_paused: bool) -> Result<Self, PolicyError> {
        let policy = Policy::load(&home.join("hooks.toml"))?;
        let hooks = Self {
            state: match policy {
                None => State::None,
                Some(_) if is_paused => State::Paused,
                Some(policy) => State::On(policy),
            },
            home: home.to_owned(),
            folder: home.join("hooks"),
            audit: Arc::new(Audit::new(home)),
            asking: Semaphore::new(HOOKS_AT_ONCE_MAX),
        };
        hooks.say_what_is_skipped();
        Ok(hooks)
    }

    /// Once at the start, so that nobody waits for a hook that will not run.
    fn say_what_is_skipped(&self) {
        match &self.state {
            State::None => {}
            State::Paused => tracing::info!("hooks are off, because CI is set"),
            State::On(policy) => {
                for hook in policy.enabled() {
                    if let Err(why) = self.may_run(hook) {
                        tracing::warn!(hook, %why, "a hook is skipped");
                    }
                }
            }
        }
    }

    /// Whether somebody is to be asked before a message is accepted.
    pub(crate) fn guards_sends(&self) -> bool {
        matches!(&self.state, State::On(policy) if policy.rule(PRE_SEND).is_some())
    }

    fn may_run(&self, hook: &str) -> Result<(), String> {
        file::may_run(&self.folder, &self.folder.join(hook))
    }

    /// Told to the audit; the disk may be slow, and nothing else waits for it.
    async fn note(&self, line: Line) {
        let audit = Arc::clone(&self.audit);
        let written = tokio::task::spawn_blocking(move || audit.write(&line)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "a run of a hook could not be written to logs/hooks.jsonl");
        }
    }
}
