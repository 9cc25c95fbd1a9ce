//! Requests for approval, and the words of those who may decide.

use heddle_core::clock::WallMs;

use super::run::FORBIDDEN;
use super::{Approved, Caller, HOUR_MS, Registrar};
use crate::authority::Nonce;
use crate::binding::{Effect, LogicalKey};
use crate::code::Code;
use crate::command::{Applied, Ask, Consent, Kind};
use crate::facts::{Envelope, Facts};
use crate::policy::{AUTO, Approval};
use crate::rows::{Purpose, Ruling};
use crate::storage::{Storage, StorageError};

impl<S: Storage> Registrar<S> {
    /// Asks for approval, or is told of the request that stands. Approved at once where the policy asks
    /// nobody.
    pub async fn request(&self, effect: Effect, by: &Caller) -> Result<Applied, StorageError> {
        let ruled = self.ruled(&effect);
        let key = effect.key.clone();
        if ruled.approval == Approval::Never {
            return self.refuse(key, by, ("request", ""), FORBIDDEN).await;
        }
        let is_auto = ruled.approval == Approval::Auto;
        let grant = || self.grant(&Nonce::mint(self.ids.as_ref()), Purpose::Register, &ruled);
        let consent = is_auto.then(|| Consent {
            grant: grant(),
            by: AUTO.to_owned(),
        });
        let applied = self.ask_for(effect, by, consent).await?;
        let envelope = applied.facts.live_envelope_of(&by.agent, self.now());
        match envelope.filter(|envelope| envelope.ruling().is_none()) {
            // Asked for under an older policy.
            Some(envelope) if is_auto => {
                let id = envelope.row.envelope_id.clone();
                let nobody = Caller::new(AUTO, "");
                let decided = self
                    .decide(key, &nobody, id, Ruling::Approved, Some(grant()))
                    .await?;
                Ok(Applied {
                    facts: decided.facts,
                    ..applied
                })
            }
            _ => Ok(applied),
        }
    }

    /// The request for this effect: the one that stands, or a new one, with consent where it is given.
    pub(super) async fn ask_for(
        &self,
        effect: Effect,
        by: &Caller,
        consent: Option<Consent>,
    ) -> Result<Applied, StorageError> {
        let ttl = i64::from(self.policy().request_ttl_hours) * HOUR_MS;
        let key = effect.key.clone();
        let ask = Ask::Request {
            effect,
            envelope_id: format!("env_{}", self.ids.ulid()),
            expires_at: WallMs(self.now().0.saturating_add(ttl)),
            consent,
        };
        self.apply(key, by, ask).await
    }

    /// Approves by somebody with the right. The nonce is in the answer and nowhere else.
    pub async fn approve(
        &self,
        envelope_id: &str,
        by: &Caller,
        purpose: Purpose,
        window_minutes: Option<u32>,
    ) -> Result<Result<Approved, Code>, StorageError> {
        let (key, facts) = match self.envelope(envelope_id, by).await? {
            Ok(found) => found,
            Err(code) => return Ok(Err(code)),
        };
        let Some(envelope) = facts.envelope(envelope_id) else {
            return Ok(Err(Code::NotFound));
        };
        let mut ruled = self.ruled(&envelope.row.effect);
        let asked = window_minutes.unwrap_or(ruled.window_minutes);
        ruled.window_minutes = asked.min(ruled.window_minutes_max);
        let nonce = Nonce::mint(self.ids.as_ref());
        let grant = self.grant(&nonce, purpose, &ruled);
        let applied = self
            .decide(
                key,
                by,
                envelope_id.to_owned(),
                Ruling::Approved,
                Some(grant),
            )
            .await?;
        // As it was written: a window ends no later than its request.
        let granted = applied.facts.envelope(envelope_id);
        let granted = granted.and_then(|envelope| envelope.said().last()?.grant);
        let expires_at = granted.unwrap_or(grant).expires_at;
        match (applied.kind, applied.code) {
            (Kind::Fresh, _) => Ok(Ok(Approved {
                nonce: Some(nonce),
                expires_at,
                applied,
            })),
            // The same request once more: its nonce was shown, and is kept hashed only.
            (Kind::Prior, _) => Ok(Ok(Approved {
                nonce: None,
                expires_at,
                applied,
            })),
            (_, code) => Ok(Err(code.unwrap_or(Code::StepRefused))),
        }
    }

    /// Denies what waits, or revokes what was approved and has not happened.
    pub async fn turn_down(
        &self,
        envelope_id: &str,
        by: &Caller,
    ) -> Result<Result<Applied, Code>, StorageError> {
        let (key, facts) = match self.envelope(envelope_id, by).await? {
            Ok(found) => found,
            Err(code) => return Ok(Err(code)),
        };
        let ruling = match facts.envelope(envelope_id).and_then(Envelope::ruling) {
            Some(Ruling::Approved) => Ruling::Revoked,
            _ => Ruling::Denied,
        };
        let applied = self
            .decide(key, by, envelope_id.to_owned(), ruling, None)
            .await?;
        Ok(match (applied.kind, applied.code) {
            (Kind::Fresh | Kind::Prior, _) => Ok(applied),
            (_, code) => Err(code.unwrap_or(Code::StepRefused)),
        })
    }

    /// An envelope that this caller may decide about.
    async fn envelope(
        &self,
        envelope_id: &str,
        by: &Caller,
    ) -> Result<Result<(LogicalKey, Facts), Code>, StorageError> {
        let Some(key) = self.key_of(envelope_id).await? else {
            return Ok(Err(Code::NotFound));
        };
        let facts = self.facts(&key).await?;
        let Some(envelope) = facts.envelope(envelope_id) else {
            return Ok(Err(Code::NotFound));
        };
        let ruled = self.ruled(&envelope.row.effect);
        if ruled.may_approve(&by.agent, &by.person) {
            return Ok(Ok((key, facts)));
        }
        let why = format!("{} may not decide about {envelope_id}", by.agent);
        self.note(
            &key,
            "",
            "refused decide",
            Code::ApprovalRefused.as_str(),
            &why,
            by,
        )
        .await;
        Ok(Err(Code::ApprovalRefused))
    }
}
