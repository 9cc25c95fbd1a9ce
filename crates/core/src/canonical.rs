//! JSON as we accept it (I-JSON, C3) and as we hash it (RFC 8785).
//!
//! A document that the canonical form would silently change is refused: duplicate keys, lone
//! surrogates, numbers that a double cannot hold, nesting beyond the limit.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::limits::JSON_DEPTH_MAX;

/// The largest integer that every JSON reader agrees on.
const INTEGER_MAX: u64 = (1 << 53) - 1;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    #[error("not acceptable JSON: {0}")]
    Syntax(String),
    #[error("number {0} cannot be kept exactly; write it as a string")]
    Number(String),
}

/// Parses one document and refuses everything that RFC 8785 would merge or lose.
pub fn parse_ijson(bytes: &[u8]) -> Result<Value, CanonicalError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: 0 }
        .deserialize(&mut deserializer)
        .map_err(syntax)?;
    deserializer.end().map_err(syntax)?;
    check_numbers(bytes)?;
    Ok(value)
}

fn syntax(error: serde_json::Error) -> CanonicalError {
    let words = error.to_string();
    // The parser calls half a pair by where it stopped reading.
    let of_half_a_pair = [
        "unexpected end of hex escape",
        "lone leading surrogate in hex escape",
    ];
    let place = of_half_a_pair
        .into_iter()
        .find_map(|begin| words.strip_prefix(begin));
    CanonicalError::Syntax(match place {
        Some(place) => {
            format!("a lone surrogate, one half of a \\u pair without the other,{place}")
        }
        None => words,
    })
}

/// The RFC 8785 bytes of a value that came through [`parse_ijson`].
pub fn canonicalize(value: &Value) -> Result<Vec<u8>, CanonicalError> {
    serde_json_canonicalizer::to_vec(value).map_err(syntax)
}

