//! Why the last daemon of a home stopped by itself, as its log tells it to whoever finds none running.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use heddle_daemon::home::{log_folder, open_plain};
use serde_json::Value;

use super::file_path;
use crate::cli::printable;

/// The end of the log that is looked at, and the lines of it: words behind the last ones are few.
const TAIL_BYTES: u64 = 16 << 10;
const LINES_MAX: usize = 5;

/// What it said.
#[derive(Debug, PartialEq, Eq)]
pub struct LastWords {
    pub why: String,
    /// A step of the schema that it could not take.
    pub migration: Option<u64>,
    /// A start would not meet the same again.
    pub starts_again: bool,
}

/// `None` where it was asked to stop, was killed, or has left no log.
pub fn last_words(home: &Path) -> Option<LastWords> {
    let mut file = open_plain(&file_path(&log_folder(home), 0)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
        .ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes).ok()?;
    of_lines(&String::from_utf8_lossy(&bytes))
}

fn of_lines(tail: &str) -> Option<LastWords> {
    let lines = tail.lines().rev().filter(|line| !line.is_empty());
    for line in lines.take(LINES_MAX) {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        match line["message"].as_str() {
            Some("stopping") if line["level"] == "error" => {
                let fields = &line["fields"];
                return fields["why"].as_str().map(|why| LastWords {
                    why: printable(why),
                    migration: None,
                    starts_again: fields["starts_again"] != false,
                });
            }
            Some("a migration failed") => return failed_migration(&line["fields"]),
            // A later daemon worked, and ended otherwise.
            Some("connected" | "asked to stop") => return None,
            _ => {}
        }
    }
    None
}

/// A start that did not get as far as to be a daemon.
fn failed_migration(fields: &Value) -> Option<LastWords> {
    let (number, name) = (fields["migration"].as_u64()?, fields["name"].as_str()?);
    let error = fields["error"].as_str()?;
    // Of a Heddle that wrote the statement into the same line.
    let words = match fields.get("sql") {
        Some(_) => error,
        None => error.split(" in ").next().unwrap_or(error),
    };
    Some(LastWords {
        why: printable(&format!(
            "it could not take migration {number} ({name}): {words}; nothing was changed, and the Heddle of before reads the file"
        )),
        migration: Some(number),
        starts_again: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_daemon_that_stopped_by_itself_has_last_words() {
        let stopped =
            r#"{"level":"error","message":"stopping","fields":{"why":"4012 it is\u001b"}}"#;
        let connected = r#"{"level":"info","message":"connected"}"#;
        let warned = r#"{"level":"warn","message":"the store was not marked clean"}"#;
        let of = |lines: &[&str]| of_lines(&lines.join("\n"));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["half a li", stopped]), of(&[stopped, "", warned, "{"]));
        let last = of(&[connected, stopped]).unwrap();
        assert!(last.why.starts_with("4012 it is") && last.starts_again);
        assert!(!last.why.contains('\u{1b}'));
        let again =
            r#"{"level":"error","message":"stopping","fields":{"why":"x","starts_again":false}}"#;
        assert!(!of(&[again]).unwrap().starts_again);
        assert_eq!(of(&[stopped, connected]), None);
        assert_eq!(of(&[stopped, warned, warned, warned, warned, warned]), None);
        assert_eq!(of(&[r#"{"level":"info","message":"stopping"}"#]), None);
    }

    #[test]
    fn a_step_that_failed_is_told_in_words_whichever_heddle_wrote_the_line() {
        let older = r#"{"level":"error","message":"a migration failed","fields":{"migration":7,"name":"n","error":"duplicate column name: x in ALTER TABLE t ADD x -- why\n at offset 3"}}"#;
        let newer = r#"{"level":"error","message":"a migration failed","fields":{"migration":7,"name":"n","error":"duplicate column name: x","sql":"duplicate column name: x in ALTER TABLE t"}}"#;
        for line in [older, newer] {
            let last = of_lines(line).unwrap();
            assert_eq!(last.migration, Some(7));
            let words = "it could not take migration 7 (n): duplicate column name: x; nothing";
            assert!(last.why.starts_with(words), "{}", last.why);
        }
    }
}
