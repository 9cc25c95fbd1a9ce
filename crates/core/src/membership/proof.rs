//! What a signature covers. Fields have fixed lengths and stand behind a label and a zero byte, so no
//! two different statements have the same bytes.

use std::fmt;

use super::key::{KeyError, MemberKey, PublicKey, Signature, bytes_of};
use crate::fingerprint::hex;
use crate::ids::{BrokerId, InviteId, MemberId, MeshId};
use crate::names::MemberName;

pub const NONCE_BYTES: usize = 32;

const HELLO: &[u8] = b"heddle.hello.v1\0";
const CLAIM: &[u8] = b"heddle.claim.v1\0";

/// What a broker challenges with: fresh for each connection, and used once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub [u8; NONCE_BYTES]);

impl Nonce {
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        bytes_of(text).map(Self).ok_or(KeyError::nonce())
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// "I am this member of this mesh, and I say so to this broker, now."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloProof {
    pub broker: BrokerId,
    pub mesh: MeshId,
    pub member: MemberId,
    pub nonce: Nonce,
}

impl HelloProof {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = HELLO.to_vec();
        bytes.extend(self.broker.0.to_bytes());
        bytes.extend(self.mesh.0.to_bytes());
        bytes.extend(self.member.0.to_bytes());
        bytes.extend(self.nonce.0);
        bytes
    }

    pub fn sign(&self, key: &MemberKey) -> Signature {
        key.sign(&self.bytes())
    }

    pub fn is_signed_by(&self, key: PublicKey, signature: &Signature) -> bool {
        key.has_signed(&self.bytes(), signature)
    }
}

/// "I hold this key and take up this invitation under this name, at this broker, now."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimProof<'a> {
    pub broker: BrokerId,
    pub mesh: MeshId,
    pub invite: InviteId,
    pub nonce: Nonce,
    pub key: PublicKey,
    pub name: &'a MemberName,
}

impl ClaimProof<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = CLAIM.to_vec();
        bytes.extend(self.broker.0.to_bytes());
        bytes.extend(self.mesh.0.to_bytes());
        bytes.extend(self.invite.0.to_bytes());
        bytes.extend(self.nonce.0);
        bytes.extend(self.key.to_bytes());
        // The only field without a length of its own, and so the last.
        bytes.extend(self.name.as_str().as_bytes());
        bytes
    }

    pub fn sign(&self, key: &MemberKey) -> Signature {
        key.sign(&self.bytes())
    }

    pub fn is_signed_by_its_key(&self, signature: &Signature) -> bool {
        self.key.has_signed(&self.bytes(), signature)
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn hello() -> HelloProof {
        HelloProof {
            broker: BrokerId(Ulid(1)),
            mesh: MeshId(Ulid(2)),
            member: MemberId(Ulid(3)),
            nonce: Nonce([4; NONCE_BYTES]),
        }
    }

    /// Vectors: another implementation signs these very bytes.
    #[test]
    fn t_20_the_signed_bytes_are_pinned() {
        let key = MemberKey::from_seed([9; 32]);
        assert_eq!(
            hex(&hello().bytes()),
            format!(
                "686564646c652e68656c6c6f2e763100{:032x}{:032x}{:032x}{}",
                1,
                2,
                3,
                "04".repeat(32)
            )
        );
        let name = MemberName::parse("bob").unwrap();
        let claim = ClaimProof {
            broker: BrokerId(Ulid(1)),
            mesh: MeshId(Ulid(2)),
            invite: InviteId(Ulid(5)),
            nonce: Nonce([4; NONCE_BYTES]),
            key: key.public(),
            name: &name,
        };
        assert_eq!(
            hex(&claim.bytes()),
            format!(
                "686564646c652e636c61696d2e763100{:032x}{:032x}{:032x}{}{}626f62",
                1,
                2,
                5,
                "04".repeat(32),
                key.public()
            )
        );
        assert!(claim.is_signed_by_its_key(&claim.sign(&key)));
    }

    #[test]
    fn t_20_a_signature_is_good_for_one_broker_mesh_member_nonce_and_key() {
        let key = MemberKey::from_seed([9; 32]);
        let signature = hello().sign(&key);
        assert!(hello().is_signed_by(key.public(), &signature));
        let other = MemberKey::from_seed([10; 32]);
        assert!(!hello().is_signed_by(other.public(), &signature));
        let mut nonce = hello().nonce;
        nonce.0[31] ^= 1;
        for wrong in [
            HelloProof {
                broker: BrokerId(Ulid(9)),
                ..hello()
            },
            HelloProof {
                mesh: MeshId(Ulid(9)),
                ..hello()
            },
            HelloProof {
                member: MemberId(Ulid(9)),
                ..hello()
            },
            HelloProof { nonce, ..hello() },
        ] {
            assert!(!wrong.is_signed_by(key.public(), &signature), "{wrong:?}");
        }
    }
}