/// Looks at every number as it was written, because the parser has already rounded it.
///
/// Runs on text that parsed, so a token is whatever stands outside strings and begins like a number.
fn check_numbers(bytes: &[u8]) -> Result<(), CanonicalError> {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at + 1),
            b'-' | b'0'..=b'9' => {
                let end = bytes[at..]
                    .iter()
                    .position(|b| !matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'))
                    .map_or(bytes.len(), |length| at + length);
                check_number(&String::from_utf8_lossy(&bytes[at..end]))?;
                at = end;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn check_number(token: &str) -> Result<(), CanonicalError> {
    let refused = || CanonicalError::Number(token.chars().take(40).collect());
    let digits = token.trim_start_matches('-');
    let is_integer = !digits.contains(['.', 'e', 'E']);
    if is_integer {
        return match digits.parse::<u64>() {
            Ok(number) if number <= INTEGER_MAX => Ok(()),
            _ => Err(refused()),
        };
    }
    let number: f64 = token.parse().map_err(|_| refused())?;
    if !number.is_finite() {
        return Err(refused());
    }
    // Beyond 2^53 doubles are sparse whole numbers. One that was written as such a number stays
    // (1e20); one that was rounded to it (9007199254740993.0) would merge with its neighbour.
    #[allow(clippy::cast_precision_loss)]
    let is_sparse = number.abs() > INTEGER_MAX as f64;
    if is_sparse && decimal(token) != decimal(&format!("{number:e}")) {
        return Err(refused());
    }
    Ok(())
}

/// A decimal spelling as its significant digits and the power of ten of the first one.
fn decimal(token: &str) -> (String, i64) {
    let token = token.trim_start_matches('-');
    let (mantissa, exponent) = token
        .split_once(['e', 'E'])
        .map_or((token, 0), |(m, e)| (m, e.parse::<i64>().unwrap_or(0)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let leading_zeros = all.len() - all.trim_start_matches('0').len();
    let power = exponent + i64::try_from(whole.len()).unwrap_or(i64::MAX)
        - i64::try_from(leading_zeros).unwrap_or(0);
    (all.trim_matches('0').to_owned(), power)
}

/// Builds a `Value` and refuses duplicate keys and depth on the way.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= JSON_DEPTH_MAX {
            return Err(E::custom(format!(
                "nested deeper than {JSON_DEPTH_MAX} levels"
            )));
        }
        Ok(Self {
            depth: self.depth + 1,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number outside the double range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!(
                    "key {key:?} stands twice in one object"
                )));
            }
            let value = access.next_value_seed(inner)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Result<String, CanonicalError> {
        let bytes = canonicalize(&parse_ijson(text.as_bytes())?)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn fp_02_key_order_space_escape_and_number_spelling_do_not_matter() {
        for (left, right) in [
            (r#"{"b":1,"a":2}"#, r#"{ "a" : 2, "b" : 1 }"#),
            (r#"{"a":"é"}"#, "{\"a\":\"\\u00e9\"}"),
            (r#"{"a":1.0}"#, r#"{"a":1}"#),
            (r#"{"a":1e2}"#, r#"{"a":100}"#),
            (r#"{"a":-0.0}"#, r#"{"a":0}"#),
            (r#"{"a":"\/"}"#, r#"{"a":"/"}"#),
        ] {
            assert_eq!(canonical(left).unwrap(), canonical(right).unwrap());
        }
    }

    #[test]
    fn fp_05_what_the_canonical_form_would_lose_is_refused() {
        for bad in [
            r#"{"a":1,"a":2}"#,
            "{\"a\":1,\"\\u0061\":2}",
            r#"{"x":{"a":1,"a":1}}"#,
            "[9007199254740992]",
            "[-9007199254740992]",
            "[9007199254740993.0]",
            "[18446744073709551616]",
            "[100000000000000000001]",
            "[100000000000000000000]",
            "[1e400]",
            "[1.0000000000000000001e20]",
            r#"["\ud800"]"#,
            r#"["\udc00\ud800"]"#,
            "[01]",
            "[1.]",
            "[NaN]",
            "[1] 2",
            "",
            "\u{feff}{}",
        ] {
            assert!(parse_ijson(bad.as_bytes()).is_err(), "{bad} passed");
        }
        assert!(parse_ijson(b"[\"\xff\"]").is_err());
    }

    #[test]
    fn fp_05_depth_is_refused_before_the_stack_feels_it() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse_ijson(nested(JSON_DEPTH_MAX).as_bytes()).is_ok());
        assert!(parse_ijson(nested(JSON_DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(parse_ijson("[".repeat(1_000_000).as_bytes()).is_err());
    }

    #[test]
    fn numbers_that_survive_are_kept() {
        for (text, expected) in [
            ("[9007199254740991]", "[9007199254740991]"),
            ("[-9007199254740991]", "[-9007199254740991]"),
            ("[1e20]", "[100000000000000000000]"),
            ("[1e+20]", "[100000000000000000000]"),
            ("[100e18]", "[100000000000000000000]"),
            ("[1E21]", "[1e+21]"),
            ("[1e-7]", "[1e-7]"),
            ("[0.30000000000000004]", "[0.30000000000000004]"),
            (
                "[\"1e400\",\"\\\"9007199254740993\"]",
                "[\"1e400\",\"\\\"9007199254740993\"]",
            ),
        ] {
            assert_eq!(canonical(text).unwrap(), expected);
        }
    }

    #[test]
    fn features_of_the_json_library_that_would_break_hashing_are_off() {
        let value: Value = serde_json::from_str("18446744073709551616").unwrap();
        assert!(value.is_f64(), "arbitrary_precision is on");
        let object: Value = serde_json::from_str(r#"{"b":1,"a":2}"#).unwrap();
        assert_eq!(
            object.to_string(),
            r#"{"a":2,"b":1}"#,
            "preserve_order is on"
        );
        let tricky: f64 = serde_json::from_str("0.9227505582774507").unwrap();
        assert_eq!(
            tricky.to_string(),
            "0.9227505582774507",
            "float_roundtrip is off"
        );
    }
}
