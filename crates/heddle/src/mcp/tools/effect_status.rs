//! `effect_status`: what became of an effect, before anything is tried again.

use heddle_core::error_code::ErrorCode;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::EffectView;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Done, Session, TEXT, Tool, arguments};

pub(super) const TOOL: Tool = Tool {
    name: "effect_status",
    description: "What became of an effect: its approval, whether it ran, its result. Look here before you try again.",
    arguments: &[("key", TEXT)],
    required: &["key"],
    is_core: false,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: String,
}

/// What an agent does next with what was not run yet.
fn next(view: &EffectView) -> Option<&'static str> {
    Some(match view.status.as_str() {
        _ if view.blocked.is_some() => {
            "Do not run it: the policy forbids it now, whatever was approved before."
        }
        "awaiting_approval" => "A person has to approve it; do not run it.",
        "approved" => {
            "Run it with `heddle effect run`; where a person has approved it, with the --nonce that they were shown."
        }
        "expired" => "The approval is over: call request_effect again.",
        "denied" | "revoked" => "It was turned down: do not run it.",
        "waiting_for_broker" => "The mesh's broker is away; look again later.",
        "unknown" | "compensation_unknown" | "compensation_failed" => {
            "A person has to look at the target and say what is so."
        }
        _ => return None,
    })
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let query = session.query(&[("key", &given.key)]);
    match session.client().effect_status(&query) {
        Ok(view) => Ok(json!({
            "key": view.logical_request_key,
            "state": view.state,
            "status": view.status,
            "waited": view.waited,
            "operation": view.operation,
            "target": view.target,
            "request_id": view.request_id,
            "requested_by": view.requested_by,
            "decisions": view.decisions,
            "blocked": view.blocked,
            "approvers": view.approvers,
            "next": next(&view),
            "registration": view.registration,
            "runs_at": view.runs_at,
            "exit_code": view.exit_code,
            "stdout": view.stdout,
            "stderr": view.stderr,
            "truncated": view.truncated,
            "verified": view.verified,
            "verify_detail": view.verify_detail,
            "not_started": view.not_started,
            "compensation": view.compensation,
        })),
        // That nothing was registered yet is an answer too: where its approval stands.
        Err(ClientError::Problem(problem))
            if problem.known_code() == Some(ErrorCode::EffectNotFound) =>
        {
            let word = |name: &str| problem.extra.get(name).cloned().unwrap_or_default();
            Ok(json!({
                "key": given.key,
                "state": "S0",
                "status": word("approval"),
                "request_id": word("request_id"),
                "waited": word("waited"),
            }))
        }
        Err(error) => Err(error.into()),
    }
}
