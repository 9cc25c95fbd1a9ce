//! Rows that SQLite takes for whole and that nobody can read: bytes that are no text, numbers that are none, a file's
//! content without its hash. Each stands alone: whoever lists goes on without it and says so.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use heddle_core::ids::MeshId;
use heddle_core::task::TaskId;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::data::seal::{BY_PLACE, Seal, TASK_OP, is_sealed};
use crate::data::{NAMELESS_VECTOR, OLD_TABLES, OldTable, bad_task_part, clock_of, task_problems};
use crate::error::StoreError;
use crate::schema;
use crate::stamps;
use crate::store::Store;
use crate::unsent;

/// Rows that are read at a time.
const ROWS_AT_ONCE: i64 = 200;

/// A row that cannot be read, by the name that its owner knows it by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreadable {
    pub(crate) table: &'static str,
    pub(crate) place: i64,
    /// As far as it is text.
    name: String,
    /// It can be read, and its stamp cannot be right: why.
    ahead: Option<&'static str>,
}

impl Unreadable {
    /// A task whose row is not what was folded from its steps, by its id: its title may be what was changed. It has no place
    /// that anybody takes out.
    fn task(id: TaskId) -> Self {
        Self {
            table: "task",
            place: 0,
            name: id.to_string(),
            ahead: None,
        }
    }

    /// Whether only a repair helps: no change of that key is newer than it.
    pub fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    pub(crate) fn note(&self, left_out: &LeftOut) {
        left_out.note(self.table, self.name.as_bytes());
    }

    /// Without what is wrong with it.
    pub(crate) fn called(&self) -> String {
        format!("{} {:?}", noun(self.table), self.name)
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.called())?;
        if let Some(why) = self.ahead {
            write!(f, " ({why})")?;
        }
        Ok(())
    }
}

const AHEAD_OF_CLOCK: &str = "its stamp is ahead of its mesh's clock";
/// Rows of others come through the log, which admits no such stamp.
const AHEAD_OF_LOG: &str =
    "this home wrote it while its clock was far ahead, so no other home takes it";

/// Rows that one read went on without.
#[derive(Debug, Clone, Default)]
pub struct LeftOut(Arc<Mutex<Vec<String>>>);

/// A row that was read; or none, where it cannot be read and the reader goes on without it. `at` is the column of its name.
pub(crate) fn or_without<T>(
    read: Result<T, StoreError>,
    left_out: Option<&LeftOut>,
    (table, row, at): (&'static str, &Row<'_>, usize),
) -> Result<Option<T>, StoreError> {
    match (read, left_out) {
        (Ok(row), _) => Ok(Some(row)),
        (Err(StoreError::Corrupt(_)), Some(left_out)) => {
            let name = row.get_ref(at).ok();
            let name = name.and_then(|name| name.as_bytes().ok());
            left_out.note(table, name.unwrap_or_default());
            Ok(None)
        }
        (Err(error), _) => Err(error),
    }
}

impl LeftOut {
    /// What is gone without from now on.
    pub(crate) fn note(&self, table: &'static str, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        let said = format!("{} {name:?}", noun(table));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&said) {
            all.push(said);
        }
    }

    /// The names of all of them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn noun(table: &str) -> &str {
    match table {
        "memory" => "memory",
        "state_kv" => "state",
        "files" => "file",
        "vector_metadata" => "vector",
        "vector_models" => "model",
        "task_op" => "task",
        other => other,
    }
}

/// What a row is known by, as it stands there.
fn name_sql(table: &str) -> Option<&'static str> {
    match table {
        "memory" => Some("SELECT CAST(key AS BLOB) FROM memory WHERE place = ?1"),
        "state_kv" => Some("SELECT CAST(key AS BLOB) FROM state_kv WHERE place = ?1"),
        "files" => Some("SELECT CAST(path AS BLOB) FROM files WHERE place = ?1"),
        "vector_metadata" => Some("SELECT CAST(key AS BLOB) FROM vector_metadata WHERE place = ?1"),
        // The steps of tasks are looked at, and mended, by themselves.
        _ => None,
    }
}

