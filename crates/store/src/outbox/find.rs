//! Finding rows by what a person has in hand, and the chain of successors around one.

use std::collections::BTreeSet;

use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, IdKey, MeshId, RowId};
use heddle_core::names::AgentName;
use rusqlite::Connection;

use crate::cells::history_cells;
use crate::error::StoreError;
use crate::outbox::row::{OutboxRow, not_its_text, read_rows_shown, select_row};
use crate::outbox::senders::senders;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxFind {
    Row(RowId),
    /// Several senders may have used the same id (C1); mesh and agent narrow it down.
    ClientMessageId {
        id: ClientMessageId,
        mesh: Option<MeshId>,
        agent: Option<AgentName>,
    },
    /// What the broker called it. Goes through the whole outbox: nobody but a person asks so.
    BrokerMessageId(BrokerMessageId),
    /// Where it stands in a mesh's history; every mesh has one of its own. The same price.
    HistoryId(HistoryId),
}

pub(crate) const BY_ROW_ID: &str = select_row!(with_payload, "FROM outbox WHERE row_id = ?1");

const BY_ID_KEY_WITH_PAYLOAD: &str = select_row!(with_payload, "FROM outbox WHERE id_key = ?1");

const BY_BROKER_ID: &str = select_row!(with_payload, "FROM outbox WHERE broker_message_id = ?1");

const BY_PLACE: &str = select_row!(
    with_payload,
    "FROM outbox WHERE history_epoch = ?1 AND history_seq = ?2"
);

pub(crate) const BY_PREDECESSOR: &str =
    select_row!(without_payload, "FROM outbox WHERE superseded_by = ?1");

impl Store {
    /// In order of arrival, with their payloads.
    pub async fn outbox_find(&self, find: OutboxFind) -> Result<Vec<OutboxRow>, StoreError> {
        self.read(move |connection| match find {
            OutboxFind::Row(row) => read_rows_shown(connection, BY_ROW_ID, [row.0.to_bytes()]),
            OutboxFind::ClientMessageId { id, mesh, agent } => {
                find_by_client_id(connection, &id, mesh, agent.as_ref())
            }
            OutboxFind::BrokerMessageId(id) => {
                read_rows_shown(connection, BY_BROKER_ID, [id.0.to_bytes()])
            }
            OutboxFind::HistoryId(place) => {
                let (epoch, seq) = history_cells(place);
                read_rows_shown(connection, BY_PLACE, [epoch, seq])
            }
        })
        .await
    }

    /// The whole chain that the row belongs to, oldest first, with payloads; empty if there is no
    /// such row.
    pub async fn outbox_chain(&self, row: RowId) -> Result<Vec<OutboxRow>, StoreError> {
        self.read(move |connection| {
            let oldest = oldest_of_chain(connection, row)?;
            let mut chain = Vec::new();
            let mut seen = BTreeSet::new();
            let mut next = Some(oldest);
            // Chains cannot close (DR-13); a damaged one must not hang its reader all the same.
            while let Some(row) = next.take().filter(|row| seen.insert(*row)) {
                for found in read_rows_shown(connection, BY_ROW_ID, [row.0.to_bytes()])? {
                    next = found.superseded_by;
                    chain.push(found);
                }
            }
            Ok(chain)
        })
        .await
    }
}

fn oldest_of_chain(connection: &Connection, row: RowId) -> Result<RowId, StoreError> {
    let mut oldest = row;
    let mut seen = BTreeSet::from([row]);
    loop {
        let before = read_rows_shown(connection, BY_PREDECESSOR, [oldest.0.to_bytes()])?;
        match before.first().map(|row| row.row) {
            Some(row) if seen.insert(row) => oldest = row,
            _ => return Ok(oldest),
        }
    }
}

fn find_by_client_id(
    connection: &Connection,
    id: &ClientMessageId,
    mesh: Option<MeshId>,
    agent: Option<&AgentName>,
) -> Result<Vec<OutboxRow>, StoreError> {
    let mut found = Vec::new();
    for (mesh, sender) in senders(connection, mesh, agent)? {
        let key = IdKey::of(mesh, &sender, id);
        for mut row in read_rows_shown(connection, BY_ID_KEY_WITH_PAYLOAD, [key.0])? {
            let is_it = row.mesh == mesh && row.sender == sender && row.client_message_id == *id;
            if !is_it && row.damaged.is_none() {
                return Err(not_its_text(&row, mesh, &sender, id));
            }
            // Of a damaged one the key says whose it is.
            (row.sender, row.client_message_id) = (sender.clone(), id.clone());
            found.push(row);
        }
    }
    found.sort_unstable_by_key(|row: &OutboxRow| row.arrival);
    Ok(found)
}
