//! `create_task`: work for anybody of the mesh.

use heddle_wire::ipc::TaskCreateBody;
use serde::Deserialize;
use serde_json::Value;

use super::task_view::changed;
use super::{Done, ID, Session, TEXT, Tool, arguments, id};

pub(super) const TOOL: Tool = Tool {
    name: "create_task",
    description: "Add a task that any agent may claim. blocked_by: task ids to finish first.",
    arguments: &[
        ("title", TEXT),
        ("description", TEXT),
        ("blocked_by", super::TEXTS),
        ID,
    ],
    required: &["title"],
    is_core: true,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    blocked_by: Vec<String>,
    id: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    changed(session.client().create_task(&TaskCreateBody {
        title: given.title,
        description: given.description,
        blocked_by: given.blocked_by,
        client_message_id: id(given.id),
        mesh: session.mesh(),
        agent: session.agent(),
    })?)
}
