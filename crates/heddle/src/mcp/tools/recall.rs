//! `recall`: what was remembered, by key or by words.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::tokens;
use super::{BUDGET, Done, Session, TEXT, Tool, arguments};

/// Tokens of one answer, unless the agent says otherwise.
const BUDGET_DEFAULT: usize = 2_000;

pub(super) const TOOL: Tool = Tool {
    name: "recall",
    description: "What was remembered: by key, or by words with search, or all keys. scope: self, all or @agent.",
    arguments: &[
        ("key", TEXT),
        ("search", TEXT),
        ("scope", TEXT),
        ("cursor", TEXT),
        BUDGET,
    ],
    required: &[],
    is_core: true,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: Option<String>,
    search: Option<String>,
    scope: Option<String>,
    cursor: Option<String>,
    budget: Option<usize>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let mut query = session.query(&[]);
    for (name, value) in [
        ("key", &given.key),
        ("search", &given.search),
        ("scope", &given.scope),
        ("cursor", &given.cursor),
    ] {
        query.extend(value.as_deref().map(|value| (name, value)));
    }
    let page = session.client().recall(&query)?;
    let mut left = given.budget.unwrap_or(BUDGET_DEFAULT);
    let total = page.items.len();
    let mut items = Vec::new();
    for item in page.items {
        let view = json!({
            "key": item.key,
            "value": item.value,
            "tags": item.tags,
            "peer": item.peer,
            "updated_at": item.updated_at,
        });
        let cost = tokens(view.to_string().len());
        if cost > left && !items.is_empty() {
            break;
        }
        left = left.saturating_sub(cost);
        items.push(view);
    }
    let mut answer = json!({"items": items, "more": page.more || items.len() < total});
    if items.len() < total {
        answer["next"] = json!("raise budget to see the rest of this page");
    } else if let Some(cursor) = page.cursor {
        answer["cursor"] = json!(cursor);
    }
    answer["cost"] = json!(tokens(answer.to_string().len()));
    answer["warnings"] = json!(page.warnings);
    answer["left_out"] = json!(page.left_out);
    Ok(answer)
}
