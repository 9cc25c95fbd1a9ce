//! Where a mesh's sync stands: what the mesh is, its epoch, its place in the log, whether it is paused.

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId};
use heddle_core::sync::epoch_after;
use rusqlite::{Connection, OptionalExtension, params};
use ulid::Ulid;

use crate::cells::{Cells, count_cell};
use crate::error::StoreError;
use crate::inbox::QUEUE_ALL;
use crate::outbox::NEVER;
use crate::own_refused::places;
use crate::store::Store;

/// What a mesh is to this home (DESIGN §5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MeshKind {
    /// Of this home only: its ops go nowhere.
    #[default]
    Personal,
    SharedOwner,
    SharedGuest,
}

impl MeshKind {
    pub const ALL: [Self; 3] = [Self::Personal, Self::SharedOwner, Self::SharedGuest];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Personal => "personal",
            Self::SharedOwner => "shared_owner",
            Self::SharedGuest => "shared_guest",
        }
    }

    pub fn is_shared(self) -> bool {
        self != Self::Personal
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncHead {
    pub kind: MeshKind,
    /// Of the broker's history, as it was last heard.
    pub broker_epoch: u64,
    /// Up to this one, ops that the broker had lost were sent again.
    pub replayed_epoch: u64,
    pub paused: bool,
    /// Received through this place of the log.
    pub log: HistoryId,
    pub needs_resync: bool,
    /// When something was last heard of the log.
    pub last_sync_at: Option<WallMs>,
}

/// How much waits, by direction and reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncFigures {
    /// Ops that the broker has not confirmed.
    pub out_waiting: u64,
    /// Among the first of them, those that it refused or that cannot be read: they wait for another try, or for a person.
    pub out_refused: u64,
    pub in_waiting: u64,
    /// What they are about is not here yet.
    pub in_parked: u64,
    /// Set aside: unknown, malformed, forged, or with a stamp too far ahead.
    pub in_quarantined: u64,
    /// Of those, the ones that this home made itself, with stamps that no home takes.
    pub in_own_refused: u64,
}

pub(crate) const HEAD: &str = "
    SELECT mesh_id, kind, broker_epoch, replayed_epoch, sync_paused, log_epoch, log_seq,
        needs_resync, last_sync_at
    FROM mesh WHERE mesh_id = ?1";

pub(crate) const WAITING_OUT: &str = "SELECT count(*) FROM op_outbox WHERE mesh_id = ?1";

/// Ops that one look for refused ones goes through. They are the oldest: those behind them wait for their turn only.
const REFUSED_LOOK_MAX: i64 = 10_000;

pub(crate) const REFUSED_OUT: &str = "
    SELECT o.attempts > 0 OR q.due_mono_ms = ?3
    FROM op_outbox AS q JOIN outbox AS o ON o.arrival = q.arrival
    WHERE q.mesh_id = ?1 ORDER BY q.arrival LIMIT ?2";

// By name, as `apply::OPEN`: what was applied is not visited.
pub(crate) const OPEN_COUNTS: &str = "
    SELECT state, count(*) FROM op_inbox INDEXED BY op_inbox_open
    WHERE mesh_id = ?1 AND state <> 'applied' GROUP BY state";

/// From its beginning.
pub(super) const READ_AGAIN: &str =
    "UPDATE mesh SET log_epoch = 0, log_seq = 0, needs_resync = 0 WHERE mesh_id = ?1";

const SET_EPOCH: &str = "UPDATE mesh SET broker_epoch = ?2 WHERE mesh_id = ?1";

impl Store {
    /// A mesh that is not here is personal and has heard nothing.
    pub async fn sync_head(&self, mesh: MeshId) -> Result<SyncHead, StoreError> {
        self.read_few(move |connection| read(connection, mesh))
            .await
    }

    pub async fn sync_figures(&self, mesh: MeshId) -> Result<SyncFigures, StoreError> {
        self.read(move |connection| figures(connection, mesh)).await
    }

    /// Keeps an epoch that was heard, unless a higher one was heard before (LF-16).
    pub async fn hear_epoch(&self, mesh: MeshId, heard: u64) -> Result<SyncHead, StoreError> {
        self.write_relaxed(move |connection| hear(connection, mesh, heard))
            .await
    }

