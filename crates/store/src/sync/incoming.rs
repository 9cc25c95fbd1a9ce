//! Ops from the log into their inbox: unique by place and by id (C9), with the cursor in one transaction.

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, HistoryId, IdKey, MemberId, MeshId, Party};
use heddle_core::op::DataOp;
use heddle_core::sync::is_gap;
use rusqlite::{Connection, OptionalExtension, params};

use super::head;
use super::outgoing::confirm;
use crate::cells::count_cell;
use crate::data::{begin_life_above, clock_of};
use crate::error::StoreError;
use crate::store::Store;

/// One op of the log, as the broker gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOp {
    pub history_id: HistoryId,
    /// The op before it in the log.
    pub previous: HistoryId,
    /// As the broker has proven it.
    pub sender: Party,
    pub client_message_id: ClientMessageId,
    /// The op's bytes, or why the envelope holds none.
    pub op: Result<Vec<u8>, String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceivedOps {
    pub stored: u64,
    pub duplicates: u64,
    /// Own ops whose ack was lost and which are known to have arrived by this.
    pub confirmed: u64,
    /// Own ops that this home does not remember to have made: its file is older than they are.
    pub forgotten: u64,
    /// The life of the file that began, because forgotten ones carry stamps that it would have issued again.
    pub incarnation: Option<u64>,
    /// An op was missed: the mesh is flagged (LF-15).
    pub gap: bool,
    /// Received through this place.
    pub log: HistoryId,
}

pub(crate) const INSERT: &str = "
    INSERT INTO op_inbox (mesh_id, epoch, seq, sender, op_id, state, reason, received_at, applied_at, op)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";

/// An op that came again stands where the log has it now: its old place may be lost with an older broker. A place that
/// another op has already stays that one's: a log that says two things of one place is not believed.
pub(crate) const MOVED: &str = "
    UPDATE OR IGNORE op_inbox SET epoch = ?4, seq = ?5
    WHERE mesh_id = ?1 AND sender = ?2 AND op_id = ?3 AND (epoch < ?4 OR (epoch = ?4 AND seq < ?5))";

const MOVE_CURSOR: &str = "
    UPDATE mesh SET log_epoch = ?2, log_seq = ?3, needs_resync = ?4, last_sync_at = ?5
    WHERE mesh_id = ?1";

pub(crate) const KNOWN_BY_ID: &str =
    "SELECT arrival, status = 'done' FROM outbox WHERE id_key = ?1 AND kind = 'op'";

/// More lives than any home has: each takes a restore.
const LIFE_MAX: u64 = 1 << 40;

impl Store {
    /// Keeps a page of the log, in any order and however often it comes. `own` is who we are in the
    /// mesh; `epoch` is that of the broker's history now.
    pub async fn receive_ops(
        &self,
        mesh: MeshId,
        own: MemberId,
        epoch: u64,
        ops: Vec<NewOp>,
        now: WallMs,
    ) -> Result<ReceivedOps, StoreError> {
        let page = Page::of(mesh, own, epoch, ops, now);
        // What a power cut takes is read again: cursor and rows go together.
        self.write_relaxed(move |connection| Ok(receive(connection, &page, Turn::Waits)?.0))
            .await
    }
}

/// Ops that came together, in their order.
pub(super) struct Page {
    pub(super) mesh: MeshId,
    pub(super) own: MemberId,
    pub(super) epoch: u64,
    pub(super) ops: Vec<NewOp>,
    pub(super) now: WallMs,
}

impl Page {
    /// In whatever order they came.
    pub(super) fn of(
        mesh: MeshId,
        own: MemberId,
        epoch: u64,
        mut ops: Vec<NewOp>,
        now: WallMs,
    ) -> Self {
        ops.sort_by_key(|op| op.history_id);
        Self {
            mesh,
            own,
            epoch,
            ops,
            now,
        }
    }
}

/// When an op is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Some time later, from its row.
    Waits,
    /// In this transaction: its row says so from the beginning.
    Now,
}

