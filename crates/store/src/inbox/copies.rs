//! Where one message lies in the mailboxes of this home.

use heddle_core::ids::{ClientMessageId, HistoryId, IdKey, MeshId, Party};
use heddle_core::names::AgentName;
use rusqlite::params;

use crate::cells::history_cells;
use crate::error::StoreError;
use crate::inbox::row::{InboxRow, inbox_columns, read_row};
use crate::store::Store;

pub(crate) const COPY: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM inbox WHERE agent = ?1 AND id_key = ?2"
);

pub(crate) const IS_KNOWN: &str = "
    SELECT 1 FROM inbox WHERE agent = ?1 AND id_key = ?2
    UNION ALL SELECT 1 FROM inbox_past WHERE agent = ?1 AND id_key = ?2";

// Work of a queue never lies in a mailbox: of what was taken only the ids are kept.
const NOTE_TAKEN: &str = "
    INSERT INTO inbox_past (agent, id_key, mesh_id, history_epoch, history_seq)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";

impl Store {
    /// Remembers that this agent took these messages from a queue, so that an answer to one of them is known
    /// for what it is. A hint: without a sync of its own.
    pub async fn inbox_note_taken(
        &self,
        mesh: MeshId,
        agent: AgentName,
        taken: Vec<(Party, ClientMessageId, HistoryId)>,
    ) -> Result<(), StoreError> {
        self.write_relaxed(move |connection| {
            let mut statement = connection.prepare_cached(NOTE_TAKEN)?;
            for (sender, id, history_id) in &taken {
                let key = IdKey::of(mesh, sender, id);
                let (epoch, seq) = history_cells(*history_id);
                statement.execute(params![
                    agent.as_str(),
                    key.0,
                    mesh.0.to_bytes(),
                    epoch,
                    seq
                ])?;
            }
            Ok(())
        })
        .await
    }

    /// The items under this id of this sender, in these mailboxes.
    pub async fn inbox_copies(
        &self,
        mesh: MeshId,
        sender: Party,
        id: ClientMessageId,
        agents: Vec<AgentName>,
    ) -> Result<Vec<InboxRow>, StoreError> {
        let key = IdKey::of(mesh, &sender, &id);
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(COPY)?;
            let mut copies = Vec::new();
            for agent in &agents {
                let mut rows = statement.query(params![agent.as_str(), key.0])?;
                while let Some(row) = rows.next()? {
                    copies.push(read_row(row)?);
                }
            }
            Ok(copies)
        })
        .await
    }

    /// Whether one of these senders has sent something under this id to this mailbox, though retention may
    /// have taken it since.
    pub async fn inbox_knows(
        &self,
        mesh: MeshId,
        senders: Vec<Party>,
        id: ClientMessageId,
        agent: AgentName,
    ) -> Result<bool, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(IS_KNOWN)?;
            for sender in &senders {
                let key = IdKey::of(mesh, sender, &id);
                if statement.exists(params![agent.as_str(), key.0])? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }
}
