//! Publishing a personal mesh: it becomes shared, and its rows of before become ops, a few at a time (C21).
//!
//! The first transaction makes the mesh shared and notes where its clock stands: from then on every change is an
//! op by itself (LF-12). Each further one turns some rows into outbox rows and moves the cursor of their table with
//! them, so a crash between any two loses and doubles nothing (LF-33). A row that was changed meanwhile is left
//! out: its change is an op.

use std::str::FromStr as _;

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId, Party};
use heddle_core::limits::{PUBLISH_BYTES_AT_ONCE, PUBLISH_ROWS_AT_ONCE, SNAPSHOT_ROWS_MIN};
use heddle_core::op::DataOp;
use rusqlite::{Connection, OptionalExtension, params};

use super::head::{self, MeshKind};
use crate::cells::{Cells, count_cell};
use crate::data::backfill::{TABLES, Table};
use crate::data::{clock_of, queue_published};
use crate::error::StoreError;
use crate::store::Store;

/// How far a publish has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish {
    /// The clock when it began.
    pub through_lamport: u64,
    /// Rows that there were, and how many of them were looked at.
    pub rows_total: u64,
    pub rows_done: u64,
    pub started_at: WallMs,
    /// When the last row became an op; the broker may not have all of them yet.
    pub finished_at: Option<WallMs>,
    pub snapshot: SnapshotStep,
}

/// How far the snapshot of a publish is (LF-34).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotStep {
    /// It is sent row by row.
    None,
    /// Nothing is sent before the broker has begun it.
    Wanted,
    /// Its ops go to the broker one by one, behind a fence: others see nothing of it yet.
    Open,
    /// Its ops go to the broker in parts, and lie apart there.
    Staged,
    Committed,
}

impl SnapshotStep {
    const ALL: [Self; 5] = [
        Self::None,
        Self::Wanted,
        Self::Open,
        Self::Staged,
        Self::Committed,
    ];

    /// As the table holds it: a word, and whether it is an upload.
    fn cells(self) -> (&'static str, bool) {
        match self {
            Self::None => ("none", false),
            Self::Wanted => ("wanted", false),
            Self::Open => ("open", false),
            Self::Staged => ("open", true),
            Self::Committed => ("committed", false),
        }
    }

    /// Others do not have all of it yet.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Wanted | Self::Open | Self::Staged)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BegunPublish {
    /// It was personal, and is shared from now on.
    Fresh(Publish),
    /// It began before.
    Known(Publish),
    /// It was shared from its beginning: there is nothing of before.
    NothingToDo,
}

pub(crate) const FIND: &str = "
    SELECT mesh_id, through_lamport, rows_total, rows_done, started_at, finished_at, snapshot, is_upload
    FROM mesh_publish WHERE mesh_id = ?1";

pub(crate) const BEGIN: &str = "
    INSERT INTO mesh_publish (mesh_id, through_lamport, rows_total, started_at, snapshot)
    VALUES (?1, ?2, ?3, ?4, ?5)";

pub(crate) const SHARE: &str =
    "UPDATE mesh SET kind = 'shared_owner' WHERE mesh_id = ?1 AND kind = 'personal'";

const OWN_MEMBER: &str = "SELECT member_id FROM mesh WHERE mesh_id = ?1";

pub(crate) const CURSOR: &str = "
    SELECT table_name, through, is_done FROM mesh_publish_cursor
    WHERE mesh_id = ?1 AND table_name = ?2";

pub(crate) const MOVE: &str = "
    INSERT INTO mesh_publish_cursor (mesh_id, table_name, through, is_done) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (mesh_id, table_name) DO UPDATE SET
        through = excluded.through, is_done = excluded.is_done";

pub(crate) const ADVANCE: &str = "
    UPDATE mesh_publish SET rows_done = min(rows_done + ?2, rows_total) WHERE mesh_id = ?1";

pub(crate) const FINISH: &str = "
    UPDATE mesh_publish SET finished_at = ?2, rows_done = rows_total,
        sent_through = (SELECT max(arrival) FROM op_outbox WHERE mesh_id = ?1)
    WHERE mesh_id = ?1 AND finished_at IS NULL";

