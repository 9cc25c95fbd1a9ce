//! Warnings: what an agent of this home lost by the word of another, told once with its next answer.
//!
//! They are folded like everything else of a task: a loss that an op makes undone before it was told is
//! taken back. One loss of one claim is one warning, whatever the loser did under it (LF-24).

use std::collections::BTreeMap;

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::limits::WARNINGS_MAX;
use heddle_core::names::AgentName;
use heddle_core::task::fold::{Task, TaskEvent};
use heddle_core::task::{EventKind, TaskId};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::{Value, json};
use ulid::Ulid;

use crate::cells::{Cells, count_cell};
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
}

impl LossKind {
    const ALL: [Self; 5] = [
        Self::ClaimSuperseded,
        Self::CompletionSuperseded,
        Self::FinishedElsewhere,
        Self::LeaseExpired,
        Self::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaimSuperseded => "task_claim_superseded",
            Self::CompletionSuperseded => "task_completion_superseded",
            Self::FinishedElsewhere => "task_finished_elsewhere",
            Self::LeaseExpired => "task_lease_expired",
            Self::Cancelled => "task_cancelled",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// One of the two sides: who, and under which number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossSide {
    pub peer: String,
    pub lamport: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub kind: LossKind,
    pub task_id: String,
    pub title: String,
    pub yours: LossSide,
    pub theirs: LossSide,
}

const MEMBER: &str = "SELECT member_id FROM mesh WHERE mesh_id = ?1";

pub(crate) const KNOWN: &str = "
    SELECT place, agent, cause, shown_at FROM warning WHERE mesh_id = ?1 AND subject = ?2";

const TAKE_BACK: &str = "DELETE FROM warning WHERE place = ?1";

const WARN: &str = "
    INSERT INTO warning (mesh_id, agent, subject, cause, body) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO NOTHING";

pub(crate) const DUE: &str = "
    SELECT place, body FROM warning
    WHERE mesh_id = ?1 AND agent = ?2 AND shown_at IS NULL ORDER BY place LIMIT ?3";

pub(crate) const SHOW: &str = "UPDATE warning SET shown_at = ?2 WHERE place = ?1";

impl Store {
    /// What the agent is to be told now. From here on it counts as told.
    pub async fn take_warnings(
        &self,
        mesh: MeshId,
        agent: AgentName,
        now: WallMs,
    ) -> Result<Vec<Loss>, StoreError> {
        let name = agent.clone();
        let look = self.read_few(move |connection| due(connection, mesh, &name));
        if look.await?.is_empty() {
            return Ok(Vec::new());
        }
        // Read again where nobody else can: two calls at once tell it once.
        self.write(move |connection| {
            let found = due(connection, mesh, &agent)?;
            let mut show = connection.prepare_cached(SHOW)?;
            for (place, _) in &found {
                show.execute(params![place, now.0])?;
            }
            Ok(found.into_iter().map(|(_, loss)| loss).collect())
        })
        .await
    }
}

fn due(
    connection: &Connection,
    mesh: MeshId,
    agent: &AgentName,
) -> Result<Vec<(i64, Loss)>, StoreError> {
    let mut statement = connection.prepare_cached(DUE)?;
    let most = i64::try_from(WARNINGS_MAX).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![mesh.0.to_bytes(), agent.as_str(), most])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("warning", row);
        let place = cells.get()?;
        let loss = cells.parsed(|text| loss_of(text).ok_or("not a warning of ours"))?;
        found.push((place, loss));
    }
    Ok(found)
}

/// Brings the warnings about a task in line with its record.
pub(super) fn reconcile(
    connection: &Connection,
    mesh: MeshId,
    id: TaskId,
    task: &Task,
) -> Result<(), StoreError> {
    let subject = id.to_string();
    let mut losses = losses(connection, mesh, &subject, task)?;
    let mut known = connection.prepare_cached(KNOWN)?;
    let mut rows = known.query(params![mesh.0.to_bytes(), subject])?;
    let mut undone = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("warning", row);
        let place: i64 = cells.get()?;
        let key = (cells.get::<String>()?, cells.count()?);
        let is_shown = cells.wall_or_null()?.is_some();
        let still = losses.remove(&key).is_some();
        if !still && !is_shown {
            undone.push(place);
        }
    }
    for place in undone {
        connection.prepare_cached(TAKE_BACK)?.execute([place])?;
    }
    let mut warn = connection.prepare_cached(WARN)?;
    for ((agent, cause), loss) in &losses {
        warn.execute(params![
            mesh.0.to_bytes(),
            agent,
            subject,
            count_cell(*cause)?,
            body_of(loss).to_string(),
        ])?;
    }
    Ok(())
}

