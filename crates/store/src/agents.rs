//! The agents of this home: mailboxes with a name, and how much lies unread in each.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::names::AgentName;
use rusqlite::params;

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    pub agent: AgentName,
    pub registered_at: WallMs,
    pub unread: u64,
}

impl Store {
    /// True if the name was free; a name that is taken keeps its first registration.
    pub async fn register_agent(
        &self,
        mesh: MeshId,
        agent: AgentName,
        now: WallMs,
    ) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let inserted = connection
                .prepare_cached(
                    "INSERT INTO agent (mesh_id, agent, registered_at) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO NOTHING",
                )?
                .execute(params![mesh.0.to_bytes(), agent.as_str(), now.0])?;
            Ok(inserted == 1)
        })
        .await
    }

    /// In order of their names.
    pub async fn agents(&self, mesh: MeshId) -> Result<Vec<AgentRow>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(AGENTS)?;
            let mut rows = statement.query([mesh.0.to_bytes()])?;
            let mut agents = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("agent", row);
                agents.push(AgentRow {
                    agent: cells.parsed(AgentName::parse)?,
                    registered_at: cells.wall()?,
                    unread: cells.get::<i64>()?.cast_unsigned(),
                });
            }
            Ok(agents)
        })
        .await
    }
}

pub(crate) const AGENTS: &str = "
    SELECT agent.agent, agent.registered_at, (
        SELECT count(*) FROM inbox
        WHERE inbox.mesh_id = agent.mesh_id AND inbox.agent = agent.agent
            AND inbox.acked_at IS NULL
    )
    FROM agent WHERE agent.mesh_id = ?1 ORDER BY agent.agent";
