//! One event as a line: JSON for the file, words for the terminal. Secrets are taken out here (XC-01).

use std::fmt;

use heddle_core::redact::{REDACTED, is_secret_name, redact};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};

use crate::cli::printable;

/// A longer text is cut: a line is to be read, and the file has a budget.
const TEXT_CHARS_MAX: usize = 2000;

/// An event, ready to be written.
#[derive(Debug)]
pub struct Line {
    pub at: String,
    pub level: Level,
    pub target: String,
    pub message: String,
    pub fields: Map<String, Value>,
}

/// The line as it is written.
#[derive(Serialize)]
struct Written<'a> {
    at: &'a str,
    level: &'static str,
    target: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    fields: &'a Map<String, Value>,
}

impl Line {
    pub fn of(event: &tracing::Event<'_>, at: String) -> Self {
        let metadata: &Metadata<'_> = event.metadata();
        let mut line = Self {
            at,
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            message: String::new(),
            fields: Map::new(),
        };
        event.record(&mut line);
        line
    }

    /// A remark of the log about itself.
    pub fn own(at: String, message: &str, fields: Map<String, Value>) -> Self {
        Self {
            at,
            level: Level::WARN,
            target: "heddle::log".to_owned(),
            message: message.to_owned(),
            fields,
        }
    }

    pub fn json(&self) -> String {
        let line = Written {
            at: &self.at,
            level: level_name(self.level),
            target: &self.target,
            message: &self.message,
            fields: &self.fields,
        };
        // Text and JSON values: nothing in it can fail.
        serde_json::to_string(&line).unwrap_or_default()
    }

    pub fn words(&self) -> String {
        let mut text = format!("{} {:5} {}", self.at, self.level, self.message);
        for (name, value) in &self.fields {
            text.push_str(&format!("  {name}={value}"));
        }
        // One event, one line: a line break within it would forge another one (T-41).
        printable(&text).replace('\n', "\\n") + "\n"
    }

    fn keep(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let value = match value {
            _ if is_secret_name(name) => Value::from(REDACTED),
            Value::String(text) => Value::from(tidy(&text)),
            other => other,
        };
        match (name, value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => {
                self.fields.insert(name.to_owned(), value);
            }
        }
    }
}

pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// IMPORTANT: redacted before it is cut; half a secret is a secret that no rule knows any more.
fn tidy(text: &str) -> String {
    let redacted = redact(text);
    match redacted.char_indices().nth(TEXT_CHARS_MAX) {
        None => redacted.into_owned(),
        Some((end, _)) => format!("{}…", &redacted[..end]),
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, Value::from(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, Value::from(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_no_half_of_a_secret_is_left() {
        let secret = "xY3".repeat(20);
        let text = format!("{}{secret}", "é ".repeat(TEXT_CHARS_MAX / 2 - 5));
        let shown = tidy(&text);
        assert!(shown.chars().count() <= TEXT_CHARS_MAX + 1);
        assert!(!shown.contains("xY3"), "{shown}");
        assert_eq!(tidy("short"), "short");
    }

    #[test]
    fn words_stay_on_one_line_and_drive_no_terminal() {
        let mut fields = Map::new();
        fields.insert("why".to_owned(), "a\nb\u{1b}[31m".into());
        let line = Line::own("now".to_owned(), "first\nsecond", fields);
        let words = line.words();
        assert_eq!(words.matches('\n').count(), 1, "{words:?}");
        assert!(!words.contains('\u{1b}'));
        let json: Value = serde_json::from_str(&line.json()).unwrap();
        assert_eq!(json["fields"]["why"], "a\nb\u{1b}[31m");
        assert_eq!(json["level"], "warn");
    }
}
