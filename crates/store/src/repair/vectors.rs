//! The vectors of each model, one by one: a text without its vector is not kept, and the other way round
//! (LF-32).
//!
//! What a model is called is only its row's to say, and whatever that row says now, the fingerprint proves what it was. Where
//! nothing can be proven the vectors stay under the fingerprint, which their texts name.

use std::collections::BTreeSet;

use heddle_core::clock::WallMs;
use heddle_core::limits::VECTOR_DIM_MAX;
use heddle_core::vector::{Embedding, ModelFingerprint, ModelIdentity};
use rusqlite::{Connection, OptionalExtension};

use super::{Kept, RepairHints};
use crate::backup::has_table;
use crate::data::{
    SaidOfModel, are_kept, is_named, make_vector_table, name_vector_model, said_of_vector_models,
    vector_model_of,
};

const MODELS: &str = "
    SELECT CAST(id AS TEXT) FROM vector_models
    UNION SELECT CAST(model_id AS TEXT) FROM vector_metadata WHERE tombstone = 0";
const PLACES: &str = "SELECT place FROM vector_metadata WHERE model_id = ?1 AND tombstone = 0";
const DIGEST: &str = "SELECT digest FROM vector_digest WHERE place = ?1";
const FORGET: &str = "DELETE FROM vector_metadata WHERE place = ?1";

/// Nothing is in memory yet that followed the old count.
const COUNT_ANEW: &str = "
    UPDATE vector_metadata SET changed = 1 WHERE changed <> 1;
    DELETE FROM vector_head;
    INSERT INTO vector_head (mesh_id, model_id, changes, whole_from)
        SELECT DISTINCT mesh_id, model_id, 1, 1 FROM vector_metadata;";

/// Models of which nobody can say any more what they were called, by their fingerprints; their vectors are there.
pub(super) fn carry(
    (old, new): (&Connection, &Connection),
    kept: &mut Vec<Kept>,
    hints: &RepairHints,
    now: WallMs,
) -> rusqlite::Result<Vec<String>> {
    let (mut named, mut nameless) = (Vec::new(), Vec::new());
    if !has_table(new, "vector_models")? {
        return Ok(nameless);
    }
    // Of rows that the new tables did not take there is more in the old file.
    let mut said = said_of_vector_models(new);
    for one in said_of_vector_models(old) {
        if !said.contains(&one) {
            said.push(one);
        }
    }
    for print in models(new)? {
        let model = Model::of(old, print, (&said, hints))?;
        if !model.is_said(&said) && has_vectors(new, print)? {
            let id = print.to_string();
            match &model.identity {
                Some(identity) => named.push(format!("model {identity}")),
                None => nameless.push(id),
            }
        }
        kept.push(one(old, new, &model, now)?);
    }
    // What is left names no model.
    for (id, _) in &said {
        if id.parse::<ModelFingerprint>().is_err() {
            new.execute("DELETE FROM vector_models WHERE id = ?1", [id])?;
        }
    }
    new.execute_batch(COUNT_ANEW)?;
    if let Some(models) = kept.iter_mut().find(|kept| kept.table == "vector_models") {
        let count: i64 =
            new.query_row("SELECT count(*) FROM vector_models", [], |row| row.get(0))?;
        models.rows = u64::try_from(count).unwrap_or(0);
        // A row that the table refused was put together anew where it could be proven.
        models.refused = models.refused.min(nameless.len() as u64);
        models.mended.extend(named);
    }
    Ok(nameless)
}

/// All that have a row or vectors.
fn models(new: &Connection) -> rusqlite::Result<BTreeSet<ModelFingerprint>> {
    let mut statement = new.prepare(MODELS)?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
}

fn has_vectors(new: &Connection, print: ModelFingerprint) -> rusqlite::Result<bool> {
    new.prepare_cached(PLACES)?.exists([print.to_string()])
}

/// A model as far as it can be proven.
struct Model {
    print: ModelFingerprint,
    identity: Option<ModelIdentity>,
    /// How many numbers its vectors have.
    dim: Option<usize>,
}

impl Model {
    fn of(
        old: &Connection,
        print: ModelFingerprint,
        (said, hints): (&[(String, SaidOfModel)], &RepairHints),
    ) -> rusqlite::Result<Self> {
        let id = print.to_string();
        let dims: Vec<usize> = dim_of_table(old, print)?.into_iter().collect();
        let own = said.iter().find(|(of, _)| *of == id).map(|(_, said)| said);
        let others = said.iter().map(|(_, said)| said);
        let others: Vec<SaidOfModel> = others.chain(&hints.models).cloned().collect();
        let identity = vector_model_of(print, own, (&others, &dims));
        let proven = identity.as_ref().map(ModelIdentity::dim);
        Ok(Self {
            print,
            dim: proven.or(dims.first().copied()),
            identity,
        })
    }

