//! The tools. Adding one touches its file and one line here.

mod check_messages;
mod claim_task;
mod complete_task;
mod create_task;
mod effect_status;
mod forget;
mod get_state;
mod journal_events;
mod journal_record;
mod list_peers;
mod list_tasks;
mod recall;
mod release_task;
mod remember;
mod request_effect;
mod send_message;
mod set_state;
mod task_view;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::answer::{Done, ToolError};
use super::session::Session;

/// One tool. Names, descriptions and arguments are constants: what was approved does not change (T-45).
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    description: &'static str,
    /// Each argument with its JSON Schema.
    arguments: &'static [(&'static str, &'static str)],
    required: &'static [&'static str],
    /// Offered by default.
    pub(super) is_core: bool,
    /// Its answer holds the mail itself, so that urgent mail needs no warning.
    pub(super) shows_mail: bool,
    pub(super) run: fn(&Session, Value) -> Done,
}

pub(super) const TOOLS: &[Tool] = &[
    send_message::TOOL,
    check_messages::TOOL,
    list_peers::TOOL,
    remember::TOOL,
    recall::TOOL,
    create_task::TOOL,
    list_tasks::TOOL,
    claim_task::TOOL,
    complete_task::TOOL,
    release_task::TOOL,
    forget::TOOL,
    set_state::TOOL,
    get_state::TOOL,
    request_effect::TOOL,
    effect_status::TOOL,
    journal_record::TOOL,
    journal_events::TOOL,
];

const TEXT: &str = r#"{"type":"string"}"#;
const TEXTS: &str = r#"{"type":"array","items":{"type":"string"}}"#;
/// The idempotency key, the same for every tool that changes something.
const ID: (&str, &str) = ("id", TEXT);
const BUDGET: (&str, &str) = (
    "budget",
    r#"{"type":"integer","description":"most tokens to return"}"#,
);

impl Tool {
    fn schema(&self) -> Map<String, Value> {
        let properties: Map<String, Value> = self
            .arguments
            .iter()
            .map(|(name, schema)| {
                let schema = serde_json::from_str(schema).unwrap_or_default();
                ((*name).to_owned(), schema)
            })
            .collect();
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !self.required.is_empty() {
            schema.insert("required".to_owned(), json!(self.required));
        }
        schema
    }

    pub(super) fn described(&self) -> rmcp::model::Tool {
        rmcp::model::Tool::new(self.name, self.description, Arc::new(self.schema()))
    }

    /// As it stands in the answer to `tools/list`.
    #[cfg(test)]
    pub(super) fn listed(&self) -> Value {
        serde_json::to_value(self.described()).unwrap()
    }
}

/// The arguments of a tool, each of them known to it.
fn arguments<T: DeserializeOwned>(given: Value) -> Result<T, ToolError> {
    serde_json::from_value(given).map_err(|error| ToolError::Arguments(error.to_string()))
}

/// The id that was given, or a fresh one: a lost answer must not become a second effect.
fn id(given: Option<String>) -> Option<String> {
    Some(given.unwrap_or_else(|| crate::cli::Context::mint_id().to_string()))
}

fn value<T: serde::Serialize>(answer: &T) -> Done {
    serde_json::to_value(answer).map_err(|error| ToolError::Arguments(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_called_by_one_name_and_its_arguments_are_json_schemas() {
        let names: std::collections::BTreeSet<_> = TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names.len(), TOOLS.len());
        for tool in TOOLS {
            for (name, schema) in tool.arguments {
                let schema: Value = serde_json::from_str(schema).unwrap();
                assert!(schema.is_object(), "{}: {name}", tool.name);
            }
            for name in tool.required {
                let known = tool.arguments.iter().any(|(known, _)| known == name);
                assert!(known, "{}: {name}", tool.name);
            }
        }
    }
}
