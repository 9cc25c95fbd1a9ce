//! Storing what a broker delivered, each message once per mailbox, with the cursor behind it (IN-01).

use heddle_core::ids::{HistoryId, IdKey, MeshId};
use heddle_core::names::TopicName;
use rusqlite::{Connection, params};

use crate::cells::history_cells;
use crate::error::StoreError;
use crate::inbox::cursor::read_cursor;
use crate::inbox::receipt::QUEUE_AT;
use crate::inbox::row::NewInboxRow;
use crate::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// New, at this place in the order of arrival.
    Stored(i64),
    /// In the mailbox already, perhaps under an older history id (C9), or taken by retention since.
    Duplicate,
}

pub(crate) const INSERT: &str = "
    INSERT INTO inbox (
        mesh_id, agent, history_epoch, history_seq, id_key, member_id, sender_agent, sender_name,
        client_message_id, broker_message_id, topic, priority, received_at, envelope,
        wire_fingerprint
    ) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15
    WHERE NOT EXISTS (SELECT 1 FROM inbox_past WHERE agent = ?2 AND id_key = ?5)
    ON CONFLICT DO NOTHING";

pub(crate) const HAS_KEY: &str = "
    SELECT 1 FROM inbox WHERE agent = ?1 AND id_key = ?2
    UNION ALL SELECT 1 FROM inbox_past WHERE agent = ?1 AND id_key = ?2";

pub(crate) const RAISE_CURSOR: &str = "
    INSERT INTO delivery (mesh_id, history_epoch, history_seq, item_count) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (mesh_id) DO UPDATE SET history_epoch = excluded.history_epoch,
        history_seq = excluded.history_seq, item_count = item_count + excluded.item_count";

impl Store {
    /// One transaction for the whole batch and for the mesh's cursor, which rises to the highest
    /// history id of the batch. The answers are in the order of the items.
    pub async fn receive(
        &self,
        mesh: MeshId,
        items: Vec<NewInboxRow>,
    ) -> Result<Vec<Received>, StoreError> {
        // Hashed here, so that the one writer does not have to.
        let items: Vec<(IdKey, NewInboxRow)> = items
            .into_iter()
            .map(|item| (IdKey::of(mesh, &item.sender, &item.client_message_id), item))
            .collect();
        let Some(highest) = items.iter().map(|(_, item)| item.history_id).max() else {
            return Ok(Vec::new());
        };
        self.write(move |connection| {
            let received = items
                .iter()
                .map(|(key, item)| store_item(connection, mesh, *key, item))
                .collect::<Result<Vec<_>, _>>()?;
            raise_cursor(connection, mesh, highest, &received)?;
            Ok(received)
        })
        .await
    }
}

pub(super) fn store_item(
    connection: &Connection,
    mesh: MeshId,
    key: IdKey,
    item: &NewInboxRow,
) -> Result<Received, StoreError> {
    let (epoch, seq) = history_cells(item.history_id);
    let stored = connection.prepare_cached(INSERT)?.execute(params![
        mesh.0.to_bytes(),
        item.agent.as_str(),
        epoch,
        seq,
        key.0,
        item.sender.member.0.to_bytes(),
        item.sender.agent.as_str(),
        item.sender_name.as_str(),
        item.client_message_id.as_str(),
        item.broker_message_id.0.to_bytes(),
        item.topic.as_ref().map(TopicName::as_str),
        item.priority.as_str(),
        item.received_at.0,
        item.envelope,
        item.fingerprint.map(|print| print.0),
    ])?;
    if stored == 1 {
        return Ok(Received::Stored(connection.last_insert_rowid()));
    }
    let same_message = connection
        .prepare_cached(HAS_KEY)?
        .exists(params![item.agent.as_str(), key.0])?;
    if !same_message {
        // A broker that was restored without a new epoch. Refusing the batch would stop the mailbox
        // for ever, so the place stays with the message that had it first.
        tracing::warn!(%mesh, history_id = %item.history_id, broker_message_id = %item.broker_message_id,
            "another message came under a history id that is taken; it was left out");
        return Ok(Received::Duplicate);
    }
    let again = params![item.agent.as_str(), key.0, epoch, seq];
    connection.prepare_cached(QUEUE_AT)?.execute(again)?;
    Ok(Received::Duplicate)
}

fn raise_cursor(
    connection: &Connection,
    mesh: MeshId,
    highest: HistoryId,
    received: &[Received],
) -> Result<(), StoreError> {
    let stored = received
        .iter()
        .filter(|one| matches!(one, Received::Stored(_)))
        .count();
    let current = read_cursor(connection, mesh)?;
    if stored == 0 && highest <= current {
        return Ok(());
    }
    let (epoch, seq) = history_cells(highest.max(current));
    connection.prepare_cached(RAISE_CURSOR)?.execute(params![
        mesh.0.to_bytes(),
        epoch,
        seq,
        i64::try_from(stored).unwrap_or(i64::MAX),
    ])?;
    Ok(())
}
