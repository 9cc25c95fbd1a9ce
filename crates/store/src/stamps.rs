//! Stamps and clocks that cannot be: a bit that changed in one of them must not become the time of a mesh (C39, LF-06).
//!
//! No row is ahead of its mesh's clock; one that is was damaged, or the clock was. A repair believes the clock where it
//! can be right, else the rows, from the oldest on, as far as each is within reach of those before it. What is beyond
//! that is taken out by name, as other rows that nobody can read.
//!
//! In a mesh that has others the log is the measure: what is further ahead of it than a replica admits is set aside by every
//! home, so a row with such a stamp proves nothing about the clock.

use heddle_core::ids::MeshId;
use heddle_core::limits::{LAMPORT_AHEAD_MAX, LAMPORT_MAX};
use rusqlite::{Connection, OptionalExtension, params};

use crate::backup::has_table;
use crate::data::ClockRow;
use crate::error::StoreError;

/// What no clock reaches: the highest stamp that is ever taken, and as much again for changes of one's own.
pub(crate) const CLOCK_MAX: u64 = LAMPORT_MAX * 2;

/// The tables whose rows carry stamps.
const STAMPED: [&str; 6] = [
    "memory",
    "state_kv",
    "tasks",
    "task_claim_events",
    "files",
    "vector_metadata",
];

const CLOCKS: &str = "
    SELECT mesh_id, value, log_value, ifnull((SELECT kind <> 'personal' FROM mesh
        WHERE mesh.mesh_id = lamport_clock.mesh_id), 0)
    FROM lamport_clock ORDER BY mesh_id";
const IS_SHARED: &str = "SELECT kind <> 'personal' FROM mesh WHERE mesh_id = ?1";
const SET: &str = "
    INSERT INTO lamport_clock (mesh_id, value, log_value) VALUES (?1, ?2, ?3)
    ON CONFLICT (mesh_id) DO UPDATE SET value = excluded.value, log_value = excluded.log_value";

struct Stands {
    mesh: Vec<u8>,
    value: i64,
    /// None where it was lost.
    log: Option<i64>,
    /// Others are in the mesh, and admit by the log.
    is_shared: bool,
}

impl Stands {
    /// The log's part of it, as far as it can be right.
    fn log_known(&self) -> Option<i64> {
        self.log.filter(|log| *log <= most(LAMPORT_MAX))
    }

    /// No row that counts has a higher stamp.
    fn ceiling(&self) -> i64 {
        match self.log_known().filter(|_| self.is_shared) {
            Some(log) => self.value.min(reach(log)),
            None => self.value,
        }
    }

    /// Whether the clock can be right, where the newest row below its ceiling has this stamp.
    fn is_possible(&self, newest: i64) -> bool {
        let log = self.log_known().unwrap_or(0);
        let known = if self.is_shared { log } else { newest.max(log) };
        self.value <= most(CLOCK_MAX) && self.value <= reach(known)
    }

    fn says(&self, connection: &Connection, newest: i64) -> String {
        let name: Option<String> = connection
            .query_row(
                "SELECT CAST(name AS TEXT) FROM mesh WHERE mesh_id = ?1",
                [&self.mesh],
                |row| row.get(0),
            )
            .ok();
        format!(
            "the clock of mesh {} stands at {}, far ahead of {newest}, its newest row",
            name.unwrap_or_else(|| "?".to_owned()),
            self.value
        )
    }
}

fn most(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn reach(from: i64) -> i64 {
    from.saturating_add(most(LAMPORT_AHEAD_MAX))
}

/// Clocks that are far ahead of everything in their mesh: each change under them would be set aside by every home.
pub(crate) fn clock_problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    let Some(all) = all_stamps(connection)? else {
        return Ok(found);
    };
    for clock in clocks(connection)? {
        let newest = below(connection, &all, &clock)?;
        if !clock.is_possible(newest) {
            found.push(clock.says(connection, newest));
        }
    }
    Ok(found)
}

