//! `list_tasks`: what there is to do, and who does it.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::tokens;
use super::task_view::brief;
use super::{Done, Session, TEXT, Tool, arguments};

pub(super) const TOOL: Tool = Tool {
    name: "list_tasks",
    description: "Tasks, oldest first. ready: only those that can be begun. task: one, with its story.",
    arguments: &[
        ("ready", r#"{"type":"boolean"}"#),
        (
            "status",
            r#"{"enum":["open","claimed","completed","cancelled"]}"#,
        ),
        ("task", TEXT),
        ("cursor", TEXT),
    ],
    required: &[],
    is_core: true,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    ready: Option<bool>,
    status: Option<String>,
    task: Option<String>,
    cursor: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    if let Some(task) = &given.task {
        return super::value(&session.client().task(&session.query(&[("id", task)]))?);
    }
    let mut query = session.query(&[]);
    if given.ready == Some(true) {
        query.push(("ready", "true"));
    }
    for (name, value) in [("status", &given.status), ("cursor", &given.cursor)] {
        query.extend(value.as_deref().map(|value| (name, value)));
    }
    let page = session.client().tasks(&query)?;
    let mut answer = json!({
        "tasks": page.items.iter().map(brief).collect::<Vec<_>>(),
        "warnings": page.warnings,
    });
    if let Some(cursor) = page.cursor {
        answer["cursor"] = json!(cursor);
    }
    answer["cost"] = json!(tokens(answer.to_string().len()));
    answer["left_out"] = json!(page.left_out);
    Ok(answer)
}
