//! Ed25519 keys of members. The secret half is never shown; the public half is 32 bytes in hex.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

use crate::fingerprint::hex;
use crate::ids::{MemberId, MeshId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {0}")]
pub struct KeyError(&'static str);

impl KeyError {
    pub(super) fn nonce() -> Self {
        Self("nonce")
    }
}

/// The secret half. Its bytes are wiped when it goes; `Debug` says nothing.
pub struct MemberKey(SigningKey);

impl fmt::Debug for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberKey(…)")
    }
}

impl MemberKey {
    /// The key of these 32 bytes, which must be random.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// For the key file, and nothing else.
    pub fn seed(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    pub(super) fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(message).to_bytes())
    }
}

/// The public half: a point that signatures can be checked against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Refuses what is no point, and the few points for which anybody could sign.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
        match VerifyingKey::from_bytes(&bytes) {
            Ok(key) if !key.is_weak() => Ok(Self(bytes)),
            _ => Err(KeyError("public key")),
        }
    }

    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// What people compare: the first 8 bytes of the key's digest.
    pub fn fingerprint(self) -> String {
        hex(&Sha256::digest(self.0)[..8])
    }

    /// Who the holder of this key is in a mesh that it joins. The same wherever it is asked: a broker that has
    /// lost its members gives whoever joins it again the id from before, and nobody else gets that.
    pub fn member_in(self, mesh: MeshId) -> MemberId {
        let mut digest = Sha256::new();
        digest.update(b"heddle.member.v1\0");
        digest.update(mesh.0.to_bytes());
        digest.update(self.0);
        let digest = digest.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        MemberId(Ulid::from_bytes(id))
    }

    pub(super) fn has_signed(self, message: &[u8], signature: &Signature) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_bytes(bytes_of(text).ok_or(KeyError("public key"))?)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

/// 64 bytes, in hex on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Signature(pub(super) [u8; 64]);

impl TryFrom<String> for Signature {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        bytes_of(&text).map(Self).ok_or(KeyError("signature"))
    }
}

impl From<Signature> for String {
    fn from(signature: Signature) -> Self {
        hex(&signature.0)
    }
}

/// Exactly N bytes of lower-case hex: one spelling for each value.
pub(super) fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker that knows nothing any more gives a key the member that it was, and no other key that one.
    #[test]
    fn c1_a_key_is_the_same_member_of_a_mesh_wherever_it_asks() {
        let key = |seed: u8| MemberKey::from_seed([seed; 32]).public();
        let mesh = |number: u128| MeshId(Ulid(number));
        assert_eq!(key(1).member_in(mesh(1)), key(1).member_in(mesh(1)));
        assert_ne!(key(1).member_in(mesh(1)), key(2).member_in(mesh(1)));
        assert_ne!(key(1).member_in(mesh(1)), key(1).member_in(mesh(2)));
        // Fixed for ever: members of meshes that exist have it.
        let member = key(1).member_in(mesh(1)).to_string();
        assert_eq!(member.parse().ok(), Some(key(1).member_in(mesh(1))));
    }

    /// RFC 8032 §7.1, tests 1 and 2: the library signs as the standard says.
    #[test]
    fn keys_and_signatures_are_those_of_the_standard() {
        for (seed, public, message, signature) in [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
                &b""[..],
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
                &[0x72][..],
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
        ] {
            let key = MemberKey::from_seed(bytes_of(seed).unwrap());
            assert_eq!(key.public().to_string(), public);
            let signed = key.sign(message);
            assert_eq!(String::from(signed), signature);
            assert!(key.public().has_signed(message, &signed));
            assert!(!key.public().has_signed(b"another", &signed));
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_secrets_are_not_shown() {
        // The neutral point, and one of order two: anybody could sign for them.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(PublicKey::from_bytes(neutral).is_err());
        assert!(PublicKey::from_bytes([0; 32]).is_err());
        for bad in ["", "d75a", &"D7".repeat(32), &"zz".repeat(32)] {
            assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
        }
        let key = MemberKey::from_seed([7; 32]);
        assert_eq!(format!("{key:?}"), "MemberKey(…)");
        assert_eq!(key.public().fingerprint().len(), 16);
    }
}
