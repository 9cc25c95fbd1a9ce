//! Distinct types for everything that is called an id, so that no two can be mixed up.
//!
//! Rows and minted message ids are ULIDs, ops are UUIDv7: both rise with time, which keeps every
//! hot index append-only. A caller's own id is any text; [`IdKey`] turns it into a compact key.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use ulid::Ulid;
use uuid::Uuid;

use crate::limits::{CLIENT_MESSAGE_ID_BYTES_MAX, REPLY_TO_BYTES_MAX};
use crate::names::{AgentName, MeshName};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("{kind} {shown} is not a valid id")]
    Malformed { kind: &'static str, shown: String },
    #[error("{kind} is empty")]
    Empty { kind: &'static str },
    #[error("{kind} is longer than {bytes_max} bytes")]
    TooLong {
        kind: &'static str,
        bytes_max: usize,
    },
    #[error("{kind} holds a control character")]
    Control { kind: &'static str },
}

macro_rules! ulid_type {
    ($(#[$doc:meta])* $type:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(pub Ulid);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $type {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Ulid::from_string(text).map(Self).map_err(|_| IdError::Malformed {
                    kind: $kind,
                    shown: shown(text),
                })
            }
        }

        impl TryFrom<String> for $type {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(id: $type) -> Self {
                id.to_string()
            }
        }
    };
}

ulid_type!(
    /// A row of the outbox.
    RowId,
    "row id"
);
ulid_type!(
    /// A message, as the broker calls it.
    BrokerMessageId,
    "broker message id"
);
ulid_type!(
    /// A mesh, wherever it is hosted and whatever it is called.
    MeshId,
    "mesh id"
);
ulid_type!(
    /// A member of a mesh. Survives renaming and key rotation (C1).
    MemberId,
    "member id"
);
ulid_type!(
    /// A broker's database. Whoever signs for one signs for no other.
    BrokerId,
    "broker id"
);
ulid_type!(
    /// An invitation to a mesh.
    InviteId,
    "invite id"
);

/// An op of the store. It is the `client_message_id` of its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub Uuid);

impl OpId {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for OpId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Uuid::parse_str(text)
            .map(Self)
            .map_err(|_| IdError::Malformed {
                kind: "op id",
                shown: shown(text),
            })
    }
}

fn shown(text: &str) -> String {
    let head: String = text.chars().take(40).collect();
    format!("{head:?}")
}

fn check_text(kind: &'static str, text: &str, bytes_max: usize) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { kind });
    }
    if text.len() > bytes_max {
        return Err(IdError::TooLong { kind, bytes_max });
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::Control { kind });
    }
    Ok(())
}

/// The id under which a caller sends: its own idempotency key, or one that we minted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClientMessageId(String);

impl ClientMessageId {
    pub fn parse(text: &str) -> Result<Self, IdError> {
        check_text("client_message_id", text, CLIENT_MESSAGE_ID_BYTES_MAX)?;
        Ok(Self(text.to_owned()))
    }

    pub fn minted(id: Ulid) -> Self {
        Self(id.to_string())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ClientMessageId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

impl From<ClientMessageId> for String {
    fn from(id: ClientMessageId) -> Self {
        id.0
    }
}

/// The id of the message that this one answers, as the caller gave it.
pub fn check_reply_to(text: &str) -> Result<(), IdError> {
    check_text("reply_to_id", text, REPLY_TO_BYTES_MAX)
}

/// Who sends or receives: a member and one of its mailboxes. Part of every key (C1, C30).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Party {
    pub member: MemberId,
    pub agent: AgentName,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.member, self.agent)
    }
}

impl FromStr for Party {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let malformed = || IdError::Malformed {
            kind: "party",
            shown: shown(text),
        };
        let (member, agent) = text.split_once('/').ok_or_else(malformed)?;
        Ok(Self {
            member: member.parse()?,
            agent: AgentName::parse(agent).map_err(|_| malformed())?,
        })
    }
}

/// A place in a mesh's history. Orders by epoch, then by seq.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct HistoryId {
    pub epoch: u64,
    pub seq: u64,
}

/// Places that no honest broker gives and no honest daemon has seen. Both add to what they are told.
const EPOCH_MAX: u64 = 1 << 40;
const SEQ_MAX: u64 = 1 << 53;

impl HistoryId {
    /// A place that a broker may have given. One beyond that, once kept, would be refused by every other broker.
    pub const fn is_possible(self) -> bool {
        self.epoch <= EPOCH_MAX && self.seq <= SEQ_MAX
    }

    /// Before everything.
    pub const ZERO: Self = Self { epoch: 0, seq: 0 };

    /// The place right before this one.
    #[must_use]
    pub fn before(self) -> Self {
        Self {
            seq: self.seq.saturating_sub(1),
            ..self
        }
    }
}

impl fmt::Display for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

impl FromStr for HistoryId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parsed = text
            .split_once('.')
            .and_then(|(epoch, seq)| Some((epoch.parse().ok()?, seq.parse().ok()?)));
        match parsed {
            Some((epoch, seq)) => Ok(Self { epoch, seq }),
            None => Err(IdError::Malformed {
                kind: "history id",
                shown: shown(text),
            }),
        }
    }
}

