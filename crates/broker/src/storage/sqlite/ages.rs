//! How old a mesh certainly is, and what existed by when.

use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::{BootTime, WallMs};
use heddle_core::ids::{HistoryId, MeshId};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::births::{Births, cell, of_cell};
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::history::Line;

pub(super) const SCHEMA: &str = "
-- Time that certainly passed for a mesh (core/age), whatever the walls say; and at which start of which machine it was
-- last looked at.
CREATE TABLE age_clock (
    mesh_id BLOB NOT NULL PRIMARY KEY REFERENCES mesh (mesh_id),
    age_ms INTEGER NOT NULL CHECK (age_ms >= 0),
    boot_id BLOB CHECK (boot_id IS NULL OR length(boot_id) = 16),
    boot_ms INTEGER
) STRICT, WITHOUT ROWID;

-- Everything up to this place existed when the mesh was so old.
CREATE TABLE age_birth (
    mesh_id BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    age_ms INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, epoch, seq)
) STRICT, WITHOUT ROWID;
";

const READ: &str = "SELECT age_ms, boot_id, boot_ms FROM age_clock WHERE mesh_id = ?1";

const WRITE: &str = "
INSERT INTO age_clock (mesh_id, age_ms, boot_id, boot_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (mesh_id) DO UPDATE SET age_ms = excluded.age_ms, boot_id = excluded.boot_id,
    boot_ms = excluded.boot_ms";

const NEWEST: &str = "
SELECT epoch, seq FROM age_birth WHERE mesh_id = ?1 ORDER BY epoch DESC, seq DESC LIMIT 1";

const NOTE: &str = "INSERT INTO age_birth (mesh_id, epoch, seq, age_ms) VALUES (?1, ?2, ?3, ?4)";

// Ages rise with places, so the newest note up to an age is found from the end.
const BORN_BY: &str = "
SELECT epoch, seq FROM age_birth WHERE mesh_id = ?1 AND age_ms <= ?2
ORDER BY epoch DESC, seq DESC LIMIT 1";

const FORGET: &str = "DELETE FROM age_birth WHERE mesh_id = ?1 AND (epoch, seq) < (?2, ?3)";

const ALL: &str = "
SELECT epoch, seq, age_ms FROM age_birth WHERE mesh_id = ?1 ORDER BY epoch, seq";

pub(super) fn read(connection: &Connection, mesh: MeshId) -> Result<Option<AgeMark>, JobError> {
    let found = connection
        .prepare_cached(READ)?
        .query_row([mesh_key(mesh)], |row| {
            let boot: Option<[u8; 16]> = row.get(1)?;
            let since: Option<i64> = row.get(2)?;
            Ok(AgeMark {
                age: of_cell(row.get(0)?),
                // Nothing goes by it: several machines keep this clock.
                wall: WallMs(0),
                boot: boot.zip(since).map(|(boot, since)| BootTime {
                    boot: u128::from_be_bytes(boot),
                    since: of_cell(since),
                }),
            })
        });
    Ok(found.optional()?)
}

pub(super) fn keep(
    connection: &Connection,
    mesh: MeshId,
    mark: AgeMark,
    births_from: Duration,
) -> Result<Duration, JobError> {
    let key = mesh_key(mesh);
    let before = read(connection, mesh)?.filter(|before| before.age > mark.age);
    if before.is_none() {
        let boot = mark.boot.map(|boot| boot.boot.to_be_bytes());
        let since = mark.boot.map(|boot| cell(boot.since));
        let cells = params![key, cell(mark.age), boot, since];
        connection.prepare_cached(WRITE)?.execute(cells)?;
    }
    let age = before.unwrap_or(mark).age;
    note(connection, mesh, age)?;
    if let Some(last) = born_before(connection, mesh, births_from)? {
        let (epoch, seq) = (integer(last.epoch), integer(last.seq));
        let cells = params![key, epoch, seq];
        connection.prepare_cached(FORGET)?.execute(cells)?;
    }
    Ok(age)
}

fn note(connection: &Connection, mesh: MeshId, age: Duration) -> Result<(), JobError> {
    let Some(line) = Line::of(connection, mesh)? else {
        return Ok(());
    };
    let next = line.next();
    let newest = HistoryId {
        seq: next.seq.saturating_sub(1),
        ..next
    };
    let last = connection
        .prepare_cached(NEWEST)?
        .query_row([mesh_key(mesh)], |row| Columns::of(row).history_id())
        .optional()?;
    if last.is_none_or(|last| last < newest) {
        let (epoch, seq) = (integer(newest.epoch), integer(newest.seq));
        let cells = params![mesh_key(mesh), epoch, seq, cell(age)];
        connection.prepare_cached(NOTE)?.execute(cells)?;
    }
    Ok(())
}

fn born_before(
    connection: &Connection,
    mesh: MeshId,
    age: Duration,
) -> Result<Option<HistoryId>, JobError> {
    match age.checked_sub(Duration::from_millis(1)) {
        Some(age) => born_by(connection, mesh, age),
        None => Ok(None),
    }
}

/// The newest place of which it is known that everything up to it existed when the mesh was so old.
pub(super) fn born_by(
    connection: &Connection,
    mesh: MeshId,
    age: Duration,
) -> Result<Option<HistoryId>, JobError> {
    let found = connection
        .prepare_cached(BORN_BY)?
        .query_row(params![mesh_key(mesh), cell(age)], |row| {
            Columns::of(row).history_id()
        });
    Ok(found.optional()?)
}

pub(super) fn births(connection: &Connection, mesh: MeshId) -> Result<Births, JobError> {
    let mut statement = connection.prepare_cached(ALL)?;
    let found = statement.query_map([mesh_key(mesh)], |row| {
        let place = Columns::of(row).history_id()?;
        Ok((place, of_cell(row.get(2)?)))
    })?;
    Ok(Births::new(found.collect::<rusqlite::Result<_>>()?))
}
