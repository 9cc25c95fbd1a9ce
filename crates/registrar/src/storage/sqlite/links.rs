//! The chain in this file: its end, its links, its seal.

use heddle_core::ids::MeshId;
use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, params};

use crate::chain::{Link, Seal};
use crate::rows::Row;
use crate::storage::error::StorageError;
use crate::storage::stored;
use crate::tally::Tally;

type Answer<T> = Result<T, StorageError>;

const IS_THERE: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'effect_chain')";
const HEAD: &str = "SELECT seq, digest FROM effect_chain ORDER BY seq DESC LIMIT 1";
const AT: &str = "SELECT seq, digest FROM effect_chain WHERE seq = ?1";
const SEAL: &str = "SELECT seal FROM effect_chain WHERE seal IS NOT NULL ORDER BY seq DESC LIMIT 1";
const APPEND: &str = "INSERT INTO effect_chain (seq, digest, seal) VALUES (?1, ?2, ?3)";
const TALLY: &str = "
    INSERT INTO effect_tally (mesh_id, logical_request_key, seq, row_count) VALUES (?1, ?2, ?3, ?4)";

fn link(row: &SqlRow<'_>) -> rusqlite::Result<(i64, Vec<u8>)> {
    Ok((row.get(0)?, row.get(1)?))
}

pub(super) fn is_there(connection: &Connection) -> Answer<bool> {
    Ok(connection.query_row(IS_THERE, [], |row| row.get(0))?)
}

pub(super) fn head(connection: &Connection) -> Answer<Option<Link>> {
    let found = connection.query_row(HEAD, [], link).optional()?;
    found.map(stored::link).transpose()
}

pub(super) fn has(connection: &Connection, seen: Option<Link>) -> Answer<bool> {
    let Some(seen) = seen else {
        return Ok(true);
    };
    let seq = i64::try_from(seen.seq).unwrap_or(i64::MAX);
    let found = connection.query_row(AT, [seq], link).optional()?;
    Ok(found.map(stored::link).transpose()? == Some(seen))
}

pub(super) fn seal(connection: &Connection) -> Answer<Option<Seal>> {
    let found: Option<Vec<u8>> = connection
        .query_row(SEAL, [], |row| row.get(0))
        .optional()?;
    found.map(|bytes| stored::seal(&bytes)).transpose()
}

/// What a link stands for.
pub(super) struct Linked<'a> {
    pub(super) mesh: Option<MeshId>,
    pub(super) rows: &'a [Row],
    pub(super) more: &'a [u8],
    pub(super) seal: Option<Seal>,
    pub(super) tally: Tally,
}

/// IMPORTANT: in the transaction of what it stands for.
pub(super) fn append(
    connection: &Connection,
    expected: Option<Link>,
    linked: &Linked<'_>,
) -> Answer<Link> {
    if !has(connection, expected)? {
        return Err(StorageError::WentBack);
    }
    let last = head(connection)?;
    let next = Link::after(last.as_ref(), linked.mesh, linked.rows, linked.more);
    let seq = i64::try_from(next.seq).unwrap_or(i64::MAX);
    let seal = linked.seal.map(|seal| seal.0);
    connection
        .prepare_cached(APPEND)?
        .execute(params![seq, next.digest, seal])?;
    let mesh = linked.mesh.map(|mesh| mesh.0.to_bytes());
    for (key, count) in linked.tally.counts() {
        connection
            .prepare_cached(TALLY)?
            .execute(params![mesh, key, seq, count])?;
    }
    Ok(next)
}