impl Store {
    /// The same store for a read that goes on without what it cannot read, and what it went on without.
    pub fn leniently(&self) -> (Store, LeftOut) {
        let left_out = LeftOut::default();
        let mut store = self.clone();
        store.left_out = Some(left_out.clone());
        (store, left_out)
    }

    /// Rows of a mesh that cannot be read, among the first `rows_max` of each table.
    pub async fn unreadable(
        &self,
        mesh: MeshId,
        rows_max: u64,
    ) -> Result<Vec<Unreadable>, StoreError> {
        Ok(self.look_through(mesh, rows_max).await?.bad)
    }

    /// The same with those that were never sent.
    pub async fn look_through(&self, mesh: MeshId, rows_max: u64) -> Result<Unread, StoreError> {
        let mut found = Unread::default();
        for table in &OLD_TABLES {
            let mut after = Vec::new();
            let mut looked = 0;
            while looked < rows_max {
                let from = after.clone();
                let part = self.read(move |connection| part(connection, table, mesh, &from));
                let part = part.await?;
                looked += part.looked;
                found.bad.extend(part.bad);
                found.unsent.extend(part.unsent);
                match part.next {
                    Some(next) => after = next,
                    None => break,
                }
            }
        }
        let tasks = self.bad_tasks(mesh, rows_max).await?;
        found.bad.extend(tasks.into_iter().map(Unreadable::task));
        Ok(found)
    }

    /// Tasks that are not what their steps make them. One whose row is gone is met by nobody who lists.
    async fn bad_tasks(&self, mesh: MeshId, rows_max: u64) -> Result<Vec<TaskId>, StoreError> {
        let mut bad = Vec::new();
        let mut looked = 0;
        let mut after = Some(TaskId::from_bytes([0; 16]));
        while let Some(from) = after.filter(|_| looked < rows_max) {
            let part = self.read(move |connection| bad_task_part(connection, mesh, from));
            let part = part.await?;
            looked += part.looked;
            bad.extend(part.bad);
            after = part.next;
        }
        Ok(bad)
    }

    /// Rows that are not what was written and stand under no mesh of this home.
    pub async fn strays(&self) -> Result<Vec<Unreadable>, StoreError> {
        self.read(all_strays).await
    }

    /// Clocks of meshes that are where none can be; none where all is well.
    pub async fn clock_problems(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| Ok(stamps::clock_problems(connection)?))
            .await
    }

    /// What is wrong with the list of models; none where all is well.
    pub async fn model_problems(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| Ok(crate::data::vector_model_problems(connection)?))
            .await
    }
}

/// What a look at the rows of a mesh has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unread {
    pub bad: Vec<Unreadable>,
    /// They can be read, and nobody else can have them: changes of this home whose rows of the outbox are gone.
    pub unsent: Vec<Unreadable>,
}

struct Part {
    bad: Vec<Unreadable>,
    unsent: Vec<Unreadable>,
    looked: u64,
    next: Option<Vec<u8>>,
}

