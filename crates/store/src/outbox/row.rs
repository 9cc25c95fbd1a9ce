//! A row of the outbox as it is read, and the look-up by its key.

use heddle_core::clock::WallMs;
use heddle_core::envelope::{EnvelopeKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerMessageId, ClientMessageId, HistoryId, IdKey, MemberId, MeshId, Party, RowId,
};
use heddle_core::names::AgentName;
use heddle_core::outbox_status::OutboxStatus;
use rusqlite::{Connection, Params, Row};
use ulid::Ulid;

use crate::cells::Cells;
use crate::error::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    pub row: RowId,
    /// Its place in the order of arrival, from 1 without gaps; what page cursors are made of.
    pub arrival: i64,
    pub mesh: MeshId,
    pub sender: Party,
    pub client_message_id: ClientMessageId,
    pub request_fingerprint: Fingerprint,
    pub wire_fingerprint: Fingerprint,
    pub kind: EnvelopeKind,
    /// As the caller addressed it.
    pub to: String,
    pub mentions: Vec<String>,
    pub priority: Priority,
    /// Filled by `outbox_find` and `outbox_chain` only; empty elsewhere, and where it was pruned.
    pub payload: Vec<u8>,
    pub status: OutboxStatus,
    /// Transmissions that have ended, one way or another.
    pub attempts: u32,
    pub last_error: Option<String>,
    pub enqueued_at: WallMs,
    pub delivered_at: Option<WallMs>,
    pub broker_message_id: Option<BrokerMessageId>,
    pub history_id: Option<HistoryId>,
    pub aborted_at: Option<WallMs>,
    pub aborted_by: Option<String>,
    pub superseded_by: Option<RowId>,
    /// What of it cannot be read, where a list shows it all the same: then any of the above may be a stand-in. Whoever
    /// decides anything reads strictly, and never sees such a row.
    pub damaged: Option<String>,
}

/// A `SELECT` whose rows [`read_row`] understands, with the payload or without.
macro_rules! select_row {
    (with_payload, $tail:literal) => {
        select_row!(@ "payload", $tail)
    };
    (without_payload, $tail:literal) => {
        select_row!(@ "x''", $tail)
    };
    (@ $payload:literal, $tail:literal) => {
        concat!(
            "SELECT arrival, row_id, mesh_id, member_id, agent, client_message_id,
             request_fingerprint, wire_fingerprint, kind, to_address, mentions, priority, ",
            $payload,
            ", status, attempts, last_error, enqueued_at, delivered_at, broker_message_id,
             history_epoch, history_seq, aborted_at, aborted_by, superseded_by ",
            $tail
        )
    };
}
pub(crate) use select_row;

pub(crate) const BY_ID_KEY: &str = select_row!(without_payload, "FROM outbox WHERE id_key = ?1");

pub(crate) fn read_row(row: &Row<'_>) -> Result<OutboxRow, StoreError> {
    let mut cells = Cells::of("outbox", row);
    Ok(OutboxRow {
        arrival: cells.get()?,
        row: RowId(cells.ulid()?),
        mesh: MeshId(cells.ulid()?),
        sender: Party {
            member: MemberId(cells.ulid()?),
            agent: cells.parsed(AgentName::parse)?,
        },
        client_message_id: cells.parsed(ClientMessageId::parse)?,
        request_fingerprint: cells.fingerprint()?,
        wire_fingerprint: cells.fingerprint()?,
        kind: cells.word(parse_kind)?,
        to: cells.get()?,
        mentions: cells.parsed(|text| serde_json::from_str(text))?,
        priority: cells.word(Priority::parse)?,
        payload: cells.get()?,
        status: cells.word(OutboxStatus::parse)?,
        attempts: cells.get()?,
        last_error: cells.get()?,
        enqueued_at: cells.wall()?,
        delivered_at: cells.wall_or_null()?,
        broker_message_id: cells.ulid_or_null()?.map(BrokerMessageId),
        history_id: cells.history_or_null()?,
        aborted_at: cells.wall_or_null()?,
        aborted_by: cells.get()?,
        superseded_by: cells.ulid_or_null()?.map(RowId),
        damaged: None,
    })
}

