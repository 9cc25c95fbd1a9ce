//! Accepting a send: look the id up, decide, and write only what is new, all in one job.

use heddle_core::fingerprint::Fingerprint;
use heddle_core::gate::{AcceptRow, ipc_accept};
use heddle_core::ids::{ClientMessageId, IdKey, MeshId, Party, RowId};
use heddle_core::outbox_status::OutboxStatus;
use rusqlite::Connection;

use crate::error::StoreError;
use crate::outbox::insert::{Identity, NewOutboxRow, insert_if_free};
use crate::outbox::lost::{self, LostMessage};
use crate::outbox::row::{BY_ID_KEY, OutboxRow, look_up};
use crate::outbox::senders::note_sender;
use crate::store::Store;

/// The id that a send consumes, and the fingerprint that says whether it is the same send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptKey {
    pub mesh: MeshId,
    pub sender: Party,
    pub client_message_id: ClientMessageId,
    pub request_fingerprint: Fingerprint,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Accepted<R> {
    /// The id was free; it is now bound to this row.
    Inserted { row: RowId },
    /// The id was taken. The row of the table says what to answer; nothing was written.
    Known {
        decision: &'static AcceptRow,
        /// Boxed: the answer of a fresh id, which is the hot one, stays small on its way to the caller.
        row: Box<OutboxRow>,
        /// Of one that is done: what became of it, if the broker has lost it since.
        lost: Option<Box<LostMessage>>,
    },
    /// The id is free and stays free, for the reason that came in as `fresh`.
    Refused(R),
}

impl Store {
    /// `fresh` is the row to write if the id is free, or why a new send cannot be taken. A known id
    /// is answered from the table whatever `fresh` says (C47).
    pub async fn accept<R: Send + 'static>(
        &self,
        key: AcceptKey,
        fresh: Result<NewOutboxRow, R>,
    ) -> Result<Accepted<R>, StoreError> {
        // Hashed here, so that the one writer does not have to.
        let id_key = IdKey::of(key.mesh, &key.sender, &key.client_message_id);
        if self.noted_senders.has(key.mesh, &key.sender) {
            // The hot path: one insert that finds out by itself whether the id is free.
            return self
                .write_single(move |connection| accept(connection, id_key, &key, fresh))
                .await;
        }
        let (mesh, sender) = (key.mesh, key.sender.clone());
        let accepted = self
            .write(move |connection| {
                let accepted = accept(connection, id_key, &key, fresh)?;
                if matches!(accepted, Accepted::Inserted { .. }) {
                    note_sender(connection, key.mesh, &key.sender)?;
                }
                Ok(accepted)
            })
            .await?;
        if matches!(accepted, Accepted::Inserted { .. }) {
            self.noted_senders.add(mesh, sender);
        }
        Ok(accepted)
    }
}

fn accept<R>(
    connection: &Connection,
    id_key: IdKey,
    key: &AcceptKey,
    fresh: Result<NewOutboxRow, R>,
) -> Result<Accepted<R>, StoreError> {
    let new = match fresh {
        Ok(new) => new,
        // C47: a known id is answered all the same.
        Err(refusal) => {
            let found = known(connection, id_key, key)?;
            return Ok(found.unwrap_or(Accepted::Refused(refusal)));
        }
    };
    let identity = Identity {
        key: id_key,
        mesh: key.mesh,
        sender: &key.sender,
        client_message_id: &key.client_message_id,
        request_fingerprint: key.request_fingerprint,
    };
    // "No row" is the one case of the table whose verdict is to insert.
    if insert_if_free(connection, &identity, &new)? {
        return Ok(Accepted::Inserted { row: new.row });
    }
    known(connection, id_key, key)?.ok_or_else(|| {
        let id = &key.client_message_id;
        StoreError::Corrupt(format!("the key of {id} is taken, but no row has it"))
    })
}

/// The answer to an id that is taken; `None` if it is free.
fn known<R>(
    connection: &Connection,
    id_key: IdKey,
    key: &AcceptKey,
) -> Result<Option<Accepted<R>>, StoreError> {
    let (mesh, sender, id) = (key.mesh, &key.sender, &key.client_message_id);
    let Some(row) = look_up(connection, BY_ID_KEY, id_key, mesh, sender, id)? else {
        return Ok(None);
    };
    let existing = Some((row.status, row.request_fingerprint));
    // A row that is done was committed once; whether its broker has it still is another question.
    let lost = match row.status {
        OutboxStatus::Done => lost::of(connection, row.arrival)?.map(Box::new),
        _ => None,
    };
    Ok(Some(Accepted::Known {
        lost,
        decision: ipc_accept(existing, key.request_fingerprint),
        row: Box::new(row),
    }))
}
