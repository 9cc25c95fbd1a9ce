//! The nearest vectors of one mesh and one model.

use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::lamport::Stamp;
use heddle_core::limits::VECTOR_MEMORY_BYTES_MAX;
use heddle_core::vector::{
    Embedding, Hit, Label, Matrix, ModelFingerprint, ModelIdentity, Scan, Top,
};
use rusqlite::{Connection, Row, Statement, params};

use super::cache::{Held, VectorCache};
use super::labels::{self, Changed, Labels, Unreadable};
use super::models::{self, ModelRow};
use super::numbers::{self, Name};
use crate::cells::Cells;
use crate::data::seal::{VECTORS, vector_whole};
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::{LeftOut, or_without};

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
        concat!(
            "key, content, metadata, model_id, lamport, peer, op_id, incarnation, updated_at, mesh_id,
         (SELECT named FROM vector_digest WHERE vector_digest.place = vector_metadata.place), ",
            vector_whole!()
        )
    };
}
pub(super) use vector_columns;

pub(crate) const HEAD: &str =
    "SELECT changes, whole_from FROM vector_head WHERE mesh_id = ?1 AND model_id = ?2";

pub(crate) const HAS_ROWS: &str =
    "SELECT 1 FROM vector_metadata WHERE mesh_id = ?1 AND model_id = ?2 LIMIT 1";

pub(crate) const BY_PLACE: &str = concat!(
    "SELECT ",
    vector_columns!(),
    " FROM vector_metadata WHERE place = ?1"
);

impl Store {
    /// The nearest first; equally near ones by key, then by peer. A model without vectors here finds
    /// nothing.
    pub async fn search_vectors(&self, query: VectorQuery) -> Result<Vec<VectorHit>, StoreError> {
        let query = Arc::new(query);
        for _ in 0..TRIES_MAX {
            let (cache, asked) = (self.vector_cache.clone(), Arc::clone(&query));
            let left_out = self.left_out.clone();
            let job = move |connection: &Connection| {
                remembered(connection, &cache, &asked, left_out.as_ref())
            };
            if let Some(hits) = self.read(job).await? {
                return Ok(hits);
            }
        }
        // Still ahead of the table: it has read what is not there any more, or the count was put back.
        let key = (query.mesh, query.model.fingerprint());
        self.vector_cache.forget(key);
        let left_out = self.left_out.clone();
        self.read(move |connection| unremembered(connection, &query, left_out.as_ref()))
            .await
    }
}

/// Through the memory; `None` if it is ahead of this snapshot.
fn remembered(
    connection: &Connection,
    cache: &VectorCache,
    query: &VectorQuery,
    left_out: Option<&LeftOut>,
) -> Result<Option<Vec<VectorHit>>, StoreError> {
    let key = (query.mesh, query.model.fingerprint());
    let Some(asked) = Asked::look(connection, (query, left_out))? else {
        cache.forget(key);
        return Ok(Some(Vec::new()));
    };
    if asked.is_uncounted {
        cache.forget(key);
        return asked.stream(connection).map(Some);
    }
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
    asked.go_without(&guard.unreadable)?;
    let mut top = Top::new(query.limit);
    guard.matrix.search(&query.embedding, query.scan, &mut top);
    asked.with_rows(connection, top).map(Some)
}

