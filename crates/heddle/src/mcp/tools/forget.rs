//! `forget`: takes back what the agent remembered.

use heddle_wire::ipc::KeyBody;
use serde::Deserialize;
use serde_json::Value;

use super::{Done, ID, Session, TEXT, Tool, arguments, id, value};

pub(super) const TOOL: Tool = Tool {
    name: "forget",
    description: "Forget what you remembered under a key.",
    arguments: &[("key", TEXT), ID],
    required: &["key"],
    is_core: false,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: String,
    id: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    value(&session.client().forget(&KeyBody {
        key: given.key,
        client_message_id: id(given.id),
        mesh: session.mesh(),
        agent: session.agent(),
    })?)
}
