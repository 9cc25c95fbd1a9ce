//! What somebody says to a request: yes, no, or a word that is not theirs to say.

use heddle_core::shell::quoted;
use heddle_registrar::binding::{Effect, LogicalKey};
use heddle_registrar::code::Code;
use heddle_registrar::facts::Envelope;
use heddle_registrar::policy::Approval;
use heddle_registrar::registrar::Caller;
use heddle_registrar::rows::{Purpose, Ruling};
use heddle_registrar::storage::Storage;
use heddle_wire::broker::EffectAnswer;
use heddle_wire::from_wire;
use heddle_wire::ipc::{EffectApproveAnswer, EffectApproveBody};
use heddle_wire::problem::Problem;

use super::desk::{Desk, failed, viewed};
use super::view::request_command;
use super::{count, refusal, with_key};

const WINDOW_MINUTES_MAX: u32 = 7 * 24 * 60;

impl<S: Storage> Desk<S> {
    pub(super) async fn approve(
        &self,
        by: &Caller,
        body: &EffectApproveBody,
    ) -> Result<EffectAnswer, Problem> {
        if body
            .window_minutes
            .is_some_and(|m| m == 0 || m > WINDOW_MINUTES_MAX)
        {
            let detail = format!("a window lasts from 1 to {WINDOW_MINUTES_MAX} minutes");
            return Err(from_wire::invalid(detail));
        }
        if let (Some(minutes), Some(most)) =
            (body.window_minutes, self.window_max(&body.request_id).await)
            && minutes > most
        {
            let detail = format!(
                "effects.toml allows a window of {most} minutes for this, not of {minutes}"
            );
            let next =
                format!("Say --window {most}m or less, or leave it out; nothing was approved.");
            return Err(from_wire::invalid(detail).next(next));
        }
        let purpose = if body.compensation == Some(true) {
            Purpose::Compensate
        } else {
            Purpose::Register
        };
        let id = &body.request_id;
        let approved = self
            .registrar
            .approve(id, by, purpose, body.window_minutes)
            .await
            .map_err(failed)?;
        count::decided(approved.is_ok().then_some("approved"));
        let approved = match approved {
            Ok(approved) => approved,
            Err(code) => return Err(self.not_decided(id, by, (code, Some(purpose))).await),
        };
        let asked = approved.applied.facts.envelope(id).map(|it| &it.row);
        let effect = asked.map(|row| &row.effect);
        let shown = |of: fn(&Effect) -> &str| effect.map(of).unwrap_or_default().to_owned();
        Ok(EffectAnswer::Approved(EffectApproveAnswer {
            request_id: id.clone(),
            duplicate: approved.nonce.is_none(),
            nonce: approved.nonce.map(|nonce| nonce.reveal().to_owned()),
            expires_at: approved.expires_at.to_rfc3339(),
            logical_request_key: shown(|effect| effect.key.as_str()),
            operation: shown(|effect| &effect.operation),
            target: shown(|effect| &effect.target),
            artifact_hash: shown(|effect| &effect.artifact_hash),
            run: shown(|effect| &effect.run_id),
            requested_by: asked.map_or_else(String::new, |row| row.requested_by.clone()),
        }))
    }

    pub(super) async fn deny(
        &self,
        by: &Caller,
        body: &EffectApproveBody,
    ) -> Result<EffectAnswer, Problem> {
        let id = &body.request_id;
        let applied = self.registrar.turn_down(id, by).await.map_err(failed)?;
        count::decided(applied.is_ok().then_some("turned_down"));
        let applied = match applied {
            Ok(applied) => applied,
            Err(code) => return Err(self.not_decided(id, by, (code, None)).await),
        };
        let Some(key) = self.registrar.key_of(id).await.map_err(failed)? else {
            return Err(self.not_decided(id, by, (Code::NotFound, None)).await);
        };
        // The answer is about this request, whatever became of others under its key.
        let now = self.registrar.now();
        let stands = applied.facts.envelope(id).map(|it| it.status(now));
        let mut view = self.viewed(by, &key, Ok(applied))?;
        view.request_id = Some(id.clone());
        stands.unwrap_or_default().clone_into(&mut view.status);
        Ok(viewed(view))
    }

