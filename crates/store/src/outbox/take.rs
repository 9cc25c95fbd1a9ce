//! Taking rows for transmission: pending to inflight, so that no two transmissions meet (DR-01).
//!
//! Rows that are due together go by priority, then longest due first, then in order of arrival. The
//! choice is made among the rows that have been due longest (`DUE_WINDOW_ROWS` of them) and everything of
//! priority `now`. When something was overtaken seven times in a row, the next batch is a fair one, so that
//! nothing starves.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, MeshId, RowId};
use heddle_core::limits::DUE_WINDOW_ROWS;
use heddle_core::names::AgentName;
use rusqlite::{Connection, Row, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::outbox::age::mark_birth;
use crate::outbox::parked::park;
use crate::outbox::turns::{Turns, fair, urgent_first};
use crate::store::Store;

/// A row that was taken: whoever took it owes it a `settle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRow {
    /// Its number in order of arrival.
    pub arrival: i64,
    pub row: RowId,
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    pub payload: Vec<u8>,
    /// What the payload was when it was accepted.
    pub wire_fingerprint: Fingerprint,
    pub attempts: u32,
    pub enqueued_at: WallMs,
    pub priority: Priority,
}

/// When rows are taken.
#[derive(Debug, Clone, Copy)]
pub struct DueMoment {
    /// On the monotonic clock of this process.
    pub now: Duration,
    /// What the age clock shows: no row is sent without a mark of its birth, because one that was sent must not look younger
    /// to the next process than a broker's memory is long (C32).
    pub age: Option<Duration>,
    /// The broker lets in less than waits: the order decides who gets in, so nothing starves by it though one batch holds
    /// everything.
    pub is_scarce: bool,
}

impl From<Duration> for DueMoment {
    fn from(now: Duration) -> Self {
        Self {
            now,
            age: None,
            is_scarce: false,
        }
    }
}

macro_rules! select_due {
    ($tail:literal) => {
        concat!(
            "SELECT arrival, row_id, agent, client_message_id, priority, payload, attempts,
                 enqueued_at, wire_fingerprint
             FROM outbox ",
            $tail
        )
    };
}

pub(crate) const DUE: &str = select_due!(
    "WHERE mesh_id = ?1 AND status = 'pending' AND due_mono_ms <= ?2
         AND due_mono_ms < 9223372036854775806
     ORDER BY due_mono_ms, arrival
     LIMIT ?3"
);

pub(crate) const ONE: &str = select_due!("WHERE row_id = ?1 AND status = 'pending'");

pub(crate) const BY_ARRIVAL: &str = select_due!("WHERE arrival = ?1 AND status = 'pending'");

pub(crate) const WINDOW: &str = "
    SELECT arrival, priority FROM outbox
    WHERE mesh_id = ?1 AND status = 'pending' AND due_mono_ms <= ?2
        AND due_mono_ms < 9223372036854775806
    ORDER BY due_mono_ms, arrival
    LIMIT ?3";

pub(crate) const URGENT: &str = "
    SELECT arrival FROM outbox INDEXED BY outbox_urgent
    WHERE mesh_id = ?1 AND status = 'pending' AND priority = 'now' AND due_mono_ms <= ?2
        AND due_mono_ms < 9223372036854775806
    ORDER BY due_mono_ms
    LIMIT ?3";

// One statement for all: a statement of its own for each row costs half as much again.
pub(crate) const MARK_INFLIGHT: &str = "
    UPDATE outbox SET status = 'inflight' WHERE arrival IN (SELECT value FROM json_each(?1))";

pub(crate) const NEXT_DUE: &str = "
    SELECT due_mono_ms FROM outbox
    WHERE mesh_id = ?1 AND status = 'pending' AND due_mono_ms < 9223372036854775806
    ORDER BY due_mono_ms
    LIMIT 1";

