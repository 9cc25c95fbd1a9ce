//! What goes into the data of a mesh: keys, tags, values, and the fingerprint of a change.
//!
//! Normalised once, at the door: a key is NFC (LF-07), a value is the RFC 8785 form of what came in,
//! so replicas that hold the same value hold the same bytes.

use std::fmt;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::canonical::{CanonicalError, canonicalize};
use crate::fingerprint::Fingerprint;
use crate::limits::{
    DATA_KEY_BYTES_MAX, DATA_TAGS_MAX, DATA_VALUE_BYTES_MAX, VECTOR_CONTENT_BYTES_MAX,
};
use crate::names::nfc;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    #[error("{what} is empty")]
    Empty { what: &'static str },
    #[error("{what} is longer than {DATA_KEY_BYTES_MAX} bytes")]
    TooLong { what: &'static str },
    #[error("{what} holds the control character {character:?}")]
    Control { what: &'static str, character: char },
    #[error("there are {0} tags; at most {DATA_TAGS_MAX} are kept")]
    TooManyTags(usize),
    #[error("the value has {0} bytes as canonical JSON; at most {DATA_VALUE_BYTES_MAX} are kept")]
    ValueTooLarge(usize),
    #[error("the content has {0} bytes; at most {VECTOR_CONTENT_BYTES_MAX} are kept")]
    ContentTooLarge(usize),
    #[error("{what} is not in the form in which it is kept")]
    NotNormal { what: &'static str },
    #[error(transparent)]
    Value(#[from] CanonicalError),
}

fn label(what: &'static str, text: &str) -> Result<String, DataError> {
    let text = nfc(text);
    if text.is_empty() {
        return Err(DataError::Empty { what });
    }
    if text.len() > DATA_KEY_BYTES_MAX {
        return Err(DataError::TooLong { what });
    }
    match text.chars().find(|c| c.is_control()) {
        Some(character) => Err(DataError::Control { what, character }),
        None => Ok(text),
    }
}

/// What a memory or a state entry is called: any text in NFC, 1 to 256 bytes, no control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataKey(String);

impl DataKey {
    pub fn parse(text: &str) -> Result<Self, DataError> {
        label("the key", text).map(Self)
    }

    /// A key that was kept elsewhere: it must be normal already.
    pub fn kept(text: &str) -> Result<Self, DataError> {
        let key = Self::parse(text)?;
        if key.as_str() == text {
            Ok(key)
        } else {
            Err(DataError::NotNormal { what: "the key" })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Tags as they are kept: NFC, sorted by bytes, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(Vec<String>);

impl Tags {
    pub fn parse<T: AsRef<str>>(tags: &[T]) -> Result<Self, DataError> {
        if tags.len() > DATA_TAGS_MAX {
            return Err(DataError::TooManyTags(tags.len()));
        }
        let mut tags = tags
            .iter()
            .map(|tag| label("a tag", tag.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        tags.sort_unstable();
        tags.dedup();
        Ok(Self(tags))
    }

    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

/// A value as it is kept and compared: the RFC 8785 text of an I-JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataValue(String);

impl DataValue {
    /// `value` must have come through [`crate::canonical::parse_ijson`].
    pub fn new(value: &Value) -> Result<Self, DataError> {
        let bytes = canonicalize(value)?;
        if bytes.len() > DATA_VALUE_BYTES_MAX {
            return Err(DataError::ValueTooLarge(bytes.len()));
        }
        // Canonical JSON is UTF-8; a serialiser that says otherwise is refused, not trusted.
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| CanonicalError::Syntax(error.to_string()))?;
        Ok(Self(text))
    }

    /// The text of a value that was kept elsewhere: it must be canonical already. Not for the strict
    /// reader, which refuses the canonical spelling of 1e16.
    pub fn kept(text: String) -> Result<Self, DataError> {
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| CanonicalError::Syntax(error.to_string()))?;
        let normal = Self::new(&value)?;
        if normal.0 == text {
            Ok(normal)
        } else {
            Err(DataError::NotNormal { what: "the value" })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

/// The fingerprint of a change: what was asked, by its verb and its normalised fields. The key that it
/// is compared under, who asks and when take no part in it.
pub fn change_fingerprint(verb: &str, fields: &Value) -> Result<Fingerprint, CanonicalError> {
    let bytes = canonicalize(&json!(["heddle.change.v1", verb, fields]))?;
    Ok(Fingerprint(Sha256::digest(bytes).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lf_07_composed_and_decomposed_keys_and_tags_are_one() {
        assert_eq!(DataKey::parse("cafe\u{301}"), DataKey::parse("caf\u{e9}"));
        let tags = Tags::parse(&["b", "cafe\u{301}", "caf\u{e9}", "a", "b"]).unwrap();
        assert_eq!(tags.as_slice(), ["a", "b", "caf\u{e9}"]);
    }

    #[test]
    fn keys_that_cannot_be_kept_are_refused_with_their_reason() {
        let long = "x".repeat(DATA_KEY_BYTES_MAX + 1);
        for bad in ["", "a\0b", "a\nb", "\u{7f}", "\u{9b}31m", &long] {
            assert!(DataKey::parse(bad).is_err(), "{bad:?}");
        }
        for good in [" ", "a/b:c d", "日本", "';--", "👩‍👩‍👧", &long[1..]] {
            assert_eq!(DataKey::parse(good).unwrap().as_str(), good);
        }
        let many = vec!["t"; DATA_TAGS_MAX + 1];
        assert_eq!(
            Tags::parse(&many),
            Err(DataError::TooManyTags(DATA_TAGS_MAX + 1))
        );
    }

    #[test]
    fn a_value_is_kept_in_its_canonical_form_up_to_its_limit() {
        let value = DataValue::new(&json!({"b": 1.0, "a": [null, "é"]})).unwrap();
        assert_eq!(value.as_str(), r#"{"a":[null,"é"],"b":1}"#);
        // The quotes count.
        let fits = Value::String("x".repeat(DATA_VALUE_BYTES_MAX - 2));
        assert!(DataValue::new(&fits).is_ok());
        let over = Value::String("x".repeat(DATA_VALUE_BYTES_MAX - 1));
        assert_eq!(
            DataValue::new(&over),
            Err(DataError::ValueTooLarge(DATA_VALUE_BYTES_MAX + 1))
        );
    }

    #[test]
    fn verb_and_every_field_are_in_the_fingerprint_and_spelling_is_not() {
        let print = |verb, fields: Value| change_fingerprint(verb, &fields).unwrap();
        let base = print("state.set", json!({"key": "k", "value": 1}));
        assert_eq!(base, print("state.set", json!({"value": 1.0, "key": "k"})));
        for other in [
            print("state.delete", json!({"key": "k", "value": 1})),
            print("state.set", json!({"key": "k", "value": "1"})),
            print("state.set", json!({"key": "l", "value": 1})),
            print("state.set", json!({"key": "k", "value": null})),
            print("state.set", json!({"key": "k"})),
        ] {
            assert_ne!(base, other);
        }
    }
}
