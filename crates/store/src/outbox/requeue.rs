//! Requeue: retire a row that is stuck and let a successor carry on under a fresh id (v10 §4.6.3).

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, IdKey, RowId};
use heddle_core::outbox_status::OutboxStatus;
use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::outbox::insert::{Identity, NewOutboxRow, insert};
use crate::outbox::row::{BY_ID_KEY, OutboxRow, look_up, read_rows, select_row};
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeue {
    pub old: RowId,
    /// The successor; it has the mesh and the sender of the old row.
    pub new: NewOutboxRow,
    pub new_client_message_id: ClientMessageId,
    pub request_fingerprint: Fingerprint,
    pub aborted_by: String,
    pub now: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for one answer; a box would only stand in its readers' way"
)]
pub enum Requeued {
    Done {
        old: OutboxRow,
        new: OutboxRow,
    },
    /// In flight, done, or aborted before; nothing changed.
    NotRequeueable(OutboxStatus),
    /// The sender has used that id before; nothing changed.
    IdTaken,
    Unknown,
}

const BY_ROW_ID: &str = select_row!(without_payload, "FROM outbox WHERE row_id = ?1");

pub(crate) const ABORT: &str = "
    UPDATE outbox SET status = 'aborted', aborted_at = ?2, aborted_by = ?3, superseded_by = ?4
    WHERE row_id = ?1";

impl Store {
    /// One transaction: either both rows are as they should be or neither has changed (DR-11).
    pub async fn requeue(&self, requeue: Requeue) -> Result<Requeued, StoreError> {
        self.write(move |connection| run(connection, &requeue))
            .await
    }
}

fn run(connection: &Connection, requeue: &Requeue) -> Result<Requeued, StoreError> {
    let Some(old) = by_row_id(connection, requeue.old)? else {
        return Ok(Requeued::Unknown);
    };
    if !old.status.may_become(OutboxStatus::Aborted) {
        return Ok(Requeued::NotRequeueable(old.status));
    }
    let id = &requeue.new_client_message_id;
    let key = IdKey::of(old.mesh, &old.sender, id);
    if look_up(connection, BY_ID_KEY, key, old.mesh, &old.sender, id)?.is_some() {
        return Ok(Requeued::IdTaken);
    }
    let identity = Identity {
        key,
        mesh: old.mesh,
        sender: &old.sender,
        client_message_id: id,
        request_fingerprint: requeue.request_fingerprint,
    };
    // IMPORTANT: the successor first; a row may only name one that exists (DR-13).
    insert(connection, &identity, &requeue.new)?;
    connection.prepare_cached(ABORT)?.execute(params![
        requeue.old.0.to_bytes(),
        requeue.now.0,
        requeue.aborted_by,
        requeue.new.row.0.to_bytes(),
    ])?;
    match (
        by_row_id(connection, requeue.old)?,
        by_row_id(connection, requeue.new.row)?,
    ) {
        (Some(old), Some(new)) => Ok(Requeued::Done { old, new }),
        _ => Err(StoreError::Corrupt(format!(
            "outbox row {} or its successor is gone right after the requeue",
            old.arrival
        ))),
    }
}

fn by_row_id(connection: &Connection, row: RowId) -> Result<Option<OutboxRow>, StoreError> {
    Ok(read_rows(connection, BY_ROW_ID, [row.0.to_bytes()])?.pop())
}
