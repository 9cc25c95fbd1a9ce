//! The nearest vectors of one mesh and one model.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::lamport::Stamp;
use heddle_core::limits::VECTOR_MEMORY_BYTES_MAX;
use heddle_core::vector::{
    Embedding, Hit, Label, Matrix, ModelFingerprint, ModelIdentity, Scan, Top,
};
use rusqlite::{Connection, Row, params};

use super::cache::{Held, VectorCache};
use super::models::{self, ModelRow};
use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

/// Snapshots that may be older than what a neighbour already read, before the memory is left aside.
const TRIES_MAX: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorRow {
    pub key: String,
    pub content: String,
    /// Canonical JSON.
    pub metadata: String,
    pub model: ModelFingerprint,
    pub stamp: Stamp,
    pub incarnation: u64,
    pub updated_at: WallMs,
}

#[derive(Debug, Clone, PartialEq)]
pub struct VectorHit {
    pub distance: f32,
    pub row: VectorRow,
}

#[derive(Debug, Clone, PartialEq)]
pub struct VectorQuery {
    pub mesh: MeshId,
    pub model: ModelIdentity,
    pub embedding: Embedding,
    pub scan: Scan,
    pub limit: usize,
}

macro_rules! vector_columns {
    () => {
        "key, content, metadata, model_id, lamport, peer, op_id, incarnation, updated_at"
    };
}
pub(super) use vector_columns;

pub(crate) const HEAD: &str =
    "SELECT changes, whole_from FROM vector_head WHERE mesh_id = ?1 AND model_id = ?2";

pub(crate) const LABELS: &str = "
    SELECT place, key, peer, tombstone FROM vector_metadata
    WHERE mesh_id = ?1 AND model_id = ?2 AND changed > ?3";

pub(crate) const BY_PLACE: &str = concat!(
    "SELECT ",
    vector_columns!(),
    " FROM vector_metadata WHERE place = ?1 AND tombstone = 0"
);

impl Store {
    /// The nearest first; equally near ones by key, then by peer. A model without vectors here finds
    /// nothing.
    pub async fn search_vectors(&self, query: VectorQuery) -> Result<Vec<VectorHit>, StoreError> {
        let query = Arc::new(query);
        for _ in 0..TRIES_MAX {
            let (cache, asked) = (self.vector_cache.clone(), Arc::clone(&query));
            let job = move |connection: &Connection| remembered(connection, &cache, &asked);
            if let Some(hits) = self.read(job).await? {
                return Ok(hits);
            }
        }
        self.read(move |connection| unremembered(connection, &query))
            .await
    }
}

/// Through the memory; `None` if it is ahead of this snapshot.
fn remembered(
    connection: &Connection,
    cache: &VectorCache,
    query: &VectorQuery,
) -> Result<Option<Vec<VectorHit>>, StoreError> {
    let key = (query.mesh, query.model.fingerprint());
    let Some(asked) = Asked::look(connection, query)? else {
        cache.forget(key);
        return Ok(Some(Vec::new()));
    };
    let held = cache.held(key, query.model.dim());
    let mut guard = held.write().unwrap_or_else(PoisonError::into_inner);
    if guard.through.is_some_and(|through| through > asked.changes) {
        return Ok(None);
    }
    match asked.catch_up(connection, &mut guard)? {
        Caught::Up => {}
        Caught::Changed => cache.account(key, guard.matrix.bytes(), VECTOR_MEMORY_BYTES_MAX),
        Caught::TooMuch => {
            drop(guard);
            cache.forget(key);
            return asked.stream(connection).map(Some);
        }
    }
    // Others may search at the same time, but nobody may move on before the rows are read.
    let guard = RwLockWriteGuard::downgrade(guard);
    let mut top = Top::new(query.limit);
    guard.matrix.search(&query.embedding, query.scan, &mut top);
    with_rows(connection, top).map(Some)
}

/// Past the memory: every vector is read from the table.
fn unremembered(
    connection: &Connection,
    query: &VectorQuery,
) -> Result<Vec<VectorHit>, StoreError> {
    match Asked::look(connection, query)? {
        Some(asked) => asked.stream(connection),
        None => Ok(Vec::new()),
    }
}

/// What was to be read before a search.
enum Caught {
    /// Nothing.
    Up,
    Changed,
    /// More than memory is there for.
    TooMuch,
}

/// A query in one snapshot.
struct Asked<'q> {
    query: &'q VectorQuery,
    model: ModelRow,
    changes: u64,
    whole_from: u64,
}

impl<'q> Asked<'q> {
    fn look(connection: &Connection, query: &'q VectorQuery) -> Result<Option<Self>, StoreError> {
        let id = query.model.fingerprint();
        let Some(model) = models::known(connection, id)? else {
            return Ok(None);
        };
        let mut statement = connection.prepare_cached(HEAD)?;
        let mut rows = statement.query(params![query.mesh.0.to_bytes(), id.to_string()])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let mut cells = Cells::of("vector_head", row);
        Ok(Some(Self {
            query,
            model,
            changes: cells.count()?,
            whole_from: cells.count()?,
        }))
    }