impl Store {
    /// The rows that are due at that moment, the more urgent first, then longest due first, then in order of
    /// arrival. As many as both bounds allow, and at least one if there is one. Damaged rows are parked.
    pub async fn take_due(
        &self,
        mesh: MeshId,
        moment: impl Into<DueMoment>,
        items_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<DueRow>, StoreError> {
        let moment = moment.into();
        let turns = Arc::clone(&self.turns);
        self.write_relaxed(move |connection| {
            let look = Look {
                connection,
                turns: &turns,
                mesh,
                now_ms: i64::try_from(moment.now.as_millis()).unwrap_or(i64::MAX),
                items_max: items_max.max(1),
                bytes_max,
                is_scarce: moment.is_scarce,
                damaged: RefCell::default(),
            };
            let (arrivals, taken): (Vec<i64>, Vec<DueRow>) = look.choose()?.into_iter().unzip();
            for (arrival, why) in look.damaged.into_inner() {
                park(connection, arrival, &why)?;
            }
            mark_inflight(connection, &arrivals)?;
            if let (Some(age), false) = (moment.age, arrivals.is_empty()) {
                mark_birth(connection, age)?;
            }
            Ok(taken)
        })
        .await
    }

    /// Exactly this row, due or not; `None` if it is not pending.
    pub async fn take_one(&self, row: RowId) -> Result<Option<DueRow>, StoreError> {
        self.write_relaxed(move |connection| {
            let mut statement = connection.prepare_cached(ONE)?;
            let mut rows = statement.query([row.0.to_bytes()])?;
            let Some((arrival, taken)) = rows.next()?.map(read_due_row).transpose()? else {
                return Ok(None);
            };
            mark_inflight(connection, &[arrival])?;
            Ok(Some(taken))
        })
        .await
    }

    /// When the next row of the mesh is due; `None` if none waits.
    pub async fn next_due(&self, mesh: MeshId) -> Result<Option<Duration>, StoreError> {
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(NEXT_DUE)?;
            let mut rows = statement.query([mesh.0.to_bytes()])?;
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let due_ms: i64 = row.get(0)?;
            Ok(Some(Duration::from_millis(
                u64::try_from(due_ms).unwrap_or(0),
            )))
        })
        .await
    }
}

fn mark_inflight(connection: &Connection, arrivals: &[i64]) -> Result<(), StoreError> {
    let listed: Vec<String> = arrivals.iter().map(ToString::to_string).collect();
    connection
        .prepare_cached(MARK_INFLIGHT)?
        .execute([format!("[{}]", listed.join(","))])?;
    Ok(())
}

struct Look<'c> {
    connection: &'c Connection,
    turns: &'c Turns,
    mesh: MeshId,
    now_ms: i64,
    items_max: usize,
    bytes_max: usize,
    /// Whoever takes them may not get all of them in: their order matters though they are all there is.
    is_scarce: bool,
    /// Rows that cannot be read, and why; parked when the look is over.
    damaged: RefCell<BTreeMap<i64, StoreError>>,
}

/// Rows for one batch, within its bounds.
#[derive(Default)]
struct Batch {
    rows: Vec<(i64, DueRow)>,
    bytes: usize,
}

impl Batch {
    /// False when the row does not fit any more.
    fn add(&mut self, row: (i64, DueRow), bytes_max: usize) -> bool {
        self.bytes = self.bytes.saturating_add(row.1.payload.len());
        if self.bytes > bytes_max && !self.rows.is_empty() {
            return false;
        }
        self.rows.push(row);
        true
    }
}

