//! Writing a new row: the only place that does, for accept and for requeue.

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

pub(crate) const INSERT: &str = "
    INSERT INTO outbox (
        row_id, id_key, mesh_id, member_id, agent, client_message_id, request_fingerprint,
        wire_fingerprint, status, kind, to_address, mentions, priority, enqueued_at, payload
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'pending', ?9, ?10, ?11, ?12, ?13, ?14)";

pub(crate) fn insert(
    connection: &Connection,
    identity: &Identity<'_>,
    new: &NewOutboxRow,
) -> Result<(), StoreError> {
    connection.prepare_cached(INSERT)?.execute(params![
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
    ])?;
    Ok(())
}

/// A JSON array, so that any text survives.
fn mentions_text(mentions: &[String]) -> Result<String, StoreError> {
    serde_json::to_string(mentions)
        .map_err(|error| StoreError::Corrupt(format!("mentions cannot be written: {error}")))
}
