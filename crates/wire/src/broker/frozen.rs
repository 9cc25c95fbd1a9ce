//! An envelope on its way into the outbox, borrowed: the bytes of [`Envelope`] without its copies.

use heddle_core::envelope::{DestinationKind, EnvelopeKind, Priority};
use serde::Serialize;
use serde_json::Value;

use super::Envelope;

#[derive(Debug, Clone, Copy, Serialize)]
pub struct FrozenDestination<'a> {
    pub kind: DestinationKind,
    #[serde(rename = "ref")]
    pub reference: &'a str,
}

/// Field for field what [`Envelope`] is; a test compares their bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FrozenEnvelope<'a> {
    pub v: u32,
    pub kind: EnvelopeKind,
    pub destination: FrozenDestination<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reply_to: &'a str,
    pub priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<&'a Value>,
    pub body: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub mentions: &'a [String],
}

impl<'a> FrozenEnvelope<'a> {
    /// A message of the version that this build writes; the fields that are seldom used are empty.
    pub fn message(destination: FrozenDestination<'a>, priority: Priority, body: &'a str) -> Self {
        Self {
            v: Envelope::VERSION,
            kind: EnvelopeKind::Message,
            destination,
            reply_to: "",
            priority,
            meta: None,
            body,
            mentions: &[],
        }
    }

    /// The bytes that every transmission of the row will be (DR-06).
    pub fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        // One allocation for all but bodies that need much escaping.
        let mut bytes = Vec::with_capacity(192 + self.body.len() + self.body.len() / 16);
        serde_json::to_writer(&mut bytes, self)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::broker::DestinationFrame;

    #[test]
    fn the_borrowed_envelope_has_the_bytes_of_the_owned_one() {
        let meta = json!({"b": 1, "a": [null, "x"]});
        let mentions = ["M/a".to_owned(), "M/b".to_owned()];
        for (reply_to, meta, mentions) in [("", None, &[][..]), ("r1", Some(meta), &mentions)] {
            let owned = Envelope {
                v: Envelope::VERSION,
                kind: EnvelopeKind::Message,
                destination: DestinationFrame {
                    kind: DestinationKind::Dm,
                    reference: "M/planner".to_owned(),
                },
                reply_to: reply_to.to_owned(),
                priority: Priority::Low,
                meta: meta.clone(),
                body: "\"quoted\" \u{1} é\n".to_owned(),
                mentions: mentions.to_vec(),
            };
            let destination = FrozenDestination {
                kind: owned.destination.kind,
                reference: &owned.destination.reference,
            };
            let frozen = FrozenEnvelope {
                reply_to,
                meta: meta.as_ref(),
                mentions,
                ..FrozenEnvelope::message(destination, owned.priority, &owned.body)
            };
            assert_eq!(frozen.bytes().unwrap(), serde_json::to_vec(&owned).unwrap());
        }
    }
}