impl TryFrom<String> for HistoryId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<HistoryId> for String {
    fn from(id: HistoryId) -> Self {
        id.to_string()
    }
}

/// The unique key of `(mesh, sender, client_message_id)` as both layers index it: 24 bytes.
///
/// The first eight are the time of a time-ordered id (ULID, UUIDv7), so that minted ids land at
/// the right edge of the index, or else the head of the digest; the other sixteen are a digest
/// over all three parts. The text columns stand beside it, and a look-up compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdKey(pub [u8; 24]);

impl MeshId {
    /// The mesh of that name on a broker elsewhere: every home that names it means the same one.
    pub fn named(name: &MeshName) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"heddle.mesh.v1\0");
        digest.update(name.as_str().as_bytes());
        let digest = digest.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        // A ULID's text holds 128 bits, so any of them reads back.
        Self(Ulid::from_bytes(id))
    }
}

impl IdKey {
    pub fn of(mesh: MeshId, sender: &Party, id: &ClientMessageId) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"heddle.id.v1\0");
        digest.update(mesh.0.to_bytes());
        digest.update(sender.member.0.to_bytes());
        digest.update(sender.agent.as_str().as_bytes());
        digest.update([0]);
        digest.update(id.as_str().as_bytes());
        let digest = digest.finalize();
        let mut key = [0; 24];
        match time_prefix(id.as_str()) {
            Some(prefix) => key[..8].copy_from_slice(&prefix),
            None => key[..8].copy_from_slice(&digest[16..24]),
        }
        key[8..].copy_from_slice(&digest[..16]);
        Self(key)
    }
}

/// The leading 64 bits of an id that begins with its time, in either of the two common spellings.
fn time_prefix(text: &str) -> Option<[u8; 8]> {
    let bytes = match text.len() {
        26 => Ulid::from_string(text).ok()?.to_bytes(),
        36 => {
            let id = Uuid::parse_str(text).ok()?;
            (id.get_version_num() == 7).then_some(*id.as_bytes())?
        }
        _ => return None,
    };
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&bytes[..8]);
    Some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Ids, ManualIds};

    fn party(ids: &ManualIds, agent: &str) -> Party {
        Party {
            member: MemberId(ids.ulid()),
            agent: AgentName::parse(agent).unwrap(),
        }
    }

    #[test]
    fn c1_the_key_separates_meshes_members_agents_and_ids() {
        let ids = ManualIds::seeded(1);
        let mesh = MeshId(ids.ulid());
        let alice = party(&ids, "planner");
        let deploy = ClientMessageId::parse("deploy-42").unwrap();
        let base = IdKey::of(mesh, &alice, &deploy);
        assert_eq!(base, IdKey::of(mesh, &alice, &deploy));
        let other_agent = Party {
            agent: AgentName::parse("coder").unwrap(),
            ..alice.clone()
        };
        for other in [
            IdKey::of(MeshId(ids.ulid()), &alice, &deploy),
            IdKey::of(mesh, &party(&ids, "planner"), &deploy),
            IdKey::of(mesh, &other_agent, &deploy),
            IdKey::of(mesh, &alice, &ClientMessageId::parse("deploy-43").unwrap()),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn time_ordered_ids_keep_their_order_in_the_key() {
        let ids = ManualIds::seeded(2);
        let mesh = MeshId(ids.ulid());
        let sender = party(&ids, "a");
        let key = |text: String| IdKey::of(mesh, &sender, &ClientMessageId::parse(&text).unwrap());
        let early = Ulid::from_parts(1_000, 5);
        let late = Ulid::from_parts(2_000, 4);
        assert!(key(early.to_string()) < key(late.to_string()));
        let v7 = |ms| uuid::Builder::from_unix_timestamp_millis(ms, &[9; 10]).into_uuid();
        assert!(key(v7(1_000).to_string()) < key(v7(2_000).to_string()));
    }

    #[test]
    fn ids_refuse_what_cannot_be_one() {
        assert!(ClientMessageId::parse("").is_err());
        assert!(ClientMessageId::parse("a\0b").is_err());
        assert!(ClientMessageId::parse("a\nb").is_err());
        assert!(ClientMessageId::parse(&"x".repeat(257)).is_err());
        assert!(ClientMessageId::parse(&"x".repeat(256)).is_ok());
        assert!("1".parse::<HistoryId>().is_err());
        assert!("1.2.3".parse::<HistoryId>().is_err());
        assert!("-1.2".parse::<HistoryId>().is_err());
        assert_eq!(
            "3.14".parse::<HistoryId>().unwrap(),
            HistoryId { epoch: 3, seq: 14 }
        );
    }

    #[test]
    fn history_orders_by_epoch_first() {
        let at = |epoch, seq| HistoryId { epoch, seq };
        assert!(at(1, 900) < at(2, 1));
        assert!(at(2, 1) < at(2, 2));
        assert!(HistoryId::ZERO < at(1, 1));
        assert!(HistoryId::ZERO.is_possible() && at(1 << 40, 1 << 53).is_possible());
        assert!(!at(1, u64::MAX).is_possible() && !at(u64::MAX, 1).is_possible());
        assert!(at(1, 900) < at(2, 1).before() && at(2, 1).before() < at(2, 1));
    }
}
