//! What an effect is, and the digest that binds a registration to it.

use std::fmt;

use heddle_core::fingerprint::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

use crate::carry::in_hex;
use crate::look_alike;

/// Version and domain of the digest: a change of its form is a new name.
pub const REPLAY_DOMAIN: &str = "heddle.replay.v1";
/// A key, operation, target or run.
pub const FIELD_BYTES_MAX: usize = 256;
const ARTIFACT_HEX_DIGITS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    #[error("{0} is empty")]
    Empty(&'static str),
    #[error("{0} is longer than {FIELD_BYTES_MAX} bytes")]
    TooLong(&'static str),
    #[error("{0} holds a control character, or begins or ends with a space")]
    Unfit(&'static str),
    #[error("{0} holds a character that cannot be seen, or be told from a plain space (U+{1:04X})")]
    Hidden(&'static str, u32),
    #[error(
        "{0} holds U+{1:04X}, which reads as another character: write each word in the letters of one alphabet, and not all of them in shapes of another"
    )]
    LookAlike(&'static str, u32),
    #[error("the artifact's hash is not {ARTIFACT_HEX_DIGITS} lower-case hex digits")]
    Hash,
}

/// The single-use axis: one of these has one effect, for ever.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogicalKey(String);

impl LogicalKey {
    pub fn parse(text: &str) -> Result<Self, BindingError> {
        Self::parse_as("the key", text)
    }

    /// The same for what is of the same form, and called otherwise where it is refused.
    pub fn parse_as(name: &'static str, text: &str) -> Result<Self, BindingError> {
        required(name, text).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LogicalKey {
    type Error = BindingError;

    fn try_from(text: String) -> Result<Self, BindingError> {
        Self::parse(&text)
    }
}

impl From<LogicalKey> for String {
    fn from(key: LogicalKey) -> Self {
        key.0
    }
}

impl fmt::Display for LogicalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An effect in its canonical form: what is done to what, with which bytes, in which run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Cells")]
pub struct Effect {
    pub key: LogicalKey,
    pub operation: String,
    pub target: String,
    /// SHA-256 in lower-case hex; empty for an effect without an artifact.
    pub artifact_hash: String,
    /// Empty for an effect that belongs to no run.
    pub run_id: String,
}

/// An effect that somebody else has written: looked at before it is one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cells {
    key: String,
    operation: String,
    target: String,
    artifact_hash: String,
    run_id: String,
}

impl TryFrom<Cells> for Effect {
    type Error = BindingError;

    fn try_from(of: Cells) -> Result<Self, BindingError> {
        let (hash, run) = (&of.artifact_hash, &of.run_id);
        Self::stored(&of.key, &of.operation, &of.target, hash, run)
    }
}

impl Effect {
    /// Canonical is NFC, without control characters, without spaces around it, and without anything that nobody can
    /// see or that reads as something else: two effects that look the same are the same, to a person and to the policy.
    pub fn new(
        key: &str,
        operation: &str,
        target: &str,
        artifact_hash: &str,
        run_id: &str,
    ) -> Result<Self, BindingError> {
        let named = [
            ("the key", key),
            ("the operation", operation),
            ("the target", target),
            ("the run", run_id),
        ];
        for (name, text) in named {
            if let Some(hidden) = text.chars().find(|c| is_hidden(*c) || is_other_space(*c)) {
                return Err(BindingError::Hidden(name, u32::from(hidden)));
            }
            if let Some(other) = look_alike::found(text) {
                return Err(BindingError::LookAlike(name, u32::from(other)));
            }
        }
        Self::stored(key, operation, target, artifact_hash, run_id)
    }

    /// As it was written by whichever version: what stands can be read, and named by who speaks of it.
    pub fn stored(
        key: &str,
        operation: &str,
        target: &str,
        artifact_hash: &str,
        run_id: &str,
    ) -> Result<Self, BindingError> {
        let is_hex = |text: &str| {
            text.len() == ARTIFACT_HEX_DIGITS
                && text
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        if !artifact_hash.is_empty() && !is_hex(artifact_hash) {
            return Err(BindingError::Hash);
        }
        Ok(Self {
            key: LogicalKey::parse(key)?,
            operation: required("the operation", operation)?,
            target: required("the target", target)?,
            artifact_hash: artifact_hash.to_owned(),
            run_id: fitting("the run", run_id)?,
        })
    }

    /// The binding digest under this approval. No attempt and no nonce takes part in it.
    pub fn replay_key(&self, approval: &str) -> ReplayKey {
        replay_key([
            self.key.as_str(),
            &self.operation,
            &self.target,
            &self.artifact_hash,
            approval,
            &self.run_id,
        ])
    }
}

fn required(name: &'static str, text: &str) -> Result<String, BindingError> {
    if text.is_empty() {
        return Err(BindingError::Empty(name));
    }
    fitting(name, text)
}

fn fitting(name: &'static str, text: &str) -> Result<String, BindingError> {
    let canonical: String = text.nfc().collect();
    if canonical.len() > FIELD_BYTES_MAX {
        return Err(BindingError::TooLong(name));
    }
    if canonical.chars().any(char::is_control) || canonical.trim() != canonical {
        return Err(BindingError::Unfit(name));
    }
    Ok(canonical)
}

/// A name as the policy compares it: neither case nor a compatible form makes it another one.
pub fn compared(text: &str) -> String {
    let folded: String = text.nfkc().flat_map(char::to_lowercase).collect();
    folded.nfkc().collect()
}

/// Characters without a picture of their own: format characters (Cf) and the other default-ignorable ones, and the
/// separators of lines and paragraphs.
pub(crate) fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// A space that nobody can tell from the plain one, or from several.
fn is_other_space(c: char) -> bool {
    c.is_whitespace() && c != ' ' && !c.is_control()
}

/// 32 bytes over everything that a registration is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReplayKey(#[serde(with = "in_hex")] pub [u8; 32]);

impl ReplayKey {
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Debug for ReplayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayKey({}…)", hex(&self.0[..8]))
    }
}

/// SHA-256 of the JCS array of the domain and the six fields (DESIGN §6). A JSON array of strings can
/// be taken apart again, so two bindings with one pre-image are one binding (RG-19).
pub fn replay_key(fields: [&str; 6]) -> ReplayKey {
    ReplayKey(Sha256::digest(preimage(fields)).into())
}

pub(crate) fn preimage(fields: [&str; 6]) -> Vec<u8> {
    let mut all = vec![REPLAY_DOMAIN];
    all.extend(fields);
    // A list of strings always serialises; the fallback keeps the function total and injective.
    serde_json_canonicalizer::to_vec(&all).unwrap_or_else(|_| format!("{all:?}").into_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VECTORS: &str = include_str!("../vectors/replay_key.json");

    #[test]
    fn rg_19_every_published_vector_agrees() {
        let vectors: serde_json::Value = serde_json::from_str(VECTORS).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        assert!(cases.len() >= 5);
        for case in cases {
            let fields: Vec<&str> = case["fields"]
                .as_array()
                .unwrap()
                .iter()
                .map(|field| field.as_str().unwrap())
                .collect();
            let key = replay_key(fields.clone().try_into().unwrap());
            assert_eq!(
                key.to_hex(),
                case["replay_key"].as_str().unwrap(),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn rg_19_the_digest_carries_its_version() {
        let text = String::from_utf8(preimage(["k", "op", "t", "", "env", "r"])).unwrap();
        assert_eq!(text, r#"["heddle.replay.v1","k","op","t","","env","r"]"#);
    }

    #[test]
    fn the_canonical_form_refuses_what_could_be_read_in_two_ways() {
        assert_eq!(
            Effect::new("", "o", "t", "", ""),
            Err(BindingError::Empty("the key"))
        );
        for bad in ["a\nb", " a", "a ", "\u{0}"] {
            assert!(Effect::new("k", bad, "t", "", "").is_err(), "{bad:?}");
        }
        assert!(Effect::new("k", "o", "t", "AB", "").is_err());
        assert!(Effect::new("k", "o", "t", &"A".repeat(64), "").is_err());
        assert!(Effect::new(&"k".repeat(257), "o", "t", "", "").is_err());
        let composed = Effect::new("k", "d\u{e9}ploy", "t", "", "").unwrap();
        let decomposed = Effect::new("k", "de\u{301}ploy", "t", "", "").unwrap();
        assert_eq!(composed, decomposed);
    }

    #[test]
    fn what_cannot_be_seen_is_refused_at_the_entry_and_read_where_it_stands() {
        for hidden in [
            '\u{200b}', '\u{ad}', '\u{202e}', '\u{feff}', '\u{fe0f}', '\u{3164}', '\u{a0}',
            '\u{1680}', '\u{2003}', '\u{202f}', '\u{205f}', '\u{3000}',
        ] {
            let name = format!("p{hidden}ay");
            for [key, operation, target, run] in [
                [name.as_str(), "o", "t", "r"],
                ["k", &name, "t", "r"],
                ["k", "o", &name, "r"],
                ["k", "o", "t", &name],
            ] {
                let error = Effect::new(key, operation, target, "", run).unwrap_err();
                assert!(matches!(error, BindingError::Hidden(..)), "{error}");
                assert!(Effect::stored(key, operation, target, "", run).is_ok());
            }
        }
    }

    #[test]
    fn what_reads_as_another_name_is_refused_at_the_entry_and_read_where_it_stands() {
        let name = "d\u{435}ploy";
        for [key, operation, target, run] in [
            [name, "o", "t", "r"],
            ["k", name, "t", "r"],
            ["k", "o", name, "r"],
            ["k", "o", "t", name],
        ] {
            let error = Effect::new(key, operation, target, "", run).unwrap_err();
            assert!(
                matches!(error, BindingError::LookAlike(_, 0x435)),
                "{error}"
            );
            assert!(error.to_string().contains("U+0435"), "{error}");
            assert!(Effect::stored(key, operation, target, "", run).is_ok());
        }
    }

    #[test]
    fn neither_case_nor_form_makes_another_name() {
        for same in ["pay", "Pay", "PAY", "\u{ff50}\u{ff41}\u{ff59}"] {
            assert_eq!(compared(same), "pay");
        }
        assert_eq!(compared("De\u{301}ploy"), compared("d\u{c9}PLOY"));
        assert_ne!(compared("pay"), compared("pays"));
    }

    fn six() -> impl Strategy<Value = [String; 6]> {
        proptest::array::uniform6("[ab\",\\[\\]\\\\]{0,4}")
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn rg_19_the_encoding_is_injective(a in six(), b in six()) {
            let image = |f: &[String; 6]| preimage(f.each_ref().map(String::as_str));
            prop_assert_eq!(a == b, image(&a) == image(&b));
            let back: Vec<String> = serde_json::from_slice(&image(&a)).unwrap();
            prop_assert_eq!(&back[1..], &a[..]);
        }
    }
}
