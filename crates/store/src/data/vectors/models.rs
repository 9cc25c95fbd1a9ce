//! The models that have vectors here, and the table of each (LF-31).
//!
//! A table's name stands in SQL as text, so it is never taken from a row: it is derived from the model's
//! identity, and a row that says otherwise is an error before any SQL is made of it.

use heddle_core::clock::WallMs;
use heddle_core::limits::VECTOR_GRACE;
use heddle_core::vector::{ModelFingerprint, ModelIdentity, QUANTIZATION};
use rusqlite::{Connection, params};

use crate::backup::has_table;
use crate::cells::{Cells, count_cell};
use crate::error::StoreError;
use crate::store::Store;

/// Vectors that one chunk of a table holds: a fresh table takes the space of one chunk at once.
const CHUNK_ROWS: usize = 64;

/// A model whose row was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRow {
    pub identity: ModelIdentity,
    /// Since when its vectors are being moved to another model.
    pub left_at: Option<WallMs>,
    pub read_at: Option<WallMs>,
}

impl ModelRow {
    pub(super) fn table(&self) -> String {
        self.identity.fingerprint().table()
    }
}

pub(crate) const MODEL: &str = "
    SELECT id, provider, model, model_version, dim, quantization, vec_table, left_at, read_at
    FROM vector_models WHERE id = ?1";

pub(crate) const MODELS: &str = "SELECT id FROM vector_models ORDER BY id";

pub(crate) const REGISTER: &str = "
    INSERT INTO vector_models (id, provider, model, model_version, dim, quantization, vec_table,
        created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (id) DO NOTHING";

pub(crate) const LEAVE: &str =
    "UPDATE vector_models SET left_at = ?2 WHERE id = ?1 AND left_at IS NULL";

pub(crate) const COME_BACK: &str =
    "UPDATE vector_models SET left_at = NULL WHERE id = ?1 AND left_at IS NOT NULL";

pub(crate) const NOTE_READ: &str = "UPDATE vector_models SET read_at = ?2 WHERE id = ?1";

pub(crate) const HAS_LIVE: &str =
    "SELECT 1 FROM vector_metadata WHERE model_id = ?1 AND tombstone = 0 LIMIT 1";

impl Store {
    /// The models that have or had vectors here.
    pub async fn vector_models(&self) -> Result<Vec<ModelRow>, StoreError> {
        self.read(all).await
    }

    /// Somebody searched a model that is being left: its grace begins anew.
    pub async fn note_vector_read(
        &self,
        model: ModelFingerprint,
        now: WallMs,
    ) -> Result<(), StoreError> {
        self.write_relaxed(move |connection| {
            let mut note = connection.prepare_cached(NOTE_READ)?;
            note.execute(params![model.to_string(), now.0])?;
            Ok(())
        })
        .await
    }

    /// Takes away the tables of models that were left, hold nothing any more, and were not asked for
    /// during the grace period. How many.
    pub async fn drop_left_vector_tables(&self, now: WallMs) -> Result<usize, StoreError> {
        self.write(move |connection| {
            let mut dropped = 0;
            for model in all(connection)? {
                if is_over(&model, now) && !has_live(connection, &model)? {
                    connection.execute_batch(&format!("DROP TABLE IF EXISTS {}", model.table()))?;
                    let id = model.identity.fingerprint().to_string();
                    connection.execute("DELETE FROM vector_models WHERE id = ?1", [id])?;
                    dropped += 1;
                }
            }
            Ok(dropped)
        })
        .await
    }
}

fn is_over(model: &ModelRow, now: WallMs) -> bool {
    let Some(left_at) = model.left_at else {
        return false;
    };
    let since = model
        .read_at
        .map_or(left_at.0, |read| read.0.max(left_at.0));
    let grace = i64::try_from(VECTOR_GRACE.as_millis()).unwrap_or(i64::MAX);
    now.0.saturating_sub(since) >= grace
}

fn has_live(connection: &Connection, model: &ModelRow) -> Result<bool, StoreError> {
    let id = model.identity.fingerprint().to_string();
    Ok(connection.prepare_cached(HAS_LIVE)?.exists([id])?)
}

fn all(connection: &Connection) -> Result<Vec<ModelRow>, StoreError> {
    let mut statement = connection.prepare_cached(MODELS)?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut models = Vec::new();
    for id in ids {
        models.extend(by_id(connection, &id?)?);
    }
    Ok(models)
}

/// What is wrong with the rows of models, in words.
pub(crate) fn problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(MODELS)?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut found = Vec::new();
    for id in ids {
        match by_id(connection, &id?) {
            Ok(Some(model)) if !has_table(connection, &model.table())? => found.push(format!(
                "vector_models: {}, the table of a model, is missing",
                model.table()
            )),
            Ok(_) => {}
            Err(StoreError::Corrupt(why)) => found.push(why),
            Err(StoreError::Sqlite(error)) => return Err(error),
            Err(other) => found.push(other.to_string()),
        }
    }
    Ok(found)
}

