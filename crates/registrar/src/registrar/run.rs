//! Registration, and the steps after it.

use heddle_core::clock::WallMs;

use super::{Caller, HOUR_MS, RegisterAsk, Registrar};
use crate::authority::Nonce;
use crate::binding::{Effect, LogicalKey};
use crate::code::Code;
use crate::command::{Applied, Ask, Consent, Kind, Register, Word};
use crate::life::Stage;
use crate::policy::{AUTO, Approval, Ruled};
use crate::rows::{Outcome, Purpose, Ruling};
use crate::storage::{Storage, StorageError};

/// The policy's own word, whatever anybody has approved.
pub(super) const FORBIDDEN: (Code, &str) = (Code::ApprovalRefused, "effects.toml says never");

fn may_approve(ruled: Option<&Ruled>, by: &Caller) -> bool {
    ruled.is_some_and(|ruled| ruled.may_approve(&by.agent, &by.person))
}

impl<S: Storage> Registrar<S> {
    /// Consumes the key and registers, once; every other call gets what that one got.
    pub async fn register(&self, ask: RegisterAsk, by: &Caller) -> Result<Applied, StorageError> {
        let key = ask.effect.key.clone();
        // S0: the look that tells a retry from a lost race.
        let facts = self.facts(&key).await?;
        let looked_free = facts.consumed.is_none();
        let attempt_id = ask
            .said_attempt
            .clone()
            .unwrap_or_else(|| format!("att_{}", self.ids.ulid()));
        // Whatever was approved before: who forbids it now means it.
        if looked_free && self.ruled(&ask.effect).approval == Approval::Never {
            return self
                .refuse(key, by, ("register", &attempt_id), FORBIDDEN)
                .await;
        }
        let nonce = match (ask.nonce, looked_free) {
            (None, true) => match self.own_consent(&ask.effect, by).await? {
                Ok(nonce) => nonce,
                Err(code) => {
                    let tried = ("register", attempt_id.as_str());
                    return self.refuse(key, by, tried, (code, "")).await;
                }
            },
            (nonce, _) => nonce,
        };
        if looked_free {
            // Before the transaction: a crash inside it must leave a trace.
            self.note_attempt(&key, &attempt_id, by).await?;
        }
        let horizon = i64::from(self.policy().horizon_days) * 24 * HOUR_MS;
        let register = Register {
            effect: ask.effect,
            approval: ask.approval,
            nonce: nonce.as_ref().map(Nonce::hash),
            said_attempt: ask.said_attempt,
            attempt_id: attempt_id.clone(),
            registration_id: format!("reg_{}", self.ids.ulid()),
            looked_free,
            is_fit: true,
            horizon_until: WallMs(self.now().0.saturating_add(horizon)),
            verify: ask.verify,
            command_hash: ask.command_hash,
        };
        let applied = self.apply(key.clone(), by, Ask::Register(register)).await?;
        // Who finds it registered and not begun may be about to begin it: that one is taken back when it does.
        if let Some(code @ (Code::ReplayDuplicate | Code::ReplayAttemptNoBypass)) = applied.code
            && applied.kind == Kind::Prior
        {
            let whose = (by.agent.as_str(), attempt_id.as_str());
            self.retries.note(&key, whose, (code, self.now()));
        }
        Ok(applied)
    }

    /// A nonce of our own, where the policy asks nobody, or where the caller is who would be asked.
    async fn own_consent(
        &self,
        effect: &Effect,
        by: &Caller,
    ) -> Result<Result<Option<Nonce>, Code>, StorageError> {
        let by = &by.beforehand();
        let ruled = self.ruled(effect);
        let is_own = ruled.may_approve(&by.agent, &by.person);
        let facts = self.facts(&effect.key).await?;
        let standing = facts.live_envelope(self.now());
        let waits = standing.is_some_and(|envelope| envelope.ruling().is_none());
        match ruled.approval {
            Approval::Never => return Ok(Err(Code::ApprovalRefused)),
            Approval::Always => return Ok(Err(Code::ApprovalNeeded)),
            // Somebody asked for a word, so a word is needed.
            Approval::Person if waits || !is_own => return Ok(Err(Code::ApprovalNeeded)),
            Approval::Person | Approval::Auto => {}
        }
        let nonce = Nonce::mint(self.ids.as_ref());
        let grant = self.grant(&nonce, Purpose::Register, &ruled);
        let granter = match ruled.approval {
            Approval::Auto => Caller::new(AUTO, ""),
            _ => by.clone(),
        };
        let consent = Consent {
            grant,
            by: granter.agent.clone(),
        };
        let asked = self.ask_for(effect.clone(), by, Some(consent)).await?;
        match asked.kind {
            Kind::Fresh => return Ok(Ok(Some(nonce))),
            Kind::Refused => return Ok(Err(asked.code.unwrap_or(Code::StepRefused))),
            Kind::Prior => {}
        }
        let Some(envelope) = asked.facts.live_envelope_of(&by.agent, self.now()) else {
            // Consumed meanwhile: the registration itself will say so.
            return Ok(Ok(None));
        };
        if envelope.ruling().is_none() && ruled.approval != Approval::Auto {
            return Ok(Err(Code::ApprovalNeeded));
        }
        let (key, id) = (effect.key.clone(), envelope.row.envelope_id.clone());
        let decided = self
            .decide(key, &granter, id, Ruling::Approved, Some(grant))
            .await?;
        Ok(match decided.kind {
            // Consumed meanwhile: what has happened takes no nonce, and the registration will say so.
            Kind::Refused if decided.facts.consumed.is_some() => Ok(None),
            Kind::Refused => Err(decided.code.unwrap_or(Code::StepRefused)),
            _ => Ok(Some(nonce)),
        })
    }

