//! An item of the inbox, as it comes and as it is read.

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerMessageId, ClientMessageId, HistoryId, IdKey, MemberId, MeshId, Party,
};
use heddle_core::names::{AgentName, MemberName, TopicName};
use rusqlite::Row;
use ulid::Ulid;

use crate::cells::Cells;
use crate::error::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInboxRow {
    pub history_id: HistoryId,
    /// The mailbox.
    pub agent: AgentName,
    pub sender: Party,
    pub sender_name: MemberName,
    pub client_message_id: ClientMessageId,
    pub broker_message_id: BrokerMessageId,
    /// `None` for a direct message.
    pub topic: Option<TopicName>,
    pub envelope: Vec<u8>,
    /// What was accepted; the envelope is kept as it came, whether it is that or not.
    pub fingerprint: Option<Fingerprint>,
    pub priority: Priority,
    pub received_at: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRow {
    /// Its place in this home's order of arrival. Never reused; readers resume from it.
    pub arrival: i64,
    pub mesh: MeshId,
    pub history_id: HistoryId,
    /// The mailbox.
    pub agent: AgentName,
    pub sender: Party,
    pub sender_name: MemberName,
    pub client_message_id: ClientMessageId,
    pub broker_message_id: BrokerMessageId,
    /// `None` for a direct message.
    pub topic: Option<TopicName>,
    pub envelope: Vec<u8>,
    /// What was accepted. Null for one that came before such was kept.
    pub fingerprint: Option<Fingerprint>,
    pub priority: Priority,
    pub received_at: WallMs,
    pub acked_at: Option<WallMs>,
    /// When it was first put before the agent.
    pub shown_at: Option<WallMs>,
}

/// What [`read_row`] expects to be selected.
macro_rules! inbox_columns {
    () => {
        "arrival, mesh_id, history_epoch, history_seq, agent, member_id, sender_agent, sender_name,
         client_message_id, broker_message_id, topic, envelope, priority, received_at, acked_at, shown_at, wire_fingerprint, id_key"
    };
}
pub(crate) use inbox_columns;

/// An item of which a cell cannot be read is one whose bytes cannot be: it has none, and everybody who shows it says so.
/// One such row must not take a whole mailbox away.
pub(crate) fn read_row(row: &Row<'_>) -> Result<InboxRow, StoreError> {
    match read_whole(row) {
        Err(StoreError::Corrupt(_)) => read_damaged(row),
        read => read,
    }
}

fn read_damaged(row: &Row<'_>) -> Result<InboxRow, StoreError> {
    let mut cells = Cells::of("inbox", row);
    let none = |_| Ulid::nil();
    Ok(InboxRow {
        arrival: cells.get()?,
        mesh: MeshId(cells.or(1, Cells::ulid, none)?),
        history_id: cells.history()?,
        agent: cells.or(
            1,
            |c| c.parsed(AgentName::parse),
            |_| AgentName::unreadable(),
        )?,
        sender: Party {
            member: MemberId(cells.or(1, Cells::ulid, none)?),
            agent: cells.or(
                1,
                |c| c.parsed(AgentName::parse),
                |_| AgentName::unreadable(),
            )?,
        },
        sender_name: cells.or(
            1,
            |c| c.parsed(MemberName::parse),
            |_| MemberName::unreadable(),
        )?,
        client_message_id: cells.or(
            1,
            |c| c.parsed(ClientMessageId::parse),
            |lossy| ClientMessageId::parse(&lossy).unwrap_or(ClientMessageId::minted(Ulid::nil())),
        )?,
        broker_message_id: BrokerMessageId(cells.or(1, Cells::ulid, none)?),
        topic: cells.or(1, read_topic, |_| None)?,
        envelope: cells
            .or(1, Cells::get, |_| Vec::new())
            .map(|_| Vec::new())?,
        priority: cells.or(1, |c| c.word(Priority::parse), |_| Priority::default())?,
        received_at: cells.wall()?,
        acked_at: cells.wall_or_null()?,
        shown_at: cells.wall_or_null()?,
        fingerprint: cells.or(1, Cells::get, |_| None)?.map(Fingerprint),
    })
}

/// IMPORTANT: the key is a digest over mesh, sender and id. A row whose names are not those it was kept under says that
/// somebody has sent what somebody else did (ADR 12).
fn read_whole(row: &Row<'_>) -> Result<InboxRow, StoreError> {
    let mut cells = Cells::of("inbox", row);
    let read = read_cells(&mut cells)?;
    let key: [u8; 24] = cells.get()?;
    if key != IdKey::of(read.mesh, &read.sender, &read.client_message_id).0 {
        return Err(cells.bad("its sender or its id is not the one that it came under"));
    }
    Ok(read)
}

fn read_cells(cells: &mut Cells<'_, '_>) -> Result<InboxRow, StoreError> {
    Ok(InboxRow {
        arrival: cells.get()?,
        mesh: MeshId(cells.ulid()?),
        history_id: cells.history()?,
        agent: cells.parsed(AgentName::parse)?,
        sender: Party {
            member: MemberId(cells.ulid()?),
            agent: cells.parsed(AgentName::parse)?,
        },
        sender_name: cells.parsed(MemberName::parse)?,
        client_message_id: cells.parsed(ClientMessageId::parse)?,
        broker_message_id: BrokerMessageId(cells.ulid()?),
        topic: read_topic(cells)?,
        envelope: cells.get()?,
        priority: cells.word(Priority::parse)?,
        received_at: cells.wall()?,
        acked_at: cells.wall_or_null()?,
        shown_at: cells.wall_or_null()?,
        fingerprint: cells.get::<Option<[u8; 32]>>()?.map(Fingerprint),
    })
}

fn read_topic(cells: &mut Cells<'_, '_>) -> Result<Option<TopicName>, StoreError> {
    let Some(text) = cells.get::<Option<String>>()? else {
        return Ok(None);
    };
    match TopicName::parse(&text) {
        Ok(topic) => Ok(Some(topic)),
        Err(error) => Err(cells.bad(error)),
    }
}