// A step back would hide what others have seen, or send what they must not see yet.
pub(crate) const SNAPSHOT: &str = "
    UPDATE mesh_publish SET snapshot = ?4, is_upload = ?5
    WHERE mesh_id = ?1 AND snapshot = ?2 AND is_upload = ?3";

pub(crate) const UNSENT: &str = "
    SELECT arrival FROM op_outbox WHERE mesh_id = ?1 AND arrival <= (
        SELECT sent_through FROM mesh_publish WHERE mesh_id = ?1)
    LIMIT 1";

impl Store {
    /// Makes a personal mesh a shared one of this home, once.
    pub async fn begin_publish(
        &self,
        mesh: MeshId,
        now: WallMs,
    ) -> Result<BegunPublish, StoreError> {
        self.begin_publish_above(mesh, now, SNAPSHOT_ROWS_MIN).await
    }

    /// The same; with more rows than so many it is one snapshot.
    pub async fn begin_publish_above(
        &self,
        mesh: MeshId,
        now: WallMs,
        rows_max: u64,
    ) -> Result<BegunPublish, StoreError> {
        self.write(move |connection| begin(connection, mesh, now, rows_max))
            .await
    }

    /// The snapshot of a publish goes from one step to the next; false if it was not there.
    pub async fn step_snapshot(
        &self,
        mesh: MeshId,
        from: SnapshotStep,
        to: SnapshotStep,
    ) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let mut step = connection.prepare_cached(SNAPSHOT)?;
            let ((from, was_upload), (to, is_upload)) = (from.cells(), to.cells());
            let key = mesh.0.to_bytes();
            let changed = step.execute(params![key, from, was_upload, to, is_upload])?;
            Ok(changed > 0)
        })
        .await
    }

    /// Whether the broker has every op of a publish whose rows are all ops.
    pub async fn publish_is_sent(&self, mesh: MeshId) -> Result<bool, StoreError> {
        self.read_few(move |connection| {
            let mut unsent = connection.prepare_cached(UNSENT)?;
            let found = unsent.query_row([mesh.0.to_bytes()], |row| row.get::<_, i64>(0));
            Ok(found.optional()?.is_none())
        })
        .await
    }

    /// Turns the next rows into ops; how far it is then. `None` where nothing was ever begun.
    pub async fn step_publish(
        &self,
        mesh: MeshId,
        now: WallMs,
    ) -> Result<Option<Publish>, StoreError> {
        self.write(move |connection| step(connection, mesh, now))
            .await
    }

    pub async fn publish(&self, mesh: MeshId) -> Result<Option<Publish>, StoreError> {
        self.read_few(move |connection| find(connection, mesh))
            .await
    }
}

fn begin(
    connection: &Connection,
    mesh: MeshId,
    now: WallMs,
    rows_max: u64,
) -> Result<BegunPublish, StoreError> {
    if let Some(known) = find(connection, mesh)? {
        return Ok(BegunPublish::Known(known));
    }
    if head::read(connection, mesh)?.kind != MeshKind::Personal {
        return Ok(BegunPublish::NothingToDo);
    }
    let mut total = 0_i64;
    for table in &TABLES {
        let mut count = connection.prepare_cached(table.count)?;
        total += count.query_row([mesh.0.to_bytes()], |row| row.get::<_, i64>(0))?;
    }
    let through = clock_of(connection, mesh)?.value;
    connection
        .prepare_cached(SHARE)?
        .execute([mesh.0.to_bytes()])?;
    connection.prepare_cached(BEGIN)?.execute(params![
        mesh.0.to_bytes(),
        count_cell(through)?,
        total,
        now.0,
        if u64::try_from(total).unwrap_or(0) > rows_max {
            SnapshotStep::Wanted.cells().0
        } else {
            SnapshotStep::None.cells().0
        },
    ])?;
    match find(connection, mesh)? {
        Some(begun) => Ok(BegunPublish::Fresh(begun)),
        None => Err(StoreError::Corrupt(
            "a publish is gone right after its insert".to_owned(),
        )),
    }
}

fn find(connection: &Connection, mesh: MeshId) -> Result<Option<Publish>, StoreError> {
    let mut statement = connection.prepare_cached(FIND)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut cells = Cells::of("mesh_publish", row);
    cells.ulid()?;
    Ok(Some(Publish {
        through_lamport: cells.count()?,
        rows_total: cells.count()?,
        rows_done: cells.count()?,
        started_at: cells.wall()?,
        finished_at: cells.wall_or_null()?,
        snapshot: snapshot_step(&cells.get::<String>()?, cells.get()?)?,
    }))
}

