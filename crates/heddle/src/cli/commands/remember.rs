//! `heddle remember KEY VALUE`: a value for later, on disk when the verb ends.

use clap::Args as ClapArgs;
use heddle_core::canonical::parse_ijson;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{ChangeAnswer, RememberBody};
use serde_json::Value;

use super::send::message;
use crate::cli::{CliError, Context, exit, printable};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// What to call it; keys of a team are best named like team.topic
    key: String,
    /// What parses as JSON is kept as JSON ('7', '{"a":1}', '"7"' for text), everything else as text;
    /// `-` reads it from standard input
    #[arg(allow_negative_numbers = true)]
    value: String,
    /// A word to find it by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The idempotency key: the same key and request again land once
    #[arg(long)]
    id: Option<String>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let body = RememberBody {
        key: args.key,
        value: value(args.value)?,
        tags: args.tags,
        client_message_id: Some(id(args.id)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.remember(&body))?;
    context.print(&answer, |answer| describe("remembered", answer))
}

/// Always an id: an answer that is lost on the way must not become a second change.
pub(super) fn id(given: Option<String>) -> String {
    given.unwrap_or_else(|| Context::mint_id().to_string())
}

/// One more try when the answer was lost: under the same id it is the same change.
pub(super) fn again<T>(call: impl Fn() -> Result<T, ClientError>) -> Result<T, ClientError> {
    match call() {
        Err(ClientError::Broken(_)) => call(),
        other => other,
    }
}

/// A value as people type it.
pub(super) fn value(text: String) -> Result<Value, CliError> {
    let text = message(text)?;
    let error = match parse_ijson(text.as_bytes()) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    // Meant as JSON, but some reader would see another value than the one that was written.
    let is_container = text.trim_start().starts_with(['{', '[']);
    if is_container && serde_json::from_str::<Value>(&text).is_ok() {
        return Err(CliError::new(exit::USAGE, format!("the value: {error}"))
            .next("Correct the JSON, or quote it as a JSON string to keep it as text."));
    }
    Ok(Value::String(text))
}

pub(super) fn describe(done: &str, answer: &ChangeAnswer) -> String {
    let (key, id) = (printable(&answer.key), printable(&answer.client_message_id));
    if answer.duplicate {
        format!("already {done} {key} ({id})\n")
    } else {
        format!("{done} {key}, safe on disk ({id})\n")
    }
}

/// A value for people: text as it is, everything else as JSON.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_parses_is_json_and_the_rest_is_text() {
        for (typed, expected) in [
            ("7", json!(7)),
            ("\"7\"", json!("7")),
            ("true", json!(true)),
            ("{\"a\": [1]}", json!({"a": [1]})),
            ("hello world", json!("hello world")),
            ("{not json", json!("{not json")),
            ("", json!("")),
            // No number can hold it exactly, a text can.
            ("9007199254740993", json!("9007199254740993")),
        ] {
            assert_eq!(value(typed.to_owned()).unwrap(), expected, "{typed}");
        }
        for ambiguous in ["{\"a\":1,\"a\":2}", "[9007199254740993]"] {
            assert_eq!(value(ambiguous.to_owned()).unwrap_err().code, exit::USAGE);
        }
    }
}