    /// Publishing and joining make a mesh shared. Local changes from now on are ops for others.
    pub async fn set_mesh_kind(&self, mesh: MeshId, kind: MeshKind) -> Result<(), StoreError> {
        self.write(move |connection| {
            connection
                .prepare_cached("UPDATE mesh SET kind = ?2 WHERE mesh_id = ?1")?
                .execute(params![mesh.0.to_bytes(), kind.as_str()])?;
            Ok(())
        })
        .await
    }

    /// The log is read from its beginning: everything that is known is passed over.
    pub async fn reread_log(&self, mesh: MeshId) -> Result<(), StoreError> {
        self.write(move |connection| {
            connection
                .prepare_cached(READ_AGAIN)?
                .execute([mesh.0.to_bytes()])?;
            Ok(())
        })
        .await
    }

    /// Ops that the broker had lost before this epoch began were sent again, as far as they are here.
    pub async fn replayed(&self, mesh: MeshId, epoch: u64) -> Result<(), StoreError> {
        self.write(move |connection| {
            connection
                .prepare_cached("UPDATE mesh SET replayed_epoch = ?2 WHERE mesh_id = ?1")?
                .execute(params![mesh.0.to_bytes(), count_cell(epoch)?])?;
            Ok(())
        })
        .await
    }
}

pub(crate) fn read(connection: &Connection, mesh: MeshId) -> Result<SyncHead, StoreError> {
    let mut statement = connection.prepare_cached(HEAD)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    let Some(row) = rows.next()? else {
        return Ok(SyncHead::default());
    };
    let mut cells = Cells::of("mesh", row);
    cells.ulid()?;
    Ok(SyncHead {
        kind: cells.word(MeshKind::parse)?,
        broker_epoch: cells.count()?,
        replayed_epoch: cells.count()?,
        paused: cells.get()?,
        log: HistoryId {
            epoch: cells.count()?,
            seq: cells.count()?,
        },
        needs_resync: cells.get()?,
        last_sync_at: cells.wall_or_null()?,
    })
}

pub(super) fn hear(
    connection: &Connection,
    mesh: MeshId,
    heard: u64,
) -> Result<SyncHead, StoreError> {
    let mut head = read(connection, mesh)?;
    let epoch = epoch_after(head.broker_epoch, heard);
    if epoch != head.broker_epoch {
        connection
            .prepare_cached(SET_EPOCH)?
            .execute(params![mesh.0.to_bytes(), count_cell(epoch)?])?;
        // An older broker that was put back has forgotten receipts, too: they are told again, and told twice they are one.
        connection
            .prepare_cached(QUEUE_ALL)?
            .execute([mesh.0.to_bytes()])?;
        head.broker_epoch = epoch;
    }
    Ok(head)
}

fn figures(connection: &Connection, mesh: MeshId) -> Result<SyncFigures, StoreError> {
    let waiting: i64 = connection
        .prepare_cached(WAITING_OUT)?
        .query_row([mesh.0.to_bytes()], |row| row.get(0))?;
    let mut refused = 0;
    if waiting > 0 {
        let mut statement = connection.prepare_cached(REFUSED_OUT)?;
        let mut rows = statement.query(params![mesh.0.to_bytes(), REFUSED_LOOK_MAX, NEVER])?;
        while let Some(row) = rows.next()? {
            refused += u64::from(row.get::<_, bool>(0)?);
        }
    }
    let mut found = SyncFigures {
        out_waiting: u64::try_from(waiting).unwrap_or(0),
        out_refused: refused,
        ..SyncFigures::default()
    };
    let mut statement = connection.prepare_cached(OPEN_COUNTS)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("op_inbox", row);
        let state: String = cells.get()?;
        let count = cells.count()?;
        match state.as_str() {
            "waiting" => found.in_waiting = count,
            "parked" => found.in_parked = count,
            "quarantined" => found.in_quarantined = count,
            _ => {}
        }
    }
    if found.in_quarantined > 0 {
        found.in_own_refused = own_refused(connection, mesh)?;
    }
    Ok(found)
}

fn own_refused(connection: &Connection, mesh: MeshId) -> Result<u64, StoreError> {
    let own = connection
        .prepare_cached("SELECT member_id FROM mesh WHERE mesh_id = ?1")?
        .query_row([mesh.0.to_bytes()], |row| row.get::<_, [u8; 16]>(0))
        .optional()?;
    let Some(own) = own else {
        return Ok(0);
    };
    let places = places(connection, mesh, MemberId(Ulid::from_bytes(own)))?;
    Ok(u64::try_from(places.len()).unwrap_or(u64::MAX))
}
