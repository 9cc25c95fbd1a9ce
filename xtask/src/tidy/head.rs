//! Rule `head`: a file starts with a `//!` sentence that says what it is.

use super::source::Source;
use crate::finding::Finding;

const RULE: &str = "head";
const HEAD_CHARS_MIN: usize = 20;

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let complaint = match first_paragraph(&source.text) {
        None => "start the first line with `//!` and say in a sentence what this file is",
        Some(head) if head.chars().count() < HEAD_CHARS_MIN => {
            "the head is too short: say in a sentence what this file is"
        }
        Some(head) if !is_closed(&head) => "end the first `//!` paragraph with a period",
        Some(_) => return Vec::new(),
    };
    vec![Finding::new(&source.path, 1, RULE, complaint)]
}

/// The `//!` lines from the first line of the file to the first blank one, joined.
fn first_paragraph(text: &str) -> Option<String> {
    let lines: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//!").map(str::trim))
        .take_while(|line| !line.is_empty())
        .collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// The last mark is a period; a closing emphasis, quote or bracket may follow it.
fn is_closed(head: &str) -> bool {
    head.trim_end_matches(['*', '_', '`', '"', ')'])
        .ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::lines_found;

    fn caught(text: &str) -> bool {
        !lines_found(check, "a.rs", text).is_empty()
    }

    #[test]
    fn a_missing_or_idle_head_is_caught() {
        for text in [
            "",
            "fn f() {}\n",
            "\n//! A sentence, but not on the first line.\n",
            "// A comment is not a head sentence.\n",
            "//! placeholder\n",
            "//! Short one.\n",
            "//! A sentence that nobody brought to an end\n",
            "//! # A title with many letters\n//!\n//! A sentence after the title.\n",
        ] {
            assert!(caught(text), "{text:?}");
        }
    }

    #[test]
    fn a_sentence_passes_on_one_line_or_more() {
        for text in [
            "//! What this file is and does.\n",
            "//! What this file is\n//! and does.\nfn f() {}\n",
            "//! The gate: *what this file is and does.*\n",
            "//! What this file is and does.\n//!\n//! More, with a list:\n",
        ] {
            assert!(!caught(text), "{text:?}");
        }
    }
}
