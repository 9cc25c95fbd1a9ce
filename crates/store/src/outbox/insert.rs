//! Writing a new row: the only place that does, for accept and for requeue.

use std::borrow::Cow;

use heddle_core::clock::WallMs;
use heddle_core::envelope::{EnvelopeKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, IdKey, MeshId, Party, RowId};
use rusqlite::{Connection, params};

use crate::error::StoreError;

/// A row to be, apart from the id it is accepted under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOutboxRow {
    pub row: RowId,
    pub kind: EnvelopeKind,
    /// As the caller addressed it.
    pub to: String,
    /// As the caller addressed them.
    pub mentions: Vec<String>,
    pub priority: Priority,
    /// The envelope as it goes over the wire, every time (DR-06).
    pub payload: Vec<u8>,
    pub wire_fingerprint: Fingerprint,
    pub enqueued_at: WallMs,
}

/// The id of a row, and what it was asked with.
pub(crate) struct Identity<'a> {
    pub(crate) key: IdKey,
    pub(crate) mesh: MeshId,
    pub(crate) sender: &'a Party,
    pub(crate) client_message_id: &'a ClientMessageId,
    pub(crate) request_fingerprint: Fingerprint,
}

macro_rules! insert_row {
    ($tail:literal) => {
        concat!(
            "INSERT INTO outbox (
        row_id, id_key, mesh_id, member_id, agent, client_message_id, request_fingerprint,
        wire_fingerprint, status, kind, to_address, mentions, priority, enqueued_at, payload
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'pending', ?9, ?10, ?11, ?12, ?13, ?14)",
            $tail
        )
    };
}

pub(crate) const INSERT: &str = insert_row!("");

/// The look-up and the insert of an accept in one statement: the index of the keys is searched anyway.
pub(crate) const INSERT_IF_FREE: &str = insert_row!(" ON CONFLICT (id_key) DO NOTHING");

pub(crate) fn insert(
    connection: &Connection,
    identity: &Identity<'_>,
    new: &NewOutboxRow,
) -> Result<(), StoreError> {
    execute(connection, INSERT, identity, new).map(drop)
}

/// False if the key is taken; then nothing was written.
pub(crate) fn insert_if_free(
    connection: &Connection,
    identity: &Identity<'_>,
    new: &NewOutboxRow,
) -> Result<bool, StoreError> {
    Ok(execute(connection, INSERT_IF_FREE, identity, new)? > 0)
}

fn execute(
    connection: &Connection,
    sql: &'static str,
    identity: &Identity<'_>,
    new: &NewOutboxRow,
) -> Result<usize, StoreError> {
    Ok(connection.prepare_cached(sql)?.execute(params![
        new.row.0.to_bytes(),
        identity.key.0,
        identity.mesh.0.to_bytes(),
        identity.sender.member.0.to_bytes(),
        identity.sender.agent.as_str(),
        identity.client_message_id.as_str(),
        identity.request_fingerprint.0,
        new.wire_fingerprint.0,
        new.kind.as_str(),
        new.to,
        mentions_text(&new.mentions)?,
        new.priority.as_str(),
        new.enqueued_at.0,
        new.payload,
    ])?)
}

/// A JSON array, so that any text survives.
fn mentions_text(mentions: &[String]) -> Result<Cow<'static, str>, StoreError> {
    if mentions.is_empty() {
        return Ok(Cow::Borrowed("[]"));
    }
    serde_json::to_string(mentions)
        .map(Cow::Owned)
        .map_err(|error| StoreError::Corrupt(format!("mentions cannot be written: {error}")))
}
