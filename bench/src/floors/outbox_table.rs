//! A table with the weight of the product's outbox: the same columns, sizes and indexes, none of
//! its checks and triggers.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, params};

use crate::error::Outcome;

/// As large as the product lets its log grow before it checkpoints while busy.
const CHECKPOINT_PAGES: u32 = 8_000;
const CACHE_KIB: i64 = 8 * 1024;

const SCHEMA: &str = "
CREATE TABLE outbox (
    arrival INTEGER PRIMARY KEY,
    row_id BLOB NOT NULL UNIQUE,
    id_key BLOB NOT NULL UNIQUE,
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    agent TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    request_fingerprint BLOB NOT NULL,
    wire_fingerprint BLOB NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due_mono_ms INTEGER NOT NULL DEFAULT 0,
    kind TEXT NOT NULL,
    to_address TEXT NOT NULL,
    mentions TEXT NOT NULL,
    priority TEXT NOT NULL,
    enqueued_at INTEGER NOT NULL,
    payload BLOB NOT NULL
) STRICT;
CREATE INDEX outbox_due ON outbox (mesh_id, due_mono_ms) WHERE status = 'pending';";

const INSERT: &str = "
INSERT INTO outbox (row_id, id_key, mesh_id, member_id, agent, client_message_id,
    request_fingerprint, wire_fingerprint, status, kind, to_address, mentions, priority,
    enqueued_at, payload)
VALUES (?1, ?2, ?3, ?3, 'bench', ?4, ?5, ?5, 'pending', 'message', '#bench', '[]', 'next', ?6, ?7)";

/// Opens a new file as durably as the product does.
pub fn open(path: &Path) -> Outcome<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

/// What the caller's side prepares, so that the writer does not have to.
pub struct NewRow {
    row_id: [u8; 16],
    id_key: [u8; 24],
    client_message_id: String,
    enqueued_at: i64,
}

impl NewRow {
    /// The next one, its ids in order of time.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut row_id = [7; 16];
        row_id[..8].copy_from_slice(&number.to_be_bytes());
        let mut id_key = [9; 24];
        id_key[..8].copy_from_slice(&number.to_be_bytes());
        Self {
            row_id,
            id_key,
            client_message_id: format!("{number:026}"),
            enqueued_at: 1_700_000_000_000 + i64::try_from(number & 0xffff).unwrap_or(0),
        }
    }

    pub fn insert(&self, connection: &Connection, payload: &[u8]) -> Outcome<()> {
        connection.prepare_cached(INSERT)?.execute(params![
            self.row_id,
            self.id_key,
            [3_u8; 16],
            self.client_message_id,
            [5_u8; 32],
            self.enqueued_at,
            payload,
        ])?;
        Ok(())
    }
}