impl Look<'_> {
    fn choose(&self) -> Result<Vec<(i64, DueRow)>, StoreError> {
        let (mut batch, is_everything) = self.longest_due()?;
        if is_everything && !self.is_scarce {
            // Stable: what is equally urgent stays in order of due time and arrival.
            batch.rows.sort_by_key(|(_, row)| row.priority as u8);
            return Ok(batch.rows);
        }
        let window = self.window()?;
        let first = window.first().map(|(rank, _)| *rank);
        let is_mixed = window.iter().any(|(rank, _)| Some(*rank) != first);
        let is_fair = self.turns.next(self.mesh, is_mixed);
        if !is_mixed {
            return Ok(batch.rows);
        }
        let order = if is_fair {
            fair(&window, self.items_max)
        } else {
            urgent_first(&window)
        };
        self.read_in(order)
    }

    /// The rows that have been due longest, and whether that is all there is.
    fn longest_due(&self) -> Result<(Batch, bool), StoreError> {
        let limit = i64::try_from(self.items_max).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(DUE)?;
        let mut rows = statement.query(params![self.mesh.0.to_bytes(), self.now_ms, limit])?;
        let mut batch = Batch::default();
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            seen += 1;
            let fits = match self.read_or_set_aside(row)? {
                Some(row) => batch.add(row, self.bytes_max),
                None => true,
            };
            if !fits {
                return Ok((batch, false));
            }
        }
        Ok((batch, seen < self.items_max))
    }

    /// The rows that have been due longest, each with its rank; and what is urgent, wherever it stands.
    fn window(&self) -> Result<Vec<(u8, i64)>, StoreError> {
        let limit = i64::try_from(DUE_WINDOW_ROWS).unwrap_or(i64::MAX);
        let mesh = self.mesh.0.to_bytes();
        let mut statement = self.connection.prepare_cached(WINDOW)?;
        let mut rows = statement.query(params![mesh, self.now_ms, limit])?;
        let mut window: Vec<(u8, i64)> = Vec::with_capacity(DUE_WINDOW_ROWS);
        while let Some(row) = rows.next()? {
            let priority = row.get_ref(1)?.as_str().ok().and_then(Priority::parse);
            // Without one it is damaged, and parked when it is read.
            let rank = priority.map_or(u8::MAX, |priority| priority as u8);
            window.push((rank, row.get(0)?));
        }
        let seen: HashSet<i64> = window.iter().map(|(_, arrival)| *arrival).collect();
        let limit = i64::try_from(self.items_max).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(URGENT)?;
        let mut rows = statement.query(params![mesh, self.now_ms, limit])?;
        while let Some(row) = rows.next()? {
            let arrival: i64 = row.get(0)?;
            if !seen.contains(&arrival) {
                window.push((Priority::Now as u8, arrival));
            }
        }
        Ok(window)
    }

    /// A batch of these rows, in this order.
    fn read_in(&self, order: Vec<i64>) -> Result<Vec<(i64, DueRow)>, StoreError> {
        let mut statement = self.connection.prepare_cached(BY_ARRIVAL)?;
        let mut batch = Batch::default();
        for arrival in order {
            let mut rows = statement.query([arrival])?;
            let Some(row) = rows.next()? else { continue };
            let Some(row) = self.read_or_set_aside(row)? else {
                continue;
            };
            if !batch.add(row, self.bytes_max) || batch.rows.len() >= self.items_max {
                break;
            }
        }
        Ok(batch.rows)
    }

    /// A row that cannot be read is put aside; the others must go on.
    fn read_or_set_aside(&self, row: &Row<'_>) -> Result<Option<(i64, DueRow)>, StoreError> {
        match read_due_row(row) {
            Ok(row) => Ok(Some(row)),
            Err(why @ StoreError::Corrupt(_)) => {
                self.damaged.borrow_mut().insert(row.get(0)?, why);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn read_due_row(row: &Row<'_>) -> Result<(i64, DueRow), StoreError> {
    let mut cells = Cells::of("outbox", row);
    let arrival = cells.get()?;
    Ok((
        arrival,
        DueRow {
            arrival,
            row: RowId(cells.ulid()?),
            agent: cells.parsed(AgentName::parse)?,
            client_message_id: cells.parsed(ClientMessageId::parse)?,
            priority: cells.word(Priority::parse)?,
            payload: cells.get()?,
            attempts: cells.get()?,
            enqueued_at: cells.wall()?,
            wire_fingerprint: cells.fingerprint()?,
        },
    ))
}
