//! Logical time of each mesh: ticks and merges inside the transaction that they stamp (LF-03, LF-04).

use heddle_core::ids::MeshId;
use heddle_core::lamport::{Lamport, LogClock, TooFarAhead};
use rusqlite::{Connection, params};

use crate::cells::{Cells, count_cell};
use crate::error::StoreError;
use crate::stamps;
use crate::store::Store;

/// A mesh's counter, and which life of the file it counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRow {
    pub value: u64,
    pub incarnation: u64,
    /// Of the mesh's log.
    pub log: LogClock,
}

/// Of a mesh that has not seen an event yet.
const BEGINNING: ClockRow = ClockRow {
    value: 0,
    incarnation: 1,
    log: LogClock(0),
};

pub(crate) const CLOCK: &str =
    "SELECT mesh_id, value, incarnation, log_value FROM lamport_clock WHERE mesh_id = ?1";

const SET: &str = "
    INSERT INTO lamport_clock (mesh_id, value, incarnation, log_value) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (mesh_id) DO UPDATE SET value = excluded.value, log_value = excluded.log_value";

impl Store {
    /// Where the mesh's clock stands.
    pub async fn data_clock(&self, mesh: MeshId) -> Result<ClockRow, StoreError> {
        self.read_few(move |connection| read(connection, mesh))
            .await
    }
}

/// A local event: the counter's next value, which is the event's stamp.
pub(crate) fn tick(connection: &Connection, mesh: MeshId) -> Result<ClockRow, StoreError> {
    let before = read(connection, mesh)?;
    // Every home sets aside what is stamped beyond it: what cannot land must not be called safe.
    if let Some(why) = stamps::refusal(connection, mesh, before)? {
        return Err(StoreError::Corrupt(why));
    }
    let row = ClockRow {
        value: Lamport(before.value).tick().0,
        ..before
    };
    set(connection, mesh, row)?;
    Ok(row)
}

const NEWEST_LIFE: &str = "SELECT coalesce(max(incarnation), 1) FROM lamport_clock";

const SET_LIFE: &str = "UPDATE lamport_clock SET incarnation = ?1";

// Also for meshes in which nothing has happened yet.
const SET_LIFE_OF_OTHERS: &str = "
    INSERT INTO lamport_clock (mesh_id, value, incarnation)
    SELECT mesh_id, 0, ?1 FROM mesh WHERE true ON CONFLICT (mesh_id) DO NOTHING";

/// A new life of the file begins, above its own and above one that issued stamps which it may issue again (C39).
pub(crate) fn begin_life_above(connection: &Connection, issued: u64) -> rusqlite::Result<u64> {
    let own = connection
        .prepare_cached(NEWEST_LIFE)?
        .query_row([], |row| row.get::<_, i64>(0))?;
    let issued = i64::try_from(issued).unwrap_or(0);
    let next = own.max(issued).saturating_add(1);
    connection.prepare_cached(SET_LIFE)?.execute([next])?;
    connection
        .prepare_cached(SET_LIFE_OF_OTHERS)?
        .execute([next])?;
    Ok(u64::try_from(next).unwrap_or(1))
}

impl ClockRow {
    /// The clock as an op of the log leaves the log's own part of it, or why the op may not.
    pub(crate) fn admitted(self, remote: u64) -> Result<Self, TooFarAhead> {
        let log = self.log.admit(remote)?;
        Ok(Self { log, ..self })
    }

    /// After an event from elsewhere that was news here.
    pub(crate) fn merged(self, remote: u64) -> Self {
        Self {
            value: Lamport(self.value).merge(remote).0,
            ..self
        }
    }
}

pub(crate) fn read(connection: &Connection, mesh: MeshId) -> Result<ClockRow, StoreError> {
    let mut statement = connection.prepare_cached(CLOCK)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    let Some(row) = rows.next()? else {
        return Ok(BEGINNING);
    };
    let mut cells = Cells::of("lamport_clock", row);
    let _: [u8; 16] = cells.get()?;
    Ok(ClockRow {
        value: cells.count()?,
        incarnation: cells.count()?,
        log: LogClock(cells.count()?),
    })
}

pub(crate) fn set(connection: &Connection, mesh: MeshId, row: ClockRow) -> Result<(), StoreError> {
    connection.prepare_cached(SET)?.execute(params![
        mesh.0.to_bytes(),
        count_cell(row.value)?,
        count_cell(row.incarnation)?,
        count_cell(row.log.0)?
    ])?;
    Ok(())
}
