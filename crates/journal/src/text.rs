//! A document as text, byte for byte as `serde_json` writes it, with long strings looked through many bytes at a time.
//!
//! Every mutation is answered behind this, and most of a document is strings in which nothing is escaped.

use serde_json::Value;

/// Looked at together; a multiple of what a processor compares at once.
const PIECE_BYTES: usize = 64;

/// Where a text goes.
pub(crate) trait Out {
    fn push_str(&mut self, text: &str);
}

impl Out for String {
    fn push_str(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl Out for Vec<u8> {
    fn push_str(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }
}

pub(crate) fn to_text(document: &Value) -> String {
    let mut text = String::with_capacity(bytes_about(document));
    write_value(document, &mut text);
    text
}

/// The length that its text will have, about, so that it is not moved while it grows: what is escaped, and what numbers need, is guessed.
fn bytes_about(value: &Value) -> usize {
    const EACH: usize = 8;
    match value {
        Value::String(string) => string.len() + EACH,
        Value::Array(items) => EACH + items.iter().map(bytes_about).sum::<usize>(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| name.len() + EACH + bytes_about(value);
            EACH + fields.iter().map(field).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 2 * EACH,
    }
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::String(string) => {
            write_string(string, text);
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (index, (name, field)) in fields.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_string(name, text);
                text.push(':');
                write_value(field, text);
            }
            text.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
    }
}

pub(crate) fn write_string(string: &str, text: &mut impl Out) {
    text.push_str("\"");
    let mut rest = string;
    loop {
        let (plain, behind) = rest.split_at(plain_len(rest.as_bytes()));
        text.push_str(plain);
        let Some(escaped) = behind.chars().next() else {
            break;
        };
        write_escaped(escaped, text);
        rest = &behind[escaped.len_utf8()..];
    }
    text.push_str("\"");
}

fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// How many bytes there are before the first that is escaped; that one is ASCII.
fn plain_len(bytes: &[u8]) -> usize {
    // The least of three numbers that are 0 where a byte is escaped: every processor finds that of many bytes at once.
    let least = |least: u8, byte: &u8| {
        let byte = *byte;
        least.min(byte ^ b'"').min(byte ^ b'\\').min(byte & 0xe0)
    };
    let is_plain = |piece: &&[u8; PIECE_BYTES]| piece.iter().fold(u8::MAX, least) != 0;
    let (pieces, _) = bytes.as_chunks::<PIECE_BYTES>();
    let at = pieces.iter().take_while(is_plain).count() * PIECE_BYTES;
    let rest = bytes[at..].iter().position(|byte| is_escaped(*byte));
    rest.map_or(bytes.len(), |more| at + more)
}

fn write_escaped(escaped: char, text: &mut impl Out) {
    let short = match escaped {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        other => return text.push_str(&format!("\\u{:04x}", u32::from(other))),
    };
    text.push_str(short);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_what_serde_json_writes() {
        let mut documents = vec![
            json!(null),
            json!([]),
            json!({}),
            json!({"a": [1, -2, 0.5, 1e300, u64::MAX, true, null], "": {"b": {}}}),
            json!({"é\"\n": ["日本語", "\u{7f}\u{80}\u{2028}", "\\", "\""]}),
        ];
        for code in 0..0x80_u8 {
            let one = char::from(code);
            for before in [0, 1, 30, 31, 32, 33, 63, 64, 100] {
                documents.push(json!(format!("{}{one}", "x".repeat(before))));
                documents.push(json!(format!("{}{one}{one}é{one}", "é".repeat(before))));
            }
        }
        for document in documents {
            assert_eq!(
                to_text(&document),
                serde_json::to_string(&document).unwrap()
            );
        }
    }
}