fn part(
    connection: &Connection,
    table: &OldTable,
    mesh: MeshId,
    after: &[u8],
) -> Result<Part, StoreError> {
    let rows = (table.read)(connection, mesh, after, ROWS_AT_ONCE)?;
    // IMPORTANT: behind the rows, which are written while this reads. A clock that cannot be read is told of elsewhere.
    let (clock, ceiling) = match clock_of(connection, mesh) {
        Ok(clock) => (clock.value, stamps::ceiling(connection, mesh, clock)?),
        Err(_) => (u64::MAX, u64::MAX),
    };
    let is_last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < ROWS_AT_ONCE;
    let mut part = Part {
        bad: Vec::new(),
        unsent: Vec::new(),
        looked: rows.len() as u64,
        // Only forwards: pages that are damaged may say anything.
        next: rows
            .last()
            .filter(|row| !is_last && (after.is_empty() || row.through.as_slice() > after))
            .map(|row| row.through.clone()),
    };
    let own = unsent::judged(connection, mesh)?;
    for row in rows {
        let ahead = match row.op {
            Ok(op) if op.stamp.lamport <= ceiling => {
                if let Some(own) = own
                    && unsent::unsent(connection, (mesh, own), &op)?.is_some()
                {
                    part.unsent
                        .push(row_of(connection, table, mesh, &row.through)?);
                }
                continue;
            }
            Ok(op) if op.stamp.lamport <= clock => Some(AHEAD_OF_LOG),
            Ok(_) => Some(AHEAD_OF_CLOCK),
            // It can be found and listed; the model is told of.
            Err(StoreError::Corrupt(why)) if why.ends_with(NAMELESS_VECTOR) => continue,
            Err(StoreError::Corrupt(_)) => None,
            Err(error) => return Err(error),
        };
        let row = row_of(connection, table, mesh, &row.through)?;
        part.bad.push(Unreadable { ahead, ..row });
    }
    Ok(part)
}

/// A row of a table by its name, without anything that is wrong with it.
pub(crate) fn row_of(
    connection: &Connection,
    table: &OldTable,
    mesh: MeshId,
    through: &[u8],
) -> Result<Unreadable, StoreError> {
    Ok(Unreadable {
        table: table.name,
        place: place_of(through),
        name: name_of(connection, table, mesh, through)?,
        ahead: None,
    })
}

/// What the row is known by; a step of a task by the title of its task.
fn name_of(
    connection: &Connection,
    table: &OldTable,
    mesh: MeshId,
    through: &[u8],
) -> Result<String, StoreError> {
    let bytes = match name_sql(table.name) {
        Some(sql) => connection
            .prepare_cached(sql)?
            .query_row([place_of(through)], |row| row.get::<_, Vec<u8>>(0)),
        None => connection
            .prepare_cached(TITLE)?
            .query_row(params![mesh.0.to_bytes(), through.get(..16)], |row| {
                row.get(0)
            }),
    };
    let bytes = bytes.optional()?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

const TITLE: &str = "SELECT CAST(title AS BLOB) FROM tasks WHERE mesh_id = ?1 AND task_id = ?2";

fn place_of(through: &[u8]) -> i64 {
    i64::from_be_bytes(through.try_into().unwrap_or_default())
}

/// All of them in a file that nobody else needs to have open. A file of another schema is not looked at: its columns are
/// others, and the next start brings it up to date first.
pub(crate) fn all_unreadable(connection: &Connection) -> Result<Vec<Unreadable>, StoreError> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let mut found = Vec::new();
    // Nor one whose rows have not got all of their digests yet; the next start gives them theirs.
    if version != schema::newest() || !is_sealed(connection)? {
        return Ok(found);
    }
    for mesh in meshes(connection)? {
        // The steps of tasks are looked at, and mended, by themselves.
        for table in OLD_TABLES
            .iter()
            .filter(|table| name_sql(table.name).is_some())
        {
            let mut after = Vec::new();
            loop {
                let part = part(connection, table, mesh, &after)?;
                found.extend(part.bad);
                match part.next {
                    Some(next) => after = next,
                    None => break,
                }
            }
        }
    }
    found.extend(strays(connection)?);
    Ok(found)
}

/// The same with tasks and their steps.
pub(crate) fn all_strays(connection: &Connection) -> Result<Vec<Unreadable>, StoreError> {
    let mut found = strays(connection)?;
    found.extend(stray_steps(connection)?);
    for id in task_problems(connection)? {
        let (id, of) = (id.to_bytes(), Unreadable::task(id));
        if connection.prepare_cached(HAS_NO_MESH)?.exists([id])? {
            found.push(of);
        }
    }
    Ok(found)
}