    /// How long a nonce for this request may be good.
    async fn window_max(&self, id: &str) -> Option<u32> {
        let key = self.registrar.key_of(id).await.ok()??;
        let facts = self.registrar.facts(&key).await.ok()?;
        let ruled = self.registrar.ruled(&facts.envelope(id)?.row.effect);
        Some(ruled.window_minutes_max)
    }

    /// Why a word does not count, and whose would. `purpose` is what was to be approved; none for a denial.
    async fn not_decided(
        &self,
        id: &str,
        by: &Caller,
        (code, purpose): (Code, Option<Purpose>),
    ) -> Problem {
        let words = match code {
            Code::NotFound => "there is no such request".to_owned(),
            Code::ApprovalRefused => match self.whose_word(id, by).await {
                Some(words) => words,
                None => "it was turned down; whoever still wants it asks again".to_owned(),
            },
            Code::ReplayStaleRequest => "it was asked for too long ago".to_owned(),
            Code::CallReused => "the Idempotency-Key was used for another request".to_owned(),
            _ => self.why_not(id, purpose).await,
        };
        let key = self.registrar.key_of(id).await.ok().flatten();
        let mut problem = refusal(code, format!("{id}: {words}"));
        if code == Code::ReplayStaleRequest
            && let Some(key) = &key
            && let Ok(facts) = self.registrar.facts(key).await
            && let Some(asked) = facts.envelope(id)
        {
            problem.next = format!(
                "{} asks again with `{}`; nothing was approved, and the key is still free.",
                asked.row.requested_by,
                request_command(Some(&asked.row.effect))
            );
        }
        if let Some(key) = &key {
            problem = problem.with("logical_request_key", key.as_str());
        }
        with_key(problem, key.as_ref().map(LogicalKey::as_str))
    }

    /// The one reason for which a word comes too late, or too early.
    async fn why_not(&self, id: &str, purpose: Option<Purpose>) -> String {
        let over = "it is over".to_owned();
        let Ok(Some(key)) = self.registrar.key_of(id).await else {
            return over;
        };
        let Ok(facts) = self.registrar.facts(&key).await else {
            return over;
        };
        let stands = facts.stage().as_str();
        let key = quoted(key.as_str());
        let ruling = facts.envelope(id).and_then(Envelope::ruling);
        match (ruling, &facts.consumed, purpose) {
            (_, None, Some(Purpose::Compensate)) => {
                "nothing was registered under its key, so there is nothing to make up for"
                    .to_owned()
            }
            (Some(Ruling::Denied | Ruling::Revoked), None, _) => {
                "it was turned down; whoever still wants it asks again".to_owned()
            }
            (_, Some(_), Some(Purpose::Compensate)) => format!(
                "there is nothing to make up for: the effect of {key} is {stands}, and only one that failed its verification is made up for"
            ),
            (_, Some(_), Some(Purpose::Register)) => format!(
                "the key {key} is used: its effect is {stands}, and takes no further approval"
            ),
            (_, Some(_), None) => format!(
                "the key {key} is used: its effect is {stands}, and what has happened cannot be turned down"
            ),
            _ => over,
        }
    }

    /// None where this caller may decide.
    async fn whose_word(&self, id: &str, by: &Caller) -> Option<String> {
        let key = self.registrar.key_of(id).await.ok()??;
        let facts = self.registrar.facts(&key).await.ok()?;
        let effect = &facts.envelope(id)?.row.effect;
        let ruled = self.registrar.ruled(effect);
        if ruled.may_approve(&by.agent, &by.person) {
            return None;
        }
        let agent = &by.agent;
        if ruled.approval == Approval::Never {
            return Some("effects.toml says never: nobody may approve it".to_owned());
        }
        // As this caller would name them: who asks from elsewhere knows nobody by a mailbox of ours.
        let named = self.approvers(by, effect).join(", ");
        Some(match (ruled.approvers(), self.person.as_str()) {
            ([], "") => format!(
                "{agent} may not decide about it; the persons of the mesh's owners may ({named}), or those whom effects.toml of the broker names"
            ),
            ([], _) => format!(
                "{agent} may not decide about it; {named} may, the person of the home that decides, or those whom its effects.toml names"
            ),
            (_, _) => format!("{agent} may not decide about it; {named} may, as effects.toml says"),
        })
    }
}
