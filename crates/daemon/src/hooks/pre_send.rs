//! `pre-send`: the home's owner is asked before a message is accepted, and may say no.
//!
//! It decides and changes nothing: the message is sent as the caller wrote it, or not at all, so its
//! fingerprint stays the caller's. It fails closed: a guard that gives no answer lets nothing pass.

use heddle_core::envelope::SendRequest;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use heddle_core::names::{AgentName, MeshName};
use heddle_wire::problem::Problem;
use serde_json::{Map, Value, json};

use super::Hooks;
use super::one::{Outcome, Task, run};
use super::policy::PRE_SEND;
use crate::shared::Shared;

/// Of its words, so many characters are given to the caller.
const REASON_CHARS_MAX: usize = 300;

/// A message that is about to be accepted.
pub(crate) struct Outgoing<'a> {
    pub(crate) mesh: &'a MeshName,
    pub(crate) agent: &'a AgentName,
    pub(crate) id: Option<&'a ClientMessageId>,
    pub(crate) request: &'a SendRequest,
}

/// `Ok` if it may be accepted.
pub(crate) async fn ask(
    shared: &Shared,
    hooks: &Hooks,
    outgoing: Outgoing<'_>,
) -> Result<(), Problem> {
    // Waits for its turn like any other hook; the caller's patience is the bound.
    let Ok(_turn) = hooks.asking.acquire().await else {
        return Err(unavailable("hooks are off"));
    };
    let id = shared.ids.ulid().to_string();
    let task = Task {
        hook: PRE_SEND.to_owned(),
        event_id: id,
        attempt: 1,
        event: event(&outgoing),
        mesh: Some(outgoing.mesh.clone()),
        // Its token allows nothing: whoever guards the door does not go through it.
        message: None,
    };
    let (outcome, said) = run(shared, hooks, task).await;
    match outcome {
        Outcome::Ok => Ok(()),
        Outcome::Failed => Err(refusal(&said)),
        Outcome::TimedOut => Err(unavailable("it did not end in time")),
        Outcome::NotStarted => Err(unavailable("it could not be started")),
        Outcome::Refused => Err(unavailable("its file or policy does not allow it to run")),
        Outcome::Stopped => Err(Problem::new(
            ErrorCode::ShuttingDown,
            "the daemon is stopping",
        )),
    }
}

fn event(outgoing: &Outgoing<'_>) -> Map<String, Value> {
    let request = outgoing.request;
    let event = json!({
        "event": "send",
        "hook": PRE_SEND,
        "attempt": 1,
        "mesh": outgoing.mesh.as_str(),
        "agent": outgoing.agent.as_str(),
        "client_message_id": outgoing.id.map(ToString::to_string),
        "to": request.to.to_string(),
        "body": request.body,
        "priority": request.priority.as_str(),
        "meta": request.meta,
        "mentions": request.mentions,
        "reply_to_id": (!request.reply_to.is_empty()).then_some(&request.reply_to),
    });
    match event {
        Value::Object(event) => event,
        _ => Map::new(),
    }
}

/// The first line of what it said is the reason.
fn refusal(said: &str) -> Problem {
    let line = said.lines().map(str::trim).find(|line| !line.is_empty());
    let reason: String = line
        .unwrap_or("it gave no reason")
        .chars()
        .filter(|c| !c.is_control())
        .take(REASON_CHARS_MAX)
        .collect();
    let detail = format!("hooks/pre-send refused it: {reason}");
    Problem::new(ErrorCode::RefusedByHook, detail).with("reason", reason)
}

fn unavailable(why: &str) -> Problem {
    Problem::new(ErrorCode::HookUnavailable, format!("hooks/pre-send: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_one_bounded_line_without_control_characters() {
        let long = format!("\n  no \u{1b}[31msecrets {}\nmore\n", "x".repeat(999));
        let problem = refusal(&long);
        let reason = problem.extra["reason"].as_str().unwrap();
        assert!(reason.starts_with("no [31msecrets x"), "{reason}");
        assert_eq!(reason.chars().count(), REASON_CHARS_MAX);
        assert_eq!(refusal("").extra["reason"], "it gave no reason");
    }
}
