//! `get_state`: one shared value, or the keys that there are.

use serde::Deserialize;
use serde_json::Value;

use super::{Done, Session, TEXT, Tool, arguments, value};

pub(super) const TOOL: Tool = Tool {
    name: "get_state",
    description: "A shared value by key; without a key, all of them (prefix narrows).",
    arguments: &[("key", TEXT), ("prefix", TEXT), ("cursor", TEXT)],
    required: &[],
    is_core: false,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: Option<String>,
    prefix: Option<String>,
    cursor: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let (mesh, agent) = (session.mesh(), session.agent());
    let mut query: Vec<_> = mesh.iter().map(|mesh| ("mesh", mesh.as_str())).collect();
    // Whose warnings the answer carries.
    query.extend(agent.iter().map(|agent| ("agent", agent.as_str())));
    if let Some(key) = &given.key {
        query.push(("key", key));
        return value(&session.client().get_state(&query)?);
    }
    for (name, value) in [("prefix", &given.prefix), ("cursor", &given.cursor)] {
        query.extend(value.as_deref().map(|value| (name, value)));
    }
    value(&session.client().list_state(&query)?)
}
