//! `effect_status`: what became of an effect, before anything is tried again.

use heddle_core::error_code::ErrorCode;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::EffectView;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::tokens;
use super::{BUDGET, Done, Session, TEXT, Tool, arguments};

/// Tokens of what commands printed, unless the agent says otherwise.
const BUDGET_DEFAULT: usize = 1500;
/// As `tokens` counts them.
const TOKEN_BYTES: usize = 4;

pub(super) const TOOL: Tool = Tool {
    name: "effect_status",
    description: "What became of an effect: its approval, whether it ran, its result. Look here before you try again.",
    arguments: &[("key", TEXT), BUDGET],
    required: &["key"],
    is_core: false,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: String,
    budget: Option<usize>,
}

/// What commands printed, within a budget: of what is too long the end stays, which says how it went.
struct Printed {
    left: usize,
    cost: usize,
    is_cut: bool,
}

impl Printed {
    fn shown<'a>(&mut self, text: &'a str) -> &'a str {
        let room = self.left.saturating_mul(TOKEN_BYTES);
        let mut from = text.len().saturating_sub(room);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let shown = &text[from..];
        let cost = tokens(shown.len());
        self.is_cut |= from > 0;
        self.cost += cost;
        self.left = self.left.saturating_sub(cost);
        shown
    }

    /// The same in an answer, where it is a text.
    fn within(&mut self, value: &mut Value) {
        if let Some(text) = value.as_str() {
            *value = self.shown(text).into();
        }
    }
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
        Ok(view) => Ok(told(&view, given.budget)),
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

/// What is worth an agent's tokens. The streams come last to the budget that the errors have left.
fn told(view: &EffectView, budget: Option<usize>) -> Value {
    let mut answer = json!({
            "key": view.logical_request_key,
            "state": view.state,
            "status": view.status,
            "waited": view.waited,
            "operation": view.operation,
            "target": view.target,
            "artifact_hash": view.artifact_hash,
            "run": view.run,
            "requests": view.requests,
            "request_id": view.request_id,
            "requested_by": view.requested_by,
            "decisions": view.decisions,
            "blocked": view.blocked,
            "approvers": view.approvers,
            "next": next(view),
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
    });
    let mut printed = Printed {
        left: budget.unwrap_or(BUDGET_DEFAULT),
        cost: 0,
        is_cut: false,
    };
    for stream in ["stderr", "stdout"] {
        printed.within(&mut answer[stream]);
        if let Some(made_up) = answer["compensation"].as_object_mut()
            && let Some(text) = made_up.get_mut(stream)
        {
            printed.within(text);
        }
    }
    answer["cost"] = json!(printed.cost);
    if printed.is_cut {
        answer["cut"] = json!(
            "the end of what was printed; raise budget, or `heddle effect status` shows all of it"
        );
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_stays_within_the_budget_and_the_binding_is_told() {
        let mut view = EffectView {
            artifact_hash: "ab".repeat(32),
            run: "r1".to_owned(),
            stdout: Some(format!("{}é end", "x".repeat(60_000))),
            stderr: Some("oops".to_owned()),
            ..EffectView::default()
        };
        let answer = told(&view, Some(10));
        assert_eq!(
            (&answer["run"], &answer["stderr"]),
            (&json!("r1"), &json!("oops"))
        );
        assert_eq!(answer["artifact_hash"], json!(view.artifact_hash));
        let stdout = answer["stdout"].as_str().unwrap();
        assert!(stdout.len() <= 36 && stdout.ends_with("é end"), "{stdout}");
        assert_eq!(
            (&answer["cost"], answer["cut"].is_string()),
            (&json!(10), true)
        );
        assert!(told(&view, None).to_string().len() < 8000);
        view.stdout = Some("short".to_owned());
        let answer = told(&view, None);
        assert_eq!(
            (&answer["stdout"], &answer["cost"]),
            (&json!("short"), &json!(3))
        );
        assert!(answer.get("cut").is_none());
    }
}