    /// Whether its own row says the same; the name of its table is put right in silence.
    fn is_said(&self, said: &[(String, SaidOfModel)]) -> bool {
        let id = self.print.to_string();
        self.identity.as_ref().is_some_and(|identity| {
            let texts = [identity.provider(), identity.model(), identity.version()];
            let is_it = SaidOfModel {
                texts: texts.map(|text| text.as_bytes().to_vec()),
                dim: Some(identity.dim()),
            };
            said.contains(&(id, is_it))
        })
    }
}

/// As its table was made.
fn dim_of_table(old: &Connection, print: ModelFingerprint) -> rusqlite::Result<Option<usize>> {
    let sql = old
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = ?1 AND sql LIKE 'CREATE VIRTUAL TABLE%vec0%'",
            [print.table()],
            |row| row.get::<_, String>(0),
        )
        .optional();
    let sql = sql.ok().flatten();
    let dim = sql.as_deref().and_then(|sql| sql.split("float[").nth(1));
    let dim = dim.and_then(|rest| rest.split(']').next()?.trim().parse().ok());
    Ok(dim.filter(|dim| (1..=VECTOR_DIM_MAX).contains(dim)))
}

fn one(old: &Connection, new: &Connection, model: &Model, now: WallMs) -> rusqlite::Result<Kept> {
    let (id, table) = (model.print.to_string(), model.print.table());
    let mut kept = Kept {
        table: table.clone(),
        rows: 0,
        refused: 0,
        gaps: 0,
        mended: Vec::new(),
    };
    match &model.identity {
        Some(identity) => name_vector_model(new, identity, now)?,
        // Whoever stores or searches with it says what it is called.
        None => {
            new.execute("DELETE FROM vector_models WHERE id = ?1", [&id])?;
        }
    }
    let is_made = match model.dim {
        Some(dim) => {
            make_vector_table(new, model.print, dim)?;
            true
        }
        None => false,
    };
    let places: Vec<i64> = {
        let mut statement = new.prepare(PLACES)?;
        let places = statement.query_map([&id], |row| row.get(0))?;
        places.collect::<rusqlite::Result<_>>()?
    };
    for place in places {
        if is_made && copy(old, new, (&table, model.dim.unwrap_or(0)), place) {
            kept.rows += 1;
        } else {
            kept.refused += 1;
            new.execute(FORGET, [place])?;
        }
    }
    Ok(kept)
}

fn copy(old: &Connection, new: &Connection, (table, dim): (&str, usize), place: i64) -> bool {
    let digest = new.prepare_cached(DIGEST).and_then(|mut read| {
        read.query_row([place], |row| row.get::<_, Vec<u8>>(0))
            .optional()
    });
    // A file of before there were digests has no table of them.
    let digest = digest.ok().flatten();
    let cell = numbers_in(old, table, place)
        .or_else(|| numbers_beneath(old, (table, dim), place).filter(|_| digest.is_some()));
    let Some(cell) = cell else { return false };
    // The table takes any bits; numbers that are none would stop whoever searches it, and others than were stored
    // would lead them astray.
    if Embedding::from_bytes(&cell).is_err() || !are_kept(&cell, digest.as_deref()) {
        return false;
    }
    // Under another key than it was stored under it would be somebody else's.
    if !is_named(new, place).unwrap_or(true) {
        return false;
    }
    let write = format!("INSERT INTO {table:?} (rowid, embedding) VALUES (?1, ?2)");
    let written = new
        .prepare_cached(&write)
        .and_then(|mut write| write.execute((place, cell)));
    written.is_ok()
}

fn numbers_in(old: &Connection, table: &str, place: i64) -> Option<Vec<u8>> {
    let read = format!("SELECT embedding FROM {table:?} WHERE rowid = ?1");
    let mut read = old.prepare_cached(&read).ok()?;
    read.query_row([place], |row| row.get(0)).ok()
}

/// From the tables that the table of the model is made of, should it be gone. Only the digest tells whether these are they.
fn numbers_beneath(old: &Connection, (table, dim): (&str, usize), place: i64) -> Option<Vec<u8>> {
    let read = format!(
        "SELECT CAST(substr(numbers.vectors, at.chunk_offset * ?2 + 1, ?2) AS BLOB)
         FROM {:?} AS at JOIN {:?} AS numbers ON numbers.rowid = at.chunk_id WHERE at.rowid = ?1",
        format!("{table}_rowids"),
        format!("{table}_vector_chunks00"),
    );
    let bytes = i64::try_from(dim.checked_mul(size_of::<f32>())?).ok()?;
    let mut read = old.prepare_cached(&read).ok()?;
    read.query_row([place, bytes], |row| row.get(0)).ok()
}
