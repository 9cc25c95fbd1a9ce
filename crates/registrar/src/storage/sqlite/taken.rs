//! Taking over what another authority has written about a mesh.

use heddle_core::ids::MeshId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::links::{self, Linked};
use super::{load, write};
use crate::binding::LogicalKey;
use crate::carry::{Part, Taken, Unit};
use crate::chain::Link;
use crate::kept::Bound;
use crate::rows::Row;
use crate::storage::error::StorageError;
use crate::tally::Tally;

type Answer<T> = Result<T, StorageError>;

const TAKEN: &str = "
    SELECT coalesce(max(through), 0), coalesce(max(is_whole), 0) FROM effect_taken WHERE mesh_id = ?1";
const TAKE: &str = "
    INSERT INTO effect_taken (mesh_id, through, is_whole, noted_at) VALUES (?1, ?2, ?3, ?4)";
const BOUND: &str =
    "SELECT replay_key FROM effect_consume WHERE mesh_id = ?1 AND logical_request_key = ?2";

pub(super) fn taken(connection: &Connection, mesh: MeshId) -> Answer<Taken> {
    let (through, is_whole): (i64, bool) =
        connection.query_row(TAKEN, [mesh.0.to_bytes()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    Ok(Taken {
        through: u64::try_from(through).unwrap_or(0),
        is_whole,
        skipped: 0,
    })
}

/// With the link that stands for it, where it was the next one.
pub(super) fn take(
    connection: &Connection,
    mesh: MeshId,
    part: &Part,
    expected: Option<Link>,
) -> Answer<(Taken, Option<Link>)> {
    let before = taken(connection, mesh)?;
    if !part.is_next(&before) {
        return Ok((before, None));
    }
    let (mut rows, mut skipped, mut tally) = (Vec::new(), 0, Tally::default());
    for unit in &part.units {
        if let Unit::Damaged { .. } = unit {
            if let Some((key, line)) = unit.lost(part.at)
                && tally.lose(&key)
            {
                write::audit(connection, mesh, &line)?;
            }
            continue;
        }
        let is_written = write_unit(connection, mesh, unit, &mut tally)?;
        skipped += u64::from(!is_written);
        rows.extend(unit.rows().into_iter().filter(|_| is_written));
    }
    let through = part.through();
    connection.prepare_cached(TAKE)?.execute(params![
        mesh.0.to_bytes(),
        i64::try_from(through).unwrap_or(i64::MAX),
        part.is_last,
        part.at.0,
    ])?;
    let said = part.said();
    let linked = Linked {
        mesh: Some(mesh),
        rows: &rows,
        more: said.as_bytes(),
        seal: None,
        tally,
    };
    let link = links::append(connection, expected, &linked)?;
    let is_whole = part.is_last;
    Ok((
        Taken {
            through,
            is_whole,
            skipped,
        },
        Some(link),
    ))
}

/// False where something else stands in its place.
fn write_unit(
    connection: &Connection,
    mesh: MeshId,
    unit: &Unit,
    tally: &mut Tally,
) -> Answer<bool> {
    match unit {
        Unit::Audit(row) => write::audit(connection, mesh, row).map(|()| true),
        Unit::Step { of, row, .. } => {
            let bound: Option<Vec<u8>> = connection
                .query_row(BOUND, params![mesh.0.to_bytes(), row.key.as_str()], |row| {
                    row.get(0)
                })
                .optional()?;
            if bound.as_deref() != Some(&of.0[..]) {
                return Ok(false);
            }
            insert(
                connection,
                mesh,
                (&Row::Step(row.clone()), unit.bound()),
                tally,
            )
        }
        unit => {
            for row in unit.rows() {
                if !insert(connection, mesh, (&row, unit.bound()), tally)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// The triggers say what is there: a statement that they refuse leaves nothing behind.
fn insert(
    connection: &Connection,
    mesh: MeshId,
    (row, bound): (&Row, Bound),
    tally: &mut Tally,
) -> Answer<bool> {
    match write::insert(connection, mesh, row, bound) {
        Err(StorageError::Refused(why)) if is_there(&why) => return Ok(false),
        written => written?,
    }
    if let Some(key) = key_of(connection, mesh, row)? {
        tally.add(&key, row);
    }
    Ok(true)
}

/// The key that a row is about; a decision knows its envelope only, which came before it.
fn key_of(connection: &Connection, mesh: MeshId, row: &Row) -> Answer<Option<LogicalKey>> {
    match row.key() {
        Ok(key) => Ok(Some(key.clone())),
        Err(envelope) => load::key_of_envelope(connection, mesh, envelope),
    }
}

fn is_there(why: &str) -> bool {
    ["single-use", "append-only", "UNIQUE constraint"]
        .iter()
        .any(|word| why.contains(word))
}
