//! `effect_status`: what became of an effect, before anything is tried again.

use heddle_core::error_code::ErrorCode;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::EffectView;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::tokens;
use super::{BUDGET, Done, Session, TEXT, Tool, arguments};

/// Tokens of an answer, unless the agent says otherwise. What names the effect and says how it stands is told in any case.
const BUDGET_DEFAULT: usize = 1500;
/// As `tokens` counts them.
const TOKEN_BYTES: usize = 4;
/// Decisions, requests and approvers that are told.
const LISTED_MAX: usize = 5;

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

/// What is too long for an agent, within what the rest has left of the budget: of a text the end stays, which says how it
/// went.
struct Shortened {
    bytes_left: usize,
    is_cut: bool,
}

impl Shortened {
    /// As it costs in an answer, where a line's end is two letters and what cannot be seen is six.
    fn shown<'a>(&mut self, text: &'a str) -> &'a str {
        let mut from = text.len();
        for (at, letter) in text.char_indices().rev() {
            let bytes = match letter {
                '"' | '\\' | '\n' | '\r' | '\t' => 2,
                letter if letter.is_control() => 6,
                letter => letter.len_utf8(),
            };
            let Some(left) = self.bytes_left.checked_sub(bytes) else {
                break;
            };
            (self.bytes_left, from) = (left, at);
        }
        self.is_cut |= from > 0;
        &text[from..]
    }

    /// The same in an answer, where it is a text.
    fn within(&mut self, value: &mut Value) {
        if let Some(text) = value.as_str() {
            *value = self.shown(text).into();
        }
    }
}

/// The newest of a list; how many are left off.
fn newest(list: &mut Value) -> usize {
    let Some(all) = list.as_array_mut() else {
        return 0;
    };
    let older = all.len().saturating_sub(LISTED_MAX);
    all.drain(..older);
    older
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
        "running" | "compensating" if view.runs_elsewhere => {
            "It is under way in another home (runs_at), and only that one knows whether it still runs: do not run it."
        }
        "unknown" | "compensation_unknown" | "compensation_failed" => {
            "A person has to look at the target and say what is so."
        }
        _ => return None,
    })
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let budget = given.budget.unwrap_or(BUDGET_DEFAULT);
    let query = session.query(&[("key", &given.key)]);
    match session.client().effect_status(&query) {
        Ok(view) => Ok(told(&view, budget)),
        // That nothing was registered yet is an answer too: where its approval stands.
        Err(ClientError::Problem(problem))
            if problem.known_code() == Some(ErrorCode::EffectNotFound) =>
        {
            let word = |name: &str| problem.extra.get(name).cloned().unwrap_or_default();
            let answer = json!({
                "key": given.key,
                "state": "S0",
                "status": word("approval"),
                "request_id": word("request_id"),
                "waited": word("waited"),
            });
            Ok(within(answer, budget))
        }
        Err(error) => Err(error.into()),
    }
}

/// What is worth an agent's tokens.
fn told(view: &EffectView, budget: usize) -> Value {
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
    let mut left_off = serde_json::Map::new();
    for list in ["decisions", "requests", "approvers"] {
        let older = newest(&mut answer[list]);
        if older > 0 {
            left_off.insert(list.to_owned(), json!(older));
        }
    }
    if !left_off.is_empty() {
        answer["left_off"] = left_off.into();
    }
    within(answer, budget)
}

/// Where texts of somebody's making are in an answer, what helps most first.
const TEXTS: [&str; 10] = [
    "/waited",
    "/blocked",
    "/not_started",
    "/verify_detail",
    "/stderr",
    "/compensation/stderr",
    "/stdout",
    "/compensation/stdout",
    "/registration/verify/command",
    "/registration/verify/url",
];

/// What goes first where there is no room for all; what is not named here names the effect and says how it stands, and
/// stays. Of a field that holds texts, the rest of it.
const LEFT_OUT_FIRST: [&str; 21] = [
    "registration",
    "left_off",
    "requests",
    "decisions",
    "requested_by",
    "approvers",
    "compensation",
    "truncated",
    "runs_at",
    "artifact_hash",
    "run",
    "stdout",
    "stderr",
    "request_id",
    "target",
    "operation",
    "verify_detail",
    "not_started",
    "waited",
    "verified",
    "blocked",
];

const CUT: &str = "there is more: raise budget, or see `heddle effect status`";
/// For `cut` and `cost`, with their names.
const FRAME_BYTES: usize = CUT.len() + 32;