/// By the agent and the number of the claim that was lost.
fn losses(
    connection: &Connection,
    mesh: MeshId,
    subject: &str,
    task: &Task,
) -> Result<BTreeMap<(String, u64), Loss>, StoreError> {
    let mut found = BTreeMap::new();
    if task.events.is_empty() {
        return Ok(found);
    }
    let mut statement = connection.prepare_cached(MEMBER)?;
    let member = statement.query_row([mesh.0.to_bytes()], |row| row.get::<_, [u8; 16]>(0));
    let Some(member) = member.optional()? else {
        return Ok(found);
    };
    let own = format!("{}/", MemberId(Ulid::from_bytes(member)));
    for event in &task.events {
        let Some((kind, cause, yours, theirs)) = lost(event) else {
            continue;
        };
        let Some(agent) = yours.peer.strip_prefix(&own).map(str::to_owned) else {
            continue;
        };
        found.entry((agent, cause)).or_insert_with(|| Loss {
            kind,
            task_id: subject.to_owned(),
            title: task.title.as_str().to_owned(),
            yours,
            theirs,
        });
    }
    Ok(found)
}

/// Who lost what by this, and to whom.
fn lost(event: &TaskEvent) -> Option<(LossKind, u64, LossSide, LossSide)> {
    let side = |peer: &str, lamport| LossSide {
        peer: peer.to_owned(),
        lamport,
    };
    let cause = event.fence.unwrap_or(event.lamport);
    let own = side(event.peer.as_str(), cause);
    let conflict = event
        .conflict
        .as_ref()
        .map(|(peer, lamport)| side(peer.as_str(), *lamport));
    match event.kind {
        EventKind::Superseded => {
            let theirs = conflict.unwrap_or_else(|| own.clone());
            // A claim has its own number, a release that of its claim; only a completion may have none.
            let kind = match event.fence {
                Some(_) => LossKind::ClaimSuperseded,
                None => LossKind::CompletionSuperseded,
            };
            Some((kind, cause, own, theirs))
        }
        EventKind::RejectedTerminal => {
            let theirs = conflict.unwrap_or_else(|| own.clone());
            Some((LossKind::FinishedElsewhere, cause, own, theirs))
        }
        // Given back by the holder itself: no conflict, nothing lost.
        EventKind::Released => Some((LossKind::LeaseExpired, cause, own, conflict?)),
        EventKind::Cancelled => {
            let holder = conflict?;
            let theirs = side(event.peer.as_str(), event.lamport);
            Some((LossKind::Cancelled, holder.lamport, holder, theirs))
        }
        EventKind::Claimed | EventKind::Completed => None,
    }
}

fn body_of(loss: &Loss) -> Value {
    let side = |side: &LossSide| json!({"peer": side.peer, "lamport": side.lamport});
    json!({
        "type": loss.kind.as_str(),
        "task_id": loss.task_id,
        "title": loss.title,
        "yours": side(&loss.yours),
        "theirs": side(&loss.theirs),
    })
}

fn loss_of(text: &str) -> Option<Loss> {
    let body: Value = serde_json::from_str(text).ok()?;
    let side = |name: &str| {
        Some(LossSide {
            peer: body[name]["peer"].as_str()?.to_owned(),
            lamport: body[name]["lamport"].as_u64()?,
        })
    };
    Some(Loss {
        kind: LossKind::parse(body["type"].as_str()?)?,
        task_id: body["task_id"].as_str()?.to_owned(),
        title: body["title"].as_str()?.to_owned(),
        yours: side("yours")?,
        theirs: side("theirs")?,
    })
}
