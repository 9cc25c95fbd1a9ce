//! Text of others, made safe for a terminal.

use serde_json::Value;

/// Of a message's meta, what is shown to people; `--json` has all of it.
const META_CHARS_MAX: usize = 240;

/// Shows control characters, bidi marks and unseen ones instead of obeying them (T-41); keeps line breaks and tabs.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let is_plain = matches!(c, '\n' | '\t') || !(c.is_control() || is_hidden_mark(c));
        if is_plain {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

/// The same of JSON: with the escapes that JSON has, so that what is copied from the terminal says the same.
pub fn printable_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && (c.is_control() || is_hidden_mark(c)) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Marks that turn the order of signs around, break lines, or cannot be seen: with them a text says something
/// else than it shows.
fn is_hidden_mark(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
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
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
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
            line.push_str(&format!("{cell:width$}  "));
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
    fn t_41_marks_that_nobody_sees_are_shown_and_what_scripts_need_is_kept() {
        for mark in [
            '\u{61c}',
            '\u{200b}',
            '\u{2060}',
            '\u{2067}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            let shown = printable(&format!("a{mark}b"));
            assert_eq!(shown, format!("a{}b", mark.escape_unicode()));
        }
        // Joiners shape letters and emoji.
        let joined = "क्\u{200d}ष 👩\u{200d}💻 می\u{200c}خواهم";
        assert_eq!(printable(joined), joined);
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".to_owned(), "b".to_owned()],
            vec!["ccc".to_owned(), "d".to_owned()],
        ];
        assert_eq!(table(&rows), "a    b\nccc  d\n");
        let hidden = vec![
            vec!["\u{202e}".to_owned(), "b".to_owned()],
            vec!["c".to_owned(), "d".to_owned()],
        ];
        assert_eq!(table(&hidden), "\\u{202e}  b\nc         d\n");
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
