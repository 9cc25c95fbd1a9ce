//! The envelope: what a daemon froze into its outbox and the broker stores byte for byte.

use heddle_core::canonical::{canonicalize, parse_ijson};
use heddle_core::envelope::{DestinationKind, EnvelopeKind, Priority};
use heddle_core::fingerprint::{Covered, Fingerprint};
use heddle_core::limits::MENTIONS_MAX;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where it goes, resolved: a topic's or queue's name, or `MEMBER_ID/agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationFrame {
    pub kind: DestinationKind,
    #[serde(rename = "ref")]
    pub reference: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    pub v: u32,
    pub kind: EnvelopeKind,
    pub destination: DestinationFrame,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reply_to: String,
    pub priority: Priority,
    /// A non-empty object, or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    pub body: String,
    /// `MEMBER_ID/agent` each; sorted, distinct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
}

/// An envelope without `meta`, whose every field says by itself what it may be: read in one pass, without a tree of values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    v: u32,
    kind: EnvelopeKind,
    destination: DestinationFrame,
    #[serde(default)]
    reply_to: String,
    priority: Priority,
    #[serde(default)]
    meta: Option<IgnoredAny>,
    body: String,
    #[serde(default)]
    mentions: Vec<String>,
}

impl Plain {
    /// `None` where the strict way has to look, and to word a refusal.
    fn read(bytes: &[u8]) -> Option<Envelope> {
        let plain: Self = serde_json::from_slice(bytes).ok()?;
        plain.meta.is_none().then_some(Envelope {
            v: plain.v,
            kind: plain.kind,
            destination: plain.destination,
            reply_to: plain.reply_to,
            priority: plain.priority,
            meta: None,
            body: plain.body,
            mentions: plain.mentions,
        })
    }
}

/// Why bytes are not an envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("envelope refused: {0}")]
pub struct EnvelopeRefused(pub String);

impl Envelope {
    /// The version that this build writes.
    pub const VERSION: u32 = 1;

    /// Parses strictly: what an honest daemon would never freeze is refused here too (C3).
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeRefused> {
        let envelope = match Plain::read(bytes) {
            Some(envelope) => envelope,
            None => Self::read_strictly(bytes)?,
        };
        envelope.checked()
    }

    fn read_strictly(bytes: &[u8]) -> Result<Self, EnvelopeRefused> {
        let value = parse_ijson(bytes).map_err(|e| EnvelopeRefused(e.to_string()))?;
        serde_json::from_value(value).map_err(|e| EnvelopeRefused(e.to_string()))
    }

    /// What no shape says.
    fn checked(self) -> Result<Self, EnvelopeRefused> {
        let (envelope, refused) = (self, |why: String| EnvelopeRefused(why));
        if envelope.v != Self::VERSION {
            return Err(refused(format!("version {} is unknown", envelope.v)));
        }
        if !matches!(&envelope.meta, None | Some(Value::Object(_))) {
            return Err(refused("meta is not an object".to_owned()));
        }
        if envelope.mentions.len() > MENTIONS_MAX || !envelope.mentions.is_sorted_by(|a, b| a < b) {
            return Err(refused(
                "mentions are too many, or not sorted and distinct".to_owned(),
            ));
        }
        let covered = [&envelope.destination.reference, &envelope.reply_to];
        let names = covered.into_iter().chain(&envelope.mentions);
        if names.flat_map(|text| text.chars()).any(char::is_control) {
            return Err(refused(
                "a control character in an address or id".to_owned(),
            ));
        }
        Ok(envelope)
    }

    /// The fingerprint that guards the broker (C2): over the resolved recipient and the body as sent.
    pub fn wire_fingerprint(&self) -> Result<Fingerprint, EnvelopeRefused> {
        let meta_canonical = match &self.meta {
            None => Vec::new(),
            Some(meta) => canonicalize(meta).map_err(|e| EnvelopeRefused(e.to_string()))?,
        };
        Ok(Covered {
            destination_kind: self.destination.kind,
            destination_ref: &self.destination.reference,
            reply_to: &self.reply_to,
            priority: self.priority,
            meta_canonical: &meta_canonical,
            body: self.body.as_bytes(),
            mentions: &self.mentions,
        }
        .fingerprint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = r#"{"v":1,"kind":"message","destination":{"kind":"topic","ref":"ops"},"priority":"next","body":"hello"}"#;

    #[test]
    fn a_plain_topic_envelope_has_the_published_fingerprint() {
        let fingerprint = Envelope::parse(PLAIN.as_bytes())
            .unwrap()
            .wire_fingerprint()
            .unwrap();
        assert_eq!(
            fingerprint.to_hex(),
            "44ddf26a04619ca305c05db8d74ea691b9b8ab8f3ac982d5a77037278ad62b72"
        );
    }

    /// What the quick way takes, the strict way takes as the same: a broker and a home of another build must never see
    /// two messages in one text.
    #[test]
    fn c3_the_quick_way_takes_nothing_that_the_strict_way_reads_otherwise() {
        let texts = [
            PLAIN.to_owned(),
            PLAIN.replace(r#""v":1"#, r#""reply_to":"x","mentions":["a","b"],"v":1"#),
            PLAIN.replace(
                r#""body":"hello""#,
                r#""body":"\u0061\ud83d\ude00\n\u0000","meta":null"#,
            ),
            PLAIN.replace(r#""kind":"message""#, r#""kind":{"message":null}"#),
            r#"[1,"message",["topic","ops"],"","next",null,"hello",[]]"#.to_owned(),
        ];
        let pieces: [&[u8]; 24] = [
            b"\"",
            b"\\",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"1",
            b"-0",
            b"1.0",
            b"1e0",
            b"null",
            b"\\ud800",
            b"\xff",
            b"\0",
            b" ",
            b"\"v\":1,",
            b"\"meta\":{},",
            b"\"body\":\"x\",",
            b"\"next\"",
            b"2",
            b"\n",
            b"\xef\xbb\xbf",
        ];
        let mut taken = 0;
        for text in &texts {
            let text = text.as_bytes();
            for at in 0..=text.len() {
                for piece in pieces {
                    for cut in [0, 1, piece.len()] {
                        let rest = &text[(at + cut).min(text.len())..];
                        let bytes = [&text[..at], piece, rest].concat();
                        let Some(quick) = Plain::read(&bytes) else {
                            continue;
                        };
                        taken += 1;
                        let strict = Envelope::read_strictly(&bytes);
                        assert_eq!(strict, Ok(quick), "{}", String::from_utf8_lossy(&bytes));
                    }
                }
            }
        }
        assert!(taken > 1_000, "only {taken} were taken the quick way");
    }

    #[test]
    fn hostile_envelopes_are_refused() {
        for (from, to) in [
            (r#""v":1"#, r#""v":2"#),
            (r#""ref":"ops""#, r#""ref":"o\u0000ps""#),
            (r#""body":"hello""#, r#""body":"hello","extra":1"#),
            (r#""body":"hello""#, r#""body":"hello","meta":[1]"#),
            (
                r#""body":"hello""#,
                r#""body":"hello","meta":{"a":1,"a":2}"#,
            ),
            (
                r#""body":"hello""#,
                r#""body":"hello","mentions":["b","a"]"#,
            ),
            (
                r#""body":"hello""#,
                r#""body":"hello","mentions":["a","a"]"#,
            ),
            (r#""kind":"message""#, r#""kind":"rumour""#),
        ] {
            let bad = PLAIN.replace(from, to);
            assert_ne!(bad, PLAIN);
            assert!(Envelope::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
