//! An op as an outbox row carries it: the envelope's bytes, and the fingerprint that guards the broker.
//!
//! The envelope is written here because the store seals an op in the transaction that makes it, and knows
//! no wire. `wire` has a test that reads it back.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;

use super::{DataOp, OpError};
use crate::envelope::{DestinationKind, EnvelopeKind, LOG_REF, Priority};
use crate::fingerprint::{Covered, Fingerprint};

/// What goes over the wire, every time the same bytes (DR-06).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub payload: Vec<u8>,
    pub wire_fingerprint: Fingerprint,
}

pub fn seal(op: &DataOp) -> Result<Sealed, OpError> {
    let body =
        String::from_utf8(op.to_bytes()?).map_err(|error| OpError::Malformed(error.to_string()))?;
    let envelope = json!({
        "v": 1,
        "kind": EnvelopeKind::Op.as_str(),
        "destination": {"kind": DestinationKind::Log.as_str(), "ref": LOG_REF},
        "priority": Priority::Next.as_str(),
        "body": &body,
    });
    Ok(Sealed {
        payload: envelope.to_string().into_bytes(),
        wire_fingerprint: fingerprint_of(&body),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    v: u32,
    kind: &'a str,
    #[serde(borrow)]
    destination: Destination<'a>,
    priority: &'a str,
    #[serde(borrow)]
    body: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Destination<'a> {
    kind: &'a str,
    #[serde(rename = "ref")]
    to: &'a str,
}

/// Whether these are the bytes of an op that was sealed with this fingerprint, and not what a disk has made of them.
pub fn is_sealed_as(payload: &[u8], made: Fingerprint) -> bool {
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(payload) else {
        return false;
    };
    let Destination { kind, to } = envelope.destination;
    let is_op = envelope.v == 1
        && envelope.kind == EnvelopeKind::Op.as_str()
        && envelope.priority == Priority::Next.as_str()
        && (kind, to) == (DestinationKind::Log.as_str(), LOG_REF);
    is_op && fingerprint_of(&envelope.body) == made
}

fn fingerprint_of(body: &str) -> Fingerprint {
    let covered = Covered {
        destination_kind: DestinationKind::Log,
        destination_ref: LOG_REF,
        reply_to: "",
        priority: Priority::Next,
        meta_canonical: b"",
        body: body.as_bytes(),
        mentions: &[],
    };
    covered.fingerprint()
}
