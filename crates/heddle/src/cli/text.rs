//! Text of others, made safe for a terminal.

use serde_json::Value;

/// Of a message's meta, what is shown to people; `--json` has all of it.
const META_CHARS_MAX: usize = 240;

/// Shows control characters and bidi marks instead of obeying them (T-41); keeps line breaks and tabs.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let is_plain = matches!(c, '\n' | '\t') || !(c.is_control() || is_bidi_mark(c));
        if is_plain {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

fn is_bidi_mark(c: char) -> bool {
    // Line and paragraph separators too: they forge lines.
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// The lines of a body under their heading.
pub fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    printable(text)
        .lines()
        .map(|line| format!("{indent}{line}\n"))
        .collect()
}

/// Rows as columns, each as wide as its widest cell.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{:width$}  ", printable(cell)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// On one line, and not longer than a few of a terminal's.
pub fn compact(meta: &Value) -> Option<String> {
    if meta.is_null() {
        return None;
    }
    let whole = meta.to_string();
    let shown: String = whole.chars().take(META_CHARS_MAX).collect();
    Some(if shown.len() < whole.len() {
        format!("{shown}…")
    } else {
        shown
    })
}

/// The beginning of a text, on one line.
pub fn excerpt(text: &str) -> String {
    const CHARS_MAX: usize = 72;
    let words: Vec<&str> = text.split_whitespace().collect();
    let whole = words.join(" ");
    let shown: String = whole.chars().take(CHARS_MAX).collect();
    if shown.len() < whole.len() {
        format!("{shown}…")
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn t_41_escapes_and_bidi_marks_are_shown_not_obeyed() {
        let hostile = "a\u{1b}[31mred\u{202e}evil\u{7}\r\nb\tc";
        let shown = printable(hostile);
        assert_eq!(shown, "a\\u{1b}[31mred\\u{202e}evil\\u{7}\\u{d}\nb\tc");
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".to_owned(), "b".to_owned()],
            vec!["ccc".to_owned(), "d".to_owned()],
        ];
        assert_eq!(table(&rows), "a    b\nccc  d\n");
    }

    #[test]
    fn a_long_meta_is_cut_and_none_is_not_shown() {
        assert_eq!(compact(&Value::Null), None);
        let long = compact(&json!({"k": "ö".repeat(2 * META_CHARS_MAX)}));
        let long = long.unwrap();
        assert_eq!(long.chars().count(), META_CHARS_MAX + 1);
        assert!(long.ends_with('…'));
    }
}