/// Past the memory: every vector is read from the table.
fn unremembered(
    connection: &Connection,
    query: &VectorQuery,
    left_out: Option<&LeftOut>,
) -> Result<Vec<VectorHit>, StoreError> {
    match Asked::look(connection, (query, left_out))? {
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
    left_out: Option<&'q LeftOut>,
    model: ModelRow,
    changes: u64,
    whole_from: u64,
    /// Its count was lost: what is in memory cannot be compared with it, and the rows are read. The next write counts anew.
    is_uncounted: bool,
}

impl<'q> Asked<'q> {
    fn look(
        connection: &Connection,
        (query, left_out): (&'q VectorQuery, Option<&'q LeftOut>),
    ) -> Result<Option<Self>, StoreError> {
        let id = query.model.fingerprint();
        let model = match models::known(connection, id)? {
            Some(model) => model,
            // Its row is lost: whoever asks says which model it is, and the fingerprint proves it.
            None if models::has_live_here(connection, query.mesh, id)? => ModelRow {
                identity: query.model.clone(),
                left_at: None,
                read_at: None,
            },
            None => return Ok(None),
        };
        models::there(connection, &model)?;
        let of = (query.mesh.0.to_bytes(), id.to_string());
        let mut statement = connection.prepare_cached(HEAD)?;
        let mut rows = statement.query(params![of.0, of.1])?;
        let counted = match rows.next()? {
            Some(row) => {
                let mut cells = Cells::of("vector_head", row);
                Some((cells.count()?, cells.count()?))
            }
            None if connection.prepare_cached(HAS_ROWS)?.exists(of)? => None,
            None => return Ok(None),
        };
        let (changes, whole_from) = counted.unwrap_or_default();
        Ok(Some(Self {
            query,
            left_out,
            model,
            changes,
            whole_from,
            is_uncounted: counted.is_none(),
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
            self.read_since(connection, through, held)?;
        } else {
            let labels = Labels::read(connection, self.of())?;
            if self.is_too_much(labels.live.len()) {
                return Ok(Caught::TooMuch);
            }
            held.matrix.clear();
            held.unreadable = self.read_all(connection, labels, |label, embedding| {
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
        held: &mut Held,
    ) -> Result<(), StoreError> {
        let sql = numbers::select(&self.model.table(), true);
        let mut of_one = connection.prepare_cached(&sql)?;
        for changed in labels::changed(connection, self.of(), through)? {
            let place = changed.place();
            held.unreadable.retain(|(known, _)| *known != place);
            let label = match changed {
                Changed::Live(label) => label,
                Changed::Gone(_) => {
                    held.matrix.remove(place);
                    continue;
                }
                Changed::Unreadable(row) => {
                    held.matrix.remove(place);
                    held.unreadable.push(row);
                    continue;
                }
            };
            let embedding = self.one(&mut of_one, &label)?;
            match embedding {
                Some(embedding) => {
                    held.matrix.put(label, &embedding);
                }
                None => {
                    held.matrix.remove(place);
                    held.unreadable.push((place, label.key.to_string()));
                }
            }
        }
        Ok(())
    }

    /// What a search goes on without; where nobody is told of it, it does not.
    fn go_without(&self, unreadable: &[Unreadable]) -> Result<(), StoreError> {
        for (_, key) in unreadable {
            let Some(left_out) = self.left_out else {
                let why = format!("the vector {key:?} cannot be right");
                return Err(StoreError::Corrupt(why));
            };
            left_out.note("vector_metadata", key.as_bytes());
        }
        Ok(())
    }

    /// Every live vector of the mesh once, in the order of the table; and those that cannot be read.
    fn read_all(
        &self,
        connection: &Connection,
        Labels {
            mut live,
            mut unreadable,
        }: Labels,
        mut take: impl FnMut(Label, &Embedding),
    ) -> Result<Vec<Unreadable>, StoreError> {
        let sql = numbers::select(&self.model.table(), false);
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                // The table cannot go on over it; those behind it may be whole, and are asked for by their places.
                Err(error) if numbers::is_of_one(&error) => break,
                Err(error) => return Err(error.into()),
            };
            // Vectors of other meshes stand in the same table.
            if let Some(label) = live.remove(&row.get(0)?) {
                match self.embedding(row, &label)? {
                    Some(embedding) => take(label, &embedding),
                    None => unreadable.push((label.place, label.key.to_string())),
                }
            }
        }
        drop(rows);
        let mut of_one = connection.prepare_cached(&numbers::select(&self.model.table(), true))?;
        for label in live.into_values() {
            match self.one(&mut of_one, &label)? {
                Some(embedding) => take(label, &embedding),
                None => unreadable.push((label.place, label.key.to_string())),
            }
        }
        Ok(unreadable)
    }

    /// By its place; `None` where it is not there, or not to be had.
    fn one(
        &self,
        of_one: &mut Statement<'_>,
        label: &Label,
    ) -> Result<Option<Embedding>, StoreError> {
        let mut rows = of_one.query([label.place])?;
        match rows.next() {
            Ok(Some(row)) => self.embedding(row, label),
            Ok(None) => Ok(None),
            Err(error) if numbers::is_of_one(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn stream(&self, connection: &Connection) -> Result<Vec<VectorHit>, StoreError> {
        const PART_ROWS: usize = 1024;
        let query = self.query;
        let mut top = Top::new(query.limit);
        let mut part = Matrix::new(query.model.dim());
        let labels = Labels::read(connection, self.of())?;
        let unreadable = self.read_all(connection, labels, |label, embedding| {
            if part.len() == PART_ROWS {
                part.search(&query.embedding, Scan::Exact, &mut top);
                part.clear();
            }
            part.put(label, embedding);
        })?;
        self.go_without(&unreadable)?;
        part.search(&query.embedding, Scan::Exact, &mut top);
        self.with_rows(connection, top)
    }

    /// `None` for numbers that cannot be right: not those that were stored, not under this name, or none of this model.
    fn embedding(&self, row: &Row<'_>, label: &Label) -> Result<Option<Embedding>, StoreError> {
        let model = self.model.identity.fingerprint().to_string();
        let name = Name {
            mesh: self.query.mesh.0.to_bytes(),
            model: model.as_bytes(),
            key: label.key.as_bytes(),
            peer: label.peer.as_bytes(),
        };
        let named = row.get_ref(3)?.as_blob_or_null();
        if !name.is_kept(named.map_err(rusqlite::Error::from)?) {
            return Ok(None);
        }
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let digest = row.get_ref(2)?.as_blob_or_null();
        let read = numbers::read(bytes, digest.map_err(rusqlite::Error::from)?);
        let is_of_model = |one: &Embedding| one.dim() == self.query.model.dim();
        Ok(read.ok().filter(is_of_model))
    }

    fn of(&self) -> (MeshId, ModelFingerprint) {
        (self.query.mesh, self.model.identity.fingerprint())
    }

    fn with_rows(&self, connection: &Connection, top: Top) -> Result<Vec<VectorHit>, StoreError> {
        let mut statement = connection.prepare_cached(BY_PLACE)?;
        let mut hits = Vec::new();
        for Hit { distance, label } in top.into_hits() {
            let mut rows = statement.query([label.place])?;
            let Some(row) = rows.next()? else {
                let why = format!("the row of the vector {:?} is missing", label.key);
                return Err(StoreError::Corrupt(why));
            };
            let of = ("vector_metadata", row, 0);
            let row = or_without(read(row), self.left_out, of)?.flatten();
            hits.extend(row.map(|row| VectorHit { distance, row }));
        }
        Ok(hits)
    }
}

/// None for the mark of a deleted one.
pub(super) fn read(row: &Row<'_>) -> Result<Option<VectorRow>, StoreError> {
    VECTORS.check(row)?;
    let mut cells = Cells::of("vector_metadata", row);
    let (key, content) = (cells.get()?, cells.get::<Option<String>>()?);
    let Some(content) = content else {
        return Ok(None);
    };
    let found = VectorRow {
        key,
        content,
        metadata: cells.value()?,
        model: cells.parsed(str::parse)?,
        stamp: cells.stamp()?,
        incarnation: cells.count()?,
        updated_at: cells.wall()?,
    };
    let (mesh, named): ([u8; 16], Option<Vec<u8>>) = (cells.get()?, cells.get()?);
    let model = found.model.to_string();
    let name = Name {
        mesh,
        model: model.as_bytes(),
        key: found.key.as_bytes(),
        peer: found.stamp.peer.as_str().as_bytes(),
    };
    if !name.is_kept(named.as_deref()) {
        return Err(cells.bad("it was stored under another key, or by another owner"));
    }
    Ok(Some(found))
}
