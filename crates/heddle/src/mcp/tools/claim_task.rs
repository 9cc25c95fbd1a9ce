//! `claim_task`: makes a task the agent's own, for as long as it is active.

use heddle_wire::ipc::TaskClaimBody;
use serde::Deserialize;
use serde_json::Value;

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
    changed(session.client().claim_task(&TaskClaimBody {
        id: given.task,
        lease_seconds: given.lease_seconds,
        client_message_id: id(given.id),
        mesh: session.mesh(),
        agent: session.agent(),
    })?)
}