/// The same for those who only show it: what cannot be read has something in its place, and the row says so.
pub(crate) fn read_shown(row: &Row<'_>) -> Result<OutboxRow, StoreError> {
    if let Ok(row) = read_row(row) {
        return Ok(row);
    }
    let mut cells = Cells::of("outbox", row);
    let none = || Ulid::nil();
    let arrival: i64 = cells.get()?;
    let row_id = cells.or(1, Cells::ulid, |_| none())?;
    let mut shown = OutboxRow {
        arrival,
        row: RowId(row_id),
        mesh: MeshId(cells.or(1, Cells::ulid, |_| none())?),
        sender: Party {
            member: MemberId(cells.or(1, Cells::ulid, |_| none())?),
            agent: cells.or(
                1,
                |c| c.parsed(AgentName::parse),
                |_| AgentName::unreadable(),
            )?,
        },
        client_message_id: cells.or(
            1,
            |c| c.parsed(ClientMessageId::parse),
            |lossy| ClientMessageId::parse(&lossy).unwrap_or(ClientMessageId::minted(row_id)),
        )?,
        request_fingerprint: cells.or(1, Cells::fingerprint, |_| Fingerprint([0; 32]))?,
        wire_fingerprint: cells.or(1, Cells::fingerprint, |_| Fingerprint([0; 32]))?,
        kind: cells.or(1, |c| c.word(parse_kind), |_| EnvelopeKind::Message)?,
        to: cells.or(1, Cells::get, |lossy| lossy)?,
        mentions: cells.or(
            1,
            |c| c.parsed(|text| serde_json::from_str(text)),
            |_| Vec::new(),
        )?,
        priority: cells.or(1, |c| c.word(Priority::parse), |_| Priority::default())?,
        payload: cells.or(1, Cells::get, |_| Vec::new())?,
        // Nothing takes it by itself any more.
        status: cells.or(1, |c| c.word(OutboxStatus::parse), |_| OutboxStatus::Dead)?,
        attempts: cells.or(1, Cells::get, |_| 0)?,
        last_error: cells.or(1, Cells::get, Some)?,
        enqueued_at: cells.or(1, Cells::wall, |_| WallMs(0))?,
        delivered_at: cells.or(1, Cells::wall_or_null, |_| None)?,
        broker_message_id: cells
            .or(1, Cells::ulid_or_null, |_| None)?
            .map(BrokerMessageId),
        history_id: cells.or(2, Cells::history_or_null, |_| None)?,
        aborted_at: cells.or(1, Cells::wall_or_null, |_| None)?,
        aborted_by: cells.or(1, Cells::get, Some)?,
        superseded_by: cells.or(1, Cells::ulid_or_null, |_| None)?.map(RowId),
        damaged: None,
    };
    shown.damaged = cells.damage();
    Ok(shown)
}

pub(crate) fn read_rows(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> Result<Vec<OutboxRow>, StoreError> {
    read_each(connection, sql, parameters, read_row)
}

/// The same for those who only show them.
pub(crate) fn read_rows_shown(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> Result<Vec<OutboxRow>, StoreError> {
    read_each(connection, sql, parameters, read_shown)
}

fn read_each(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: fn(&Row<'_>) -> Result<OutboxRow, StoreError>,
) -> Result<Vec<OutboxRow>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// The row that holds the id, by one of the two `SELECT`s that search for its key. The key is a
/// digest, so the id itself is compared as well.
pub(crate) fn look_up(
    connection: &Connection,
    sql: &str,
    key: IdKey,
    mesh: MeshId,
    sender: &Party,
    id: &ClientMessageId,
) -> Result<Option<OutboxRow>, StoreError> {
    let Some(row) = read_rows(connection, sql, [key.0])?.pop() else {
        return Ok(None);
    };
    if row.mesh == mesh && row.sender == *sender && row.client_message_id == *id {
        return Ok(Some(row));
    }
    Err(not_its_text(&row, mesh, sender, id))
}

pub(crate) fn not_its_text(
    row: &OutboxRow,
    mesh: MeshId,
    sender: &Party,
    id: &ClientMessageId,
) -> StoreError {
    StoreError::Corrupt(format!(
        "outbox row {} has the key of {id} of {sender} in mesh {mesh}, but not its text",
        row.arrival
    ))
}

fn parse_kind(text: &str) -> Option<EnvelopeKind> {
    [EnvelopeKind::Message, EnvelopeKind::Op]
        .into_iter()
        .find(|kind| kind.as_str() == text)
}
