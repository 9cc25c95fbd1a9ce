//! Messages that the broker had committed and has lost: an older file of it was put back, and a new epoch has begun.
//!
//! They are found among the rows that are `done`, by the place that their ack gave them. The rows stay as they are; what
//! becomes of each is kept beside them, so that nothing of it is forgotten by a crash, and every one can be told.

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, MeshId};
use heddle_core::limits::PRUNE_LOOK_MAX;
use heddle_core::names::AgentName;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::cells::{Cells, history_cells};
use crate::error::StoreError;
use crate::store::Store;
use crate::sync::read_head;

/// What becomes of a message that the broker has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostState {
    /// It is sent again under its id.
    Waiting,
    /// Sending it again might do work twice: a person decides.
    Held,
    /// Its bytes are not here any more.
    Gone,
    /// The broker does not take it now; it is tried again, and a person may know why.
    Refused,
    /// The broker has it again.
    Sent,
    /// A person gave it up.
    GivenUp,
}

impl LostState {
    pub const ALL: [Self; 6] = [
        Self::Waiting,
        Self::Held,
        Self::Gone,
        Self::Refused,
        Self::Sent,
        Self::GivenUp,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::Sent => "sent",
            Self::GivenUp => "given_up",
        }
    }

    /// Whether the broker does not have it, and nobody has said that this is well.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Sent | Self::GivenUp)
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// One of them, to be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRow {
    pub arrival: i64,
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    pub to: String,
    pub wire_fingerprint: Fingerprint,
    /// Under which the broker had it.
    pub broker_message_id: Option<BrokerMessageId>,
    /// Empty where it was given back.
    pub payload: Vec<u8>,
}

/// One of them, to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostMessage {
    pub client_message_id: String,
    pub to: String,
    pub place: HistoryId,
    pub state: LostState,
    pub reason: String,
    pub at: WallMs,
}

/// What became of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostSettle {
    pub arrival: i64,
    pub state: LostState,
    pub reason: String,
    /// Where the broker has it now.
    pub place: Option<(BrokerMessageId, HistoryId)>,
    /// It was never lost: it has another place than it had.
    pub was_there: bool,
}

/// What a look at one stretch found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostLook {
    /// Where the next stretch begins; `None` at the end.
    pub next: Option<i64>,
    /// Lost, and too old to be sent again.
    pub left_off: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostFigures {
    pub waiting: u64,
    pub held: u64,
    pub gone: u64,
    pub refused: u64,
    pub sent: u64,
    /// Of the latest loss: a person gave them up.
    pub dropped: u64,
}

impl LostFigures {
    /// How many the broker does not have.
    pub fn open(self) -> u64 {
        self.waiting + self.held + self.gone + self.refused
    }
}

/// Why work of a queue is not sent again by itself.
const HELD: &str =
    "whoever took it may have done it since that copy: sending it again could do the work twice";

pub(crate) const LOOK: &str = "
    SELECT arrival, history_epoch, history_seq, to_address, id_key FROM outbox
    WHERE arrival > ?1 AND arrival <= ?2 AND kind = 'message' AND mesh_id = ?3 AND status = 'done'
    ORDER BY arrival";

// What an agent of this home took from a queue is known here, because a take notes it before it is answered.
pub(crate) const WAS_TAKEN: &str = "
    SELECT 1 FROM agent JOIN inbox_past ON inbox_past.agent = agent.agent AND inbox_past.id_key = ?2
    WHERE agent.mesh_id = ?1";