// By the index alone.
const COUNTS: &str = "
    SELECT model_id FROM (
        SELECT mesh_id, model_id, min(changed) AS oldest, max(changed) AS newest
        FROM vector_metadata INDEXED BY vector_by_change GROUP BY mesh_id, model_id)
    LEFT JOIN vector_head USING (mesh_id, model_id)
    WHERE oldest < 1 OR changes IS NULL OR newest > changes";

/// Where the changes of vectors are not counted as their rows say: they are found all the same, and the next write of each counts
/// on above them.
pub(crate) fn count_problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(COUNTS)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let model = row.get_ref(0)?.as_bytes().unwrap_or_default();
        found.push(format!(
            "vector_head: the changes of vectors of model {} are not counted as its rows say",
            String::from_utf8_lossy(model)
        ));
    }
    Ok(found)
}

/// Gives a model the name of its own table back; false where the row says of no model which it is.
pub(crate) fn rename(connection: &Connection, id: &str) -> rusqlite::Result<bool> {
    let sql =
        "SELECT provider, model, model_version, dim, quantization FROM vector_models WHERE id = ?1";
    let identity = connection.query_row(sql, [id], |row| {
        let (provider, model): (String, String) = (row.get(0)?, row.get(1)?);
        let (version, dim): (String, i64) = (row.get(2)?, row.get(3)?);
        let quantization: String = row.get(4)?;
        let dim = usize::try_from(dim).unwrap_or(0);
        Ok(ModelIdentity::new(&provider, &model, &version, dim, &quantization).ok())
    })?;
    let Some(derived) = identity.map(|identity| identity.fingerprint()) else {
        return Ok(false);
    };
    if derived.to_string() != id {
        return Ok(false);
    }
    let set = "UPDATE vector_models SET vec_table = ?2 WHERE id = ?1";
    connection.execute(set, [id, &derived.table()])?;
    Ok(true)
}

/// The model, if it has vectors here. A row that does not agree with itself is an error.
pub(super) fn known(
    connection: &Connection,
    model: ModelFingerprint,
) -> Result<Option<ModelRow>, StoreError> {
    by_id(connection, &model.to_string())
}

pub(super) fn by_id(connection: &Connection, id: &str) -> Result<Option<ModelRow>, StoreError> {
    let mut statement = connection.prepare_cached(MODEL)?;
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut cells = Cells::of("vector_models", row);
    let id: String = cells.get()?;
    let (provider, model, version): (String, String, String) =
        (cells.get()?, cells.get()?, cells.get()?);
    let dim = usize::try_from(cells.count()?).map_err(|error| cells.bad(error))?;
    let quantization: String = cells.get()?;
    let identity = ModelIdentity::new(&provider, &model, &version, dim, &quantization);
    let identity = identity.map_err(|error| cells.bad(error))?;
    let table: String = cells.get()?;
    let derived = identity.fingerprint();
    if id != derived.to_string() || table != derived.table() {
        // Without the forged name: it may be long, and it is nobody's business.
        return Err(cells.bad(format!(
            "it is not the table of its model, which is {}; nothing was read from it",
            derived.table()
        )));
    }
    Ok(Some(ModelRow {
        identity,
        left_at: cells.wall_or_null()?,
        read_at: cells.wall_or_null()?,
    }))
}

/// The model with its table, made now if this is its first vector.
pub(super) fn ensure(
    connection: &Connection,
    identity: &ModelIdentity,
    now: WallMs,
) -> Result<ModelRow, StoreError> {
    let id = identity.fingerprint();
    let made = connection.prepare_cached(REGISTER)?.execute(params![
        id.to_string(),
        identity.provider(),
        identity.model(),
        identity.version(),
        count_cell(identity.dim() as u64)?,
        QUANTIZATION,
        id.table(),
        now.0,
    ])?;
    let Some(model) = known(connection, id)? else {
        return Err(StoreError::Corrupt(format!("model {id} cannot be kept")));
    };
    if model.identity != *identity {
        let why = format!("two models have the fingerprint {id}");
        return Err(StoreError::Corrupt(why));
    }
    if made == 1 {
        let made = connection.execute_batch(&format!(
            "CREATE VIRTUAL TABLE IF NOT EXISTS {} USING vec0 (
                embedding float[{}] distance_metric=cosine, chunk_size={CHUNK_ROWS})",
            model.table(),
            identity.dim()
        ));
        made.map_err(|error| {
            // The extension hands SQLite's code on as words.
            if error.to_string().contains("database or disk is full") {
                StoreError::DiskFull
            } else {
                error.into()
            }
        })?;
    }
    Ok(model)
}

/// Its vectors are being moved to another model.
pub(super) fn leave(
    connection: &Connection,
    model: ModelFingerprint,
    now: WallMs,
) -> Result<(), StoreError> {
    let mut leave = connection.prepare_cached(LEAVE)?;
    leave.execute(params![model.to_string(), now.0])?;
    Ok(())
}

/// Something new is kept under it: it is not left any more.
pub(super) fn come_back(
    connection: &Connection,
    model: ModelFingerprint,
) -> Result<(), StoreError> {
    let mut come_back = connection.prepare_cached(COME_BACK)?;
    come_back.execute([model.to_string()])?;
    Ok(())
}
