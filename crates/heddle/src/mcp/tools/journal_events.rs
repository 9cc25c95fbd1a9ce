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
    description: "What others recorded in this repository's journal since you looked: plans, decisions, claims, handoffs, oldest first. Your own records are left out. gap: older ones are archived.",
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
        .events(&reader, EVENTS_MAX, true)
        .map_err(store::told)?;
    let budget = given.budget.unwrap_or(BUDGET_DEFAULT);
    let (mut shown, mut left, mut passed) = (Vec::new(), budget, 0);
    for event in &page.events {
        let Some(view) = view(event, given.r#type.as_deref()) else {
            passed += 1;
            continue;
        };
        let cost = tokens(event.get().len());
        if cost > left && !shown.is_empty() {
            break;
        }
        passed += 1;
        if cost > left {
            shown.push(short(view));
            break;
        }
        left -= cost;
        shown.push(view);
    }
    let last_seq = if passed == 0 {
        page.last_seq
    } else {
        let moved = journal.events(&reader, passed, false);
        moved.map_err(store::told)?.last_seq
    };
    Ok(json!({
        "events": shown,
        "gap": page.gap,
        "summary": page.summary,
        "last_seq": last_seq,
        "more": page.more || passed < page.events.len(),
        "reader": reader,
        "cost": budget - left,
    }))
}

/// None where another type was asked for.
fn view(event: &RawValue, wanted: Option<&str>) -> Option<Value> {
    let mut event: Value = serde_json::from_str(event.get()).unwrap_or_default();
    if wanted.is_some_and(|wanted| event["item_type"] != wanted) {
        return None;
    }
    if let Some(event) = event.as_object_mut() {
        for noise in ["v", "writer", "batch", "crc", "agent_id", "user"] {
            event.remove(noise);
        }
    }
    Some(event)
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
