//! The registration of `heddle effect run`. An answer to it can be lost: then the status is asked by the key, and where
//! nobody can be asked, nobody says what came of it (C14).

use heddle_core::error_code::ErrorCode;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{EffectRegisterBody, EffectView};
use serde_json::json;

use super::Run;
use crate::cli::CliError;
use crate::cli::commands::effect::answer::unanswered;
use crate::cli::commands::effect::command_hash;
use crate::cli::commands::effect::patience::{self, is_out_of_reach, is_unanswered, until_back};

/// Whether what stands under the key is what we ask for, letter by letter. Where only who decides could say, it is not.
fn is_same(view: &EffectView, body: &EffectRegisterBody) -> bool {
    view.operation == body.op
        && view.target == body.target
        && view.artifact_hash == *body.artifact_hash.as_deref().unwrap_or_default()
        && view.run == *body.run.as_deref().unwrap_or_default()
}

impl Run<'_> {
    /// After a lost answer the status is asked first: what is committed is not asked for again (C14).
    pub(super) fn register(&self, artifact_hash: Option<String>) -> Result<EffectView, CliError> {
        let effect = &self.args.effect;
        let body = EffectRegisterBody {
            key: effect.key.clone(),
            op: effect.op.clone(),
            target: effect.target.clone(),
            artifact_hash,
            run: effect.run.clone(),
            nonce: self.args.nonce.clone(),
            request_id: None,
            attempt_id: self.args.attempt.clone(),
            verify: self.plan(),
            command_hash: command_hash(&self.args.command),
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        let answer = self.register_until_heard(&body)?;
        if !answer.duplicate {
            let details = json!({"attempt_id": answer.attempt_id, "request_id": answer.request_id});
            self.note("registered", details);
        }
        Ok(answer)
    }

    /// The key decides: a second registration is the first one's answer. It is not asked for again before the status says
    /// that there is none; where that cannot be asked, the outcome is unknown, and that is what is said.
    fn register_until_heard(&self, body: &EffectRegisterBody) -> Result<EffectView, CliError> {
        let mut lost = match self.client.register_effect(body) {
            Err(error) if is_unanswered(&error) => error,
            answer => return Ok(answer?),
        };
        for pause in patience::pauses() {
            patience::say(&lost);
            if let Some(view) = self.registered_before(body)? {
                return Ok(view);
            }
            std::thread::sleep(pause);
            // Once something was sent, a broker that is away has not said that it never came there.
            lost = match self.client.register_effect(body) {
                Err(error) if is_out_of_reach(&error) => error,
                answer => return Ok(answer?),
            };
        }
        Err(unanswered(&body.key, lost))
    }

    /// After a lost answer: what is found registered, as long as it is this very effect; whether another one may have the
    /// key, who decides says.
    fn registered_before(&self, body: &EffectRegisterBody) -> Result<Option<EffectView>, CliError> {
        match until_back(|| self.known()) {
            Ok(mut view) if view.state != "S0" && is_same(&view, body) => {
                // Whoever registered it: this attempt has no answer of its own.
                view.duplicate = true;
                view.code = Some("REPLAY_DUPLICATE".to_owned());
                Ok(Some(view))
            }
            Ok(_) => Ok(None),
            Err(ClientError::Problem(problem))
                if problem.known_code() == Some(ErrorCode::EffectNotFound) =>
            {
                Ok(None)
            }
            Err(error) if is_out_of_reach(&error) => Err(unanswered(&body.key, error)),
            Err(error) => Err(error.into()),
        }
    }
}
