//! The envelope: what a daemon froze into its outbox and the broker stores byte for byte.

use heddle_core::canonical::{canonicalize, parse_ijson};
use heddle_core::envelope::{DestinationKind, EnvelopeKind, Priority};
use heddle_core::fingerprint::{Covered, Fingerprint};
use heddle_core::limits::MENTIONS_MAX;
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

/// Why bytes are not an envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("envelope refused: {0}")]
pub struct EnvelopeRefused(pub String);

impl Envelope {
    /// The version that this build writes.
    pub const VERSION: u32 = 1;

    /// Parses strictly: what an honest daemon would never freeze is refused here too (C3).
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeRefused> {
        let refused = |why: String| EnvelopeRefused(why);
        let value = parse_ijson(bytes).map_err(|e| refused(e.to_string()))?;
        let envelope: Self = serde_json::from_value(value).map_err(|e| refused(e.to_string()))?;
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
