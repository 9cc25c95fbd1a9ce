//! Changes to tasks that this home makes: asked of the gate first, then of the task's own table.

use heddle_core::ids::OpId;
use heddle_core::lamport::PeerId;
use heddle_core::op::{OpBody, TaskChange};
use heddle_core::task::lease::Moment;
use heddle_core::task::table::Verdict;
use heddle_core::task::{Blockers, LeaseMs, TaskId, TaskStep, TaskText, TaskTitle};
use rusqlite::Connection;
use serde_json::json;

use super::row::TaskRow;
use super::{fold, lease};
use crate::data::request::{Applied, ChangeKey, Plan, apply};
use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    pub title: TaskTitle,
    pub description: TaskText,
    pub blocked_by: Blockers,
}

/// What is asked of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskWish {
    Claim {
        lease: LeaseMs,
    },
    /// Without a number: whatever claim the agent has now.
    Release {
        fence: Option<u64>,
    },
    Complete {
        fence: Option<u64>,
    },
    Cancel,
    Renew {
        fence: u64,
    },
    Expire {
        holder: PeerId,
        fence: u64,
        renewed: u64,
    },
}

/// Why a change to a task is not made. Nothing was written, and the key stays free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskRefusal {
    UnknownBlockers(Vec<TaskId>),
    /// As the task stands, the step would be lost.
    Lost {
        row: Box<TaskRow>,
        verdict: Verdict,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStop<R> {
    /// Nothing new can be kept, for the reason that came in.
    NoRoom(R),
    Task(TaskRefusal),
}

impl Store {
    /// `new` is the task, or why nothing new can be kept; a known key is answered whatever it says.
    /// The note of the receipt holds `task`, the id.
    pub async fn create_task<R: Send + 'static>(
        &self,
        key: ChangeKey,
        new: Result<NewTask, R>,
    ) -> Result<Applied<TaskStop<R>>, StoreError> {
        self.write(move |connection| {
            let id = key.op;
            apply(connection, &key, |connection| {
                let new = match new {
                    Ok(new) => new,
                    Err(reason) => return Ok(Plan::Refused(TaskStop::NoRoom(reason))),
                };
                let missing = missing(connection, &key, &new.blocked_by)?;
                if !missing.is_empty() {
                    let refusal = TaskRefusal::UnknownBlockers(missing);
                    return Ok(Plan::Refused(TaskStop::Task(refusal)));
                }
                Ok(Plan::Go {
                    body: OpBody::Task(TaskChange {
                        task: id,
                        step: TaskStep::Create {
                            title: new.title,
                            description: new.description,
                            blocked_by: new.blocked_by,
                        },
                    }),
                    note: json!({"task": id.to_string()}),
                })
            })
        })
        .await
    }

    /// The note of the receipt holds `fence`, the number of the claim that the step was made under; null
    /// for a claim that begins, whose number is its own lamport.
    /// `room` says whether anything can be written at all.
    pub async fn step_task<R: Send + 'static>(
        &self,
        key: ChangeKey,
        id: TaskId,
        wish: TaskWish,
        now: Moment,
        room: Result<(), R>,
    ) -> Result<Applied<TaskStop<R>>, StoreError> {
        self.write(move |connection| {
            let applied = apply(connection, &key, |connection| {
                if let Err(reason) = room {
                    return Ok(Plan::Refused(TaskStop::NoRoom(reason)));
                }
                let Some(row) = fold::standing(connection, key.mesh, id)? else {
                    return Ok(Plan::Absent);
                };
                Ok(
                    match plan(&row, &PeerId::new(&key.peer.to_string()), wish) {
                        Err(verdict) => {
                            let row = Box::new(row);
                            Plan::Refused(TaskStop::Task(TaskRefusal::Lost { row, verdict }))
                        }
                        Ok((step, fence)) => Plan::Go {
                            note: json!({"fence": fence}),
                            body: OpBody::Task(TaskChange { task: id, step }),
                        },
                    },
                )
            })?;
            if matches!(applied, Applied::Fresh(_)) {
                lease::see(connection, key.mesh, now)?;
            }
            Ok(applied)
        })
        .await
    }
}

/// The step, and the claim that it is made under: none for one that begins.
fn plan(row: &TaskRow, peer: &PeerId, wish: TaskWish) -> Result<(TaskStep, Option<u64>), Verdict> {
    let claim = row.task.claim.as_ref();
    let held = claim.filter(|claim| claim.by == *peer);
    let own = held.map(|claim| claim.fence);
    let step = match wish {
        // Who holds it already only goes on (LF-25). Where the claim is lost to one that nobody knows of here, there is then one
        // loss to tell of, however often it was claimed (LF-24).
        TaskWish::Claim { lease } => match held.filter(|claim| claim.lease == lease) {
            Some(claim) => TaskStep::Renew { fence: claim.fence },
            None => TaskStep::Claim { lease },
        },
        TaskWish::Release { fence } => TaskStep::Release {
            fence: fence.or(own).ok_or(Verdict::Superseded)?,
        },
        TaskWish::Complete { fence } => TaskStep::Complete {
            fence: fence.or(own),
        },
        TaskWish::Cancel => TaskStep::Cancel,
        TaskWish::Renew { fence } => TaskStep::Renew { fence },
        TaskWish::Expire {
            holder,
            fence,
            renewed,
        } => TaskStep::Expire {
            holder,
            fence,
            renewed,
        },
    };
    let verdict = row.task.verdict(peer, &step);
    if verdict.is_lost() {
        return Err(verdict);
    }
    Ok((step, claim.map(|claim| claim.fence)))
}

/// A task can only wait for tasks that are here: so no circle can be closed by adding one.
fn missing(
    connection: &Connection,
    key: &ChangeKey,
    blocked_by: &Blockers,
) -> Result<Vec<OpId>, StoreError> {
    let mut missing = Vec::new();
    for blocker in blocked_by.as_slice() {
        if fold::standing(connection, key.mesh, *blocker)?.is_none() {
            missing.push(*blocker);
        }
    }
    Ok(missing)
}
