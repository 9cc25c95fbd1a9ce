//! What this file shows to the surface check: its catalogue, and what it does to rows that must not be.
//!
//! The probe's rows never stay: it runs in a job that fails.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};

use super::write::{CONSUME, REGISTRATION};
use crate::storage::error::StorageError;
use crate::surface_check::Surface;

/// An insert into a table of another shape cannot even be prepared; that is an answer too.
type Answer<T> = Result<T, rusqlite::Error>;

const COLUMNS: &str = "SELECT name FROM pragma_table_info(?1) WHERE \"notnull\" = 1";
const INDEXES: &str = "
    SELECT name FROM pragma_index_list('effect_consume') WHERE \"unique\" = 1 AND partial = 0";
const INDEXED: &str = "SELECT name FROM pragma_index_info(?1) ORDER BY seqno";
const REFERENCES: &str = "SELECT count(*) FROM pragma_foreign_key_list('effect_audit')";
const EXISTS: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'effect_audit'";
const DOMAIN: &str = "SELECT domain FROM effect_surface";
/// Every table, trigger and index with its text; those that SQLite makes by itself are told of by `INDEXES`.
const ALL: &str = "
    SELECT CASE type WHEN 'table' THEN name || ' (its columns)' ELSE name END || char(10) || sql FROM sqlite_schema
    WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' AND name <> '_migrations' ORDER BY name";
const TRIGGERS: &str = "SELECT name FROM sqlite_schema WHERE type = 'trigger' ORDER BY name";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM _migrations";
/// The list of the steps, which is not of our making.
const STEPS: &str = "CREATE TABLE _migrations (version INTEGER PRIMARY KEY)";
const SYNCHRONOUS: &str = "SELECT synchronous FROM pragma_synchronous";

const UPDATES: &[&str] = &[
    "UPDATE effect_consume SET run_id = 'other'",
    "UPDATE effect_registration SET receipt = 'other'",
];
const DELETES: &[&str] = &[
    "DELETE FROM effect_registration",
    "DELETE FROM effect_consume",
];

/// Not a mesh that anybody has.
const PROBE_MESH: [u8; 16] = [0xff; 16];

pub(super) fn probe(connection: &Connection) -> Result<Surface, StorageError> {
    Ok(look(connection)?)
}

fn look(connection: &Connection) -> Answer<Surface> {
    let columns = texts(connection, COLUMNS, &["effect_consume"])?;
    let registration = texts(connection, COLUMNS, &["effect_registration"])?;
    let mut unique = Vec::new();
    for index in texts(connection, INDEXES, &[])? {
        let mut set = texts(connection, INDEXED, &[index.as_str()])?;
        set.retain(|column| column != "mesh_id");
        unique.push(set);
    }
    // A registration before anything is consumed, then one consumption, its registration, and a second one.
    let lone = register(connection, "lone");
    let first = consume(connection, 1, "probe").and_then(|()| register(connection, "probe"));
    let second = consume(connection, 2, "probe");
    let works = first.is_ok();
    let refused = |statements: &[&str]| {
        statements.iter().all(|sql| {
            connection
                .execute(sql, [])
                .is_err_and(|error| is_ours(&error))
        })
    };
    let synchronous: i64 = connection.query_row(SYNCHRONOUS, [], |row| row.get(0))?;
    let audits: i64 = connection.query_row(EXISTS, [], |row| row.get(0))?;
    let references: i64 = connection.query_row(REFERENCES, [], |row| row.get(0))?;
    let fresh = fresh()?;
    let missing = differing(connection, &fresh)?;
    let excess = strange(connection, &fresh)?;
    Ok(Surface {
        unique,
        domain: texts(connection, DOMAIN, &[])
            .ok()
            .and_then(|d| d.into_iter().next()),
        second_consume_refused: works && second.is_err(),
        lone_registration_refused: works && lone.is_err(),
        update_refused: works && refused(UPDATES),
        delete_refused: works && refused(DELETES),
        // SQLite has no rights to take away; the triggers and the lock of the home stand alone.
        writer_is_bound: true,
        is_durable: synchronous >= 2,
        audit_stands_apart: audits == 1 && references == 0,
        keeps_receipt: registration.iter().any(|column| column == "receipt"),
        keeps_horizon: columns.iter().any(|column| column == "horizon_until"),
        missing,
        excess,
        columns,
    })
}

