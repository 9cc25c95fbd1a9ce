//! Who ever sent from this home, so that a client id alone can be looked up without an index of its own.
//!
//! The table is written in the transaction of a sender's first row. The set in memory only spares the
//! writer the thousandth attempt to note the same sender.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use heddle_core::ids::{MemberId, MeshId, Party};
use heddle_core::names::AgentName;
use rusqlite::{Connection, params};

use crate::cells::Cells;
use crate::error::StoreError;

pub(crate) const NOTE_SENDER: &str = "
    INSERT INTO outbox_sender (mesh_id, member_id, agent) VALUES (?1, ?2, ?3)
    ON CONFLICT DO NOTHING";

pub(crate) const SENDERS: &str = "
    SELECT agent, mesh_id, member_id FROM outbox_sender
    WHERE (?1 IS NULL OR mesh_id = ?1) AND (?2 IS NULL OR agent = ?2)";

/// Senders whose note is on disk; as many as there are agents.
#[derive(Clone, Default)]
pub(crate) struct NotedSenders(Arc<Mutex<HashMap<MeshId, HashSet<Party>>>>);

impl NotedSenders {
    pub(crate) fn has(&self, mesh: MeshId, sender: &Party) -> bool {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get(&mesh).is_some_and(|noted| noted.contains(sender))
    }

    /// IMPORTANT: only after the commit that carries the note.
    pub(crate) fn add(&self, mesh: MeshId, sender: Party) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.entry(mesh).or_default().insert(sender);
    }
}

pub(crate) fn note_sender(
    connection: &Connection,
    mesh: MeshId,
    sender: &Party,
) -> Result<(), StoreError> {
    connection.prepare_cached(NOTE_SENDER)?.execute(params![
        mesh.0.to_bytes(),
        sender.member.0.to_bytes(),
        sender.agent.as_str(),
    ])?;
    Ok(())
}

pub(crate) fn senders(
    connection: &Connection,
    mesh: Option<MeshId>,
    agent: Option<&AgentName>,
) -> Result<Vec<(MeshId, Party)>, StoreError> {
    let mut statement = connection.prepare_cached(SENDERS)?;
    let mut rows = statement.query(params![
        mesh.map(|mesh| mesh.0.to_bytes()),
        agent.map(AgentName::as_str),
    ])?;
    let mut senders = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("outbox_sender", row);
        let agent = cells.parsed(AgentName::parse)?;
        let mesh = MeshId(cells.ulid()?);
        let member = MemberId(cells.ulid()?);
        senders.push((mesh, Party { member, agent }));
    }
    Ok(senders)
}
