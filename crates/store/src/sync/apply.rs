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
use crate::data::{ClockRow, Merged, Taken, clock_of, over_of_sent_row, set_clock, take_in};
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

// By name: left to itself SQLite takes the primary key, whose order it wants, and visits every op that was ever applied.
pub(crate) const OPEN: &str = "
    SELECT op_id, epoch, seq, sender, op FROM op_inbox INDEXED BY op_inbox_open
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

pub(crate) const LISTED: &str = "
    SELECT op_id, epoch || '.' || seq, sender, state, coalesce(reason, ''), received_at
    FROM op_inbox INDEXED BY op_inbox_open
    WHERE mesh_id = ?1 AND state <> 'applied' AND (state = 'quarantined' OR state = 'parked')
    ORDER BY epoch, seq LIMIT ?2";

struct Open {
    op_id: String,
    epoch: i64,
    seq: i64,
    sender: String,
    op: Vec<u8>,
}

/// An op and where it stands in the log.
#[derive(Clone, Copy)]
pub(super) struct Placed<'o> {
    pub(super) op_id: &'o str,
    pub(super) epoch: i64,
    pub(super) seq: i64,
    pub(super) sender: &'o str,
    pub(super) op: &'o [u8],
}

impl Open {
    fn placed(&self) -> Placed<'_> {
        Placed {
            op_id: &self.op_id,
            epoch: self.epoch,
            seq: self.seq,
            sender: &self.sender,
            op: &self.op,
        }
    }
}

/// What is to be written at an op's row.
pub(super) enum Fate {
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
        self.read_few(move |connection| any_waits(connection, mesh))
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

pub(super) fn any_waits(connection: &Connection, mesh: MeshId) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(OPEN)?;
    Ok(statement.exists(params![mesh.0.to_bytes(), "waiting", 1])?)
}

/// What a failing op takes along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Undo {
    Batch,
    Op,
}

/// An op that fails takes nothing along. That takes a savepoint for each, for a fault that next to never happens: so a
/// batch is first applied under one, and only if that fails once more with one for each op.
fn apply(
    connection: &Connection,
    mesh: MeshId,
    limit: usize,
    now: WallMs,
) -> Result<AppliedOps, StoreError> {
    let run = |sql| connection.prepare_cached(sql)?.execute([]);
    run("SAVEPOINT heddle_ops")?;
    let report = match apply_all(connection, mesh, (limit, now), Undo::Batch) {
        Err(error) if is_of_this_op(&error) => {
            run("ROLLBACK TO heddle_ops")?;
            apply_all(connection, mesh, (limit, now), Undo::Op)?
        }
        // IMPORTANT: after any other error no statement may run; the whole batch is undone.
        other => other?,
    };
    run("RELEASE heddle_ops")?;
    Ok(report)
}

fn apply_all(
    connection: &Connection,
    mesh: MeshId,
    (limit, now): (usize, WallMs),
    undo: Undo,
) -> Result<AppliedOps, StoreError> {
    let mut batch = Batch::begin(connection, mesh, now, undo)?;
    let waiting = open(connection, mesh, "waiting", limit)?;
    batch.report.more = waiting.len() == limit;
    for row in &waiting {
        batch.take_one(row.placed())?;
    }
    batch.end()
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

/// One batch at work.
pub(super) struct Batch<'c> {
    connection: &'c Connection,
    mesh: MeshId,
    now: WallMs,
    undo: Undo,
    /// As it was before the batch.
    before: ClockRow,
    /// As the ops so far have left it; written once.
    clock: ClockRow,
    report: AppliedOps,
}

impl<'c> Batch<'c> {
    pub(super) fn begin(
        connection: &'c Connection,
        mesh: MeshId,
        now: WallMs,
        undo: Undo,
    ) -> Result<Self, StoreError> {
        let clock = clock_of(connection, mesh)?;
        Ok(Self {
            connection,
            mesh,
            now,
            undo,
            before: clock,
            clock,
            report: AppliedOps::default(),
        })
    }