fn snapshot_step(text: &str, is_upload: bool) -> Result<SnapshotStep, StoreError> {
    let steps = SnapshotStep::ALL.into_iter();
    let mut found = steps.filter(|step| step.cells() == (text, is_upload));
    found
        .next()
        .ok_or_else(|| StoreError::Corrupt(format!("mesh_publish: no snapshot is {text:?}")))
}

fn step(connection: &Connection, mesh: MeshId, now: WallMs) -> Result<Option<Publish>, StoreError> {
    let Some(publish) = find(connection, mesh)? else {
        return Ok(None);
    };
    if publish.finished_at.is_some() || publish.snapshot == SnapshotStep::Wanted {
        return Ok(Some(publish));
    }
    let own = connection
        .prepare_cached(OWN_MEMBER)?
        .query_row([mesh.0.to_bytes()], |row| row.get::<_, [u8; 16]>(0))?;
    let stepper = Stepper {
        connection,
        mesh,
        own: MemberId(ulid::Ulid::from_bytes(own)),
        through: publish.through_lamport,
        now,
    };
    for table in &TABLES {
        let (through, is_done) = cursor(connection, mesh, table)?;
        if !is_done {
            stepper.table(table, through)?;
            return find(connection, mesh);
        }
    }
    connection
        .prepare_cached(FINISH)?
        .execute(params![mesh.0.to_bytes(), now.0])?;
    find(connection, mesh)
}

fn cursor(
    connection: &Connection,
    mesh: MeshId,
    table: &Table,
) -> Result<(Vec<u8>, bool), StoreError> {
    let found = connection
        .prepare_cached(CURSOR)?
        .query_row(params![mesh.0.to_bytes(), table.name], |row| {
            Ok((row.get(1)?, row.get(2)?))
        });
    Ok(found.optional()?.unwrap_or_default())
}

struct Stepper<'c> {
    connection: &'c Connection,
    mesh: MeshId,
    own: MemberId,
    through: u64,
    now: WallMs,
}

impl Stepper<'_> {
    /// Some rows of one table; their ops and the cursor behind them go together.
    fn table(&self, table: &Table, mut through: Vec<u8>) -> Result<(), StoreError> {
        let limit = i64::try_from(PUBLISH_ROWS_AT_ONCE).unwrap_or(i64::MAX);
        let rows = (table.read)(self.connection, self.mesh, &through, limit)?;
        let is_last = rows.len() < PUBLISH_ROWS_AT_ONCE;
        let count = rows.len();
        let (mut looked, mut bytes) = (0_usize, 0);
        for row in rows {
            match row.op {
                Ok(op) => bytes += self.queue(&op)?,
                // It stays here as it is; the others are not held up by it.
                Err(StoreError::Corrupt(why)) => {
                    tracing::error!(
                        table = table.name,
                        why,
                        "a row is damaged and not published"
                    );
                }
                Err(error) => return Err(error),
            }
            through = row.through;
            looked += 1;
            if bytes >= PUBLISH_BYTES_AT_ONCE {
                break;
            }
        }
        let key = self.mesh.0.to_bytes();
        let is_done = is_last && looked == count;
        let mut cursor = self.connection.prepare_cached(MOVE)?;
        cursor.execute(params![key, table.name, through, is_done])?;
        let looked = i64::try_from(looked).unwrap_or(i64::MAX);
        let mut advance = self.connection.prepare_cached(ADVANCE)?;
        advance.execute(params![key, looked])?;
        Ok(())
    }

    /// How many bytes go out for it: none where its change is an op already, or somebody else's.
    fn queue(&self, op: &DataOp) -> Result<usize, StoreError> {
        let peer = op.stamp.peer.as_str();
        let sender = Party::from_str(peer).ok();
        let sender = sender.filter(|party| party.member == self.own && party.to_string() == peer);
        let Some(sender) = sender.filter(|_| op.stamp.lamport <= self.through) else {
            return Ok(0);
        };
        let queued = queue_published(self.connection, self.mesh, &sender, op, self.now)?;
        Ok(queued.unwrap_or(0))
    }
}