// A row that was found before is left as it is, unless the broker has lost its new place, too.
pub(crate) const NOTE: &str = "
    INSERT INTO outbox_lost (arrival, mesh_id, lost_epoch, lost_seq, state, reason, at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (arrival) DO UPDATE SET lost_epoch = excluded.lost_epoch, lost_seq = excluded.lost_seq,
        state = excluded.state, reason = excluded.reason, at = excluded.at
    WHERE outbox_lost.lost_epoch <> excluded.lost_epoch OR outbox_lost.lost_seq <> excluded.lost_seq";

pub(crate) const WAITING: &str = "
    SELECT outbox.arrival, agent, client_message_id, to_address, wire_fingerprint, broker_message_id, payload
    FROM outbox_lost JOIN outbox ON outbox.arrival = outbox_lost.arrival
    WHERE outbox_lost.mesh_id = ?1 AND state = ?2 AND outbox_lost.arrival > ?3
    ORDER BY outbox_lost.arrival LIMIT ?4";

pub(crate) const SET_STATE: &str =
    "UPDATE outbox_lost SET state = ?2, reason = ?3, at = ?4 WHERE arrival = ?1";

pub(crate) const NOT_LOST: &str = "DELETE FROM outbox_lost WHERE arrival = ?1";

pub(crate) const MOVED: &str = "
    UPDATE outbox SET broker_message_id = ?2, history_epoch = ?3, history_seq = ?4
    WHERE arrival = ?1 AND status = 'done'";

pub(crate) const COUNTS: &str =
    "SELECT state, count(*) FROM outbox_lost WHERE mesh_id = ?1 GROUP BY state";

pub(crate) const DROPPED: &str = "
    SELECT count(*) FROM outbox_lost WHERE mesh_id = ?1 AND state = 'given_up'
        AND lost_epoch = (SELECT max(lost_epoch) FROM outbox_lost WHERE mesh_id = ?1)";

pub(crate) const LIST: &str = "
    SELECT outbox_lost.arrival, client_message_id, to_address, lost_epoch, lost_seq, state, reason, at
    FROM outbox_lost JOIN outbox ON outbox.arrival = outbox_lost.arrival
    WHERE outbox_lost.mesh_id = ?1 AND state = ?2 ORDER BY outbox_lost.arrival LIMIT ?3";

pub(crate) const OF_ARRIVAL: &str = "
    SELECT outbox_lost.arrival, client_message_id, to_address, lost_epoch, lost_seq, state, reason, at
    FROM outbox_lost JOIN outbox ON outbox.arrival = outbox_lost.arrival
    WHERE outbox_lost.arrival = ?1";

const OPEN: [LostState; 4] = [
    LostState::Held,
    LostState::Gone,
    LostState::Refused,
    LostState::Waiting,
];

impl Store {
    /// Notes the messages in one stretch of the outbox behind `after` for which `is_lost` says so, but for those up to
    /// `too_old`, which are counted only.
    pub async fn note_lost(
        &self,
        mesh: MeshId,
        (after, too_old): (i64, i64),
        now: WallMs,
        is_lost: impl Fn(HistoryId) -> bool + Send + 'static,
    ) -> Result<LostLook, StoreError> {
        let (mut lost, next) = self
            .read(move |connection| look(connection, mesh, after, is_lost))
            .await?;
        let all = lost.len();
        lost.retain(|(arrival, ..)| *arrival > too_old);
        let left_off = u64::try_from(all - lost.len()).unwrap_or(u64::MAX);
        if !lost.is_empty() {
            self.write(move |connection| note(connection, mesh, &lost, now))
                .await?;
        }
        Ok(LostLook { next, left_off })
    }

    /// Messages behind this arrival that are in this state; as many as both bounds allow, and one at least.
    pub async fn lost_rows(
        &self,
        mesh: MeshId,
        state: LostState,
        after: i64,
        (items_max, bytes_max): (usize, usize),
    ) -> Result<Vec<LostRow>, StoreError> {
        self.read(move |connection| {
            let limit = i64::try_from(items_max).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(WAITING)?;
            let mut rows =
                statement.query(params![mesh.0.to_bytes(), state.as_str(), after, limit])?;
            let (mut found, mut bytes) = (Vec::new(), 0_usize);
            while let Some(row) = rows.next()? {
                let row = read_row(row)?;
                bytes = bytes.saturating_add(row.payload.len());
                if bytes > bytes_max && !found.is_empty() {
                    break;
                }
                found.push(row);
            }
            Ok(found)
        })
        .await
    }

    /// What became of them, in one transaction: the place of one that the broker has again is its row's from now on.
    pub async fn settle_lost(
        &self,
        mesh: MeshId,
        settled: Vec<LostSettle>,
        now: WallMs,
    ) -> Result<(), StoreError> {
        self.write(move |connection| {
            for one in settled {
                if let Some((id, place)) = one.place {
                    let (epoch, seq) = history_cells(place);
                    let cells = params![one.arrival, id.0.to_bytes(), epoch, seq];
                    connection.prepare_cached(MOVED)?.execute(cells)?;
                    super::reached(connection, mesh, place)?;
                }
                if one.was_there {
                    connection
                        .prepare_cached(NOT_LOST)?
                        .execute([one.arrival])?;
                    continue;
                }
                set_state(connection, one.arrival, one.state, &one.reason, now)?;
            }
            Ok(())
        })
        .await
    }

    pub async fn lost_figures(&self, mesh: MeshId) -> Result<LostFigures, StoreError> {
        self.read(move |connection| {
            let mut figures = LostFigures::default();
            let mut statement = connection.prepare_cached(COUNTS)?;
            let mut rows = statement.query([mesh.0.to_bytes()])?;
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("outbox_lost", row);
                let state = cells.word(LostState::parse)?;
                let count = cells.count()?;
                match state {
                    LostState::Waiting => figures.waiting = count,
                    LostState::Held => figures.held = count,
                    LostState::Gone => figures.gone = count,
                    LostState::Refused => figures.refused = count,
                    LostState::Sent => figures.sent = count,
                    // Those of earlier losses, too, which are over.
                    LostState::GivenUp => {}
                }
            }
            let mut statement = connection.prepare_cached(DROPPED)?;
            let dropped: i64 = statement.query_row([mesh.0.to_bytes()], |row| row.get(0))?;
            figures.dropped = u64::try_from(dropped).unwrap_or(0);
            Ok(figures)
        })
        .await
    }

    /// Messages that the broker does not have, those first that wait for a person.
    pub async fn lost_open(
        &self,
        mesh: MeshId,
        limit: usize,
    ) -> Result<Vec<LostMessage>, StoreError> {
        self.read(move |connection| {
            let mut found = Vec::new();
            for state in OPEN {
                let left = i64::try_from(limit.saturating_sub(found.len())).unwrap_or(i64::MAX);
                let mut statement = connection.prepare_cached(LIST)?;
                let mut rows = statement.query(params![mesh.0.to_bytes(), state.as_str(), left])?;
                while let Some(row) = rows.next()? {
                    found.push(read_message(row)?);
                }
            }
            Ok(found)
        })
        .await
    }

    /// What became of this row, if the broker has ever lost it.
    pub async fn lost_of(&self, arrival: i64) -> Result<Option<LostMessage>, StoreError> {
        self.read(move |connection| of(connection, arrival)).await
    }

    /// A person has decided about one that is open. False if it is not, or has no bytes to send.
    pub async fn decide_lost(
        &self,
        arrival: i64,
        state: LostState,
        reason: &'static str,
        now: WallMs,
    ) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let found: Option<String> = connection
                .prepare_cached("SELECT state FROM outbox_lost WHERE arrival = ?1")?
                .query_row([arrival], |row| row.get(0))
                .optional()?;
            let may = match found.as_deref().and_then(LostState::parse) {
                Some(LostState::Gone) => state != LostState::Waiting,
                Some(before) => before.is_open(),
                None => false,
            };
            if may {
                set_state(connection, arrival, state, reason, now)?;
            }
            Ok(may)
        })
        .await
    }
}