    /// Reads what came since the last time.
    fn catch_up(&self, connection: &Connection, held: &mut Held) -> Result<Caught, StoreError> {
        let through = held.through.filter(|through| *through >= self.whole_from);
        if through == Some(self.changes) {
            return Ok(Caught::Up);
        }
        // Until it is whole again, it is nothing: an error on the way must not leave half of it.
        held.through = None;
        if let Some(through) = through {
            self.read_since(connection, through, &mut held.matrix)?;
        } else {
            let labels = self.labels(connection)?;
            if self.is_too_much(labels.len()) {
                return Ok(Caught::TooMuch);
            }
            held.matrix.clear();
            self.read_all(connection, labels, |label, embedding| {
                held.matrix.put(label, embedding);
            })?;
        }
        if self.is_too_much(held.matrix.len()) {
            return Ok(Caught::TooMuch);
        }
        held.through = Some(self.changes);
        Ok(Caught::Changed)
    }

    fn is_too_much(&self, rows: usize) -> bool {
        let bytes = rows.saturating_mul(self.query.model.dim() * size_of::<f32>());
        bytes > VECTOR_MEMORY_BYTES_MAX / 2
    }

    fn read_since(
        &self,
        connection: &Connection,
        through: u64,
        matrix: &mut Matrix,
    ) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT embedding FROM {} WHERE rowid = ?1",
            self.model.table()
        );
        let mut numbers = connection.prepare_cached(&sql)?;
        for (label, is_live) in self.changed(connection, through)? {
            if !is_live {
                matrix.remove(label.place);
                continue;
            }
            let bytes: Vec<u8> = numbers.query_row([label.place], |row| row.get(0))?;
            let embedding = self.embedding(&bytes)?;
            matrix.put(label, &embedding);
        }
        Ok(())
    }

    /// Every live vector of the mesh once, in the order of the table.
    fn read_all(
        &self,
        connection: &Connection,
        mut labels: HashMap<i64, Label>,
        mut take: impl FnMut(Label, &Embedding),
    ) -> Result<(), StoreError> {
        let sql = format!("SELECT rowid, embedding FROM {}", self.model.table());
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            // Vectors of other meshes stand in the same table.
            if let Some(label) = labels.remove(&row.get(0)?) {
                let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
                take(label, &self.embedding(bytes)?);
            }
        }
        match labels.into_values().next() {
            None => Ok(()),
            Some(label) => Err(StoreError::Corrupt(format!(
                "the vector of {:?} is missing in {}",
                label.key,
                self.model.table()
            ))),
        }
    }

    fn stream(&self, connection: &Connection) -> Result<Vec<VectorHit>, StoreError> {
        const PART_ROWS: usize = 1024;
        let query = self.query;
        let mut top = Top::new(query.limit);
        let mut part = Matrix::new(query.model.dim());
        self.read_all(connection, self.labels(connection)?, |label, embedding| {
            if part.len() == PART_ROWS {
                part.search(&query.embedding, Scan::Exact, &mut top);
                part.clear();
            }
            part.put(label, embedding);
        })?;
        part.search(&query.embedding, Scan::Exact, &mut top);
        with_rows(connection, top)
    }

    fn embedding(&self, bytes: &[u8]) -> Result<Embedding, StoreError> {
        let corrupt = |why: String| StoreError::Corrupt(format!("{}: {why}", self.model.table()));
        let embedding = Embedding::from_bytes(bytes).map_err(|error| corrupt(error.to_string()))?;
        if embedding.dim() != self.query.model.dim() {
            return Err(corrupt("a vector of another length".to_owned()));
        }
        Ok(embedding)
    }

    fn labels(&self, connection: &Connection) -> Result<HashMap<i64, Label>, StoreError> {
        let changed = self.changed(connection, 0)?.into_iter();
        let live = changed.filter(|(_, is_live)| *is_live);
        Ok(live.map(|(label, _)| (label.place, label)).collect())
    }

    /// Rows that were written behind that change, and whether they are live.
    fn changed(
        &self,
        connection: &Connection,
        through: u64,
    ) -> Result<Vec<(Label, bool)>, StoreError> {
        let mut peers: HashMap<String, Arc<str>> = HashMap::new();
        let mut statement = connection.prepare_cached(LABELS)?;
        let mut rows = statement.query(params![
            self.query.mesh.0.to_bytes(),
            self.model.identity.fingerprint().to_string(),
            crate::cells::count_cell(through)?
        ])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let mut cells = Cells::of("vector_metadata", row);
            let place = cells.get()?;
            let key: String = cells.get()?;
            let peer: String = cells.get()?;
            let shared = peers
                .entry(peer)
                .or_insert_with_key(|peer| peer.as_str().into());
            let peer = Arc::clone(shared);
            let key = key.into();
            found.push((Label { place, key, peer }, !cells.get::<bool>()?));
        }
        Ok(found)
    }
}

fn with_rows(connection: &Connection, top: Top) -> Result<Vec<VectorHit>, StoreError> {
    let mut statement = connection.prepare_cached(BY_PLACE)?;
    let mut hits = Vec::new();
    for Hit { distance, label } in top.into_hits() {
        let mut rows = statement.query([label.place])?;
        let Some(row) = rows.next()? else {
            let why = format!("the row of the vector {:?} is missing", label.key);
            return Err(StoreError::Corrupt(why));
        };
        let row = read(row)?;
        hits.push(VectorHit { distance, row });
    }
    Ok(hits)
}

pub(super) fn read(row: &Row<'_>) -> Result<VectorRow, StoreError> {
    let mut cells = Cells::of("vector_metadata", row);
    Ok(VectorRow {
        key: cells.get()?,
        content: cells.get()?,
        metadata: cells.get()?,
        model: cells.parsed(str::parse)?,
        stamp: cells.stamp()?,
        incarnation: cells.count()?,
        updated_at: cells.wall()?,
    })
}
