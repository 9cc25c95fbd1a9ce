//! `remember`: keeps a value under a key of the agent's own.

use heddle_wire::ipc::RememberBody;
use serde::Deserialize;
use serde_json::Value;

use super::{Done, ID, Session, TEXT, Tool, arguments, id, value};

pub(super) const TOOL: Tool = Tool {
    name: "remember",
    description: "Keep any JSON value under your key, for later and for other agents.",
    arguments: &[("key", TEXT), ("value", "{}"), ("tags", super::TEXTS), ID],
    required: &["key", "value"],
    is_core: true,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: String,
    value: Value,
    #[serde(default)]
    tags: Vec<String>,
    id: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    value(&session.client().remember(&RememberBody {
        key: given.key,
        value: given.value,
        tags: given.tags,
        client_message_id: id(given.id),
        mesh: session.mesh(),
        agent: session.agent(),
    })?)
}