/// A file as this version makes it.
fn fresh() -> Answer<Connection> {
    let fresh = Connection::open_in_memory()?;
    fresh.execute_batch(STEPS)?;
    for migration in super::MIGRATIONS {
        fresh.execute_batch(migration.sql)?;
    }
    Ok(fresh)
}

/// What the other one has and this one has not, by name: each as it was made, to the letter.
fn differing(connection: &Connection, fresh: &Connection) -> Answer<Vec<String>> {
    let found = texts(connection, ALL, &[])?;
    let mut wanted = texts(fresh, ALL, &[])?;
    wanted.retain(|one| !found.contains(one));
    let name = |one: String| one.lines().next().unwrap_or_default().to_owned();
    Ok(wanted.into_iter().map(name).collect())
}

/// Triggers that no version of ours has made: one of them could let a row go, or change it on its way.
fn strange(connection: &Connection, fresh: &Connection) -> Answer<Vec<String>> {
    let ours = texts(fresh, TRIGGERS, &[])?;
    let mut found = texts(connection, TRIGGERS, &[])?;
    found.retain(|name| !ours.contains(name));
    let named = found.into_iter();
    Ok(named
        .map(|name| format!("{name}: a trigger of somebody else's"))
        .collect())
}

/// What a file lacks of what its own version has made, or has beside it, by name; reads only. It may be open elsewhere, and be one that the
/// next start brings up to date.
pub fn lacks(file: &Path) -> Result<Vec<String>, StorageError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    heddle_sqlite::refuse_misplaced(file)?;
    let connection = Connection::open_with_flags(file, flags)?;
    let version: i64 = connection.query_row(VERSION, [], |row| row.get(0))?;
    let fresh = Connection::open_in_memory()?;
    fresh.execute_batch(STEPS)?;
    let mut is_known = version == 0;
    for migration in super::MIGRATIONS {
        if i64::from(migration.version) <= version {
            fresh.execute_batch(migration.sql)?;
        }
        is_known |= i64::from(migration.version) == version;
    }
    if !is_known {
        return Ok(vec![format!(
            "a version of Heddle that knows step {version} of it"
        )]);
    }
    let mut names = differing(&connection, &fresh)?;
    names.extend(strange(&connection, &fresh)?);
    if names.is_empty() && texts(&connection, DOMAIN, &[])? != texts(&fresh, DOMAIN, &[])? {
        names.push("effect_surface".to_owned());
    }
    Ok(names)
}

/// A refusal by the trigger itself: a foreign key stands in the way of some deletes, and not for good.
fn is_ours(error: &rusqlite::Error) -> bool {
    error.to_string().contains("append-only")
}

fn texts(connection: &Connection, sql: &str, with: &[&str]) -> Answer<Vec<String>> {
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(with), |row| row.get(0))?;
    rows.collect()
}

/// Another `nth` has another replay key, run, nonce and attempt under the same logical key.
fn consume(connection: &Connection, nth: u8, key: &str) -> Answer<()> {
    let (digest, nonce) = ([nth; 32], [nth; 32]);
    let attempt = format!("attempt {nth}");
    let run = format!("run {nth}");
    connection.execute(
        CONSUME,
        params![
            PROBE_MESH, key, digest, "probe", "probe", "", "probe", run, nonce, attempt, 0, 0
        ],
    )?;
    Ok(())
}

fn register(connection: &Connection, key: &str) -> Answer<()> {
    connection.execute(
        REGISTRATION,
        params![PROBE_MESH, key, "probe", "{}", 0, None::<Vec<u8>>],
    )?;
    Ok(())
}