/// Within the budget, or as near to it as what names the effect and says how it stands allows. What is not there costs
/// nothing.
fn within(mut answer: Value, budget: usize) -> Value {
    if let Some(fields) = answer.as_object_mut() {
        let is_empty = |value: &Value| {
            value.is_null()
                || value.as_str().is_some_and(str::is_empty)
                || value.as_array().is_some_and(Vec::is_empty)
        };
        fields.retain(|_, value| !is_empty(value));
    }
    let room = budget
        .saturating_mul(TOKEN_BYTES)
        .saturating_sub(FRAME_BYTES);
    let taken = TEXTS.map(|place| answer.pointer_mut(place).map(Value::take));
    let mut is_cut = false;
    for name in LEFT_OUT_FIRST {
        if answer.to_string().len() <= room {
            break;
        }
        let fields = answer.as_object_mut();
        is_cut |= fields.is_some_and(|fields| fields.remove(name).is_some());
    }
    let mut shortened = Shortened {
        bytes_left: room.saturating_sub(answer.to_string().len()),
        is_cut,
    };
    for (place, text) in TEXTS.iter().zip(taken) {
        if let (Some(place), Some(mut text)) = (answer.pointer_mut(place), text) {
            shortened.within(&mut text);
            *place = text;
        }
    }
    if shortened.is_cut {
        answer["cut"] = json!(CUT);
    }
    // The cost of saying it is a part of it.
    let bytes = answer.to_string().len() + "\"cost\":1000,".len();
    answer["cost"] = json!(tokens(bytes));
    answer
}

#[cfg(test)]
mod tests {
    use heddle_wire::ipc::EffectDecision;

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
        let bare = told(&EffectView::default(), 0).to_string().len();
        let answer = told(&view, tokens(bare) + 120);
        assert_eq!(
            (&answer["run"], &answer["stderr"]),
            (&json!("r1"), &json!("oops"))
        );
        assert_eq!(answer["artifact_hash"], json!(view.artifact_hash));
        let stdout = answer["stdout"].as_str().unwrap();
        assert!(stdout.len() <= 480 && stdout.ends_with("é end"), "{stdout}");
        assert!(answer["cut"].is_string());
        assert!(told(&view, BUDGET_DEFAULT).to_string().len() < 8000);
        // All of it is counted: escapes, a verdict's words, and the lists, of which the newest stay.
        view.stdout = Some("\u{1}".repeat(60_000));
        view.verify_detail = Some("no\n".repeat(20_000));
        let decision = |nth: usize| EffectDecision {
            request_id: format!("env_{nth}"),
            ..EffectDecision::default()
        };
        view.decisions = (0..500).map(decision).collect();
        let answer = told(&view, BUDGET_DEFAULT);
        let bytes = answer.to_string().len();
        assert!(bytes <= BUDGET_DEFAULT * TOKEN_BYTES, "{bytes}");
        let cost = usize::try_from(answer["cost"].as_u64().unwrap()).unwrap();
        assert!(cost.abs_diff(tokens(bytes)) <= 1, "{cost}");
        assert_eq!(answer["left_off"], json!({"decisions": 495}));
        assert_eq!(answer["decisions"][4]["request_id"], "env_499");
        let view = EffectView {
            stdout: Some("short".to_owned()),
            ..EffectView::default()
        };
        let answer = told(&view, BUDGET_DEFAULT);
        assert_eq!(answer["stdout"], "short");
        assert!(answer.get("cut").is_none());
    }

    #[test]
    fn a_small_budget_is_kept_down_to_what_names_the_effect_and_says_how_it_stands() {
        let decision = |nth: usize| EffectDecision {
            request_id: format!("env_{nth}"),
            ..EffectDecision::default()
        };
        let view = EffectView {
            logical_request_key: "mig-42".to_owned(),
            state: "S3".to_owned(),
            status: "compensation_failed".to_owned(),
            operation: "migrate".to_owned(),
            target: "prod".to_owned(),
            artifact_hash: "ab".repeat(32),
            run: "r".repeat(200),
            waited: Some("w".repeat(3000)),
            blocked: Some("b\n".repeat(3000)),
            verify_detail: Some("v".repeat(3000)),
            stdout: Some("\u{1}".repeat(60_000)),
            stderr: Some("é\"".repeat(30_000)),
            exit_code: Some(7),
            verified: Some(false),
            decisions: (0..50).map(decision).collect(),
            approvers: (0..50).map(|nth| format!("@m{nth}")).collect(),
            registration: Some(json!({"verify": {"command": "c".repeat(9000), "url": "u"}})),
            compensation: Some(
                json!({"attempt_id": "a", "stdout": "o".repeat(9000), "stderr": ""}),
            ),
            ..EffectView::default()
        };
        let least = told(&view, 0);
        let floor = tokens(least.to_string().len());
        assert!(floor <= 90, "{floor}: {least}");
        for name in ["key", "state", "status", "exit_code", "next", "cost", "cut"] {
            assert!(!least[name].is_null(), "{name}: {least}");
        }
        let mut before = 0;
        for budget in (0..4000).step_by(13) {
            let answer = told(&view, budget);
            let cost = tokens(answer.to_string().len());
            assert!(cost <= budget.max(floor), "{cost} of {budget}: {answer}");
            let said = usize::try_from(answer["cost"].as_u64().unwrap()).unwrap();
            assert!(said.abs_diff(cost) <= 1, "{said} of {cost}");
            assert!(cost + 40 >= before, "more tokens tell less: {budget}");
            before = cost;
        }
        // Of an effect that nobody has asked for, too.
        let refused =
            json!({"key": "k", "state": "S0", "status": "refused", "waited": "w".repeat(9000)});
        let answer = within(refused, 100);
        assert!(tokens(answer.to_string().len()) <= 100, "{answer}");
        assert!(answer["cost"].is_u64() && answer["cut"].is_string());
    }
}
