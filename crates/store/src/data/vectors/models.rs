//! The models that have vectors here, and the table of each (LF-31).
//!
//! A table's name stands in SQL as text, so it is never taken from a row: it is derived from the model's
//! identity, and a row that says otherwise is an error before any SQL is made of it.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::limits::VECTOR_GRACE;
use heddle_core::vector::{ModelFingerprint, ModelIdentity, QUANTIZATION};
use rusqlite::{Connection, params};

use super::proof::Said;
use crate::cells::{Cells, count_cell};
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::LeftOut;

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

/// What else the row holds stays.
const NAME: &str = "
    INSERT INTO vector_models (id, provider, model, model_version, dim, quantization, vec_table,
        created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (id) DO UPDATE SET provider = excluded.provider, model = excluded.model,
        model_version = excluded.model_version, dim = excluded.dim,
        quantization = excluded.quantization, vec_table = excluded.vec_table";

pub(crate) const LEAVE: &str =
    "UPDATE vector_models SET left_at = ?2 WHERE id = ?1 AND left_at IS NULL";

pub(crate) const COME_BACK: &str =
    "UPDATE vector_models SET left_at = NULL WHERE id = ?1 AND left_at IS NOT NULL";

pub(crate) const NOTE_READ: &str = "UPDATE vector_models SET read_at = ?2 WHERE id = ?1";

pub(crate) const HAS_LIVE: &str =
    "SELECT 1 FROM vector_metadata WHERE model_id = ?1 AND tombstone = 0 LIMIT 1";

pub(crate) const HAS_LIVE_HERE: &str = "
    SELECT 1 FROM vector_metadata INDEXED BY vector_by_change
    WHERE mesh_id = ?1 AND model_id = ?2 AND tombstone = 0 LIMIT 1";

const HAS_TABLE: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";

impl Store {
    /// The models that have or had vectors here. A lenient store names a row that does not agree with itself, and goes on.
    pub async fn vector_models(&self) -> Result<Vec<ModelRow>, StoreError> {
        let left_out = self.left_out.clone();
        self.read(move |connection| {
            let mut models = Vec::new();
            each(connection, |id, model| match (model, &left_out) {
                (Err(StoreError::Corrupt(_)), Some(left_out)) => {
                    note(left_out, id);
                    Ok(())
                }
                (model, _) => {
                    models.extend(model?);
                    Ok(())
                }
            })?;
            Ok(models)
        })
        .await
    }

    /// Whether there are vectors of this model in the mesh, whatever is known of the model.
    pub async fn has_vectors_of(
        &self,
        mesh: MeshId,
        model: ModelFingerprint,
    ) -> Result<bool, StoreError> {
        self.read_few(move |connection| has_live_here(connection, mesh, model))
            .await
    }

    /// Puts the row of a model back that was lost while its vectors stayed.
    pub async fn know_vector_model(
        &self,
        model: ModelIdentity,
        now: WallMs,
    ) -> Result<(), StoreError> {
        self.write(move |connection| {
            if known(connection, model.fingerprint())?.is_none() {
                register(connection, &model, now)?;
            }
            Ok(())
        })
        .await
    }

    /// Models that have vectors here and whose row is gone, in words; none where all is well.
    pub async fn nameless_models(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| Ok(nameless(connection)?)).await
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
            let mut models = Vec::new();
            each(connection, |id, model| {
                match model {
                    // Its table stays, as it is.
                    Err(StoreError::Corrupt(why)) => {
                        tracing::warn!(id, why, "the row of a model cannot be right");
                    }
                    model => models.extend(model?),
                }
                Ok(())
            })?;
            let mut dropped = 0;
            for model in models {
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

/// The row of every model, or what is wrong with it, in order of their ids.
fn each(
    connection: &Connection,
    mut take: impl FnMut(&str, Result<Option<ModelRow>, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(MODELS)?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    for id in ids {
        let id = id?;
        take(&id, by_id(connection, &id))?;
    }
    Ok(())
}

/// A forged id may be anything: nobody needs to read it.
fn note(left_out: &LeftOut, id: &str) {
    let name = id
        .parse::<ModelFingerprint>()
        .map_or_else(|_| "?".to_owned(), |print| print.to_string());
    left_out.note("vector_models", name.as_bytes());
}

/// What is wrong with the rows of models, in words.
pub(crate) fn problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(MODELS)?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut found = Vec::new();
    for id in ids {
        let looked = by_id(connection, &id?).and_then(|model| match model {
            Some(model) => there(connection, &model),
            None => Ok(()),
        });
        match looked {
            Ok(()) => {}
            Err(StoreError::Corrupt(why)) => found.push(why),
            Err(StoreError::Sqlite(error)) => return Err(error),
            Err(other) => found.push(other.to_string()),
        }
    }
    Ok(found)
}

/// An error where the table of a model is gone.
pub(super) fn there(connection: &Connection, model: &ModelRow) -> Result<(), StoreError> {
    let table = model.table();
    if has_table(connection, &table)? {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "vector_models: {table}, the table of a model, is missing, and the numbers of its vectors with it"
    )))
}

pub(super) fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached(HAS_TABLE)?.exists([name])
}

