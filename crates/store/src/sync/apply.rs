//! Ops from their inbox into the data: in the order of the log, mark and effect in one transaction (LF-14).
//!
//! One op never stops another (LF-18): what this build does not know, what is malformed or forged and what
//! carries a stamp too far ahead is set aside with its reason; what is about something that is not here
//! yet is parked and tried again when something new was applied (C38).

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::limits::OPS_PARKED_TRIED_MAX;
use heddle_core::op::DataOp;
use rusqlite::{Connection, ErrorCode, Row, params};

use crate::cells::Cells;
use crate::data::{Merged, Taken, take_in};
use crate::error::StoreError;
use crate::store::Store;

/// What became of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AppliedOps {
    /// Changed a row.
    pub applied: u64,
    /// Older than the row, or taken before.
    pub passed: u64,
    pub parked: u64,
    pub quarantined: u64,
    /// There may be more.
    pub more: bool,
}

/// An op that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    pub place: String,
    pub sender: String,
    pub op_id: String,
    /// `parked` or `quarantined`.
    pub state: String,
    pub reason: String,
    pub received_at: WallMs,
}

pub(crate) const OPEN: &str = "
    SELECT op_id, epoch, seq, sender, op FROM op_inbox
    WHERE mesh_id = ?1 AND state = ?2 AND state <> 'applied' ORDER BY epoch, seq LIMIT ?3";

pub(crate) const APPLIED: &str = "
    UPDATE op_inbox SET state = 'applied', applied_at = ?4, reason = NULL, op = x''
    WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

pub(crate) const SET_ASIDE: &str = "
    UPDATE op_inbox SET state = ?4, reason = ?5 WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

/// Without its bytes it is not looked at again: whether it is taken must not depend on when a home looks.
pub(crate) const REFUSED_FOR_GOOD: &str = "
    UPDATE op_inbox SET state = 'quarantined', reason = ?4, op = x''
    WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

const LISTED: &str = "
    SELECT op_id, epoch || '.' || seq, sender, state, coalesce(reason, ''), received_at FROM op_inbox
    WHERE mesh_id = ?1 AND (state = 'quarantined' OR state = 'parked')
    ORDER BY epoch, seq LIMIT ?2";

struct Open {
    op_id: String,
    epoch: i64,
    seq: i64,
    sender: String,
    op: Vec<u8>,
}

/// What is to be written at an op's row.
enum Fate {
    Applied {
        changed: bool,
    },
    Parked,
    Quarantined(String),
    /// Set aside for good, on every replica.
    Refused(String),
}

impl Store {
    /// Applies at most so many ops that wait, in the order of the log.
    pub async fn apply_ops(
        &self,
        mesh: MeshId,
        limit: usize,
        now: WallMs,
    ) -> Result<AppliedOps, StoreError> {
        // A power cut takes marks and effects together; they wait in the log.
        self.write_relaxed(move |connection| apply(connection, mesh, limit, now))
            .await
    }

    /// Whether any op waits to be applied.
    pub async fn has_waiting_ops(&self, mesh: MeshId) -> Result<bool, StoreError> {
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(OPEN)?;
            Ok(statement.exists(params![mesh.0.to_bytes(), "waiting", 1])?)
        })
        .await
    }

    /// The ops that were set aside, in the order of the log.
    pub async fn set_aside_ops(
        &self,
        mesh: MeshId,
        limit: usize,
    ) -> Result<Vec<SetAside>, StoreError> {
        self.read(move |connection| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(LISTED)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), limit])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("op_inbox", row);
                found.push(SetAside {
                    op_id: cells.get()?,
                    place: cells.get()?,
                    sender: cells.get()?,
                    state: cells.get()?,
                    reason: cells.get()?,
                    received_at: cells.wall()?,
                });
            }
            Ok(found)
        })
        .await
    }

    /// What was quarantined is looked at once more, for a younger build may know it; but not what was
    /// refused for its stamp. How many that are.
    pub async fn retry_quarantined(&self, mesh: MeshId) -> Result<u64, StoreError> {
        self.write(move |connection| {
            let retried = connection
                .prepare_cached(
                    "UPDATE op_inbox SET state = 'waiting'
                     WHERE mesh_id = ?1 AND state = 'quarantined' AND length(op) > 0",
                )?
                .execute([mesh.0.to_bytes()])?;
            Ok(u64::try_from(retried).unwrap_or(u64::MAX))
        })
        .await
    }
}

