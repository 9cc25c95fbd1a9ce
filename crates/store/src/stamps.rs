//! Stamps and clocks that cannot be: a bit that changed in one of them must not become the time of a mesh (C39, LF-06).
//!
//! No row is ahead of its mesh's clock; one that is was damaged, or the clock was. A repair believes the clock where it
//! can be right, else the rows, from the oldest on, as far as each is within reach of those before it. What is beyond
//! that is taken out by name, as other rows that nobody can read.

use heddle_core::limits::{LAMPORT_AHEAD_MAX, LAMPORT_MAX};
use rusqlite::{Connection, params};

use crate::backup::has_table;

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

const CLOCKS: &str = "SELECT mesh_id, value, log_value FROM lamport_clock ORDER BY mesh_id";
const SET: &str = "
    INSERT INTO lamport_clock (mesh_id, value, log_value) VALUES (?1, ?2, ?3)
    ON CONFLICT (mesh_id) DO UPDATE SET value = excluded.value, log_value = excluded.log_value";

struct Stands {
    mesh: Vec<u8>,
    value: i64,
    log: i64,
}

impl Stands {
    /// Whether the clock can be right, where the newest row that is not ahead of it has this stamp.
    fn is_possible(&self, newest: i64) -> bool {
        let log = if self.log <= most(LAMPORT_MAX) {
            self.log
        } else {
            0
        };
        self.value <= most(CLOCK_MAX) && self.value <= reach(newest.max(log))
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
            let Stands { mesh, value, .. } = clock;
            let name: Option<String> = connection
                .query_row(
                    "SELECT CAST(name AS TEXT) FROM mesh WHERE mesh_id = ?1",
                    [mesh],
                    |row| row.get(0),
                )
                .ok();
            found.push(format!(
                "the clock of mesh {} stands at {value}, far ahead of {newest}, its newest row",
                name.unwrap_or_else(|| "?".to_owned())
            ));
        }
    }
    Ok(found)
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
                log: 0,
            });
        }
    }
    let sql = format!("SELECT lamport FROM ({all}) WHERE mesh_id = ?1 AND lamport > ?2 ORDER BY 1");
    let mut stamps = new.prepare(&sql)?;
    for clock in known {
        let is_possible = clock.is_possible(below(new, &all, &clock)?);
        let from = if is_possible { clock.value } else { -1 };
        let mut top = is_possible.then_some(clock.value);
        let rows = stamps.query_map(params![clock.mesh, from], |row| row.get::<_, i64>(0))?;
        for stamp in rows {
            let stamp = stamp?;
            if stamp > most(LAMPORT_MAX) || top.is_some_and(|top| stamp > reach(top)) {
                break;
            }
            top = Some(stamp);
        }
        let top = top.unwrap_or(0);
        let log = if is_possible { clock.log.min(top) } else { top };
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
        })
    })?;
    rows.collect()
}

fn below(connection: &Connection, all: &str, clock: &Stands) -> rusqlite::Result<i64> {
    let sql = format!(
        "SELECT coalesce(max(lamport), 0) FROM ({all}) WHERE mesh_id = ?1 AND lamport <= ?2"
    );
    connection.query_row(&sql, params![clock.mesh, clock.value], |row| row.get(0))
}
