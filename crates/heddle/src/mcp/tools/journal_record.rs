//! `journal_record`: writes a plan, decision, handoff, … into the repository's journal.

use heddle_journal::Change;
use heddle_journal::action::Action;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Done, ID, Session, TEXT, Tool, ToolError, arguments};
use crate::cli::commands::journal::store;

pub(super) const TOOL: Tool = Tool {
    name: "journal_record",
    description: "Record a plan, decision, constraint, trap, handoff, … in this repository's journal. payload is the whole document, not a part; an update to the same document records nothing, the same id again neither.",
    arguments: &[
        (
            "type",
            r#"{"type":"string","description":"plan, decision, constraint, trap, handoff, runtime_note, claim, agent_run, …"}"#,
        ),
        (
            "item",
            r#"{"type":"string","description":"the entity's id, e.g. pln_1"}"#,
        ),
        (
            "action",
            r#"{"type":"string","description":"create (default), update, delete, accept, reject, run_completed, …"}"#,
        ),
        ("payload", r#"{"type":"object"}"#),
        ("summary", TEXT),
        ID,
    ],
    required: &["type", "item"],
    is_core: false,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    r#type: String,
    item: String,
    action: Option<String>,
    payload: Option<Value>,
    summary: Option<String>,
    id: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let action = given.action.as_deref().unwrap_or("create");
    let action = Action::parse(action).ok_or_else(|| {
        let known: Vec<&str> = Action::ALL.iter().map(|action| action.as_str()).collect();
        ToolError::Arguments(format!("the actions are {}", known.join(", ")))
    })?;
    let journal = store::open(&session.context(), Some(session.name.clone()))?;
    let change = Change {
        item_type: given.r#type,
        item_id: Some(given.item),
        action: Some(action),
        document: given.payload,
        summary: given.summary,
    };
    // Without an id each call is a request of its own.
    let committed = match &given.id {
        Some(id) => journal.mutate_once(change, id),
        None => journal.mutate(vec![change]),
    };
    let committed = committed.map_err(store::told)?;
    let receipt = committed.receipts()[0].clone();
    let mut answer = store::answer(&receipt);
    if receipt.seq.is_none() {
        answer["next"] = json!("nothing was recorded: no lasting field changed");
    }
    // The record is on the disk; a projection that could not be written follows with the next call.
    match committed.finish_told() {
        Ok(aside) => {
            if let Some(name) = aside.first() {
                answer["note"] = json!(store::edited(name));
            }
        }
        Err(error) => {
            let note = format!("the record is safe, its projection follows: {error}");
            answer["note"] = json!(note);
        }
    }
    Ok(answer)
}
