//! Warnings: what an agent of this home lost by the word of another, told once with its next answer (DESIGN §13.6).
//!
//! They wait on disk until they were told. That of a task stays behind as told, because a fold may find the same loss
//! again; that of a write goes, because a write is lost once.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::limits::WARNINGS_MAX;
use heddle_core::names::AgentName;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::{Value, json};
use ulid::Ulid;

use crate::cells::{Cells, count_cell};
use crate::data::lost_writes::as_it_stands;
use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossKind {
    /// Another claim stands before it.
    ClaimSuperseded,
    /// It was said to be done by somebody who had not claimed it, while another had.
    CompletionSuperseded,
    /// The task was finished before.
    FinishedElsewhere,
    LeaseExpired,
    /// By another, while the agent held it.
    Cancelled,
    /// Another wrote the same key without having seen this write, and that one stands.
    StateSuperseded,
    /// As that; in the same agent's name, since nobody else writes its memory.
    MemorySuperseded,
}

impl LossKind {
    const ALL: [Self; 7] = [
        Self::ClaimSuperseded,
        Self::CompletionSuperseded,
        Self::FinishedElsewhere,
        Self::LeaseExpired,
        Self::Cancelled,
        Self::StateSuperseded,
        Self::MemorySuperseded,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaimSuperseded => "task_claim_superseded",
            Self::CompletionSuperseded => "task_completion_superseded",
            Self::FinishedElsewhere => "task_finished_elsewhere",
            Self::LeaseExpired => "task_lease_expired",
            Self::Cancelled => "task_cancelled",
            Self::StateSuperseded => "state_write_superseded",
            Self::MemorySuperseded => "memory_write_superseded",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LossAbout {
    Task {
        id: String,
        title: String,
    },
    Write {
        key: String,
        /// Older losses of the agent that there was no room to keep.
        left_out: u64,
    },
}

/// One of the two sides: who, under which number, and what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossSide {
    pub peer: String,
    pub lamport: u64,
    /// Of a write only.
    pub value: Option<LostValue>,
}

/// A value as a warning keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostValue {
    Deleted,
    /// Canonical JSON.
    Whole(String),
    /// The first bytes of it, and how many it has.
    Begins(String, u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub kind: LossKind,
    pub about: LossAbout,
    pub yours: LossSide,
    pub theirs: LossSide,
    /// What stands when it is told, where it is another write by then. Not kept.
    pub now: Option<LossSide>,
}

const MEMBER: &str = "SELECT member_id FROM mesh WHERE mesh_id = ?1";

const WARN: &str = "
    INSERT INTO warning (mesh_id, agent, subject, cause, body) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO NOTHING";

pub(crate) const DUE: &str = "
    SELECT place, body FROM warning
    WHERE mesh_id = ?1 AND agent = ?2 AND shown_at IS NULL ORDER BY place LIMIT ?3";

pub(crate) const SHOW: &str = "UPDATE warning SET shown_at = ?2 WHERE place = ?1";

pub(crate) const DROP: &str = "DELETE FROM warning WHERE place = ?1";

impl Store {
    /// What the agent is to be told now. From here on it counts as told.
    pub async fn take_warnings(
        &self,
        mesh: MeshId,
        agent: AgentName,
        now: WallMs,
    ) -> Result<Vec<Loss>, StoreError> {
        let name = agent.clone();
        let look = self.read_few(move |connection| due(connection, mesh, name.as_str()));
        if look.await?.is_empty() {
            return Ok(Vec::new());
        }
        // Read again where nobody else can: two calls at once tell it once.
        self.write(move |connection| {
            let mut told = Vec::new();
            for (place, loss) in due(connection, mesh, agent.as_str())? {
                match loss.about {
                    LossAbout::Task { .. } => connection
                        .prepare_cached(SHOW)?
                        .execute(params![place, now.0])?,
                    LossAbout::Write { .. } => connection.prepare_cached(DROP)?.execute([place])?,
                };
                told.push(as_it_stands(connection, mesh, loss)?);
            }
            Ok(told)
        })
        .await
    }
}

fn due(connection: &Connection, mesh: MeshId, agent: &str) -> Result<Vec<(i64, Loss)>, StoreError> {
    let mut statement = connection.prepare_cached(DUE)?;
    let most = i64::try_from(WARNINGS_MAX).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![mesh.0.to_bytes(), agent, most])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("warning", row);
        let place = cells.get()?;
        let loss = cells.parsed(|text| loss_of(text).ok_or("not a warning of ours"))?;
        found.push((place, loss));
    }
    Ok(found)
}

/// What a peer of this home begins with; none where the mesh is not here.
pub(super) fn own_prefix(
    connection: &Connection,
    mesh: MeshId,
) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached(MEMBER)?;
    let member = statement.query_row([mesh.0.to_bytes()], |row| row.get::<_, [u8; 16]>(0));
    let member = member.optional()?;
    Ok(member.map(|member| format!("{}/", MemberId(Ulid::from_bytes(member)))))
}

/// The agent is told with its next answer. What it is about and which loss of it are known once.
pub(super) fn warn(
    connection: &Connection,
    mesh: MeshId,
    agent: &str,
    (subject, cause): (&str, u64),
    loss: &Loss,
) -> Result<(), StoreError> {
    connection.prepare_cached(WARN)?.execute(params![
        mesh.0.to_bytes(),
        agent,
        subject,
        count_cell(cause)?,
        body_of(loss).to_string(),
    ])?;
    Ok(())
}

pub(super) fn body_of(loss: &Loss) -> Value {
    let side = |side: &LossSide| {
        let mut body = json!({"peer": side.peer, "lamport": side.lamport});
        match &side.value {
            None => {}
            Some(LostValue::Deleted) => body["deleted"] = json!(true),
            Some(LostValue::Whole(text)) => body["value"] = json!(text),
            Some(LostValue::Begins(text, bytes)) => {
                body["begins"] = json!(text);
                body["bytes"] = json!(bytes);
            }
        }
        body
    };
    let mut body = json!({
        "type": loss.kind.as_str(),
        "yours": side(&loss.yours),
        "theirs": side(&loss.theirs),
    });
    match &loss.about {
        LossAbout::Task { id, title } => {
            body["task_id"] = json!(id);
            body["title"] = json!(title);
        }
        LossAbout::Write { key, left_out } => {
            body["key"] = json!(key);
            body["left_out"] = json!(left_out);
        }
    }
    body
}

pub(super) fn loss_of(text: &str) -> Option<Loss> {
    let body: Value = serde_json::from_str(text).ok()?;
    let words = |value: &Value| value.as_str().map(str::to_owned);
    let side = |name: &str| {
        let side = &body[name];
        let value = match (words(&side["value"]), words(&side["begins"])) {
            (Some(whole), _) => Some(LostValue::Whole(whole)),
            (None, Some(begins)) => Some(LostValue::Begins(begins, side["bytes"].as_u64()?)),
            (None, None) => (side["deleted"] == true).then_some(LostValue::Deleted),
        };
        Some(LossSide {
            peer: words(&side["peer"])?,
            lamport: side["lamport"].as_u64()?,
            value,
        })
    };
    let about = match words(&body["key"]) {
        Some(key) => LossAbout::Write {
            key,
            left_out: body["left_out"].as_u64()?,
        },
        None => LossAbout::Task {
            id: words(&body["task_id"])?,
            title: words(&body["title"])?,
        },
    };
    Some(Loss {
        kind: LossKind::parse(body["type"].as_str()?)?,
        about,
        yours: side("yours")?,
        theirs: side("theirs")?,
        now: None,
    })
}
