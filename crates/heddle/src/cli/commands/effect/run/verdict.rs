//! The verdict at the end of a run: whose it is, and what comes of it.

use heddle_core::error_code::ErrorCode;
use heddle_wire::ipc::{EffectVerifyPlan, EffectView};
use serde_json::json;

use super::super::answer::{is_left, named, verifier};
use super::super::verify::{self, Checks, Verdict};
use super::super::{lock, report};
use super::Run;
use crate::cli::CliError;

impl Run<'_> {
    /// How it is to be verified, for those who come later.
    pub(super) fn plan(&self) -> Option<EffectVerifyPlan> {
        let args = self.args;
        let is_said = args.verify.is_some() || args.verify_url.is_some() || args.verify_later;
        is_said.then(|| EffectVerifyPlan {
            command: args.verify.clone(),
            url: args.verify_url.as_ref().map(ToString::to_string),
            later: args.verify_later,
        })
    }

    /// Whether the verdict is somebody else's: we were told so, or it was registered with a verifier that we
    /// do not have. The exit code is not enough then, and another one's command is not ours to run.
    pub(super) fn is_left(&self, view: &EffectView) -> bool {
        let has_own = self.args.verify.is_some() || self.args.verify_url.is_some();
        // A person who says that it failed has given the verdict.
        if view.resolved.as_deref() == Some("failed") {
            return false;
        }
        let registered = verifier(view);
        let is_other = registered.is_some() && registered != self.plan().and_then(|it| named(&it));
        self.args.verify_later || is_other || !has_own && is_left(view)
    }

    /// For a run that ended without a verdict. The lock keeps two from judging at once.
    pub(super) fn verify(&self, view: &EffectView) -> Result<Option<EffectView>, CliError> {
        match lock::take(&view.lock)? {
            None => Ok(None),
            Some(_held) => self.verdict(view),
        }
    }

    pub(super) fn checks(&self) -> Checks<'_> {
        Checks {
            command: self.args.verify.as_deref(),
            url: self.args.verify_url.as_ref(),
            seconds: self.args.verify_timeout,
        }
    }

    /// None where it is not ours to give: then whose it is gives it.
    pub(super) fn verdict(&self, view: &EffectView) -> Result<Option<EffectView>, CliError> {
        let verdict = Verdict::of(self.checks(), view);
        let Some(passed) = verdict.passed() else {
            return Err(report::no_verdict(view, verdict.detail()));
        };
        let sent = verify::send(self.context, &self.args.effect.key, (passed, &verdict));
        let verified = match sent {
            // Somebody was faster, and thought otherwise: theirs stands.
            Err(error) if error.is(ErrorCode::EffectStepRefused) => {
                return self.status().map(Some);
            }
            Err(error) if error.is(ErrorCode::ApprovalRefused) => {
                self.judges_not.set(true);
                return Ok(None);
            }
            Err(error) => match self.judged_at_last(&error) {
                Some(verified) => verified,
                None => return Err(report::not_judged(&error, view, passed)),
            },
            Ok(verified) => verified,
        };
        if !verified.duplicate {
            let details = json!({
                "attempt_id": verified.attempt_id,
                "exit_code": verified.exit_code,
                "detail": verified.verify_detail,
            });
            self.note(&verified.status, details);
        }
        Ok(Some(verified))
    }

    /// The verdict waits here for a broker that was asked and is slow.
    fn judged_at_last(&self, error: &CliError) -> Option<EffectView> {
        let problem = error.problem.as_ref()?;
        let was_asked = problem.extra.get("asked") == Some(&json!(true));
        if !was_asked || problem.extra.get("waiting") != Some(&json!(true)) {
            return None;
        }
        self.status_when(|view| view.verified.is_some())
    }
}
