//! What a tool answers: one JSON text with `ok`, `data` and, where there is something to tell,
//! `warnings` (seed §10.3); or `ok: false` with a code, a sentence and what to do next.

use heddle_core::approvers::PERSON;
use heddle_wire::client::ClientError;
use serde_json::{Map, Value, json};

use crate::cli::{CliError, exit};

/// Why a tool did not do what it was asked.
#[derive(Debug)]
pub(super) enum ToolError {
    /// The arguments are not those of the tool.
    Arguments(String),
    Client(ClientError),
    /// What the repository's journal says, which needs no daemon.
    Journal(CliError),
}

impl From<CliError> for ToolError {
    fn from(error: CliError) -> Self {
        Self::Journal(error)
    }
}

impl From<ClientError> for ToolError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

pub(super) type Done = Result<Value, ToolError>;

/// Names of rows in one warning; the count tells how many there are.
const LEFT_OUT_SHOWN_MAX: usize = 8;

/// Commands of our words, and the tools that do the same.
const TOOLS: [(&str, &str); 15] = [
    ("heddle task claim", "claim_task"),
    ("heddle task ready", "list_tasks"),
    ("heddle task show", "list_tasks"),
    ("heddle task list", "list_tasks"),
    ("heddle task done", "complete_task"),
    ("heddle task release", "release_task"),
    ("heddle task add", "create_task"),
    ("heddle inbox", "check_messages"),
    ("heddle peers", "list_peers"),
    ("heddle recall", "recall"),
    ("heddle state get", "get_state"),
    ("heddle state list", "get_state"),
    ("heddle remember", "remember"),
    ("heddle effect request", "request_effect"),
    ("heddle effect status", "effect_status"),
];

/// What to do next, for somebody who has tools and no shell: a command that a tool stands for becomes its name.
fn in_tools(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(place, part)| {
        let mut tools = TOOLS.iter().filter(|_| place % 2 == 1);
        let tool = tools.find(|(command, _)| part.starts_with(command));
        tool.map_or_else(|| part.to_owned(), |(_, tool)| with_argument(tool, part))
    });
    let text = parts.collect::<Vec<_>>().join("`");
    // A person's command, and nobody of this home to name.
    text.replace(&format!(" --agent {PERSON}"), "")
}

/// The tool with the argument that makes it do what the command does: whose data it looks at, which tasks.
fn with_argument(tool: &str, command: &str) -> String {
    let mut words = command.split_whitespace();
    if words.by_ref().any(|word| word == "--scope") {
        let scope = words.next().unwrap_or_default();
        return format!("{tool}` with scope `{scope}");
    }
    if command.starts_with("heddle task ready") {
        return format!("{tool}` with ready `true");
    }
    tool.to_owned()
}

fn next_in_tools(value: &mut Value) {
    if let Some(next) = value.get_mut("next")
        && let Some(text) = next.as_str()
    {
        *next = json!(in_tools(text));
    }
}

pub(super) fn success(mut data: Value, mut warnings: Vec<Value>) -> String {
    // What the daemon has to tell this agent rides on its answers; it belongs beside the data.
    let told = data
        .as_object_mut()
        .and_then(|data| data.remove("warnings"));
    if let Some(Value::Array(told)) = told {
        warnings.splice(0..0, told);
    }
    warnings.extend(left_out(&mut data));
    warnings.iter_mut().for_each(next_in_tools);
    let mut answer = Map::new();
    answer.insert("ok".to_owned(), json!(true));
    answer.insert("data".to_owned(), data);
    if !warnings.is_empty() {
        answer.insert("warnings".to_owned(), json!(warnings));
    }
    Value::Object(answer).to_string()
}

/// Rows that the answer is without because a disk has changed them: whoever takes a list for all that there is would decide by it.
fn left_out(data: &mut Value) -> Option<Value> {
    let names = data.as_object_mut()?.remove("left_out")?;
    let names = names.as_array().filter(|names| !names.is_empty())?;
    let count = names.len();
    let mut shown: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    shown.truncate(LEFT_OUT_SHOWN_MAX);
    Some(json!({
        "type": "rows_left_out",
        "rows": shown,
        "count": count,
        "detail": "this list is not whole: these are not what was written any more",
        "next": "Write the key again if you know its value; otherwise, and for a task, a person runs `heddle doctor`.",
    }))
}

pub(super) fn failure(error: &ToolError, may_start: bool) -> String {
    let answer = match error {
        ToolError::Arguments(why) => json!({
            "ok": false,
            "code": "invalid_request",
            "detail": why,
            "next": "Correct the arguments and call again; nothing was changed.",
        }),
        ToolError::Client(ClientError::Problem(problem)) => {
            let mut answer = serde_json::to_value(problem).unwrap_or_default();
            next_in_tools(&mut answer);
            let told = answer.get_mut("warnings").and_then(Value::as_array_mut);
            told.into_iter().flatten().for_each(next_in_tools);
            if let Some(answer) = answer.as_object_mut() {
                for noise in ["type", "title", "status"] {
                    answer.remove(noise);
                }
                answer.insert("ok".to_owned(), json!(false));
            }
            answer
        }
        ToolError::Journal(error) => json!({
            "ok": false,
            "code": match error.code {
                exit::USAGE => "invalid_request",
                exit::CONFLICT => "conflict",
                exit::NOT_FOUND => "not_found",
                _ => "failed",
            },
            "detail": error.message,
            "next": error.next,
        }),
        ToolError::Client(error) => json!({
            "ok": false,
            "code": "unreachable",
            "detail": error.to_string(),
            "next": unreachable_next(error, may_start),
        }),
    };
    answer.to_string()
}

