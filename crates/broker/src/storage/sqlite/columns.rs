//! Columns become typed values. What does not parse is an error of the read, never a panic.

use heddle_core::clock::WallMs;
use heddle_core::envelope::{DestinationKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerId, BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, Party,
};
use heddle_core::membership::{PublicKey, Role};
use heddle_core::names::{AgentName, MemberName, MeshName, QueueName, TopicName};
use rusqlite::Row;
use rusqlite::types::{Type, ValueRef};
use ulid::Ulid;

/// Reads the columns of one row from left to right.
pub(super) struct Columns<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

type Read<T> = rusqlite::Result<T>;

impl<'r, 's> Columns<'r, 's> {
    pub(super) fn of(row: &'r Row<'s>) -> Self {
        Self { row, next: 0 }
    }

    fn index(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn ulid(&mut self) -> Read<Ulid> {
        let index = self.index();
        Ok(Ulid::from_bytes(self.row.get(index)?))
    }

    /// Text that must parse.
    fn parsed<T, E>(&mut self, parse: impl FnOnce(&str) -> Result<T, E>) -> Read<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let index = self.index();
        let text = self
            .row
            .get_ref(index)?
            .as_str()
            .map_err(rusqlite::Error::from)?;
        parse(text).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
        })
    }

    pub(super) fn member(&mut self) -> Read<MemberId> {
        self.ulid().map(MemberId)
    }

    pub(super) fn broker_message_id(&mut self) -> Read<BrokerMessageId> {
        self.ulid().map(BrokerMessageId)
    }

    pub(super) fn agent(&mut self) -> Read<AgentName> {
        self.parsed(AgentName::parse)
    }

    pub(super) fn party(&mut self) -> Read<Party> {
        Ok(Party {
            member: self.member()?,
            agent: self.agent()?,
        })
    }

    pub(super) fn member_name(&mut self) -> Read<MemberName> {
        self.parsed(MemberName::parse)
    }

    pub(super) fn topic(&mut self) -> Read<TopicName> {
        self.parsed(TopicName::parse)
    }

    pub(super) fn queue(&mut self) -> Read<QueueName> {
        self.parsed(QueueName::parse)
    }

    pub(super) fn broker(&mut self) -> Read<BrokerId> {
        self.ulid().map(BrokerId)
    }

    pub(super) fn role(&mut self) -> Read<Role> {
        let index = self.next;
        let text = self.text()?;
        Role::parse(&text).ok_or(rusqlite::Error::InvalidColumnType(index, text, Type::Text))
    }

    pub(super) fn public_key(&mut self) -> Read<PublicKey> {
        let index = self.index();
        PublicKey::from_bytes(self.row.get(index)?).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(index, Type::Blob, Box::new(error))
        })
    }

    pub(super) fn mesh(&mut self) -> Read<MeshId> {
        self.ulid().map(MeshId)
    }

    pub(super) fn mesh_name(&mut self) -> Read<MeshName> {
        self.parsed(MeshName::parse)
    }

    pub(super) fn priority(&mut self) -> Read<Priority> {
        let index = self.index();
        let rank: i64 = self.row.get(index)?;
        let priority = u8::try_from(rank).ok().and_then(Priority::from_rank);
        priority.ok_or(rusqlite::Error::IntegralValueOutOfRange(index, rank))
    }

    pub(super) fn maybe_wall(&mut self) -> Read<Option<WallMs>> {
        let index = self.index();
        let at: Option<i64> = self.row.get(index)?;
        Ok(at.map(WallMs))
    }

    /// A count or place that may be missing.
    pub(super) fn maybe_number(&mut self) -> Read<Option<u64>> {
        let index = self.index();
        match self.row.get::<_, Option<i64>>(index)? {
            None => Ok(None),
            Some(number) => u64::try_from(number)
                .map(Some)
                .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, number)),
        }
    }

    /// Two columns that are both there or both missing.
    pub(super) fn maybe_party(&mut self) -> Read<Option<Party>> {
        let index = self.next;
        if self.row.get_ref(index)? == ValueRef::Null {
            self.next += 2;
            return Ok(None);
        }
        self.party().map(Some)
    }

    pub(super) fn client_message_id(&mut self) -> Read<ClientMessageId> {
        self.parsed(ClientMessageId::parse)
    }

    /// Sender and client id of a row that may be missing, or whose names are none any more.
    pub(super) fn maybe_send_id(&mut self) -> Option<(Party, ClientMessageId)> {
        let behind = self.next + 3;
        let party = self.maybe_party().ok().flatten();
        let found = party.and_then(|sender| Some((sender, self.client_message_id().ok()?)));
        self.next = behind;
        found
    }

    /// A mailbox in words, whatever became of its name.
    pub(super) fn shown_party(&mut self) -> Read<String> {
        Ok(format!("{}/{}", self.member()?, self.shown_text()?))
    }

    pub(super) fn history_id(&mut self) -> Read<HistoryId> {
        Ok(HistoryId {
            epoch: self.number()?,
            seq: self.number()?,
        })
    }

    /// A count or place, which is never negative.
    pub(super) fn number(&mut self) -> Read<u64> {
        let index = self.index();
        let number: i64 = self.row.get(index)?;
        u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, number))
    }

    pub(super) fn wall(&mut self) -> Read<WallMs> {
        let index = self.index();
        self.row.get(index).map(WallMs)
    }

    pub(super) fn fingerprint(&mut self) -> Read<Fingerprint> {
        let index = self.index();
        self.row.get(index).map(Fingerprint)
    }

    pub(super) fn flag(&mut self) -> Read<bool> {
        let index = self.index();
        self.row.get(index)
    }

    pub(super) fn text(&mut self) -> Read<String> {
        let index = self.index();
        self.row.get(index)
    }

    /// Text that is compared with what was accepted, or only shown. A byte that a disk has changed must not make the
    /// read fail, and so hold up every row beside it: it becomes a sign that nobody has written, and whoever
    /// compares finds out (ADR 12).
    pub(super) fn shown_text(&mut self) -> Read<String> {
        let index = self.index();
        match self.row.get_ref(index)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                Ok(String::from_utf8_lossy(bytes).into_owned())
            }
            _ => self.row.get(index),
        }
    }

    pub(super) fn envelope(&mut self) -> Read<Box<str>> {
        self.shown_text().map(String::into_boxed_str)
    }

    pub(super) fn maybe_envelope(&mut self) -> Read<Option<Box<str>>> {
        if self.row.get_ref(self.next)? == ValueRef::Null {
            self.next += 1;
            return Ok(None);
        }
        self.envelope().map(Some)
    }

    /// The envelope of an op. Nobody compares it with a fingerprint on its way, so one that is no text any more is
    /// nothing at all: its readers see a gap and say so, instead of taking over what nobody has written.
    pub(super) fn op_envelope(&mut self) -> Read<Box<str>> {
        let index = self.index();
        match self.row.get_ref(index)? {
            ValueRef::Text(bytes) => Ok(std::str::from_utf8(bytes).unwrap_or_default().into()),
            _ => self.row.get(index),
        }
    }

    pub(super) fn destination_kind(&mut self) -> Read<DestinationKind> {
        let index = self.next;
        let text = self.text()?;
        DestinationKind::parse(&text).ok_or(rusqlite::Error::InvalidColumnType(
            index,
            text,
            Type::Text,
        ))
    }
}

/// Ids as the tables hold them: 16 bytes, in time order.
pub(super) fn mesh_key(mesh: MeshId) -> [u8; 16] {
    mesh.0.to_bytes()
}

pub(super) fn member_key(member: MemberId) -> [u8; 16] {
    member.0.to_bytes()
}

pub(super) fn message_key(id: BrokerMessageId) -> [u8; 16] {
    id.0.to_bytes()
}

/// SQLite counts to 2^63. A place beyond that is after everything.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
