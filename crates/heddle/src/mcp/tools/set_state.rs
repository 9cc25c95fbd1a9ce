//! `set_state`: a value that all agents of the mesh share.

use heddle_wire::ipc::StateSetBody;
use serde::Deserialize;
use serde_json::Value;

use super::{Done, ID, Session, TEXT, Tool, arguments, id, value};

pub(super) const TOOL: Tool = Tool {
    name: "set_state",
    description: "Set a value that all agents share. The last writer wins.",
    arguments: &[("key", TEXT), ("value", "{}"), ID],
    required: &["key", "value"],
    is_core: false,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: String,
    value: Value,
    id: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    value(&session.client().set_state(&StateSetBody {
        key: given.key,
        value: given.value,
        client_message_id: id(given.id),
        mesh: session.mesh(),
        agent: session.agent(),
    })?)
}