/// What helps where no answer came, as it is: whoever may start a daemon does so at the next call.
fn unreachable_next(error: &ClientError, may_start: bool) -> &'static str {
    match (error, may_start) {
        (ClientError::Broken(_), true) => {
            "Call again with the same arguments: a daemon is started by that where none runs. Whether this call took effect \
             is not known; under the same `id` it lands once."
        }
        (ClientError::Broken(_), false) => {
            "Call again with the same arguments; if no daemon runs, have a person run `heddle up` first. Whether this call \
             took effect is not known; under the same `id` it lands once."
        }
        (ClientError::Silent, _) => {
            "It may be stopped or overloaded: call again later with the same arguments, under the same `id` it lands once. If \
             that does not help, have a person look at `heddle status`."
        }
        (ClientError::NotRunning { .. }, true) => {
            "None could be started either: have a person run `heddle up`, which says why; then call again with the same \
             arguments. Nothing was changed."
        }
        (ClientError::NotRunning { .. }, false) => {
            "Have a person run `heddle up`; then call again with the same arguments. Nothing was changed."
        }
        (ClientError::Foreign { .. } | ClientError::Protocol(_) | ClientError::Problem(_), _) => {
            "Have a person run `heddle doctor` and mend that; then call again with the same arguments."
        }
    }
}

/// What a text costs the agent that reads it: four bytes make about a token.
pub(super) fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_not_whole_says_so_in_a_bounded_warning() {
        let rows: Vec<String> = (0..100).map(|n| format!("memory \"k{n}\"")).collect();
        let told = success(json!({"items": [], "left_out": rows}), Vec::new());
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["data"], json!({"items": []}));
        let warning = &told["warnings"][0];
        assert_eq!(warning["type"], "rows_left_out");
        assert_eq!(warning["count"], 100);
        assert_eq!(
            warning["rows"].as_array().unwrap().len(),
            LEFT_OUT_SHOWN_MAX
        );
        assert_eq!(warning["rows"][0], "memory \"k0\"");
        let whole = success(json!({"items": [], "left_out": []}), Vec::new());
        assert_eq!(whole, r#"{"data":{"items":[]},"ok":true}"#);
    }

    #[test]
    fn the_daemons_warnings_come_first_and_stand_beside_the_data() {
        let answer = success(json!({"n": 1, "warnings": ["a"]}), vec![json!("b")]);
        assert_eq!(answer, r#"{"data":{"n":1},"ok":true,"warnings":["a","b"]}"#);
        assert_eq!(success(json!([1]), vec![]), r#"{"data":[1],"ok":true}"#);
    }

    #[test]
    fn what_to_do_next_names_tools_where_there_are_some() {
        let next = in_tools(
            "Claim it again with `heddle task claim 01 --lease 2h`; `heddle up` starts one.",
        );
        assert_eq!(
            next,
            "Claim it again with `claim_task`; `heddle up` starts one."
        );
        let next = in_tools(
            "Look with `heddle effect status k`; a person says `heddle effect approve e --agent PERSON`.",
        );
        assert_eq!(
            next,
            "Look with `effect_status`; a person says `heddle effect approve e`."
        );
        let next =
            in_tools("`heddle recall` shows the keys, `heddle recall --scope all` all of them.");
        assert_eq!(
            next,
            "`recall` shows the keys, `recall` with scope `all` all of them."
        );
        let told = json!({"next": "`heddle task ready` shows what else can be begun."});
        let answer = success(json!({}), vec![told]);
        assert!(
            answer.contains("`list_tasks` with ready `true` shows"),
            "{answer}"
        );
    }

    #[test]
    fn a_refusal_says_what_to_do_next() {
        let answer = failure(&ToolError::Arguments("no `to`".to_owned()), true);
        assert!(answer.contains("invalid_request") && answer.contains("\"next\""));
    }

    #[test]
    fn a_person_is_asked_for_only_where_the_next_call_would_not_start_the_daemon() {
        let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let gone = || ClientError::NotRunning { socket: "s".into() };
        for (error, may_start, is_for_a_person) in [
            (ClientError::Broken(broken()), true, false),
            (ClientError::Broken(broken()), false, true),
            (gone(), false, true),
            // It was tried, and did not help.
            (gone(), true, true),
        ] {
            let answer = failure(&ToolError::Client(error), may_start);
            let asks = answer.contains("have a person run `heddle up`")
                || answer.contains("Have a person run `heddle up`");
            assert_eq!(asks, is_for_a_person, "{answer}");
            assert!(answer.to_lowercase().contains("call again with the same"));
        }
    }
}
