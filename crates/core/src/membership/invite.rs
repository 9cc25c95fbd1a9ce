//! An invitation as a link: who invites to which mesh at which broker, until when and for how many.
//!
//! `heddle://join/` and one run of base64url: version, fields, then the inviter's signature over both.
//! The link is the capability: whoever holds it may join while it lasts. It holds a secret of its own,
//! and the broker keeps a digest of the whole, so nothing but the very link opens the door; a link that
//! was changed in one bit is refused before anybody is asked (T-73).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

use super::Role;
use super::key::{MemberKey, PublicKey, Signature};
use crate::clock::WallMs;
use crate::ids::{BrokerId, InviteId, MemberId, MeshId};
use crate::limits::{INVITE_URL_BYTES_MAX, INVITE_USES_MAX, LINK_CHARS_MAX};
use crate::names::{MemberName, MeshName};

pub const LINK_PREFIX: &str = "heddle://join/";

const VERSION: u8 = 1;
const SIGNED: &[u8] = b"heddle.invite.v1\0";
const DIGESTED: &[u8] = b"heddle.invite.digest.v1\0";
const SIGNATURE_BYTES: usize = 64;

#[derive(Clone, PartialEq, Eq)]
pub struct Invite {
    pub broker: BrokerId,
    pub mesh: MeshId,
    pub invite: InviteId,
    pub inviter: MemberId,
    pub inviter_key: PublicKey,
    /// What whoever joins may do.
    pub role: Role,
    pub uses_max: u32,
    /// By the broker's clock.
    pub expires_at: WallMs,
    /// Random; without it the signed fields could be guessed.
    pub secret: [u8; 32],
    pub mesh_name: MeshName,
    pub inviter_name: MemberName,
    /// Where the broker is.
    pub url: String,
}

impl fmt::Debug for Invite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invite({}, mesh {})", self.invite, self.mesh)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("this is not an invitation: it does not begin with {LINK_PREFIX}")]
    NotALink,
    #[error("the invitation is damaged: it is not whole, or was changed on the way")]
    Damaged,
    #[error("the invitation is of a newer version than this one understands")]
    Newer,
}

/// An invitation with the inviter's signature, as it stands in a link.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedInvite {
    pub invite: Invite,
    /// Fields and signature.
    bytes: Vec<u8>,
}

impl fmt::Debug for SignedInvite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.invite.fmt(f)
    }
}

impl SignedInvite {
    /// Signs with the key that the invitation names as the inviter's.
    pub fn sign(invite: Invite, key: &MemberKey) -> Self {
        let mut bytes = encode(&invite);
        let signature = key.sign(&signed(&bytes));
        bytes.extend(signature.0);
        Self { invite, bytes }
    }

    /// Reads a link and checks its signature. Says nothing about whether the broker takes it.
    pub fn parse(link: &str) -> Result<Self, LinkError> {
        let text = link
            .trim()
            .strip_prefix(LINK_PREFIX)
            .ok_or(LinkError::NotALink)?;
        if text.len() > LINK_CHARS_MAX {
            return Err(LinkError::Damaged);
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| LinkError::Damaged)?;
        if bytes.first().is_some_and(|version| *version > VERSION) {
            return Err(LinkError::Newer);
        }
        let (fields, signature) = bytes
            .split_last_chunk::<SIGNATURE_BYTES>()
            .ok_or(LinkError::Damaged)?;
        let invite = decode(fields).ok_or(LinkError::Damaged)?;
        // One spelling for each invitation: the digest is over the bytes.
        let is_plain = encode(&invite) == fields;
        let signature = Signature(*signature);
        if is_plain && invite.inviter_key.has_signed(&signed(fields), &signature) {
            Ok(Self { invite, bytes })
        } else {
            Err(LinkError::Damaged)
        }
    }

    /// The link itself: a secret.
    pub fn link(&self) -> String {
        format!("{LINK_PREFIX}{}", URL_SAFE_NO_PAD.encode(&self.bytes))
    }

    /// What a broker keeps of it: enough to know the link again, not enough to make it.
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(DIGESTED);
        digest.update(&self.bytes);
        digest.finalize().into()
    }
}

fn signed(fields: &[u8]) -> Vec<u8> {
    [SIGNED, fields].concat()
}