    pub async fn start(
        &self,
        key: LogicalKey,
        attempt_id: String,
        command_hash: Option<String>,
        by: &Caller,
    ) -> Result<Applied, StorageError> {
        let facts = self.facts(&key).await?;
        let ruled = facts.consumed.as_ref();
        let ruled = ruled.map(|consumed| self.ruled(&consumed.effect));
        let is = |approval| ruled.as_ref().is_some_and(|it| it.approval == approval);
        if is(Approval::Never) && facts.stage() == Stage::Registered {
            let tried = ("start", attempt_id.as_str());
            return self.refuse(key, by, tried, FORBIDDEN).await;
        }
        let ask = Ask::Start {
            attempt_id,
            command_hash,
            by_right: is(Approval::Auto) || may_approve(ruled.as_ref(), by),
        };
        let applied = self.apply(key.clone(), by, ask).await?;
        let facts = &applied.facts;
        let registered = facts.consumed.as_ref().map(|row| &row.attempt_id);
        let begun = facts.runner().map(|row| &row.attempt_id);
        // Of who begins what somebody else has registered nobody says that nothing was run.
        if applied.kind == Kind::Fresh && facts.round() == 1 && registered != begun {
            self.retries.take_back(&key);
        }
        Ok(applied)
    }

    pub async fn finish(
        &self,
        key: LogicalKey,
        attempt_id: String,
        outcome: Outcome,
        by: &Caller,
    ) -> Result<Applied, StorageError> {
        let ask = Ask::Finish {
            attempt_id,
            outcome,
        };
        self.apply(key, by, ask).await
    }

    /// The command could not be started: nothing ran, and the same key may be run with a better one.
    pub async fn not_started(
        &self,
        key: LogicalKey,
        attempt_id: String,
        why: String,
        by: &Caller,
    ) -> Result<Applied, StorageError> {
        self.apply(key, by, Ask::NotStarted { attempt_id, why })
            .await
    }

    /// What a person says about a run that nobody ended. The caller has seen that the runner is gone.
    pub async fn resolve(
        &self,
        of: Effect,
        again: bool,
        note: String,
        by: &Caller,
    ) -> Result<Applied, StorageError> {
        let word = if again { Word::Again } else { Word::Done };
        self.resolve_round(of, None, (word, note), by).await
    }

    /// The same about one run and no other: two people who saw the same one gone resolve it once.
    pub async fn resolve_round(
        &self,
        of: Effect,
        round: Option<i64>,
        (word, note): (Word, String),
        by: &Caller,
    ) -> Result<Applied, StorageError> {
        let key = of.key.clone();
        let ask = Ask::Resolve {
            of,
            round,
            word,
            note,
        };
        let facts = self.facts(&key).await?;
        let ruled = facts.consumed.as_ref();
        let ruled = ruled.map(|consumed| self.ruled(&consumed.effect));
        if ruled.is_some() && !may_approve(ruled.as_ref(), by) {
            let code = (Code::ApprovalRefused, "");
            return self.refuse(key, by, ("resolve", ""), code).await;
        }
        self.apply(key, by, ask).await
    }

    pub async fn verify(
        &self,
        key: LogicalKey,
        passed: bool,
        detail: String,
        by: &Caller,
    ) -> Result<Applied, StorageError> {
        let facts = self.facts(&key).await?;
        let ruled = facts.consumed.as_ref();
        let ruled = ruled.map(|consumed| self.ruled(&consumed.effect));
        let ask = Ask::Verify {
            passed,
            detail,
            by_right: may_approve(ruled.as_ref(), by),
        };
        self.apply(key, by, ask).await
    }

    /// Begins the one compensation. Whoever may approve needs no nonce from elsewhere.
    pub async fn compensate(
        &self,
        key: LogicalKey,
        nonce: Option<Nonce>,
        by: &Caller,
    ) -> Result<Applied, StorageError> {
        let facts = self.facts(&key).await?;
        let nonce = match (nonce, &facts.consumed) {
            (None, Some(consumed)) if facts.stage() == Stage::VerifyFailed => {
                let id = consumed.approval.clone();
                let by = by.beforehand();
                match self.approve(&id, &by, Purpose::Compensate, None).await? {
                    Ok(approved) => approved.nonce,
                    // Whoever may not say yes has to ask, as for the effect itself.
                    Err(Code::ApprovalRefused) => {
                        let code = (Code::ApprovalNeeded, "");
                        return self.refuse(key, &by, ("compensate", ""), code).await;
                    }
                    Err(code) => {
                        let tried = ("compensate", "");
                        return self.refuse(key, &by, tried, (code, "")).await;
                    }
                }
            }
            (nonce, _) => nonce,
        };
        let ask = Ask::Compensate {
            nonce: nonce.as_ref().map(Nonce::hash),
            attempt_id: format!("att_{}", self.ids.ulid()),
        };
        self.apply(key, by, ask).await
    }

    pub async fn compensation_done(
        &self,
        key: LogicalKey,
        attempt_id: String,
        outcome: Outcome,
        by: &Caller,
    ) -> Result<Applied, StorageError> {
        let ask = Ask::CompensationDone {
            attempt_id,
            outcome,
        };
        self.apply(key, by, ask).await
    }
}