/// Why nothing may be stamped by this clock: every home would set it aside, this one included. A look at rows only where the
/// clock is further ahead of the log than others admit, which is never so in a mesh that is well.
pub(crate) fn refusal(
    connection: &Connection,
    mesh: MeshId,
    clock: ClockRow,
) -> Result<Option<String>, StoreError> {
    if clock.log.admit(clock.value.saturating_add(1)).is_ok() {
        return Ok(None);
    }
    let stands = Stands {
        mesh: mesh.0.to_bytes().to_vec(),
        value: most(clock.value),
        log: Some(most(clock.log.0)),
        is_shared: is_shared(connection, mesh)?,
    };
    let Some(all) = all_stamps(connection)? else {
        return Ok(None);
    };
    // What a mesh without others has stamped itself is no measure for anybody else. One row is enough, where all would take long.
    let near =
        format!("SELECT 1 FROM ({all}) WHERE mesh_id = ?1 AND lamport BETWEEN ?2 AND ?3 LIMIT 1");
    let lowest = stands.value.saturating_sub(most(LAMPORT_AHEAD_MAX));
    let is_well = !stands.is_shared
        && clock.value < CLOCK_MAX
        && connection
            .prepare_cached(&near)?
            .exists(params![stands.mesh, lowest, stands.value])?;
    if is_well {
        return Ok(None);
    }
    let newest = below(connection, &all, &stands)?;
    let says = stands.says(connection, newest);
    Ok(Some(format!(
        "{says}; nothing that is written there would count"
    )))
}

/// No row of the mesh that counts has a higher stamp.
pub(crate) fn ceiling(
    connection: &Connection,
    mesh: MeshId,
    clock: ClockRow,
) -> Result<u64, StoreError> {
    let stands = Stands {
        mesh: Vec::new(),
        value: most(clock.value),
        log: Some(most(clock.log.0)),
        is_shared: is_shared(connection, mesh)?,
    };
    Ok(u64::try_from(stands.ceiling()).unwrap_or(0))
}

fn is_shared(connection: &Connection, mesh: MeshId) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(IS_SHARED)?;
    let found = statement.query_row([mesh.0.to_bytes()], |row| row.get(0));
    Ok(found.optional()?.unwrap_or(false))
}

/// Each clock stands where its rows and its log can have brought it, and no row that can be right is ahead of it.
pub(crate) fn settle(new: &Connection) -> rusqlite::Result<()> {
    let Some(all) = all_stamps(new)? else {
        return Ok(());
    };
    let mut known = clocks(new)?;
    let mut meshes = new.prepare(&format!("SELECT DISTINCT mesh_id FROM ({all})"))?;
    let meshes = meshes.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
    for mesh in meshes.collect::<rusqlite::Result<Vec<_>>>()? {
        if !known.iter().any(|clock| clock.mesh == mesh) {
            // It was lost: its rows are all that is known.
            known.push(Stands {
                mesh,
                value: i64::MAX,
                log: None,
                is_shared: false,
            });
        }
    }
    let sql = format!("SELECT lamport FROM ({all}) WHERE mesh_id = ?1 AND lamport > ?2 ORDER BY 1");
    let mut stamps = new.prepare(&sql)?;
    for clock in known {
        let is_possible = clock.is_possible(below(new, &all, &clock)?);
        let from = if is_possible { clock.value } else { -1 };
        // The log of a mesh that has others is what their replicas admit by.
        let log = clock.log_known().filter(|_| clock.is_shared);
        let mut top = if is_possible { Some(clock.value) } else { log };
        let rows = stamps.query_map(params![clock.mesh, from], |row| row.get::<_, i64>(0))?;
        for stamp in rows {
            let stamp = stamp?;
            if stamp > most(LAMPORT_MAX) || top.is_some_and(|top| stamp > reach(top)) {
                break;
            }
            top = top.max(Some(stamp));
        }
        let top = top.unwrap_or(0);
        let log = match clock.log {
            Some(log) if is_possible => log.min(top),
            _ => log.unwrap_or(top).min(top),
        };
        new.execute(SET, params![clock.mesh, top, log])?;
    }
    Ok(())
}

/// Every stamp of every table that this file has; none for a file from before there were any.
fn all_stamps(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let has_log = connection
        .prepare("SELECT 1 FROM pragma_table_info('lamport_clock') WHERE name = 'log_value'")?
        .exists([])?;
    let mut parts = Vec::new();
    for table in STAMPED {
        if has_table(connection, table)? {
            parts.push(format!("SELECT mesh_id, lamport FROM {table}"));
        }
    }
    Ok((has_log && !parts.is_empty()).then(|| parts.join(" UNION ALL ")))
}

fn clocks(connection: &Connection) -> rusqlite::Result<Vec<Stands>> {
    let mut statement = connection.prepare(CLOCKS)?;
    let rows = statement.query_map([], |row| {
        Ok(Stands {
            mesh: row.get(0)?,
            value: row.get(1)?,
            log: row.get(2)?,
            is_shared: row.get(3)?,
        })
    })?;
    rows.collect()
}

fn below(connection: &Connection, all: &str, clock: &Stands) -> rusqlite::Result<i64> {
    let sql = format!(
        "SELECT coalesce(max(lamport), 0) FROM ({all}) WHERE mesh_id = ?1 AND lamport <= ?2"
    );
    connection.query_row(&sql, params![clock.mesh, clock.ceiling()], |row| row.get(0))
}
