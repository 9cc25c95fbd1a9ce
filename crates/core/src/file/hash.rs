//! The SHA-256 that a file's bytes are known by, and its streaming maker.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::fingerprint::hex;

/// Says who the bytes are. As text always 64 lower-case hex digits: it is a file name, too (T-62).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub [u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a content hash is 64 lower-case hex digits")]
pub struct ContentHashError;

impl ContentHash {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

impl FromStr for ContentHash {
    type Err = ContentHashError;

    fn from_str(text: &str) -> Result<Self, ContentHashError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(ContentHashError);
        }
        let mut hash = [0; 32];
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            let (high, low) = digit(*high).zip(digit(*low)).ok_or(ContentHashError)?;
            *byte = high << 4 | low;
        }
        Ok(Self(hash))
    }
}

/// Hashes what streams by, and counts it.
#[derive(Debug, Clone, Default)]
pub struct ContentHasher {
    digest: Sha256,
    bytes: u64,
}

impl ContentHasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(self) -> ContentHash {
        ContentHash(self.digest.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn t_62_only_its_one_spelling_is_read() {
        assert_eq!(ContentHash::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.parse(), Ok(ContentHash::of(b"")));
        let (upper, long) = (EMPTY.to_uppercase(), format!("{EMPTY}00"));
        let foreign = EMPTY.replacen('e', "g", 1);
        let two_bytes = EMPTY.replacen("e3", "é", 1);
        for bad in [
            "",
            "..",
            "../../etc/passwd",
            &EMPTY[1..],
            &EMPTY[2..],
            &upper,
            &long,
            &foreign,
            &two_bytes,
            " e3b0",
        ] {
            assert_eq!(bad.parse::<ContentHash>(), Err(ContentHashError), "{bad:?}");
        }
    }

    #[test]
    fn pieces_make_the_hash_of_the_whole() {
        let mut hasher = ContentHasher::default();
        hasher.update(b"ab");
        hasher.update(b"");
        hasher.update(b"c");
        assert_eq!(hasher.bytes(), 3);
        assert_eq!(hasher.finish(), ContentHash::of(b"abc"));
    }
}
