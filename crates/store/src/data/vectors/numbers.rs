//! The numbers of one vector as its model's table holds them, compared with what they were when they were stored.
//!
//! A table takes any bits, and nearly all bits are finite numbers: without the digest a changed vector would be found in
//! the wrong place, and sent to others as what its author wrote.

use heddle_core::vector::{Embedding, ModelFingerprint};
use rusqlite::{Connection, params};

use super::models;
use crate::error::StoreError;

const KEEP: &str = "
    INSERT INTO vector_digest (place, digest) VALUES (?1, ?2)
    ON CONFLICT (place) DO UPDATE SET digest = excluded.digest";

const FORGET: &str = "DELETE FROM vector_digest WHERE place = ?1";

/// Notes what was just written.
pub(super) fn keep(connection: &Connection, place: i64, bytes: &[u8]) -> Result<(), StoreError> {
    let mut keep = connection.prepare_cached(KEEP)?;
    keep.execute(params![place, Embedding::digest(bytes)])?;
    Ok(())
}

pub(super) fn forget(connection: &Connection, place: i64) -> Result<(), StoreError> {
    connection.prepare_cached(FORGET)?.execute([place])?;
    Ok(())
}

/// Columns of a vector's numbers: place, bytes, digest. With `only_one` that of the place `?1`.
pub(super) fn select(table: &str, only_one: bool) -> String {
    let of = if only_one { " WHERE v.rowid = ?1" } else { "" };
    format!(
        "SELECT v.rowid, v.embedding, d.digest FROM {table} AS v
         LEFT JOIN vector_digest AS d ON d.place = v.rowid{of}"
    )
}

/// Whether these are the bytes of which the digest was kept; of a vector of before there were digests nobody knows.
pub(crate) fn are_kept(bytes: &[u8], digest: Option<&[u8]>) -> bool {
    digest.is_none_or(|digest| digest == Embedding::digest(bytes).as_slice())
}

/// What is wrong with them, in words.
pub(super) fn read(bytes: &[u8], digest: Option<&[u8]>) -> Result<Embedding, String> {
    if !are_kept(bytes, digest) {
        return Err("its numbers are not those that were stored".to_owned());
    }
    Embedding::from_bytes(bytes).map_err(|error| error.to_string())
}

/// The numbers of the vector at this place.
pub(super) fn of(
    connection: &Connection,
    place: i64,
    model: ModelFingerprint,
) -> Result<Embedding, StoreError> {
    let corrupt = |why: String| StoreError::Corrupt(format!("vector {place}: {why}"));
    let known = models::known(connection, model)?;
    let known = known.ok_or_else(|| corrupt(format!("model {model} is missing")))?;
    // It was checked when it was read that the name is the model's own: what cannot be prepared is a table that is gone.
    let mut statement = match connection.prepare_cached(&select(&known.table(), true)) {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => {
            return Err(corrupt(error.to_string()));
        }
        statement => statement?,
    };
    let found = statement.query_row([place], |row| {
        Ok((row.get::<_, Vec<u8>>(1)?, row.get::<_, Option<Vec<u8>>>(2)?))
    });
    match found {
        Ok((bytes, digest)) => read(&bytes, digest.as_deref()).map_err(corrupt),
        Err(rusqlite::Error::QueryReturnedNoRows) => Err(corrupt("it is missing".to_owned())),
        // The table's own pages do not fit together; anything else is no row's fault.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => {
            Err(corrupt(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}
