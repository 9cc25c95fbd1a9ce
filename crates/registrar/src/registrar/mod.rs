//! The registrar: who may ask for what, in front of a store that has shown itself fit.
//!
//! Every answer is made of rows that are committed; every refusal and failure leaves a line in the audit,
//! and a refusal burns neither key nor nonce.

mod approve;
mod retries;
mod run;

use std::sync::{Arc, PoisonError, RwLock};

use heddle_core::clock::{Clock, Ids, WallMs};
use heddle_core::ids::MeshId;

use crate::authority::Nonce;
use crate::binding::{Effect, LogicalKey};
use crate::code::Code;
use crate::command::{Applied, Ask, Call, Command, Kind, VerifyPlan};
use crate::facts::Facts;
use crate::kept::Kept;
use crate::policy::{Policy, Ruled};
use crate::refused;
use crate::rows::{AuditRow, CallRow, Grant, Purpose, Ruling};
use crate::storage::{
    ListPage, ListPlace, ListedEffect, LoggedLine, Reached, Seen, Storage, StorageError,
};
use crate::surface_check::{Criterion, criteria};
use retries::Retries;

pub use retries::Retried;

const HOUR_MS: i64 = 60 * 60 * 1000;
const MINUTE_MS: i64 = 60 * 1000;

#[derive(Debug, thiserror::Error)]
pub enum RegistrarError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The store is not one that can keep the promise (RP-10). Nothing is registered in it.
    #[error("REPLAY_SURFACE_NOT_FIT: the store fails {failed}", failed = failed(.0))]
    NotFit(Vec<Criterion>),
}

fn failed(criteria: &[Criterion]) -> String {
    let failed = criteria.iter().filter(|criterion| !criterion.is_met);
    let named: Vec<String> = failed
        .map(|criterion| match criterion.missing.as_slice() {
            [] => format!("({}) {}", criterion.letter, criterion.asks),
            missing => format!(
                "({}) {}: not there, or not as it should be: {}",
                criterion.letter,
                criterion.asks,
                missing.join(", ")
            ),
        })
        .collect();
    named.join("; ")
}

/// Who asks: a mailbox, and whose home it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub agent: String,
    pub person: String,
    /// The caller's own id for this one request (`Idempotency-Key`).
    pub call: Option<Call>,
    /// Whose persons may approve where the policy names nobody and no home decides, as they are called everywhere. Words
    /// only: whether this one may is said by `person`.
    pub deciders: Vec<String>,
}

impl Caller {
    pub fn new(agent: impl Into<String>, person: impl Into<String>) -> Self {
        Self {
            agent: agent.into(),
            person: person.into(),
            call: None,
            deciders: Vec::new(),
        }
    }

    /// For the steps before the one that was asked for: they do not use up its id.
    fn beforehand(&self) -> Self {
        Self {
            call: None,
            ..self.clone()
        }
    }
}

/// How a registration is authorised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterAsk {
    pub effect: Effect,
    pub approval: Option<String>,
    pub nonce: Option<Nonce>,
    pub said_attempt: Option<String>,
    /// Who is to verify it, as whoever registers it says.
    pub verify: Option<VerifyPlan>,
    pub command_hash: Option<String>,
}

/// A nonce, for the one who may have it. Shown once.
#[derive(Debug, Clone)]
pub struct Approved {
    /// None for a request that was answered before.
    pub nonce: Option<Nonce>,
    pub expires_at: WallMs,
    pub applied: Applied,
}

pub struct Registrar<S> {
    storage: S,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    policy: RwLock<Arc<Policy>>,
    mesh: MeshId,
    retries: Retries,
}

impl<S: Storage> Registrar<S> {
    /// Checks the store first: an unfit one is refused, and nothing starts (RG-17).
    pub async fn open(
        storage: S,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        policy: Policy,
        mesh: MeshId,
    ) -> Result<Self, RegistrarError> {
        let registrar = Self {
            storage,
            clock,
            ids,
            policy: RwLock::new(Arc::new(policy)),
            mesh,
            retries: Retries::default(),
        };
        let criteria = registrar.surface_check().await?;
        if criteria.iter().all(|criterion| criterion.is_met) {
            Ok(registrar)
        } else {
            Err(RegistrarError::NotFit(criteria))
        }
    }

    pub fn storage(&self) -> &S {
        &self.storage
    }

    pub fn now(&self) -> WallMs {
        self.clock.wall()
    }

