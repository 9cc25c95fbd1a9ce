//! Rows that stand under a mesh which no row of table `mesh` names, and a home without its own mesh: a start would begin
//! another one beside everything that was saved. A start, the status, the doctor and a repair all ask here.
//!
//! One row that names such a mesh is a changed cell, and is told. A mesh that several tables name is one whose row is lost.

use std::collections::BTreeMap;
use std::path::Path;

use heddle_core::ids::MeshId;
use heddle_core::names::MeshName;
use rusqlite::Connection;
use ulid::Ulid;

use crate::backup::has_table;
use crate::error::StoreError;
use crate::meaning::IS_OWN;
use crate::store::Store;

/// Tables that a start can look at as a whole: they have a few rows for each mesh.
const SMALL: [&str; 8] = [
    "agent",
    "outbox_sender",
    "lamport_clock",
    "roster",
    "delivery",
    "outbox_reach",
    "mesh_window",
    "mesh_publish",
];
const OTHER_MEMBERS: &str = "
    SELECT CAST(name AS BLOB) FROM mesh WHERE EXISTS (SELECT 1 FROM outbox_sender
        WHERE outbox_sender.mesh_id = mesh.mesh_id AND outbox_sender.member_id <> mesh.member_id)
    ORDER BY mesh_id";
/// A mesh that this many tables name is no changed cell of one row.
const TABLES_MIN: usize = 2;

/// A mesh that rows name and table `mesh` does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meshless {
    pub mesh: MeshId,
    /// How many rows of which table, those with the most first.
    pub tables: Vec<(String, u64)>,
}

impl Meshless {
    /// Whether its row is what is lost, and not one cell of another row changed.
    pub fn is_mesh(&self) -> bool {
        self.tables.len() >= TABLES_MIN
    }

    pub(crate) fn row_count(&self) -> u64 {
        self.tables.iter().map(|(_, count)| count).sum()
    }

    /// A sentence without its end.
    pub fn in_words(&self) -> String {
        let rows: Vec<String> = self
            .tables
            .iter()
            .map(|(table, count)| format!("{count} of {table}"))
            .collect();
        let what = if self.is_mesh() {
            "the row of a mesh is lost"
        } else {
            "rows stand under no mesh of this home"
        };
        format!(
            "{what}: table mesh does not name {}, and its rows are {}",
            self.mesh,
            rows.join(", ")
        )
    }
}

impl Store {
    /// An error where a start would begin a mesh anew over what stands here already.
    pub async fn refuse_lost_mesh(&self, home: MeshName) -> Result<(), StoreError> {
        self.read(
            move |connection| match at_start(connection, &home)?.first() {
                None => Ok(()),
                Some(first) => Err(StoreError::Corrupt(first.clone())),
            },
        )
        .await
    }

    /// What is lost of the list of meshes, in words; `wholly` reads every row.
    pub async fn lost_meshes(
        &self,
        home: MeshName,
        wholly: bool,
    ) -> Result<Vec<String>, StoreError> {
        self.read(move |connection| {
            let mut found = at_start(connection, &home)?;
            if wholly {
                found.extend(meshless(connection)?.iter().map(Meshless::in_words));
                found.dedup();
            }
            Ok(found)
        })
        .await
    }
}

/// The same of a store that nobody has open. None where the file cannot be looked at, which others say.
pub fn lost_mesh_in(data: &Path, home: &MeshName) -> Option<String> {
    let data = std::path::absolute(data).ok()?;
    let connection = crate::park::open_old(&data).ok()?;
    at_start(&connection, home).ok()?.into_iter().next()
}

/// What a start must not go on over, in words.
pub(crate) fn at_start(connection: &Connection, home: &MeshName) -> rusqlite::Result<Vec<String>> {
    let small: Vec<String> = tables(connection)?;
    let few = small.iter().filter(|name| SMALL.contains(&name.as_str()));
    let mut found: Vec<String> = meshless_in(connection, few)?
        .iter()
        .filter(|one| one.is_mesh())
        .map(Meshless::in_words)
        .collect();
    if found.is_empty() && is_without_home(connection, home)? {
        found.push(without_home(home));
    }
    found.extend(other_members(connection)?);
    Ok(found)
}

/// Meshes in which this home has sent as another member than its row says. Who we are in a mesh never changes: one of the two
/// was changed by the disk, and a start would go on as somebody else.
pub(crate) fn other_members(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    if !has_table(connection, "mesh")? {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare(OTHER_MEMBERS)?;
    let names = statement.query_map([], |row| {
        let name = row.get_ref(0)?.as_bytes()?;
        Ok(String::from_utf8_lossy(name).into_owned())
    })?;
    names
        .map(|name| {
            name.map(|name| {
                format!(
                    "mesh {name}: table mesh says that this home is another member there than the one it has sent as"
                )
            })
        })
        .collect()
}

pub fn without_home(home: &MeshName) -> String {
    format!(
        "table mesh names no mesh that is called {home}, which every home has, and there are rows of one"
    )
}

/// Whether the home's own mesh is not in the list, and yet the home is no new one.
pub(crate) fn is_without_home(connection: &Connection, home: &MeshName) -> rusqlite::Result<bool> {
    if !has_table(connection, "mesh")? {
        return Ok(false);
    }
    let has_home = "SELECT 1 FROM mesh WHERE CAST(name AS BLOB) = CAST(?1 AS BLOB)";
    if connection.prepare(has_home)?.exists([home.as_str()])? {
        return Ok(false);
    }
    let mut all = tables(connection)?;
    all.push("mesh".to_owned());
    for table in all {
        if connection
            .prepare(&format!("SELECT 1 FROM {table:?}"))?
            .exists([])?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Every mesh that rows name and table `mesh` does not, those with the most rows first. Reads all rows.
pub(crate) fn meshless(connection: &Connection) -> rusqlite::Result<Vec<Meshless>> {
    let all = tables(connection)?;
    meshless_in(connection, all.iter())
}

/// Tables whose rows name their mesh.
pub(crate) fn tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!(
        "SELECT name FROM sqlite_schema WHERE {IS_OWN} AND name <> 'mesh' AND EXISTS (
            SELECT 1 FROM pragma_table_info(sqlite_schema.name) AS columns
            WHERE columns.name = 'mesh_id') ORDER BY rowid"
    ))?;
    let names = statement.query_map([], |row| row.get(0))?;
    names.collect()
}

fn meshless_in<'t>(
    connection: &Connection,
    tables: impl Iterator<Item = &'t String>,
) -> rusqlite::Result<Vec<Meshless>> {
    let mut found: BTreeMap<[u8; 16], Vec<(String, u64)>> = BTreeMap::new();
    if !has_table(connection, "mesh")? {
        return Ok(Vec::new());
    }
    for table in tables {
        let mut statement = connection.prepare(&format!(
            "SELECT mesh_id, count(*) FROM {table:?} WHERE typeof(mesh_id) = 'blob' AND length(mesh_id) = 16
                AND mesh_id NOT IN (SELECT mesh_id FROM mesh) GROUP BY mesh_id"
        ))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let count = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
            let tables = found.entry(row.get(0)?).or_default();
            tables.push((table.clone(), count));
        }
    }
    let mut all: Vec<Meshless> = found
        .into_iter()
        .map(|(mesh, mut tables)| {
            tables.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let mesh = MeshId(Ulid::from_bytes(mesh));
            Meshless { mesh, tables }
        })
        .collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.tables.len(), one.row_count())));
    Ok(all)
}
