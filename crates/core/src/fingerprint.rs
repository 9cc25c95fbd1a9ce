//! The fingerprint of a request: SHA-256 over its covered fields, joined by 0x00 (DESIGN §6).
//!
//! Two uses of one form (C2): the *request* fingerprint covers what the caller asked and guards
//! the IPC door; the *wire* fingerprint covers the resolved recipient and the body as it is sent,
//! and guards the broker. Both are computed once, at accept, and frozen with the row.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::envelope::{DestinationKind, Priority, SendRequest};

/// Bumps when the envelope's shape changes.
pub const ENVELOPE_VERSION: &str = "1";

/// 32 bytes. Compared whole; only the prefix is ever shown (FP-07).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// What [`Self::to_hex`] writes, and nothing else.
    pub fn parse_hex(text: &str) -> Option<Self> {
        let digit = |byte: u8| DIGITS.iter().position(|digit| *digit == byte);
        let text = text.as_bytes();
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(bytes))
    }

    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// The first eight bytes as 16 hex digits: enough to compare by eye, too little to guess a body.
    pub fn prefix(self) -> String {
        hex(&self.0[..8])
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}…)", self.prefix())
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
        .map(char::from)
        .collect()
}

/// The covered fields, borrowed from wherever they stand.
#[derive(Debug, Clone, Copy)]
pub struct Covered<'a> {
    pub destination_kind: DestinationKind,
    pub destination_ref: &'a str,
    pub reply_to: &'a str,
    pub priority: Priority,
    pub meta_canonical: &'a [u8],
    pub body: &'a [u8],
    /// Sorted and distinct.
    pub mentions: &'a [String],
}

impl Covered<'_> {
    /// The bytes under the hash. No field but the JSON ones can hold a 0x00, and JSON escapes it,
    /// so the join can be taken apart again (FP-01).
    pub fn preimage(&self) -> Vec<u8> {
        let body_hash = hex(&Sha256::digest(self.body));
        let fields: [&[u8]; 7] = [
            ENVELOPE_VERSION.as_bytes(),
            self.destination_kind.as_str().as_bytes(),
            self.destination_ref.as_bytes(),
            self.reply_to.as_bytes(),
            self.priority.as_str().as_bytes(),
            self.meta_canonical,
            body_hash.as_bytes(),
        ];
        let mut preimage = fields.join(&0_u8);
        if !self.mentions.is_empty() {
            preimage.push(0);
            preimage.extend(mentions_canonical(self.mentions));
        }
        preimage
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint_with(BodyDigest::of(self.body))
    }

    /// The same for who has digested the body already. Hashes the fields where they stand.
    pub fn fingerprint_with(&self, body: BodyDigest) -> Fingerprint {
        let mut digest = Sha256::new();
        digest.update(ENVELOPE_VERSION);
        for field in [
            self.destination_kind.as_str().as_bytes(),
            self.destination_ref.as_bytes(),
            self.reply_to.as_bytes(),
            self.priority.as_str().as_bytes(),
            self.meta_canonical,
            &hex_digits(&body.0),
        ] {
            digest.update([0]);
            digest.update(field);
        }
        if !self.mentions.is_empty() {
            digest.update([0]);
            digest.update(mentions_canonical(self.mentions));
        }
        Fingerprint(digest.finalize().into())
    }
}

/// SHA-256 of a body. Both fingerprints of a send cover the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyDigest([u8; 32]);

impl BodyDigest {
    pub fn of(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }
}

/// The hex of a digest without a string of its own.
fn hex_digits(bytes: &[u8; 32]) -> [u8; 64] {
    let mut digits = [0; 64];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    digits
}

/// The JCS array of the mentions. A list of strings cannot fail to serialise; the fallback keeps
/// the function total and injective all the same (a mention holds no space).
fn mentions_canonical(mentions: &[String]) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(&mentions).unwrap_or_else(|_| mentions.join(" ").into_bytes())
}

/// What the IPC door compares: the request as the caller made it.
pub fn request_covered<'a>(request: &'a SendRequest, reference: &'a str) -> Covered<'a> {
    Covered {
        destination_kind: request.to.kind(),
        destination_ref: reference,
        reply_to: &request.reply_to,
        priority: request.priority,
        meta_canonical: &request.meta_canonical,
        body: request.body.as_bytes(),
        mentions: &request.mentions,
    }
}

pub fn request_fingerprint(request: &SendRequest) -> Fingerprint {
    request_fingerprint_with(request, BodyDigest::of(request.body.as_bytes()))
}

pub fn request_fingerprint_with(request: &SendRequest, body: BodyDigest) -> Fingerprint {
    request_covered(request, &request.to.reference()).fingerprint_with(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered() -> Covered<'static> {
        Covered {
            destination_kind: DestinationKind::Topic,
            destination_ref: "ops",
            reply_to: "",
            priority: Priority::Next,
            meta_canonical: b"",
            body: b"hello",
            mentions: &[],
        }
    }

    #[test]
    fn fp_03_changing_any_covered_field_changes_the_fingerprint() {
        let base = covered().fingerprint();
        let mentions = ["@ann".to_owned()];
        let others = [
            Covered {
                destination_kind: DestinationKind::Queue,
                ..covered()
            },
            Covered {
                destination_ref: "op",
                ..covered()
            },
            Covered {
                reply_to: "r",
                ..covered()
            },
            Covered {
                priority: Priority::Now,
                ..covered()
            },
            Covered {
                meta_canonical: b"{\"a\":1}",
                ..covered()
            },
            Covered {
                body: b"hello ",
                ..covered()
            },
            Covered {
                mentions: &mentions,
                ..covered()
            },
        ];
        let mut seen = std::collections::BTreeSet::from([base]);
        for other in others {
            assert!(seen.insert(other.fingerprint()), "{other:?} collides");
        }
    }

    #[test]
    fn fp_01_the_hash_in_pieces_is_the_hash_of_the_whole_preimage() {
        let mentions = ["@ann".to_owned(), "@bob".to_owned()];
        for mentions in [&mentions[..], &[]] {
            let covered = Covered {
                mentions,
                meta_canonical: b"{\"a\":1}",
                ..covered()
            };
            let whole = Fingerprint(Sha256::digest(covered.preimage()).into());
            assert_eq!(covered.fingerprint(), whole);
        }
    }

    #[test]
    fn fp_07_a_shared_prefix_is_not_equality() {
        let (mut a, mut b) = ([7; 32], [7; 32]);
        a[31] = 1;
        b[31] = 2;
        assert_eq!(Fingerprint(a).prefix(), Fingerprint(b).prefix());
        assert_ne!(Fingerprint(a), Fingerprint(b));
        assert_eq!(Fingerprint(a).prefix().len(), 16);
    }
}
