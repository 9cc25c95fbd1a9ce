//! Bytes of shared files that are gone or wrong are wanted again, in a home in which nothing runs (LF-27).

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::backup::BackupError;
use crate::blobs::Blobs;
use crate::data::{mark_all_lost, note_all_anew};
use crate::schema;

/// The paths of files that the next start fetches again, from members of their meshes who have them. Reads every byte of
/// every blob; a file of another schema is left for the start that brings it up to date.
pub fn want_lost_blobs(data: &Path, blobs: &Blobs) -> Result<Vec<String>, BackupError> {
    let data = std::path::absolute(data).map_err(BackupError::io("named", data))?;
    let mut connection = Connection::open_with_flags(&data, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != schema::newest() {
        return Ok(Vec::new());
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction()?;
    // First: a length that is noted wrong would make good bytes bad ones.
    let paths = note_all_anew(&transaction, blobs)
        .and_then(|()| mark_all_lost(&transaction, blobs))
        .map_err(|error| BackupError::Prepare(error.to_string()))?;
    transaction.commit()?;
    Ok(paths)
}
