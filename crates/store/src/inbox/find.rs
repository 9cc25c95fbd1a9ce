//! Finding what lies in the mailboxes of this home by an id, whoever sent it.
//!
//! There is no index by the sender's id alone, because every delivery would pay for it and only a person who asks for a
//! story needs it: the mailboxes are read in stretches, newest first, their texts left alone.

use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, IdKey, MeshId, Party};
use heddle_core::names::AgentName;
use rusqlite::params;

use crate::cells::{Cells, history_cells};
use crate::error::StoreError;
use crate::inbox::row::{InboxRow, inbox_columns, read_row};
use crate::store::Store;

/// Arrivals that one stretch goes through.
const STRETCH: i64 = 20_000;
/// Copies of one message that are told at most.
const FOUND_MAX: usize = 64;

/// What an item is asked for by; any of them that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxFind {
    pub id: Option<ClientMessageId>,
    pub message: Option<BrokerMessageId>,
    pub place: Option<HistoryId>,
    pub mesh: Option<MeshId>,
    /// The mailbox.
    pub agent: Option<AgentName>,
}

pub(crate) const FIND: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM inbox WHERE arrival > ?1 AND arrival <= ?2
        AND (client_message_id = ?3 OR broker_message_id = ?4 OR (history_epoch = ?5 AND history_seq = ?6))
        AND (?7 IS NULL OR mesh_id = ?7) AND (?8 IS NULL OR agent = ?8)
     ORDER BY arrival DESC LIMIT ?9"
);

pub(crate) const PAST: &str = "
    SELECT history_epoch, history_seq FROM inbox_past WHERE agent = ?1 AND id_key = ?2";

impl Store {
    /// The items that fit, newest first.
    pub async fn inbox_find(&self, find: InboxFind) -> Result<Vec<InboxRow>, StoreError> {
        let mut found = Vec::new();
        let mut through = self.last_arrival().await?;
        while through > 0 && found.len() < FOUND_MAX {
            let (find, after) = (find.clone(), through.saturating_sub(STRETCH).max(0));
            let left = FOUND_MAX - found.len();
            let part = self.read(move |connection| {
                let place = find.place.map(history_cells);
                let mut statement = connection.prepare_cached(FIND)?;
                let mut rows = statement.query(params![
                    after,
                    through,
                    find.id.as_ref().map(ClientMessageId::as_str),
                    find.message.map(|id| id.0.to_bytes()),
                    place.map(|(epoch, _)| epoch),
                    place.map(|(_, seq)| seq),
                    find.mesh.map(|mesh| mesh.0.to_bytes()),
                    find.agent.as_ref().map(AgentName::as_str),
                    i64::try_from(left).unwrap_or(i64::MAX),
                ])?;
                let mut part = Vec::new();
                while let Some(row) = rows.next()? {
                    part.push(read_row(row)?);
                }
                Ok(part)
            });
            found.extend(part.await?);
            through = after;
        }
        Ok(found)
    }

    /// Mailboxes that had something under this id of one of these senders, of which only the id is left: retention
    /// took it, or it was work of a queue, which never lies in a mailbox.
    pub async fn inbox_past_of(
        &self,
        mesh: MeshId,
        senders: Vec<Party>,
        id: ClientMessageId,
        agents: Vec<AgentName>,
    ) -> Result<Vec<(AgentName, Party, HistoryId)>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(PAST)?;
            let mut found = Vec::new();
            for sender in &senders {
                let key = IdKey::of(mesh, sender, &id);
                for agent in &agents {
                    let mut rows = statement.query(params![agent.as_str(), key.0])?;
                    if let Some(row) = rows.next()? {
                        let place = Cells::of("inbox_past", row).history()?;
                        found.push((agent.clone(), sender.clone(), place));
                    }
                }
            }
            Ok(found)
        })
        .await
    }
}