    fn policy(&self) -> Arc<Policy> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&policy)
    }

    /// From now on this is the policy. What was approved under another one stays approved, unless it is `never` now.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    pub fn ruled(&self, effect: &Effect) -> Ruled {
        self.policy().ruled(&effect.operation, &effect.target)
    }

    pub async fn surface_check(&self) -> Result<Vec<Criterion>, StorageError> {
        Ok(criteria(&self.storage.surface().await?))
    }

    /// Whether every effect of the store is as it was written, whichever mesh it is of.
    pub async fn kept(&self) -> Result<Kept, StorageError> {
        self.storage.kept().await
    }

    /// Everything about a key. The way to learn what became of a lost answer (C14); writes nothing.
    pub async fn facts(&self, key: &LogicalKey) -> Result<Facts, StorageError> {
        self.storage.facts(self.mesh, key, None).await
    }

    /// How far the store has come, in all of its meshes.
    pub async fn reached(&self) -> Result<Reached, StorageError> {
        self.storage.reached(Seen::default()).await
    }

    pub async fn list(&self, limit: usize) -> Result<Vec<ListedEffect>, StorageError> {
        Ok(self.list_after(None, limit).await?.effects)
    }

    /// The page behind a place.
    pub async fn list_after(
        &self,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<ListPage, StorageError> {
        self.storage.list(self.mesh, after, limit).await
    }

    pub async fn log(
        &self,
        key: Option<&LogicalKey>,
        limit: usize,
    ) -> Result<Vec<LoggedLine>, StorageError> {
        self.log_before(key, None, limit).await
    }

    /// The lines before this one.
    pub async fn log_before(
        &self,
        key: Option<&LogicalKey>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<LoggedLine>, StorageError> {
        self.storage.log(self.mesh, key, (before, limit)).await
    }

    /// Who came again for what was registered, newest first; since this process has started.
    pub fn retried(&self, key: Option<&LogicalKey>) -> Vec<(LogicalKey, Retried)> {
        self.retries.of(key)
    }

    /// The key that an envelope, a registration or an attempt belongs to.
    pub async fn key_of(&self, id: &str) -> Result<Option<LogicalKey>, StorageError> {
        self.storage.key_of(self.mesh, id).await
    }

    /// What the caller's own id was used for. Asked before anything is done on the way to a step; the
    /// step itself asks again.
    pub async fn known_call(&self, by: &Caller) -> Result<Option<CallRow>, StorageError> {
        match &by.call {
            None => Ok(None),
            Some(call) => {
                let found = self.storage.call(self.mesh, &by.agent, &call.id);
                found.await
            }
        }
    }

    fn grant(&self, nonce: &Nonce, purpose: Purpose, ruled: &Ruled) -> Grant {
        let now = self.now();
        let window = i64::from(ruled.window_minutes) * MINUTE_MS;
        Grant {
            nonce: nonce.hash(),
            purpose,
            not_before: now,
            expires_at: WallMs(now.0.saturating_add(window)),
        }
    }

    async fn decide(
        &self,
        key: LogicalKey,
        by: &Caller,
        envelope_id: String,
        ruling: Ruling,
        grant: Option<Grant>,
    ) -> Result<Applied, StorageError> {
        let ask = Ask::Decide {
            envelope_id,
            ruling,
            grant,
        };
        self.apply(key, by, ask).await
    }

    /// One command through the store. What did not happen is noted outside of what rolled back.
    async fn apply(&self, key: LogicalKey, by: &Caller, ask: Ask) -> Result<Applied, StorageError> {
        let name = ask.name();
        let (attempt, asked, now) = (attempt_of(&ask), asked_of(&ask), self.now());
        let command = Command {
            key: key.clone(),
            by: by.agent.clone(),
            now,
            ask,
            call: by.call.clone(),
        };
        let applied = self.storage.apply(self.mesh, command).await;
        match &applied {
            Ok(applied) if applied.kind == Kind::Refused => {
                // As it stood when it was refused: later nobody can tell it from the rows.
                let about = (&key, &applied.facts);
                let whose = (by.agent.as_str(), now);
                let why = |code| refused::why(code, about, asked.as_ref(), whose);
                let why = applied.code.and_then(why).unwrap_or_default();
                let code = applied.code.map_or("", Code::as_str);
                let event = format!("refused {name}");
                self.note(&key, &attempt, &event, code, &why, by).await;
            }
            Ok(_) => {}
            Err(error) => {
                let event = format!("failed {name}");
                let why = error.to_string();
                self.note(&key, &attempt, &event, "", &why, by).await;
            }
        }
        applied
    }

    async fn refuse(
        &self,
        key: LogicalKey,
        by: &Caller,
        (step, attempt): (&str, &str),
        (code, why): (Code, &str),
    ) -> Result<Applied, StorageError> {
        let event = format!("refused {step}");
        self.note(&key, attempt, &event, code.as_str(), why, by)
            .await;
        Ok(Applied {
            kind: Kind::Refused,
            code: Some(code),
            facts: self.facts(&key).await?,
        })
    }

    async fn note_attempt(
        &self,
        key: &LogicalKey,
        attempt_id: &str,
        by: &Caller,
    ) -> Result<(), StorageError> {
        let row = AuditRow {
            key: key.to_string(),
            attempt_id: attempt_id.to_owned(),
            event: "attempt register".to_owned(),
            code: String::new(),
            detail: String::new(),
            by: by.agent.clone(),
            at: self.now(),
        };
        self.storage.audit(self.mesh, row).await
    }

    /// A line of the audit. That it cannot be written does not undo what it tells of.
    async fn note(
        &self,
        key: &LogicalKey,
        attempt_id: &str,
        event: &str,
        code: &str,
        detail: &str,
        by: &Caller,
    ) {
        let row = AuditRow {
            key: key.to_string(),
            attempt_id: attempt_id.to_owned(),
            event: event.to_owned(),
            code: code.to_owned(),
            detail: detail.to_owned(),
            by: by.agent.clone(),
            at: self.now(),
        };
        if let Err(error) = self.storage.audit(self.mesh, row).await {
            tracing::error!(%error, event, "the audit of an effect was not written");
        }
    }
}

/// The effect that is asked for, where all of it is said.
fn asked_of(ask: &Ask) -> Option<Effect> {
    match ask {
        Ask::Request { effect, .. } | Ask::Resolve { of: effect, .. } => Some(effect.clone()),
        Ask::Register(register) => Some(register.effect.clone()),
        _ => None,
    }
}

fn attempt_of(ask: &Ask) -> String {
    match ask {
        Ask::Register(register) => register.attempt_id.clone(),
        Ask::Start { attempt_id, .. }
        | Ask::Finish { attempt_id, .. }
        | Ask::NotStarted { attempt_id, .. }
        | Ask::Compensate { attempt_id, .. }
        | Ask::CompensationDone { attempt_id, .. } => attempt_id.clone(),
        Ask::Request { .. } | Ask::Decide { .. } | Ask::Resolve { .. } | Ask::Verify { .. } => {
            String::new()
        }
    }
}
