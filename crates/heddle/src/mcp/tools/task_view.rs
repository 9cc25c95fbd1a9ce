//! What the tools for tasks have in common: a task in few words, and the two ways of letting go of one.

use heddle_wire::ipc::{TaskAnswer, TaskSettleBody, TaskView};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Done, Session, arguments, id};

pub(super) const FENCE: (&str, &str) = ("fence", r#"{"type":"integer"}"#);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    task: String,
    fence: Option<u64>,
    id: Option<String>,
}

pub(super) fn settle(session: &Session, verb: &str, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let body = TaskSettleBody {
        id: given.task,
        fence: given.fence,
        client_message_id: id(given.id),
        mesh: session.mesh(),
        agent: session.agent(),
    };
    changed(session.client().settle_task(verb, &body)?)
}

pub(super) fn changed(answer: TaskAnswer) -> Done {
    let mut view = json!({
        "task": brief(&answer.task),
        "duplicate": answer.duplicate,
        "warnings": answer.warnings,
    });
    if let Some(fence) = answer.fence {
        view["fence"] = json!(fence);
    }
    Ok(view)
}

/// Without what every line of a list would repeat.
pub(super) fn brief(task: &TaskView) -> Value {
    let mut view = json!({
        "id": task.id,
        "title": task.title,
        "status": task.status,
        "ready": task.ready,
    });
    if !task.description.is_empty() {
        view["description"] = json!(task.description);
    }
    if !task.blocked_by.is_empty() {
        view["blocked_by"] = json!(task.blocked_by);
    }
    if let Some(claim) = &task.claim {
        view["claimed_by"] = json!(claim.by);
        view["until"] = json!(claim.until);
    }
    if let Some(by) = &task.finished_by {
        view["finished_by"] = json!(by);
    }
    view
}
