//! Storing what a broker delivered, each message once per mailbox, with the cursor behind it (IN-01).

use heddle_core::ids::{HistoryId, IdKey, MeshId};
use heddle_core::names::TopicName;
use heddle_core::witness::Witness;
use rusqlite::{Connection, OptionalExtension as _, params};

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
    /// The same, but another message stood at its place of the history.
    Displacing(i64, Witness),
    /// In the mailbox already, perhaps under an older history id (C9), or taken by retention since.
    Duplicate,
}

impl Received {
    /// Where it is, if it is new.
    pub fn arrival(self) -> Option<i64> {
        match self {
            Self::Stored(arrival) | Self::Displacing(arrival, _) => Some(arrival),
            Self::Duplicate => None,
        }
    }
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

pub(crate) const AT_PLACE: &str = "
    SELECT id_key FROM inbox
    WHERE mesh_id = ?1 AND agent = ?2 AND history_epoch = ?3 AND history_seq = ?4";

// It keeps everything but its place, which no broker gives: what was said of that one is not said of it any more.
pub(crate) const SET_ASIDE: &str = "
    UPDATE inbox SET history_epoch = 0, history_seq = arrival
    WHERE mesh_id = ?1 AND agent = ?2 AND history_epoch = ?3 AND history_seq = ?4";

pub(crate) const UNSAY: &str = "
    DELETE FROM inbox_receipt
    WHERE mesh_id = ?1 AND agent = ?2 AND history_epoch = ?3 AND history_seq = ?4";

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
    if insert(connection, mesh, key, item)? {
        return Ok(Received::Stored(connection.last_insert_rowid()));
    }
    let (epoch, seq) = history_cells(item.history_id);
    let same_message = connection
        .prepare_cached(HAS_KEY)?
        .exists(params![item.agent.as_str(), key.0])?;
    if same_message {
        let again = params![item.agent.as_str(), key.0, epoch, seq];
        connection.prepare_cached(QUEUE_AT)?.execute(again)?;
        return Ok(Received::Duplicate);
    }
    displace(connection, mesh, key, item)
}

/// A place that is another message's here. The broker says whose it is: its past was replaced by an older one, and it went on.
/// Neither of the two messages may be lost for that, and one must not be told for the other.
fn displace(
    connection: &Connection,
    mesh: MeshId,
    key: IdKey,
    item: &NewInboxRow,
) -> Result<Received, StoreError> {
    let (epoch, seq) = history_cells(item.history_id);
    let mesh_key = mesh.0.to_bytes();
    let at = params![mesh_key, item.agent.as_str(), epoch, seq];
    let before: Option<[u8; 24]> = connection
        .prepare_cached(AT_PLACE)?
        .query_row(at, |row| row.get(0))
        .optional()?;
    connection.prepare_cached(SET_ASIDE)?.execute(at)?;
    connection.prepare_cached(UNSAY)?.execute(at)?;
    if !insert(connection, mesh, key, item)? {
        return Err(StoreError::Corrupt(format!(
            "inbox: {} cannot be kept, and nothing stands in its place",
            item.history_id
        )));
    }
    let arrival = connection.last_insert_rowid();
    tracing::warn!(%mesh, history_id = %item.history_id, broker_message_id = %item.broker_message_id,
        "another message stood at this place of the history: the broker is an earlier copy of itself that went on; both are kept, and it is told");
    Ok(before.map_or(Received::Stored(arrival), |id| {
        let place = item.history_id;
        let id = IdKey(id);
        Received::Displacing(arrival, Witness { place, id })
    }))
}

fn insert(
    connection: &Connection,
    mesh: MeshId,
    key: IdKey,
    item: &NewInboxRow,
) -> Result<bool, StoreError> {
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
    Ok(stored == 1)
}

fn raise_cursor(
    connection: &Connection,
    mesh: MeshId,
    highest: HistoryId,
    received: &[Received],
) -> Result<(), StoreError> {
    let stored = received
        .iter()
        .filter(|one| one.arrival().is_some())
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
