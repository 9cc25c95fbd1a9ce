//! `claim_task`: makes a task the agent's own, for as long as it is active.

use heddle_wire::client::ClientError;
use heddle_wire::ipc::TaskClaimBody;
use serde::Deserialize;
use serde_json::{Value, json};

use super::task_view::changed;
use super::{Done, ID, Session, TEXT, Tool, arguments, id};

pub(super) const TOOL: Tool = Tool {
    name: "claim_task",
    description: "Claim a task before you work on it. Yours while you are active; keep the fence.",
    arguments: &[
        ("task", TEXT),
        ("lease_seconds", r#"{"type":"integer"}"#),
        ID,
    ],
    required: &["task"],
    is_core: true,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    task: String,
    lease_seconds: Option<u64>,
    id: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let answer = session.client().claim_task(&TaskClaimBody {
        id: given.task,
        lease_seconds: given.lease_seconds,
        client_message_id: id(given.id),
        mesh: session.mesh(),
        agent: session.agent(),
    })?;
    if let Some(lost) = answer.lost_claim() {
        return Err(ClientError::Problem(Box::new(lost)).into());
    }
    // Two sessions of one client in one folder are one agent: the second must not think that it is the first.
    let held = answer.task.claim.as_ref().filter(|_| answer.already_yours);
    let told = held.map(|claim| {
        json!({
            "type": "already_yours",
            "message": format!("{} claimed it at {} already, perhaps in another session", claim.by, claim.at),
            "next": "Go on only if that was you; otherwise leave it to that session and take another task.",
        })
    });
    let waits_for = answer.task.waits_for;
    let is_tentative = answer.tentative;
    let mut view = changed(answer)?;
    if let (true, Some(warnings)) = (is_tentative, view["warnings"].as_array_mut()) {
        warnings.push(json!({
            "type": "tentative",
            "message": "the broker is out of reach: another home may have claimed it first",
            "next": "Begin, but do nothing that cannot be undone until it is back; a lost claim comes as a warning.",
        }));
        view["tentative"] = json!(true);
    }
    if let (true, Some(warnings)) = (waits_for > 0, view["warnings"].as_array_mut()) {
        warnings.push(json!({
            "type": "task_waits",
            "message": format!("{waits_for} tasks before it (blocked_by) are not finished"),
            "next": "Release it, unless you know that it can be done before them; list_tasks with ready shows what can be begun.",
        }));
    }
    if let (Some(told), Some(warnings)) = (told, view["warnings"].as_array_mut()) {
        warnings.push(told);
        view["already_yours"] = json!(true);
    }
    Ok(view)
}
