//! What an agent of this home lost of a task by the word of another.
//!
//! Its warnings are folded like everything else of a task: a loss that an op makes undone before it was told is
//! taken back. One loss of one claim is one warning, whatever the loser did under it (LF-24).

use std::collections::BTreeMap;

use heddle_core::ids::MeshId;
use heddle_core::task::fold::{Task, TaskEvent};
use heddle_core::task::{EventKind, TaskId};
use rusqlite::{Connection, params};

use crate::cells::Cells;
use crate::data::warnings::{DROP, Loss, LossAbout, LossKind, LossSide, own_prefix, warn};
use crate::error::StoreError;

pub(crate) const KNOWN: &str = "
    SELECT place, agent, cause, shown_at FROM warning WHERE mesh_id = ?1 AND subject = ?2";

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
        connection.prepare_cached(DROP)?.execute([place])?;
    }
    for ((agent, cause), loss) in &losses {
        warn(connection, mesh, agent, (&subject, *cause), loss)?;
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
    let Some(own) = own_prefix(connection, mesh)? else {
        return Ok(found);
    };
    for event in &task.events {
        let Some((kind, cause, yours, theirs)) = lost(event) else {
            continue;
        };
        let Some(agent) = yours.peer.strip_prefix(&own).map(str::to_owned) else {
            continue;
        };
        found.entry((agent, cause)).or_insert_with(|| Loss {
            kind,
            about: LossAbout::Task {
                id: subject.to_owned(),
                title: task.title.as_str().to_owned(),
            },
            yours,
            theirs,
            now: None,
        });
    }
    Ok(found)
}

/// Who lost what by this, and to whom.
fn lost(event: &TaskEvent) -> Option<(LossKind, u64, LossSide, LossSide)> {
    let side = |peer: &str, lamport| LossSide {
        peer: peer.to_owned(),
        lamport,
        value: None,
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