pub(super) fn of(connection: &Connection, arrival: i64) -> Result<Option<LostMessage>, StoreError> {
    let mut statement = connection.prepare_cached(OF_ARRIVAL)?;
    let mut rows = statement.query([arrival])?;
    rows.next()?.map(read_message).transpose()
}

/// A row that the broker has lost, and its place; whether it is work that may have been done.
type Found = (i64, HistoryId, bool);

fn look(
    connection: &Connection,
    mesh: MeshId,
    after: i64,
    is_lost: impl Fn(HistoryId) -> bool,
) -> Result<(Vec<Found>, Option<i64>), StoreError> {
    let end = after.saturating_add(PRUNE_LOOK_MAX);
    let newest: Option<i64> = connection
        .prepare_cached(super::age::NEWEST_ROW)?
        .query_row([], |row| row.get(0))?;
    // In a mesh of this home alone nobody else can have taken work.
    let has_others = read_head(connection, mesh)?.kind.is_shared();
    let mut was_taken = connection.prepare_cached(WAS_TAKEN)?;
    let mut statement = connection.prepare_cached(LOOK)?;
    let mut rows = statement.query(params![after, end, mesh.0.to_bytes()])?;
    let mut lost = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("outbox", row);
        let arrival = cells.get()?;
        let Some(place) = cells.history_or_null()? else {
            continue;
        };
        if !is_lost(place) {
            continue;
        }
        let is_work = cells.get::<String>()?.starts_with("queue:");
        let key: Vec<u8> = cells.get()?;
        let is_risky =
            is_work && (has_others || was_taken.exists(params![mesh.0.to_bytes(), key])?);
        lost.push((arrival, place, is_risky));
    }
    Ok((lost, newest.filter(|newest| *newest > end).map(|_| end)))
}

fn note(
    connection: &Connection,
    mesh: MeshId,
    lost: &[Found],
    now: WallMs,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(NOTE)?;
    for (arrival, place, is_risky) in lost {
        let (epoch, seq) = history_cells(*place);
        let (state, reason) = if *is_risky {
            (LostState::Held, HELD)
        } else {
            (LostState::Waiting, "")
        };
        let state = state.as_str();
        let mesh = mesh.0.to_bytes();
        statement.execute(params![arrival, mesh, epoch, seq, state, reason, now.0])?;
    }
    Ok(())
}

fn set_state(
    connection: &Connection,
    arrival: i64,
    state: LostState,
    reason: &str,
    now: WallMs,
) -> Result<(), StoreError> {
    connection.prepare_cached(SET_STATE)?.execute(params![
        arrival,
        state.as_str(),
        reason,
        now.0
    ])?;
    Ok(())
}

fn read_row(row: &Row<'_>) -> Result<LostRow, StoreError> {
    let mut cells = Cells::of("outbox", row);
    Ok(LostRow {
        arrival: cells.get()?,
        agent: cells.parsed(AgentName::parse)?,
        client_message_id: cells.parsed(ClientMessageId::parse)?,
        to: cells.or(1, Cells::get, |lossy| lossy)?,
        wire_fingerprint: cells.fingerprint()?,
        broker_message_id: cells.ulid_or_null()?.map(BrokerMessageId),
        payload: cells.get()?,
    })
}

fn read_message(row: &Row<'_>) -> Result<LostMessage, StoreError> {
    let mut cells = Cells::of("outbox_lost", row);
    let _: i64 = cells.get()?;
    Ok(LostMessage {
        // For people: as far as it is text.
        client_message_id: cells.or(1, Cells::get, |lossy| lossy)?,
        to: cells.or(1, Cells::get, |lossy| lossy)?,
        place: cells.history()?,
        state: cells.word(LostState::parse)?,
        reason: cells.or(1, Cells::get, |lossy| lossy)?,
        at: cells.wall()?,
    })
}