    /// What was parked is tried again for as long as that brings anything new; and the clock is written.
    pub(super) fn end(mut self) -> Result<AppliedOps, StoreError> {
        let mut news = self.report.applied;
        while news > 0 {
            let AppliedOps {
                applied, parked, ..
            } = self.report;
            for row in open(self.connection, self.mesh, "parked", OPS_PARKED_TRIED_MAX)? {
                self.take_one(row.placed())?;
            }
            // Those that are parked still were counted when they came.
            self.report.parked = parked;
            news = self.report.applied - applied;
        }
        if self.clock != self.before {
            set_clock(self.connection, self.mesh, self.clock)?;
        }
        Ok(self.report)
    }

    fn take_one(&mut self, row: Placed<'_>) -> Result<(), StoreError> {
        let fate = match self.undo {
            Undo::Batch => self.fate(row)?,
            Undo::Op => self.fate_alone(row)?,
        };
        if let Fate::Applied { .. } = fate {
            let cells = params![self.mesh.0.to_bytes(), row.epoch, row.seq, self.now.0];
            self.connection.prepare_cached(APPLIED)?.execute(cells)?;
        }
        self.settle(row, fate)
    }

    pub(super) fn fate(&mut self, row: Placed<'_>) -> Result<Fate, StoreError> {
        fate(self.connection, self.mesh, &mut self.clock, row)
    }

    /// Counts it, and says at its row why it was not applied.
    pub(super) fn settle(&mut self, row: Placed<'_>, fate: Fate) -> Result<(), StoreError> {
        let (connection, report) = (self.connection, &mut self.report);
        let place = (self.mesh.0.to_bytes(), row.epoch, row.seq);
        match fate {
            Fate::Applied { changed } => {
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
                let cells = params![place.0, place.1, place.2, why];
                connection
                    .prepare_cached(REFUSED_FOR_GOOD)?
                    .execute(cells)?;
                report.quarantined += 1;
            }
        }
        Ok(())
    }

