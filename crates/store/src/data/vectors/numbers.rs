//! The numbers of one vector as its model's table holds them, compared with what they were when they were stored; and
//! whether it is still called as it was.
//!
//! A table takes any bits, and nearly all bits are finite numbers: without the digest a changed vector would be found in
//! the wrong place, and sent to others as what its author wrote. So would one under a changed key, or another owner's.

use heddle_core::vector::{Embedding, ModelFingerprint};
use rusqlite::{Connection, params};

use super::models;
use crate::error::StoreError;

const KEEP: &str = "
    INSERT INTO vector_digest (place, digest, named) VALUES (?1, ?2, ?3)
    ON CONFLICT (place) DO UPDATE SET digest = excluded.digest, named = excluded.named";

const NAMED: &str = "
    SELECT m.mesh_id, m.model_id, m.key, m.peer, d.named
    FROM vector_metadata AS m JOIN vector_digest AS d ON d.place = m.place WHERE m.place = ?1";

const FORGET: &str = "DELETE FROM vector_digest WHERE place = ?1";

/// What a vector is called, as its row has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) mesh: [u8; 16],
    pub(super) model: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) peer: &'a [u8],
}

impl Name<'_> {
    /// None can pass for another one: each part is told with its length.
    fn digest(&self) -> [u8; 16] {
        let mut all = Vec::new();
        for part in [&self.mesh[..], self.model, self.key, self.peer] {
            all.extend((part.len() as u64).to_be_bytes());
            all.extend(part);
        }
        Embedding::digest(&all)
    }

    /// Whether it is the one that was kept; of a vector of before that was, nobody knows.
    pub(super) fn is_kept(&self, named: Option<&[u8]>) -> bool {
        named.is_none_or(|named| named == self.digest())
    }
}

/// Notes what was just written.
pub(super) fn keep(
    connection: &Connection,
    place: i64,
    (name, bytes): (Name<'_>, &[u8]),
) -> Result<(), StoreError> {
    let mut keep = connection.prepare_cached(KEEP)?;
    keep.execute(params![place, Embedding::digest(bytes), name.digest()])?;
    Ok(())
}

/// Whether the vector at this place is called as it was when it was stored.
pub(crate) fn is_named(connection: &Connection, place: i64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(NAMED)?;
    let mut rows = statement.query([place])?;
    let Some(row) = rows.next()? else {
        return Ok(true);
    };
    let text =
        |at: usize| Ok::<_, rusqlite::Error>(row.get_ref(at)?.as_bytes().unwrap_or_default());
    let name = Name {
        mesh: row.get(0)?,
        model: text(1)?,
        key: text(2)?,
        peer: text(3)?,
    };
    Ok(name.is_kept(row.get_ref(4)?.as_blob_or_null()?))
}

pub(super) fn forget(connection: &Connection, place: i64) -> Result<(), StoreError> {
    connection.prepare_cached(FORGET)?.execute([place])?;
    Ok(())
}

/// Columns of a vector's numbers: place, bytes, digest, and the digest of its name. With `only_one` that of the place `?1`.
pub(super) fn select(table: &str, only_one: bool) -> String {
    let of = if only_one { " WHERE v.rowid = ?1" } else { "" };
    format!(
        "SELECT v.rowid, v.embedding, d.digest, d.named FROM {table} AS v
         LEFT JOIN vector_digest AS d ON d.place = v.rowid{of}"
    )
}

/// Whether these are the bytes of which the digest was kept; of a vector of before there were digests nobody knows.
pub(crate) fn are_kept(bytes: &[u8], digest: Option<&[u8]>) -> bool {
    digest.is_none_or(|digest| digest == Embedding::digest(bytes).as_slice())
}

/// Whether a table of vectors fails at one of its rows: what says where its numbers lie does not fit. Anything else is no
/// row's fault.
pub(super) fn is_of_one(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown)
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
    // Where its row is lost, the fingerprint says which table it is.
    models::known(connection, model)?;
    // What cannot be prepared is a table that is gone.
    let mut statement = match connection.prepare_cached(&select(&model.table(), true)) {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => {
            return Err(corrupt(error.to_string()));
        }
        statement => statement?,
    };
    let found = statement.query_row([place], |row| {
        Ok((row.get::<_, Vec<u8>>(1)?, row.get::<_, Option<Vec<u8>>>(2)?))
    });
    match found {
        Ok(_) if !is_named(connection, place)? => Err(corrupt(
            "its key or its owner is not the one that it was stored under".to_owned(),
        )),
        Ok((bytes, digest)) => read(&bytes, digest.as_deref()).map_err(corrupt),
        Err(rusqlite::Error::QueryReturnedNoRows) => Err(corrupt("it is missing".to_owned())),
        Err(error) if is_of_one(&error) => Err(corrupt(error.to_string())),
        Err(error) => Err(error.into()),
    }
}