/// Also says which ops are new here, by their number on the page.
pub(super) fn receive(
    connection: &Connection,
    page: &Page,
    turn: Turn,
) -> Result<(ReceivedOps, Vec<usize>), StoreError> {
    let Page { mesh, own, now, .. } = *page;
    let head = head::hear(connection, mesh, page.epoch)?;
    let mut received = ReceivedOps::default();
    let mut fresh = Vec::new();
    let (mut cursor, mut life) = (head.log, None);
    for (number, op) in page.ops.iter().enumerate() {
        received.gap |= is_gap(cursor, op.previous);
        cursor = cursor.max(op.history_id);
        let is_new = insert(connection, mesh, op, (now, turn))?;
        if is_new {
            fresh.push(number);
        }
        received.stored += u64::from(is_new);
        received.duplicates += u64::from(!is_new);
        if op.sender.member != own {
            continue;
        }
        match came_back(connection, mesh, op, now)? {
            CameBack::Confirmed => received.confirmed += 1,
            CameBack::Unknown if is_new => {
                received.forgotten += 1;
                life = life.max(life_of(op));
            }
            CameBack::Known | CameBack::Unknown => {}
        }
    }
    // IMPORTANT: in the transaction that takes them. The next stamp of this home is of the new life (LF-02).
    if let Some(issued) = life
        && issued >= clock_of(connection, mesh)?.incarnation
    {
        received.incarnation = Some(begin_life_above(connection, issued)?);
    }
    connection.prepare_cached(MOVE_CURSOR)?.execute(params![
        mesh.0.to_bytes(),
        count_cell(cursor.epoch)?,
        count_cell(cursor.seq)?,
        head.needs_resync || received.gap,
        now.0,
    ])?;
    received.log = cursor;
    Ok((received, fresh))
}

fn insert(
    connection: &Connection,
    mesh: MeshId,
    op: &NewOp,
    (now, turn): (WallMs, Turn),
) -> Result<bool, StoreError> {
    let (state, reason, bytes) = match (&op.op, turn) {
        (Ok(bytes), Turn::Waits) => ("waiting", None, bytes.as_slice()),
        (Ok(_), Turn::Now) => ("applied", None, [].as_slice()),
        (Err(why), _) => ("quarantined", Some(why.as_str()), [].as_slice()),
    };
    let inserted = connection.prepare_cached(INSERT)?.execute(params![
        mesh.0.to_bytes(),
        count_cell(op.history_id.epoch)?,
        count_cell(op.history_id.seq)?,
        op.sender.to_string(),
        op.client_message_id.as_str(),
        state,
        reason,
        now.0,
        Some(now.0).filter(|_| state == "applied"),
        bytes,
    ])?;
    if inserted == 0 {
        connection.prepare_cached(MOVED)?.execute(params![
            mesh.0.to_bytes(),
            op.sender.to_string(),
            op.client_message_id.as_str(),
            count_cell(op.history_id.epoch)?,
            count_cell(op.history_id.seq)?,
        ])?;
    }
    Ok(inserted == 1)
}

/// In which life of its home an op was made. One that no home lives long enough for is a lie.
fn life_of(op: &NewOp) -> Option<u64> {
    let op = DataOp::parse(op.op.as_deref().ok()?).ok()?;
    Some(op.incarnation).filter(|life| *life <= LIFE_MAX)
}

/// What an own op that comes back meets.
enum CameBack {
    /// Its outbox row, which it confirmed.
    Confirmed,
    Known,
    /// No row of the outbox.
    Unknown,
}

/// An own op that comes back confirms its outbox row.
fn came_back(
    connection: &Connection,
    mesh: MeshId,
    op: &NewOp,
    now: WallMs,
) -> Result<CameBack, StoreError> {
    let key = IdKey::of(mesh, &op.sender, &op.client_message_id);
    let known: Option<(i64, bool)> = connection
        .prepare_cached(KNOWN_BY_ID)?
        .query_row([key.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match known {
        None => Ok(CameBack::Unknown),
        // As nearly always: its answer came before it did.
        Some((_, true)) => Ok(CameBack::Known),
        Some((arrival, false)) => {
            let is_news = confirm(connection, mesh, arrival, now, None, op.history_id)?;
            Ok(if is_news {
                CameBack::Confirmed
            } else {
                CameBack::Known
            })
        }
    }
}
