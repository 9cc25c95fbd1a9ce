//! Columns become typed values, and values parameters. What does not parse is an error of the read, never
//! a panic.

use heddle_core::clock::WallMs;
use heddle_core::envelope::{DestinationKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerId, BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, OpId, Party,
};
use heddle_core::membership::{PublicKey, Role};
use heddle_core::names::{AgentName, MemberName, MeshName, QueueName, TopicName};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use ulid::Ulid;

use super::error::JobError;

/// Reads the columns of one row from left to right.
pub(super) struct Columns<'r> {
    row: &'r Row,
    next: usize,
}

type Read<T> = Result<T, JobError>;

impl<'r> Columns<'r> {
    pub(super) fn of(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    /// The next column as it is.
    pub(super) fn plain<T: FromSql<'r>>(&mut self) -> Read<T> {
        let index = self.next;
        self.next += 1;
        Ok(self.row.try_get(index)?)
    }

    /// Whether the next column is null.
    pub(super) fn is_missing(&mut self) -> Read<bool> {
        let index = self.next;
        let column: Option<Anything> = self.row.try_get(index)?;
        Ok(column.is_none())
    }

    pub(super) fn pass(&mut self, columns: usize) {
        self.next += columns;
    }

    fn bad(&self, why: impl std::fmt::Display) -> JobError {
        let index = self.next.saturating_sub(1);
        let name = self.row.columns().get(index).map_or("?", |c| c.name());
        JobError::BadRow(format!("column {name}: {why}"))
    }

    fn bytes<const N: usize>(&mut self) -> Read<[u8; N]> {
        let bytes: &[u8] = self.plain()?;
        bytes
            .try_into()
            .map_err(|_| self.bad(format!("{} bytes", bytes.len())))
    }

    fn ulid(&mut self) -> Read<Ulid> {
        self.bytes().map(Ulid::from_bytes)
    }

    /// Text that must parse.
    fn parsed<T, E: std::fmt::Display>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Read<T> {
        let text: &str = self.plain()?;
        parse(text).map_err(|error| self.bad(error))
    }

    pub(super) fn member(&mut self) -> Read<MemberId> {
        self.ulid().map(MemberId)
    }

    pub(super) fn broker_message_id(&mut self) -> Read<BrokerMessageId> {
        self.ulid().map(BrokerMessageId)
    }

    pub(super) fn op(&mut self) -> Read<OpId> {
        let text = self.text()?;
        text.parse().map_err(|error| self.bad(error))
    }

    pub(super) fn broker(&mut self) -> Read<BrokerId> {
        self.ulid().map(BrokerId)
    }

    pub(super) fn mesh(&mut self) -> Read<MeshId> {
        self.ulid().map(MeshId)
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

    /// Two columns that are both there or both missing.
    pub(super) fn maybe_party(&mut self) -> Read<Option<Party>> {
        if self.is_missing()? {
            self.pass(2);
            return Ok(None);
        }
        self.party().map(Some)
    }

    pub(super) fn member_name(&mut self) -> Read<MemberName> {
        self.parsed(MemberName::parse)
    }

    pub(super) fn mesh_name(&mut self) -> Read<MeshName> {
        self.parsed(MeshName::parse)
    }

    pub(super) fn topic(&mut self) -> Read<TopicName> {
        self.parsed(TopicName::parse)
    }

    pub(super) fn queue(&mut self) -> Read<QueueName> {
        self.parsed(QueueName::parse)
    }

    pub(super) fn client_message_id(&mut self) -> Read<ClientMessageId> {
        self.parsed(ClientMessageId::parse)
    }

    /// Sender and client id of a row that may be missing.
    pub(super) fn maybe_send_id(&mut self) -> Read<Option<(Party, ClientMessageId)>> {
        match self.maybe_party()? {
            Some(sender) => Ok(Some((sender, self.client_message_id()?))),
            None => {
                self.pass(1);
                Ok(None)
            }
        }
    }

    pub(super) fn role(&mut self) -> Read<Role> {
        self.parsed(|text| Role::parse(text).ok_or_else(|| format!("{text:?} is no role")))
    }

    pub(super) fn destination_kind(&mut self) -> Read<DestinationKind> {
        self.parsed(|text| {
            DestinationKind::parse(text).ok_or_else(|| format!("{text:?} is no destination"))
        })
    }

    pub(super) fn public_key(&mut self) -> Read<PublicKey> {
        let bytes = self.bytes()?;
        PublicKey::from_bytes(bytes).map_err(|error| self.bad(error))
    }

    pub(super) fn fingerprint(&mut self) -> Read<Fingerprint> {
        self.bytes().map(Fingerprint)
    }

    pub(super) fn priority(&mut self) -> Read<Priority> {
        let rank: i16 = self.plain()?;
        let priority = u8::try_from(rank).ok().and_then(Priority::from_rank);
        priority.ok_or_else(|| self.bad(format!("{rank} is no priority")))
    }

    /// A count or place, which is never negative.
    pub(super) fn number(&mut self) -> Read<u64> {
        let number: i64 = self.plain()?;
        u64::try_from(number).map_err(|_| self.bad(format!("{number} is negative")))
    }

    /// A count or place that may be missing.
    pub(super) fn maybe_number(&mut self) -> Read<Option<u64>> {
        match self.plain::<Option<i64>>()? {
            None => Ok(None),
            Some(number) => u64::try_from(number)
                .map(Some)
                .map_err(|_| self.bad(format!("{number} is negative"))),
        }
    }

    pub(super) fn history_id(&mut self) -> Read<HistoryId> {
        Ok(HistoryId {
            epoch: self.number()?,
            seq: self.number()?,
        })
    }

    pub(super) fn wall(&mut self) -> Read<WallMs> {
        self.plain().map(WallMs)
    }

    pub(super) fn maybe_wall(&mut self) -> Read<Option<WallMs>> {
        Ok(self.plain::<Option<i64>>()?.map(WallMs))
    }

    pub(super) fn flag(&mut self) -> Read<bool> {
        self.plain()
    }

    pub(super) fn text(&mut self) -> Read<String> {
        self.plain()
    }

    pub(super) fn envelope(&mut self) -> Read<Box<str>> {
        self.plain::<String>().map(Into::into)
    }

    pub(super) fn maybe_envelope(&mut self) -> Read<Option<Box<str>>> {
        Ok(self.plain::<Option<String>>()?.map(Into::into))
    }
}

/// A value of any type that is not looked at.
struct Anything;

impl<'a> FromSql<'a> for Anything {
    fn from_sql(_: &Type, _: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Ids as the tables hold them: 16 bytes, in time order.
pub(super) fn mesh_key(mesh: MeshId) -> Vec<u8> {
    mesh.0.to_bytes().to_vec()
}

pub(super) fn member_key(member: MemberId) -> Vec<u8> {
    member.0.to_bytes().to_vec()
}

pub(super) fn message_key(id: BrokerMessageId) -> Vec<u8> {
    id.0.to_bytes().to_vec()
}

/// The tables count to 2^63. A place beyond that is after everything.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// How a limit is bound.
pub(super) fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn rank(priority: Priority) -> i16 {
    i16::from(priority.rank())
}
