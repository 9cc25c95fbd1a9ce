//! A start whose answer was lost: the run may have been taken, and nothing was begun. Only this process knows that, so it
//! writes it down before it tells it, and whoever decides gives the run back: to anybody, also to us.
//!
//! IMPORTANT: an attempt that was given up so is never begun afterwards. What is written down about it stays true for
//! ever, however late it is read.

use heddle_core::error_code::ErrorCode;
use heddle_wire::broker::EffectCall;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{EffectEndBody, EffectView};
use serde_json::json;

use super::{Run, Taken};
use crate::cli::CliError;
use crate::cli::commands::effect::answer::not_begun;
use crate::cli::commands::effect::lock::{self, Held};
use crate::cli::commands::effect::patience::{
    ASKS_MAX, is_out_of_reach, is_unanswered, until_back,
};
use crate::cli::commands::effect::process;

const WHY: &str = "the answer to the start was lost";

/// Whether it was refused, or not even sent: nothing is to be given back.
fn is_known(error: &ClientError) -> bool {
    match error {
        ClientError::Problem(problem) => matches!(
            problem.known_code(),
            Some(ErrorCode::ApprovalRefused | ErrorCode::ReplayBindingMismatch)
        ),
        ClientError::Broken(_) | ClientError::Silent => false,
        _ => true,
    }
}

/// The daemon keeps it for a broker that is away.
fn waits(error: &ClientError) -> bool {
    match error {
        ClientError::Problem(problem) => problem.extra.get("waiting") == Some(&json!(true)),
        _ => false,
    }
}

impl Run<'_> {
    pub(super) fn is_lost(&self, attempt_id: &str) -> bool {
        self.lost.borrow().iter().any(|lost| lost == attempt_id)
    }

    /// Whether this run was taken by us, after all, and nothing was begun. Not for ever: who is told so and does not
    /// believe it has the last word.
    pub(super) fn is_taken_late(&self, view: &EffectView) -> bool {
        let is_ours = view.runner.as_deref().is_some_and(|id| self.is_lost(id));
        is_ours && self.given_back.get() < ASKS_MAX
    }

    pub(super) fn start_not_heard(
        &self,
        held: &Held,
        attempt_id: &str,
        error: ClientError,
    ) -> Result<Taken, CliError> {
        if is_known(&error) {
            return Err(error.into());
        }
        self.lost.borrow_mut().push(attempt_id.to_owned());
        if !is_unanswered(&error) {
            self.say_not_begun(held, attempt_id);
            return Err(error.into());
        }
        let told = self.tell_not_begun(held, attempt_id)?;
        if self.lost.borrow().len() >= ASKS_MAX as usize {
            return Err(error.into());
        }
        Ok(Taken::GivenBack(Box::new(told)))
    }

    /// Who failed to record a start may have done it all the same. Said once: the failure itself is the answer.
    fn say_not_begun(&self, held: &Held, attempt_id: &str) {
        let body = self.not_begun(held, attempt_id);
        let said = self.finish_or_wait(&body);
        if !said.is_err_and(|error| is_out_of_reach(&error)) {
            held.told();
        }
    }

    /// Written down first: from here on it is known, whatever becomes of this process.
    fn not_begun(&self, held: &Held, attempt_id: &str) -> EffectEndBody {
        let body = self.end(attempt_id, process::not_started(WHY.to_owned()));
        held.ended(&EffectCall::Finish(body.clone()));
        body
    }

    /// A start that was heard late: the run is ours, and is given back as before.
    pub(super) fn give_back(&self, view: &EffectView) -> Result<EffectView, CliError> {
        let attempt_id = view.runner.clone().unwrap_or_default();
        self.given_back.set(self.given_back.get() + 1);
        match lock::take(&view.lock)? {
            Some(held) => self.tell_not_begun(&held, &attempt_id),
            None => self.status(),
        }
    }

    /// How it stands now. An error where nobody could be told: then it lies beside the lock, and the daemon takes it from
    /// there when it is back.
    fn tell_not_begun(&self, held: &Held, attempt_id: &str) -> Result<EffectView, CliError> {
        let body = self.not_begun(held, attempt_id);
        match until_back(|| self.finish_or_wait(&body)) {
            Ok(view) => {
                held.told();
                // It waits here, or who decides has heard it: what stands, the status says, which tells what waits before it.
                view.map_or_else(|| Ok(until_back(|| self.known())?), Ok)
            }
            Err(error) if is_out_of_reach(&error) => Err(not_begun(&body, error, held.keeps_end())),
            // The start never came, so there is nothing to give back.
            Err(_) => {
                held.told();
                Ok(until_back(|| self.known())?)
            }
        }
    }

    /// None where it is kept for a broker that is away.
    fn finish_or_wait(&self, body: &EffectEndBody) -> Result<Option<EffectView>, ClientError> {
        match self.client.finish_effect(body) {
            Err(error) if waits(&error) => Ok(None),
            answer => answer.map(Some),
        }
    }
}
