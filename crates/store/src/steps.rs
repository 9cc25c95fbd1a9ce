//! Which steps of the schema a file has taken, looked at without changing a byte.

use std::path::Path;

use crate::backup::{BackupError, has_table, problem_of};
use crate::park::open_old;
use crate::schema;

/// What a file says of its own schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    /// The version that the file has; every step up to it is in it whole (LF-35).
    pub version: u32,
    /// The newest one that this program knows.
    pub known: u32,
    /// The steps as they were noted, in order.
    pub taken: Vec<(u32, String)>,
    /// The first problem that SQLite names in the file.
    pub problem: Option<String>,
}

/// Blocks for as long as reading the whole file takes.
pub fn steps_of(data: &Path) -> Result<Steps, BackupError> {
    heddle_sqlite::link_vectors()?;
    let data = std::path::absolute(data).map_err(BackupError::io("named", data))?;
    let connection = open_old(&data)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let mut taken: Vec<(u32, String)> = Vec::new();
    if has_table(&connection, "_migrations")? {
        let mut statement =
            connection.prepare("SELECT version, name FROM _migrations ORDER BY version")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        taken = rows.collect::<rusqlite::Result<_>>()?;
    }
    // A header that a changed bit has made negative: the list of its steps says where the file stands.
    let listed = taken.last().map_or(0, |(number, _)| *number);
    let mut problem = problem_of(&connection)?;
    if version < 0 {
        problem.get_or_insert(format!(
            "its header says schema {version}, and there is none with such a number"
        ));
    }
    Ok(Steps {
        version: u32::try_from(version).unwrap_or(listed),
        known: schema::newest(),
        taken,
        problem,
    })
}
