//! The end of a command that ran here and that who decides has not heard of: what this home has seen.

use heddle_registrar::storage::sqlite::Waiting;
use heddle_wire::ipc::{EffectEndBody, EffectStep, EffectView};
use heddle_wire::problem::Problem;
use serde_json::json;

/// A command that ended here while the broker was away: what this home has seen of it, and who decides has not heard.
pub(super) fn view(waiting: &Waiting, body: EffectEndBody) -> EffectView {
    let ended = match (&body.not_started, body.exit_code) {
        (Some(why), _) => format!("it was not started: {why}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "a signal ended it".to_owned(),
    };
    let step = EffectStep {
        at: waiting.since.to_rfc3339(),
        step: waiting.verb.clone(),
        by: waiting.caller.clone(),
        attempt_id: body.attempt_id.clone(),
        detail: format!("{ended}; kept here until the broker is back"),
    };
    EffectView {
        logical_request_key: body.key,
        state: "unknown".to_owned(),
        state_means: "its command ended here, and the broker that decides has not heard of it yet"
            .to_owned(),
        status: "waiting_for_broker".to_owned(),
        runner: Some(body.attempt_id),
        not_started: body.not_started,
        exit_code: body.exit_code,
        stdout: Some(body.stdout),
        stderr: Some(body.stderr),
        truncated: body.truncated,
        steps: vec![step],
        ..EffectView::default()
    }
}

/// The same for who asked what stands, which nobody could say.
pub(super) fn with(mut problem: Problem, ended: EffectView) -> Problem {
    let says = ended.steps.first().map_or("", |step| step.detail.as_str());
    problem.detail = format!(
        "{}: its command ended here ({says}), and what stands cannot be known: {}",
        ended.logical_request_key, problem.detail
    );
    problem
        .with("logical_request_key", ended.logical_request_key)
        .with("waits", ended.status)
        .with("attempt_id", json!(ended.runner))
        .with("not_started", json!(ended.not_started))
        .with("exit_code", json!(ended.exit_code))
        .with("stdout", json!(ended.stdout))
        .with("stderr", json!(ended.stderr))
        .with("truncated", ended.truncated)
}
