//! The search index, filled behind the receive: chunks that are small, relaxed and marked.
//!
//! A chunk is read and its text taken out of the envelopes on a reader's thread; the writer only
//! inserts words. Items and mark are one transaction, so nothing is indexed twice or left out.

use rusqlite::{Connection, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

/// Items of one chunk at most.
const CHUNK_ITEMS_MAX: usize = 256;
/// Envelope bytes of one chunk: sorting the words of more would hold the writer for too long.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// What of an envelope is to be found; `None` where nothing of it can be read.
pub type BodyOf = fn(&[u8]) -> Option<String>;

pub(crate) const INDEXED_THROUGH: &str = "SELECT indexed_through FROM inbox_state";

pub(crate) const NEXT_TO_INDEX: &str = "
    SELECT arrival, topic, sender_name, sender_agent, envelope
    FROM inbox WHERE arrival > ?1 ORDER BY arrival LIMIT ?2";

// The item may have gone to retention since it was read.
pub(crate) const INDEX: &str = "
    INSERT INTO inbox_fts (rowid, body, topic, sender)
    SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM inbox WHERE arrival = ?1)";

pub(crate) const MARK_INDEXED: &str = "UPDATE inbox_state SET indexed_through = ?1";

struct Entry {
    arrival: i64,
    body: Option<String>,
    topic: Option<String>,
    sender: String,
}

impl Store {
    /// Indexes the next items; how many. Zero means that every item is in the index.
    pub async fn inbox_index_chunk(&self, body_of: BodyOf) -> Result<usize, StoreError> {
        let (from, entries) = self
            .read(move |connection| next_entries(connection, body_of))
            .await?;
        let count = entries.len();
        if count == 0 {
            return Ok(0);
        }
        self.write_relaxed(move |connection| insert(connection, from, &entries))
            .await?;
        Ok(count)
    }
}

fn next_entries(connection: &Connection, body_of: BodyOf) -> Result<(i64, Vec<Entry>), StoreError> {
    let from = indexed_through(connection)?;
    let mut statement = connection.prepare_cached(NEXT_TO_INDEX)?;
    let limit = i64::try_from(CHUNK_ITEMS_MAX).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![from, limit])?;
    let mut entries = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("inbox", row);
        let arrival = cells.get()?;
        let topic = cells.get()?;
        let (name, agent): (String, String) = (cells.get()?, cells.get()?);
        let envelope: Vec<u8> = cells.get()?;
        bytes += envelope.len();
        entries.push(Entry {
            arrival,
            body: body_of(&envelope),
            topic,
            sender: format!("{name} {agent}"),
        });
        if bytes >= CHUNK_BYTES_MAX {
            break;
        }
    }
    Ok((from, entries))
}

fn insert(connection: &Connection, from: i64, entries: &[Entry]) -> Result<(), StoreError> {
    // Two readers may have read the same chunk; the second finds the mark moved.
    if indexed_through(connection)? != from {
        return Ok(());
    }
    let mut index = connection.prepare_cached(INDEX)?;
    for entry in entries {
        index.execute(params![
            entry.arrival,
            entry.body,
            entry.topic,
            entry.sender
        ])?;
    }
    if let Some(last) = entries.last() {
        connection
            .prepare_cached(MARK_INDEXED)?
            .execute([last.arrival])?;
    }
    Ok(())
}

fn indexed_through(connection: &Connection) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached(INDEXED_THROUGH)?;
    Ok(statement.query_row([], |row| row.get(0))?)
}
