//! `journal_events`: what others have recorded in the repository's journal since this session looked last.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::answer::tokens;
use super::{BUDGET, Done, Session, TEXT, Tool, arguments};
use crate::cli::commands::journal::store;

/// Tokens of events, unless the agent says otherwise.
const BUDGET_DEFAULT: usize = 1500;
const EVENTS_MAX: usize = 200;
/// What stays of an event that is larger than the budget.
const KEPT: &[&str] = &[
    "seq",
    "ts",
    "agent",
    "action",
    "item_type",
    "item_id",
    "entity_rev",
    "summary",
];

pub(super) const TOOL: Tool = Tool {
    name: "journal_events",
    description: "What others recorded in this repository's journal since you looked: plans, decisions, claims, handoffs, oldest first. Your own records are left out. gap: some are archived or lost (missing). type: only these; the others stay unread.",
    arguments: &[
        (
            "reader",
            r#"{"type":"string","description":"a name of your own, to go on where an earlier session ended"}"#,
        ),
        ("type", TEXT),
        BUDGET,
    ],
    required: &[],
    is_core: false,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    reader: Option<String>,
    r#type: Option<String>,
    budget: Option<usize>,
}

/// The watermark moves behind what is shown, and no further: what does not fit comes with the next call.
fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let reader = given.reader.unwrap_or_else(|| session.name.clone());
    // As the session that records: whatever the reader is called, its own records are not news to it.
    let journal = store::open(&session.context(), Some(session.name.clone()))?;
    let page = journal
        .events_of(&reader, given.r#type.as_deref(), EVENTS_MAX, true)
        .map_err(store::told)?;
    let budget = given.budget.unwrap_or(BUDGET_DEFAULT);
    let (mut shown, mut left) = (Vec::new(), budget);
    for event in &page.events {
        let cost = tokens(event.get().len());
        if cost > left && !shown.is_empty() {
            break;
        }
        if cost > left {
            shown.push(short(view(event)));
            break;
        }
        left -= cost;
        shown.push(view(event));
    }
    // Behind what is shown here, whoever else reads under this name meanwhile.
    let last_seq = journal
        .events_shown(&page, shown.len())
        .map_err(store::told)?;
    let mut answer = json!({
        "events": shown,
        "gap": page.gap,
        "summary": page.summary,
        "last_seq": last_seq,
        "more": page.more || shown.len() < page.events.len(),
        "reader": reader,
        "cost": budget - left,
    });
    if !page.missing.is_empty() {
        answer["missing"] = json!(page.missing);
    }
    if let Some(had) = page.rewound_from {
        answer["rewound_from"] = json!(had);
    }
    Ok(answer)
}

/// Without what is of no use to an agent.
fn view(event: &RawValue) -> Value {
    let mut event: Value = serde_json::from_str(event.get()).unwrap_or_default();
    if let Some(event) = event.as_object_mut() {
        for noise in ["v", "writer", "batch", "crc", "agent_id", "user", "request"] {
            event.remove(noise);
        }
    }
    event
}

fn short(event: Value) -> Value {
    let mut kept =
        json!({"next": "the document is larger than budget: raise it, or `heddle journal show`"});
    for name in KEPT {
        if !event[*name].is_null() {
            kept[*name] = event[*name].clone();
        }
    }
    kept
}
