//! An effect as the authority shows it: facts into words. Whether its runner still lives, the runner's own
//! home knows, and adds.

use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Kind};
use heddle_registrar::facts::Facts;
use heddle_registrar::life::Stage;
use heddle_registrar::rows::{Outcome, Step, StepRow};
use heddle_wire::ipc::{EffectStep, EffectView};
use heddle_wire::problem::Problem;
use serde_json::{Value, json};

use super::refusal;
use heddle_registrar::binding::{LogicalKey, ReplayKey};

/// The answer to a command: what stands now, or why not.
pub(super) fn answer(
    now: WallMs,
    key: &LogicalKey,
    applied: &Applied,
) -> Result<EffectView, Problem> {
    if applied.kind == Kind::Refused {
        return Err(refused(now, key, applied));
    }
    let mut view = view(now, key, &applied.facts)?;
    view.duplicate = applied.kind == Kind::Prior;
    view.code = applied.code.map(|code| code.as_str().to_owned());
    if applied.code == Some(Code::AttemptCollision) {
        "S4".clone_into(&mut view.state);
    }
    Ok(view)
}

fn refused(now: WallMs, key: &LogicalKey, applied: &Applied) -> Problem {
    let code = applied.code.unwrap_or(Code::StepRefused);
    let facts = &applied.facts;
    let problem = refusal(code, sentence(code, key, facts));
    let standing = facts.live_envelope(now);
    match (code, standing) {
        (Code::ApprovalNeeded, Some(envelope)) => {
            let id = &envelope.row.envelope_id;
            problem.with("request_id", id.as_str()).next(format!(
                "A person runs `heddle effect approve {id}`; run this again with its --nonce."
            ))
        }
        _ => problem,
    }
}

fn sentence(code: Code, key: &LogicalKey, facts: &Facts) -> String {
    let words = match code {
        Code::ReplayBindingMismatch => "the key is in use for another effect",
        Code::ReplayNonceConsumed => "the nonce was used for another effect",
        Code::NonceUnbound => {
            "there is no good nonce: it is missing, made for another effect or purpose, revoked, or outside its window"
        }
        Code::ReplayStaleRequest => "the request for approval is too old",
        Code::ApprovalNeeded => "a person has to approve it first",
        Code::ApprovalRefused => "this is not allowed to the caller, or to nobody",
        Code::NotFound => "nothing is registered under it",
        Code::CallReused => "the Idempotency-Key was used for another request",
        Code::OutcomeUnknown => "its command began, and nobody knows how it ended",
        _ => return format!("{key}: not possible while it is {}", facts.stage().as_str()),
    };
    format!("{key}: {words}")
}

/// What the rows say.
pub(super) fn view(now: WallMs, key: &LogicalKey, facts: &Facts) -> Result<EffectView, Problem> {
    let consumed = facts.consumed.as_ref();
    let newest = facts.envelopes.last().map(|envelope| &envelope.row);
    let effect = consumed
        .map(|row| &row.effect)
        .or_else(|| newest.map(|row| &row.effect));
    let receipt = facts.registration.as_ref().map(|row| row.receipt.as_str());
    let outcome = facts.outcome();
    let verdict = verdict(facts);
    Ok(EffectView {
        logical_request_key: key.to_string(),
        state: facts.stage().state().to_owned(),
        status: match (facts.stage(), facts.envelopes.last()) {
            (Stage::Issued, Some(envelope)) => envelope.status(now).to_owned(),
            (stage, _) => stage.as_str().to_owned(),
        },
        duplicate: false,
        code: None,
        operation: effect.map(|e| e.operation.clone()).unwrap_or_default(),
        target: effect.map(|e| e.target.clone()).unwrap_or_default(),
        artifact_hash: effect.map(|e| e.artifact_hash.clone()).unwrap_or_default(),
        run: effect.map(|e| e.run_id.clone()).unwrap_or_default(),
        request_id: consumed
            .map(|row| row.approval.clone())
            .or_else(|| newest.map(|row| row.envelope_id.clone())),
        replay_key: consumed
            .map(|row| row.replay_key)
            .or_else(|| newest.map(|row| row.replay_key))
            .map(ReplayKey::to_hex),
        attempt_id: consumed.map(|row| row.attempt_id.clone()),
        registration: receipt.map(stored_value).transpose()?,
        runner: facts.runner().map(|row| row.attempt_id.clone()),
        runs_at: match facts.stage() {
            Stage::Compensating => facts.compensator(),
            _ => facts.runner(),
        }
        .map(|row| row.by.clone()),
        round: match facts.stage() {
            Stage::Compensating => facts.compensation_round(),
            _ => facts.round(),
        },
        not_started: facts.steps.last().and_then(|row| match &row.step {
            Step::NotStarted { why } => Some(why.clone()),
            _ => None,
        }),
        exit_code: outcome.and_then(|outcome| outcome.exit_code),
        stdout: outcome.map(|outcome| outcome.stdout.clone()),
        stderr: outcome.map(|outcome| outcome.stderr.clone()),
        truncated: outcome.is_some_and(|outcome| outcome.truncated),
        verified: verdict.as_ref().map(|(passed, _)| *passed),
        verify_detail: verdict.map(|(_, detail)| detail),
        compensation: compensation(facts),
        steps: facts.steps.iter().map(step).collect(),
        lock: String::new(),
    })
}

fn stored_value(text: &str) -> Result<Value, Problem> {
    serde_json::from_str(text).map_err(|error| {
        let detail = format!("a stored receipt is not JSON: {error}");
        Problem::new(ErrorCode::Internal, detail)
    })
}

fn verdict(facts: &Facts) -> Option<(bool, String)> {
    facts.steps.iter().find_map(|row| match &row.step {
        Step::Verified { passed, detail } => Some((*passed, detail.clone())),
        _ => None,
    })
}

fn compensation(facts: &Facts) -> Option<Value> {
    let begun = facts.compensator()?;
    let outcome = facts.steps.iter().find_map(|row| match &row.step {
        Step::Compensated { outcome } => Some(outcome),
        _ => None,
    });
    Some(json!({
        "attempt_id": begun.attempt_id,
        "by": begun.by,
        "begun_at": begun.at.to_rfc3339(),
        "done": facts.stage() == Stage::Compensated,
        "exit_code": outcome.and_then(|outcome| outcome.exit_code),
        "stdout": outcome.map(|outcome| outcome.stdout.as_str()),
    }))
}

pub(super) fn step(row: &StepRow) -> EffectStep {
    let ended = |outcome: &Outcome| match outcome.exit_code {
        Some(code) => format!("exit code {code}"),
        None => "no exit code".to_owned(),
    };
    EffectStep {
        step: row.step.kind().to_owned(),
        attempt_id: row.attempt_id.clone(),
        by: row.by.clone(),
        at: row.at.to_rfc3339(),
        detail: match &row.step {
            Step::Started | Step::Compensating => String::new(),
            Step::NotStarted { why } => format!("nothing ran: {why}"),
            Step::Finished { outcome } | Step::Compensated { outcome } => ended(outcome),
            Step::Resolved { again: true, note } => {
                format!("did not happen, may run again; {note}")
            }
            Step::Resolved { again: false, note } => format!("happened; {note}"),
            Step::Verified {
                passed: true,
                detail,
            } => format!("passed; {detail}"),
            Step::Verified {
                passed: false,
                detail,
            } => format!("failed; {detail}"),
        },
    }
}