fn encode(invite: &Invite) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(invite.broker.0.to_bytes());
    bytes.extend(invite.mesh.0.to_bytes());
    bytes.extend(invite.invite.0.to_bytes());
    bytes.extend(invite.inviter.0.to_bytes());
    bytes.extend(invite.inviter_key.to_bytes());
    bytes.push(match invite.role {
        Role::Owner => 1,
        Role::Member => 0,
    });
    bytes.extend(invite.uses_max.to_be_bytes());
    bytes.extend(invite.expires_at.0.to_be_bytes());
    bytes.extend(invite.secret);
    for text in [
        invite.mesh_name.as_str(),
        invite.inviter_name.as_str(),
        &invite.url,
    ] {
        // All three are bounded far below this.
        bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Invite> {
    let mut fields = Fields(bytes);
    if fields.take::<1>()? != [VERSION] {
        return None;
    }
    let mut id = || fields.take().map(Ulid::from_bytes);
    let (broker, mesh, invite, inviter) = (id()?, id()?, id()?, id()?);
    let invite = Invite {
        broker: BrokerId(broker),
        mesh: MeshId(mesh),
        invite: InviteId(invite),
        inviter: MemberId(inviter),
        inviter_key: PublicKey::from_bytes(fields.take()?).ok()?,
        role: match fields.take()? {
            [0] => Role::Member,
            [1] => Role::Owner,
            [_] => return None,
        },
        uses_max: u32::from_be_bytes(fields.take()?),
        expires_at: WallMs(i64::from_be_bytes(fields.take()?)),
        secret: fields.take()?,
        mesh_name: MeshName::parse(fields.text()?).ok()?,
        inviter_name: MemberName::parse(fields.text()?).ok()?,
        url: fields.text()?.to_owned(),
    };
    let is_sound = fields.0.is_empty()
        && (1..=INVITE_USES_MAX).contains(&invite.uses_max)
        && invite.url.len() <= INVITE_URL_BYTES_MAX
        && !invite.url.chars().any(char::is_control);
    is_sound.then_some(invite)
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(u16::from_be_bytes(self.take()?));
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> MemberKey {
        MemberKey::from_seed([9; 32])
    }

    fn invite() -> Invite {
        Invite {
            broker: BrokerId(Ulid(1)),
            mesh: MeshId(Ulid(2)),
            invite: InviteId(Ulid(3)),
            inviter: MemberId(Ulid(4)),
            inviter_key: key().public(),
            role: Role::Member,
            uses_max: 1,
            expires_at: WallMs(1_000),
            secret: [5; 32],
            mesh_name: MeshName::parse("home").unwrap(),
            inviter_name: MemberName::parse("alice").unwrap(),
            url: "ws://127.0.0.1:7/".to_owned(),
        }
    }

    /// A vector: what stands here is what older versions wrote, and must be read for ever.
    const LINK: &str = "heddle://join/AQAAAAAAAAAAAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAwAAAAAAAAAAAAAAAAAAAAT9FyQ4WqDHW2T7eM1gL6HZkf3r92sTxY7XAurINen2GAAAAAABAAAAAAAAA-gFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQAEaG9tZQAFYWxpY2UAEXdzOi8vMTI3LjAuMC4xOjcvbZxwfnNMt1IKP9qAF7hVvEQ4kQa7boFEjHTuL5NzRHxdO6D6ePAXH6DMms0qkDfyLiwtCsGjjyWoz6dqaaRWAg";

    #[test]
    fn a_link_survives_the_way_there_and_back() {
        let signed = SignedInvite::sign(invite(), &key());
        let read = SignedInvite::parse(&format!("  {}\n", signed.link())).unwrap();
        assert_eq!(read, signed);
        assert_eq!(read.invite, invite());
        assert_eq!(read.digest(), signed.digest());
        assert_eq!(signed.link(), LINK);
        let shown = format!("{signed:?} {:?}", signed.invite);
        assert!(!shown.contains("5, 5"), "{shown}");
    }

    #[test]
    fn t_73_a_link_changed_in_any_character_is_refused() {
        let link = SignedInvite::sign(invite(), &key()).link();
        for place in LINK_PREFIX.len()..link.len() {
            for other in ['A', 'B', 'z', '_', '=', ' '] {
                let mut changed: Vec<char> = link.chars().collect();
                if changed[place] == other {
                    continue;
                }
                changed[place] = other;
                let changed: String = changed.into_iter().collect();
                assert!(SignedInvite::parse(&changed).is_err() || changed.trim() == link);
            }
        }
        for cut in 0..link.len() {
            assert!(SignedInvite::parse(&link[..cut]).is_err(), "{cut}");
        }
        assert!(SignedInvite::parse(&format!("{link}AAAA")).is_err());
        assert_eq!(SignedInvite::parse("https://x/"), Err(LinkError::NotALink));
    }

    #[test]
    fn t_73_fields_that_were_changed_and_signed_by_another_are_another_invitation() {
        let signed = SignedInvite::sign(invite(), &key());
        let thief = MemberKey::from_seed([1; 32]);
        let forged = Invite {
            role: Role::Owner,
            ..invite()
        };
        // Under the inviter's name, but by another key: the link itself is refused.
        let link = SignedInvite::sign(forged.clone(), &thief).link();
        assert_eq!(SignedInvite::parse(&link), Err(LinkError::Damaged));
        // Under the thief's own key: the link is well-formed, and the broker knows no such digest.
        let forged = Invite {
            inviter_key: thief.public(),
            ..forged
        };
        let forged = SignedInvite::sign(forged, &thief);
        assert!(SignedInvite::parse(&forged.link()).is_ok());
        assert_ne!(forged.digest(), signed.digest());
    }

    #[test]
    fn what_makes_no_sense_is_refused_though_it_is_signed() {
        for wrong in [
            Invite {
                uses_max: 0,
                ..invite()
            },
            Invite {
                uses_max: INVITE_USES_MAX + 1,
                ..invite()
            },
            Invite {
                url: "x".repeat(INVITE_URL_BYTES_MAX + 1),
                ..invite()
            },
            Invite {
                url: "ws://a\nb".to_owned(),
                ..invite()
            },
        ] {
            let link = SignedInvite::sign(wrong, &key()).link();
            assert_eq!(SignedInvite::parse(&link), Err(LinkError::Damaged));
        }
    }
}