pub(super) fn has_live_here(
    connection: &Connection,
    mesh: MeshId,
    model: ModelFingerprint,
) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(HAS_LIVE_HERE)?;
    Ok(statement.exists(params![mesh.0.to_bytes(), model.to_string()])?)
}

// By the index, but for models without a row.
const NAMELESS: &str = "
    SELECT model_id FROM (SELECT DISTINCT model_id FROM vector_metadata INDEXED BY vector_by_change) AS of
    WHERE NOT EXISTS (SELECT 1 FROM vector_models WHERE vector_models.id = of.model_id)
        AND EXISTS (SELECT 1 FROM vector_metadata AS live
            WHERE live.model_id = of.model_id AND live.tombstone = 0)";

/// Models that have vectors here and whose row is gone, in words.
pub(crate) fn nameless(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(NAMELESS)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let id = row.get_ref(0)?.as_bytes().unwrap_or_default();
        // A changed cell of one vector is told of with that vector.
        let print = std::str::from_utf8(id).ok();
        let print = print.and_then(|id| id.parse::<ModelFingerprint>().ok());
        if let Some(print) = print
            && has_table(connection, &print.table())?
        {
            found.push(format!(
                "vector_models: the row of model {print}, which has vectors here, is gone, and with it what the model is called"
            ));
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

/// What the rows of models say, as far as anything of them can be read; each with its id.
pub(crate) fn said(connection: &Connection) -> Vec<(String, Said)> {
    let mut found = Vec::new();
    let sql = "SELECT id, provider, model, model_version, dim FROM vector_models";
    let Ok(mut statement) = connection.prepare(sql) else {
        return found;
    };
    let Ok(mut rows) = statement.query([]) else {
        return found;
    };
    // A damaged file may end them anywhere.
    while let Ok(Some(row)) = rows.next() {
        let bytes = |at: usize| {
            let cell = row.get_ref(at).ok();
            let bytes = cell.and_then(|cell| cell.as_bytes().ok());
            bytes.unwrap_or_default().to_vec()
        };
        let id = String::from_utf8_lossy(&bytes(0)).into_owned();
        let dim = row.get::<_, i64>(4).ok();
        let dim = dim.and_then(|dim| usize::try_from(dim).ok());
        let texts = [bytes(1), bytes(2), bytes(3)];
        found.push((id, Said { texts, dim }));
    }
    found
}

/// Says of a model which one it is, in whatever row it has. For a file that is being put together anew.
pub(crate) fn name(
    connection: &Connection,
    model: &ModelIdentity,
    now: WallMs,
) -> rusqlite::Result<()> {
    let id = model.fingerprint();
    let dim = i64::try_from(model.dim()).unwrap_or(i64::MAX);
    connection.execute(
        NAME,
        params![
            id.to_string(),
            model.provider(),
            model.model(),
            model.version(),
            dim,
            QUANTIZATION,
            id.table(),
            now.0
        ],
    )?;
    Ok(())
}

/// The table of a model.
pub(crate) fn make_table(
    connection: &Connection,
    model: ModelFingerprint,
    dim: usize,
) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "CREATE VIRTUAL TABLE IF NOT EXISTS {} USING vec0 (
            embedding float[{dim}] distance_metric=cosine, chunk_size={CHUNK_ROWS})",
        model.table(),
    ))
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
    let is_new = register(connection, identity, now)?;
    let Some(model) = known(connection, id)? else {
        return Err(StoreError::Corrupt(format!("model {id} cannot be kept")));
    };
    if model.identity != *identity {
        let why = format!("two models have the fingerprint {id}");
        return Err(StoreError::Corrupt(why));
    }
    if !is_new {
        there(connection, &model)?;
        return Ok(model);
    }
    make_table(connection, id, identity.dim()).map_err(|error| {
        // The extension hands SQLite's code on as words.
        if error.to_string().contains("database or disk is full") {
            StoreError::DiskFull
        } else {
            error.into()
        }
    })?;
    Ok(model)
}

/// False where the model has a row.
fn register(
    connection: &Connection,
    identity: &ModelIdentity,
    now: WallMs,
) -> Result<bool, StoreError> {
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
    Ok(made == 1)
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