    /// In a savepoint of its own: what fails takes nothing along.
    fn fate_alone(&mut self, row: Placed<'_>) -> Result<Fate, StoreError> {
        let run = |sql| self.connection.prepare_cached(sql)?.execute([]);
        run("SAVEPOINT heddle_op")?;
        let fate = match self.fate(row) {
            Ok(fate) => fate,
            Err(error) if is_of_this_op(&error) => {
                run("ROLLBACK TO heddle_op")?;
                Fate::Quarantined(format!("it cannot be applied: {error}"))
            }
            // IMPORTANT: after any other error no statement may run; the whole batch is undone.
            Err(error) => return Err(error),
        };
        run("RELEASE heddle_op")?;
        Ok(fate)
    }
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

fn fate(
    connection: &Connection,
    mesh: MeshId,
    clock: &mut ClockRow,
    row: Placed<'_>,
) -> Result<Fate, StoreError> {
    let mut op = match DataOp::parse(row.op) {
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
    // Such a row was made when there was nobody else: over nothing of anybody here.
    if !is_own_id && op.body.says_over() {
        op.over = over_of_sent_row(connection, mesh, &op)?;
    }
    Ok(match take_in(connection, mesh, clock, &op)? {
        Merged::Taken(Taken::Applied) => Fate::Applied { changed: true },
        Merged::Taken(Taken::Kept | Taken::Same) => Fate::Applied { changed: false },
        Merged::Taken(Taken::Parked) => Fate::Parked,
        Merged::Refused(refusal) => Fate::Refused(refusal.to_string()),
    })
}

/// A rule of the tables or a row that cannot be read: this op's fault, or that of what it is about.
pub(crate) fn is_of_this_op(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt(_) => true,
        StoreError::Sqlite(error) => {
            error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use heddle_core::data::{DataKey, DataValue};
    use heddle_core::ids::{MemberId, OpId, Party};
    use heddle_core::lamport::{PeerId, Stamp};
    use heddle_core::names::AgentName;
    use heddle_core::op::{NewState, OpBody, Over, StateChange};
    use rusqlite::trace::{TraceEvent, TraceEventCodes};
    use serde_json::json;

    use super::*;
    use crate::schema;

    const MESH: MeshId = MeshId(ulid::Ulid::from_bytes([1; 16]));

    thread_local! {
        static STATEMENTS: Cell<u64> = const { Cell::new(0) };
    }

    fn count(_: TraceEvent<'_>) {
        STATEMENTS.with(|count| count.set(count.get() + 1));
    }

    /// So many ops of somebody else wait, with rising stamps.
    fn waiting(keys: &[String]) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for step in schema::MIGRATIONS {
            connection.execute_batch(step.sql).unwrap();
        }
        let sender = Party {
            member: MemberId(ulid::Ulid::from_bytes([7; 16])),
            agent: AgentName::parse("coder").unwrap(),
        };
        for (place, key) in (1_u32..).zip(keys) {
            let mut id = [7; 16];
            id[..4].copy_from_slice(&place.to_be_bytes());
            let op = DataOp {
                stamp: Stamp {
                    lamport: u64::from(place),
                    peer: PeerId::new(&sender.to_string()),
                    op: OpId::from_bytes(id),
                },
                incarnation: 1,
                at: WallMs(5),
                over: Over::Unsaid,
                body: OpBody::State(StateChange {
                    key: DataKey::parse(key).unwrap(),
                    write: Some(NewState {
                        value: DataValue::new(&json!(place)).unwrap(),
                    }),
                }),
            };
            let cells = params![
                MESH.0.to_bytes(),
                place,
                sender.to_string(),
                op.stamp.op.to_string(),
                op.to_bytes().unwrap(),
            ];
            let insert =
                "INSERT INTO op_inbox (mesh_id, epoch, seq, sender, op_id, state, received_at, op)
                VALUES (?1, 1, ?2, ?3, ?4, 'waiting', 1, ?5)";
            connection.execute(insert, cells).unwrap();
        }
        connection
    }

    fn keys(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("k{number:03}")).collect()
    }

    /// What an op costs is a number, not a time (P21): its row is looked at and written, and it is marked.
    #[test]
    fn an_op_is_applied_by_few_statements() {
        let mut connection = waiting(&keys(100));
        let mask = TraceEventCodes::SQLITE_TRACE_STMT;
        connection.trace_v2(mask, Some(count)).unwrap();
        let report = apply(&connection, MESH, 100, WallMs(9)).unwrap();
        assert_eq!((report.applied, report.more), (100, true));
        let statements = STATEMENTS.with(Cell::get);
        assert!(statements <= 4 * 100 + 10, "{statements} for 100 ops");
    }

    #[test]
    fn lf_18_an_op_that_the_tables_refuse_takes_nothing_along_and_moves_no_clock() {
        let mut all = keys(20);
        all[7] = "bad".to_owned();
        // The youngest stamp of all, so that its trace in a clock would be seen.
        all[19] = "bad too".to_owned();
        let connection = waiting(&all);
        let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON state_kv WHEN new.key LIKE 'bad%'
            BEGIN SELECT RAISE(ABORT, 'no'); END";
        connection.execute_batch(refuse).unwrap();
        let report = apply(&connection, MESH, 100, WallMs(9)).unwrap();
        assert_eq!((report.applied, report.quarantined), (18, 2));
        let clock = clock_of(&connection, MESH).unwrap();
        assert_eq!((clock.value, clock.log.0), (20, 19));
        let reason: String = connection
            .query_row("SELECT reason FROM op_inbox WHERE seq = 8", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert!(reason.contains("cannot be applied"), "{reason}");
        let rows: i64 = connection
            .query_row("SELECT count(*) FROM state_kv", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 18);
    }
}
