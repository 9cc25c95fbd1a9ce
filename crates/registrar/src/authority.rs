//! Nonces: shown once, stored hashed, compared by their hash only.

use std::fmt;

use heddle_core::clock::Ids;
use heddle_core::fingerprint::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::carry::in_hex;

const NONCE_BYTES: usize = 32;
const PREFIX: &str = "hn_";
const DOMAIN: &[u8] = b"heddle.nonce.v1\0";

/// A credential. Its text is given to whoever asked for the approval, once.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    pub fn mint(ids: &dyn Ids) -> Self {
        let mut bytes = [0; NONCE_BYTES];
        ids.fill(&mut bytes);
        Self(format!("{PREFIX}{}", hex(&bytes)))
    }

    /// Any text is somebody's idea of a nonce; only the store can tell. Long ones are cut by the hash.
    pub fn presented(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The one place where it can be read.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> NonceHash {
        let mut digest = Sha256::new();
        digest.update(DOMAIN);
        digest.update(self.0.as_bytes());
        NonceHash(digest.finalize().into())
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// What is stored of a nonce. 32 random bytes need no salt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NonceHash(#[serde(with = "in_hex")] pub [u8; 32]);

impl NonceHash {
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Debug for NonceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NonceHash({}…)", hex(&self.0[..4]))
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::ManualIds;

    use super::*;

    #[test]
    fn a_nonce_is_long_never_shown_by_accident_and_known_by_its_hash() {
        let ids = ManualIds::seeded(1);
        let (a, b) = (Nonce::mint(&ids), Nonce::mint(&ids));
        assert_ne!(a.hash(), b.hash());
        assert_eq!(a.reveal().len(), PREFIX.len() + 2 * NONCE_BYTES);
        assert!(!format!("{a:?}").contains(&a.reveal()[4..]));
        assert_eq!(Nonce::presented(a.reveal()).hash(), a.hash());
    }
}