/// Rows that are not what was written and stand under a mesh that is none: nobody else would look at them.
fn strays(connection: &Connection) -> Result<Vec<Unreadable>, StoreError> {
    let mut found = Vec::new();
    for seal in &BY_PLACE {
        let Seal { table, columns, .. } = seal;
        let sql = format!(
            "SELECT place, {columns} FROM {table} WHERE mesh_id NOT IN (SELECT mesh_id FROM mesh)"
        );
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Err(StoreError::Corrupt(_)) = seal.check(row) {
                found.push(Unreadable {
                    table,
                    place: row.get(0)?,
                    name: seal.name_of(row),
                    ahead: None,
                });
            }
        }
    }
    Ok(found)
}

const HAS_NO_MESH: &str = "
    SELECT 1 FROM tasks WHERE task_id = ?1 AND mesh_id NOT IN (SELECT mesh_id FROM mesh)";

/// The same of the steps of tasks, which a repair mends by themselves.
fn stray_steps(connection: &Connection) -> Result<Vec<Unreadable>, StoreError> {
    let sql = format!(
        "SELECT {} FROM task_op WHERE mesh_id NOT IN (SELECT mesh_id FROM mesh)",
        TASK_OP.columns
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if let Err(StoreError::Corrupt(_)) = TASK_OP.check(row) {
            found.push(Unreadable::task(TaskId::from_bytes(row.get(1)?)));
        }
    }
    Ok(found)
}

pub(crate) fn meshes(connection: &Connection) -> Result<Vec<MeshId>, StoreError> {
    let mut statement = connection.prepare("SELECT mesh_id FROM mesh ORDER BY mesh_id")?;
    let ids = statement.query_map([], |row| row.get::<_, [u8; 16]>(0))?;
    let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
    let ids = ids.into_iter().map(ulid::Ulid::from_bytes);
    Ok(ids.map(MeshId).collect())
}

/// Some names, for a sentence.
pub(crate) fn named(found: &[Unreadable], most: usize) -> String {
    let shown: Vec<String> = found.iter().take(most).map(ToString::to_string).collect();
    let more = if found.len() > most { " and more" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Whether that row stands in this file.
pub(crate) fn is_there(connection: &Connection, row: &Unreadable) -> Result<bool, StoreError> {
    let sql = format!("SELECT 1 FROM {} WHERE place = ?1", row.table);
    let found = connection.query_row(&sql, [row.place], |_| Ok(()));
    Ok(found.optional()?.is_some())
}

/// Takes such rows out of a file that is being put together anew.
pub(crate) fn take_out(connection: &Connection, rows: &[Unreadable]) -> Result<(), StoreError> {
    for row in rows {
        take_out_row(connection, row.table, row.place)?;
    }
    Ok(())
}

const MARK_VECTOR: &str = "
    UPDATE vector_metadata SET tombstone = 1, metadata = NULL, content = NULL
    WHERE place = ?1 AND tombstone = 0";

/// One row with what belongs to it, whatever it holds.
pub(crate) fn take_out_row(
    connection: &Connection,
    table: &str,
    place: i64,
) -> Result<(), StoreError> {
    if table == "vector_metadata" {
        let model: Option<Vec<u8>> = connection
            .query_row(
                "SELECT CAST(model_id AS BLOB) FROM vector_metadata WHERE place = ?1",
                [place],
                |row| row.get(0),
            )
            .optional()?;
        let model = model.and_then(|bytes| String::from_utf8(bytes).ok());
        let table = format!("vectors_{}", model.unwrap_or_default());
        // Only a table that is there; the name is quoted, whatever it holds.
        if crate::backup::has_table(connection, &table)? {
            let sql = format!("DELETE FROM {table:?} WHERE rowid = ?1");
            connection.execute(&sql, [place])?;
        }
        connection.execute("DELETE FROM vector_digest WHERE place = ?1", [place])?;
        // Only a mark may be deleted.
        connection.execute(MARK_VECTOR, [place])?;
    }
    let sql = format!("DELETE FROM {table} WHERE place = ?1");
    connection.execute(&sql, [place])?;
    Ok(())
}
