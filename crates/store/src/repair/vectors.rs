//! The vectors of each model, one by one: a text without its vector is not kept, and the other way round
//! (LF-32).

use heddle_core::vector::Embedding;
use rusqlite::{Connection, OptionalExtension};

use super::Kept;
use crate::backup::has_table;
use crate::data::{are_kept, is_named, rename_vector_table};

const PLACES: &str = "SELECT place FROM vector_metadata WHERE model_id = ?1 AND tombstone = 0";
const DIGEST: &str = "SELECT digest FROM vector_digest WHERE place = ?1";
const FORGET: &str = "DELETE FROM vector_metadata WHERE place = ?1";

/// Nothing is in memory yet that followed the old count.
const COUNT_ANEW: &str = "
    UPDATE vector_metadata SET changed = 1 WHERE changed <> 1;
    DELETE FROM vector_head;
    INSERT INTO vector_head (mesh_id, model_id, changes, whole_from)
        SELECT DISTINCT mesh_id, model_id, 1, 1 FROM vector_metadata;";

pub(super) fn carry(old: &Connection, new: &Connection) -> rusqlite::Result<Vec<Kept>> {
    if !has_table(new, "vector_models")? {
        return Ok(Vec::new());
    }
    let models: Vec<String> = {
        let mut statement = new.prepare("SELECT id FROM vector_models ORDER BY id")?;
        let ids = statement.query_map([], |row| row.get(0))?;
        ids.collect::<rusqlite::Result<_>>()?
    };
    let mut kept = Vec::new();
    for model in models {
        kept.push(one(old, new, &model)?);
    }
    new.execute_batch(COUNT_ANEW)?;
    Ok(kept)
}

fn one(old: &Connection, new: &Connection, model: &str) -> rusqlite::Result<Kept> {
    let table = format!("vectors_{model}");
    let mut kept = Kept {
        table: table.clone(),
        rows: 0,
        refused: 0,
        gaps: 0,
        mended: Vec::new(),
    };
    let sql = old
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = ?1 AND sql LIKE 'CREATE VIRTUAL TABLE%vec0%'",
            [&table],
            |row| row.get::<_, String>(0),
        )
        .optional();
    // A row that names no model has vectors that nobody can search.
    let is_model = rename_vector_table(new, model)?;
    let is_made = match sql {
        // Only the name that belongs to the model is read, and only one statement of that kind is run.
        Ok(Some(sql)) if is_model => new
            .prepare(&sql)
            .and_then(|mut make| make.execute([]))
            .is_ok(),
        _ => false,
    };
    let places: Vec<i64> = {
        let mut statement = new.prepare(PLACES)?;
        let places = statement.query_map([model], |row| row.get(0))?;
        places.collect::<rusqlite::Result<_>>()?
    };
    for place in places {
        if is_made && copy(old, new, &table, place) {
            kept.rows += 1;
        } else {
            kept.refused += 1;
            new.execute(FORGET, [place])?;
        }
    }
    if !is_made {
        new.execute("DELETE FROM vector_metadata WHERE model_id = ?1", [model])?;
        new.execute("DELETE FROM vector_models WHERE id = ?1", [model])?;
    }
    Ok(kept)
}

fn copy(old: &Connection, new: &Connection, table: &str, place: i64) -> bool {
    let read = format!("SELECT embedding FROM {table:?} WHERE rowid = ?1");
    let write = format!("INSERT INTO {table:?} (rowid, embedding) VALUES (?1, ?2)");
    let cell = old
        .prepare_cached(&read)
        .and_then(|mut read| read.query_row([place], |row| row.get::<_, Vec<u8>>(0)));
    let Ok(cell) = cell else { return false };
    let digest = new.prepare_cached(DIGEST).and_then(|mut read| {
        read.query_row([place], |row| row.get::<_, Vec<u8>>(0))
            .optional()
    });
    // The table takes any bits; numbers that are none would stop whoever searches it, and others than were stored
    // would lead them astray. A file of before there were digests has no table of them.
    if Embedding::from_bytes(&cell).is_err() || !are_kept(&cell, digest.ok().flatten().as_deref()) {
        return false;
    }
    // Under another key than it was stored under it would be somebody else's.
    if !is_named(new, place).unwrap_or(true) {
        return false;
    }
    let written = new
        .prepare_cached(&write)
        .and_then(|mut write| write.execute((place, cell)));
    written.is_ok()
}
