//! What a hook is told: which hooks a message concerns, and the event as bounded JSON without what the
//! policy redacts. No I/O.

use heddle_core::ids::MemberId;
use heddle_core::limits::HOOK_INPUT_BYTES_MAX;
use heddle_core::redact::REDACTED;
use heddle_store::InboxRow;
use serde_json::{Map, Value, json};

use super::policy::{ON_DM, ON_MENTION, ON_MESSAGE, ON_TOPIC, Policy};
use crate::inbox::damage::readable;

/// The hooks that a stored message owes, as far as the policy allows them.
pub(super) fn owed(policy: &Policy, row: &InboxRow, own_member: Option<MemberId>) -> Vec<String> {
    let mut hooks = vec![ON_MESSAGE.to_owned()];
    match &row.topic {
        Some(topic) => hooks.push(format!("{ON_TOPIC}{topic}")),
        None => hooks.push(ON_DM.to_owned()),
    }
    if policy.rule(ON_MENTION).is_some() && mentions(row, own_member) {
        hooks.push(ON_MENTION.to_owned());
    }
    hooks.retain(|hook| policy.rule(hook).is_some());
    hooks
}

/// Whether the message mentions the owner of the mailbox.
fn mentions(row: &InboxRow, own_member: Option<MemberId>) -> bool {
    let Some(member) = own_member else {
        return false;
    };
    let own = format!("{member}/{}", row.agent);
    readable(&row.envelope, row.fingerprint)
        .is_some_and(|envelope| envelope.mentions.contains(&own))
}

/// The event as a hook reads it.
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    pub(super) is_truncated: bool,
}

/// Redacts, then cuts: a field that was to be hidden never decides what is kept.
pub(super) fn input(mut event: Map<String, Value>, redact: &[String]) -> Input {
    for path in redact {
        let names: Vec<&str> = path.split('.').collect();
        hide(&mut event, &names);
    }
    let bytes = render(&event);
    if bytes.len() <= HOOK_INPUT_BYTES_MAX {
        return Input {
            bytes,
            is_truncated: false,
        };
    }
    event.insert("_truncated".to_owned(), json!(true));
    let body = match event.insert("body".to_owned(), json!("")) {
        Some(Value::String(body)) => body,
        _ => String::new(),
    };
    if render(&event).len() > HOOK_INPUT_BYTES_MAX {
        // Too long even without the text: the caller's own object goes, too.
        event.insert("meta".to_owned(), Value::Null);
    }
    let room = HOOK_INPUT_BYTES_MAX.saturating_sub(render(&event).len());
    event.insert("body".to_owned(), json!(beginning(&body, room)));
    Input {
        bytes: render(&event),
        is_truncated: true,
    }
}

fn render(event: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(event).unwrap_or_default()
}

/// As much of the text as fits into so many bytes of JSON.
fn beginning(text: &str, room: usize) -> &str {
    let mut used = 0_usize;
    let fits = |c: char| {
        used += match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            c if c < ' ' => 6,
            c => c.len_utf8(),
        };
        used <= room
    };
    let end: usize = text
        .chars()
        .map(|c| (c, c.len_utf8()))
        .scan(fits, |fits, (c, bytes)| fits(c).then_some(bytes))
        .sum();
    &text[..end]
}

/// Puts a mark in the place of what the path names; in a list, in each of its objects.
fn hide(object: &mut Map<String, Value>, path: &[&str]) {
    let Some((name, rest)) = path.split_first() else {
        return;
    };
    let Some(value) = object.get_mut(*name) else {
        return;
    };
    if rest.is_empty() {
        *value = json!(REDACTED);
    } else {
        hide_in(value, rest);
    }
}

fn hide_in(value: &mut Value, path: &[&str]) {
    match value {
        Value::Object(object) => hide(object, path),
        Value::Array(values) => values.iter_mut().for_each(|value| hide_in(value, path)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            other => panic!("{other}"),
        }
    }

    fn told(event: Value, redact: &[&str]) -> Value {
        let redact: Vec<String> = redact.iter().map(|path| (*path).to_owned()).collect();
        serde_json::from_slice(&input(object(event), &redact).bytes).unwrap()
    }

    #[test]
    fn what_the_policy_redacts_is_not_told() {
        let event = json!({"body": "b", "meta": {"a": 1, "secret": {"x": 2}, "list": [{"k": 3}, 4, [{"k": 5}]]}});
        let told = told(
            event,
            &["meta.secret", "meta.list.k", "nothing.here", "body.x"],
        );
        let expected = json!({"body": "b", "meta": {"a": 1, "secret": REDACTED,
            "list": [{"k": REDACTED}, 4, [{"k": REDACTED}]]}});
        assert_eq!(told, expected);
    }

    #[test]
    fn a_long_event_is_cut_to_the_limit_and_stays_json() {
        for body in [
            "x".repeat(HOOK_INPUT_BYTES_MAX + 1),
            "\u{1}".repeat(HOOK_INPUT_BYTES_MAX / 2),
            "é\"\n".repeat(HOOK_INPUT_BYTES_MAX / 4),
            "🧵".repeat(HOOK_INPUT_BYTES_MAX),
        ] {
            let event = object(json!({"id": "1", "body": body, "meta": {"a": 1}}));
            let input = input(event, &[]);
            assert!(input.is_truncated && input.bytes.len() <= HOOK_INPUT_BYTES_MAX);
            assert!(input.bytes.len() > HOOK_INPUT_BYTES_MAX - 8, "wasteful");
            let told: Value = serde_json::from_slice(&input.bytes).unwrap();
            assert_eq!(told["_truncated"], true);
            assert_eq!(told["meta"]["a"], 1);
            assert!(body.starts_with(told["body"].as_str().unwrap()));
        }
        let event =
            object(json!({"body": "short", "meta": {"a": "y".repeat(HOOK_INPUT_BYTES_MAX)}}));
        let told: Value = serde_json::from_slice(&input(event, &[]).bytes).unwrap();
        assert_eq!(
            told,
            json!({"body": "short", "meta": null, "_truncated": true})
        );
        assert!(!input(object(json!({"body": ""})), &[]).is_truncated);
    }
}