fn apply(
    connection: &Connection,
    mesh: MeshId,
    limit: usize,
    now: WallMs,
) -> Result<AppliedOps, StoreError> {
    let mut report = AppliedOps::default();
    let waiting = open(connection, mesh, "waiting", limit)?;
    report.more = waiting.len() == limit;
    for row in &waiting {
        take_one(connection, mesh, row, now, &mut report)?;
    }
    let mut news = report.applied;
    while news > 0 {
        let before = report.applied;
        let parked = report.parked;
        for row in open(connection, mesh, "parked", OPS_PARKED_TRIED_MAX)? {
            take_one(connection, mesh, &row, now, &mut report)?;
        }
        // Those that are parked still were counted when they came.
        report.parked = parked;
        news = report.applied - before;
    }
    Ok(report)
}

fn open(
    connection: &Connection,
    mesh: MeshId,
    state: &str,
    limit: usize,
) -> Result<Vec<Open>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(OPEN)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), state, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read_open(row)?);
    }
    Ok(found)
}

fn read_open(row: &Row<'_>) -> Result<Open, StoreError> {
    let mut cells = Cells::of("op_inbox", row);
    Ok(Open {
        op_id: cells.get()?,
        epoch: cells.get()?,
        seq: cells.get()?,
        sender: cells.get()?,
        op: cells.get()?,
    })
}

/// In a savepoint of its own: what fails takes nothing along.
fn take_one(
    connection: &Connection,
    mesh: MeshId,
    row: &Open,
    now: WallMs,
    report: &mut AppliedOps,
) -> Result<(), StoreError> {
    let run = |sql| connection.prepare_cached(sql)?.execute([]);
    run("SAVEPOINT heddle_op")?;
    let fate = match fate(connection, mesh, row) {
        Ok(fate) => fate,
        Err(error) if is_of_this_op(&error) => {
            run("ROLLBACK TO heddle_op")?;
            Fate::Quarantined(format!("it cannot be applied: {error}"))
        }
        // IMPORTANT: after any other error no statement may run; the whole batch is undone.
        Err(error) => return Err(error),
    };
    let place = (mesh.0.to_bytes(), row.epoch, row.seq);
    match fate {
        Fate::Applied { changed } => {
            connection
                .prepare_cached(APPLIED)?
                .execute(params![place.0, place.1, place.2, now.0])?;
            report.applied += u64::from(changed);
            report.passed += u64::from(!changed);
        }
        Fate::Parked => {
            let why = "what it is about is not here yet";
            set_aside(connection, place, "parked", why)?;
            report.parked += 1;
        }
        Fate::Quarantined(why) => {
            set_aside(connection, place, "quarantined", &why)?;
            report.quarantined += 1;
        }
        Fate::Refused(why) => {
            connection
                .prepare_cached(REFUSED_FOR_GOOD)?
                .execute(params![place.0, place.1, place.2, why])?;
            report.quarantined += 1;
        }
    }
    run("RELEASE heddle_op")?;
    Ok(())
}

fn set_aside(
    connection: &Connection,
    (mesh, epoch, seq): ([u8; 16], i64, i64),
    state: &str,
    why: &str,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(SET_ASIDE)?
        .execute(params![mesh, epoch, seq, state, why])?;
    Ok(())
}

fn fate(connection: &Connection, mesh: MeshId, row: &Open) -> Result<Fate, StoreError> {
    let op = match DataOp::parse(&row.op) {
        Ok(op) => op,
        Err(error) => return Ok(Fate::Quarantined(error.to_string())),
    };
    // Who sent it was proven to the broker; a stamp in somebody else's name would be a forgery.
    if op.stamp.peer.as_str() != row.sender {
        let why = format!(
            "its stamp says {:?}, which did not send it",
            op.stamp.peer.as_str()
        );
        return Ok(Fate::Quarantined(why));
    }
    // A row of before its mesh was published is sent under an id that is derived from it (C21).
    let is_own_id = op.stamp.op.to_string() == row.op_id;
    if !is_own_id && op.published_id(mesh).to_string() != row.op_id {
        let why = "its id is not the one that it was sent under".to_owned();
        return Ok(Fate::Quarantined(why));
    }
    Ok(match take_in(connection, mesh, &op)? {
        Merged::Taken(Taken::Applied) => Fate::Applied { changed: true },
        Merged::Taken(Taken::Kept | Taken::Same) => Fate::Applied { changed: false },
        Merged::Taken(Taken::Parked) => Fate::Parked,
        Merged::Refused(refusal) => Fate::Refused(refusal.to_string()),
    })
}

/// A rule of the tables or a row that cannot be read: this op's fault, or that of what it is about.
fn is_of_this_op(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt(_) => true,
        StoreError::Sqlite(error) => {
            error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
        }
        _ => false,
    }
}
