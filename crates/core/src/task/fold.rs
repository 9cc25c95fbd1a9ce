//! The fold: from a task's ops to its state and its record. A pure function of the set of ops (C7).

use super::table::{Phase, Verdict, Wish, verdict};
use super::{Blockers, EventKind, LeaseMs, TaskStatus, TaskStep, TaskText, TaskTitle};
use crate::clock::WallMs;
use crate::ids::OpId;
use crate::lamport::{PeerId, Stamp};

/// One op of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOp {
    pub stamp: Stamp,
    /// The origin's wall clock: for people, never for a decision.
    pub at: WallMs,
    pub step: TaskStep,
}

/// Who holds a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub by: PeerId,
    /// The lamport of the claim. Rises with every claim that follows another.
    pub fence: u64,
    pub at: WallMs,
    pub lease: LeaseMs,
    /// The lamport and the time from which the lease counts.
    pub renewed: u64,
    pub renewed_at: WallMs,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub by: PeerId,
    pub at: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent {
    /// The op that this is said of.
    pub op: OpId,
    pub kind: EventKind,
    /// Whose step it was; of a lease that ran out, its holder.
    pub peer: PeerId,
    pub lamport: u64,
    pub at: WallMs,
    /// The claim that the step is about: its own number, also where it lost.
    pub fence: Option<u64>,
    /// Whom it lost to, or who ended it.
    pub conflict: Option<(PeerId, u64)>,
}

/// A task as its ops leave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub title: TaskTitle,
    pub description: TaskText,
    pub blocked_by: Blockers,
    pub created_by: PeerId,
    pub created_at: WallMs,
    pub status: TaskStatus,
    /// While it is claimed.
    pub claim: Option<Claim>,
    /// Once it is finished.
    pub end: Option<End>,
    /// The last op that changed the state.
    pub lamport: u64,
    pub updated_at: WallMs,
    pub events: Vec<TaskEvent>,
}

/// In any order, with any duplicates. `None` until the create is among them (C38).
///
/// The create is where a life begins, wherever it sorts: its stamp is below all others unless
/// somebody forged one, and then replicas must agree all the same.
pub fn fold_task(ops: &[TaskOp]) -> Option<Task> {
    let mut sorted: Vec<&TaskOp> = ops.iter().collect();
    sorted.sort_by(|a, b| a.stamp.cmp(&b.stamp));
    sorted.dedup_by(|a, b| a.stamp.op == b.stamp.op);
    let create = sorted.iter().position(|op| op.step.is_create())?;
    let mut task = born(sorted.remove(create))?;
    for op in sorted {
        task.take(op);
    }
    Some(task)
}

fn born(op: &TaskOp) -> Option<Task> {
    let TaskStep::Create {
        title,
        description,
        blocked_by,
    } = &op.step
    else {
        return None;
    };
    Some(Task {
        title: title.clone(),
        description: description.clone(),
        blocked_by: blocked_by.clone(),
        created_by: op.stamp.peer.clone(),
        created_at: op.at,
        status: TaskStatus::Open,
        claim: None,
        end: None,
        lamport: op.stamp.lamport,
        updated_at: op.at,
        events: Vec::new(),
    })
}

impl Task {
    /// What the table says of a step by this peer, were it the next.
    pub fn verdict(&self, peer: &PeerId, step: &TaskStep) -> Verdict {
        match Wish::of(step) {
            Some(wish) => verdict(Phase::from(self.status), wish, self.fits(peer, step)),
            // A second create of the same task: there is none, its id is the op's.
            None => Verdict::Nothing,
        }
    }

    fn fits(&self, peer: &PeerId, step: &TaskStep) -> bool {
        let holds = |fence: Option<u64>| {
            let claim = self.claim.as_ref();
            claim.is_some_and(|claim| claim.by == *peer && fence.is_none_or(|f| f == claim.fence))
        };
        let ended = |status| {
            let end = self.end.as_ref();
            self.status == status && end.is_some_and(|end| end.by == *peer)
        };
        match step {
            TaskStep::Create { .. } => false,
            TaskStep::Claim { .. } => holds(None),
            TaskStep::Renew { fence } | TaskStep::Release { fence } => holds(Some(*fence)),
            TaskStep::Complete { fence } => match (self.status, fence) {
                (TaskStatus::Open, None) => true,
                (TaskStatus::Claimed, Some(fence)) => holds(Some(*fence)),
                (TaskStatus::Completed, _) => ended(TaskStatus::Completed),
                _ => false,
            },
            TaskStep::Cancel => holds(None) || ended(TaskStatus::Cancelled),
            TaskStep::Expire {
                holder,
                fence,
                renewed,
            } => self.claim.as_ref().is_some_and(|claim| {
                claim.by == *holder && claim.fence == *fence && claim.renewed <= *renewed
            }),
        }
    }

    fn take(&mut self, op: &TaskOp) {
        let peer = &op.stamp.peer;
        let verdict = self.verdict(peer, &op.step);
        let holder = self.claim.as_ref().map(|claim| (&claim.by, claim.fence));
        let other = holder
            .filter(|(by, _)| *by != peer)
            .map(|(by, fence)| (by.clone(), fence));
        match verdict {
            Verdict::Nothing => {}
            Verdict::Claim => self.claimed(op),
            Verdict::Extend => self.extended(op),
            Verdict::Superseded => self.note(op, EventKind::Superseded, other.or(holder_of(self))),
            Verdict::RejectedTerminal => {
                let by = self.end.as_ref().map(|end| (end.by.clone(), self.lamport));
                self.note(op, EventKind::RejectedTerminal, by);
            }
            Verdict::Release => {
                self.note(op, EventKind::Released, None);
                self.moved(op, TaskStatus::Open);
            }
            Verdict::Expire => self.expired(op),
            Verdict::Complete => {
                self.note(op, EventKind::Completed, None);
                self.moved(op, TaskStatus::Completed);
            }
            Verdict::Cancel => {
                self.note(op, EventKind::Cancelled, other);
                self.moved(op, TaskStatus::Cancelled);
            }
        }
    }

    fn claimed(&mut self, op: &TaskOp) {
        let TaskStep::Claim { lease } = op.step else {
            return;
        };
        self.note(op, EventKind::Claimed, None);
        self.moved(op, TaskStatus::Claimed);
        self.claim = Some(Claim {
            by: op.stamp.peer.clone(),
            fence: op.stamp.lamport,
            at: op.at,
            lease,
            renewed: op.stamp.lamport,
            renewed_at: op.at,
        });
    }

    /// By a renewal, or by a claim of the holder, which may ask for another lease.
    fn extended(&mut self, op: &TaskOp) {
        if let Some(claim) = &mut self.claim {
            claim.renewed = op.stamp.lamport;
            claim.renewed_at = op.at;
            if let TaskStep::Claim { lease } = op.step {
                claim.lease = lease;
            }
        }
        self.lamport = op.stamp.lamport;
        self.updated_at = op.at;
    }

    /// The record is the holder's: its claim was released, by somebody's word.
    fn expired(&mut self, op: &TaskOp) {
        if let Some((holder, fence)) = holder_of(self) {
            self.events.push(TaskEvent {
                op: op.stamp.op,
                kind: EventKind::Released,
                peer: holder,
                lamport: op.stamp.lamport,
                at: op.at,
                fence: Some(fence),
                conflict: Some((op.stamp.peer.clone(), op.stamp.lamport)),
            });
        }
        self.moved(op, TaskStatus::Open);
    }

    fn moved(&mut self, op: &TaskOp, status: TaskStatus) {
        self.status = status;
        self.claim = None;
        self.end = status.is_finished().then(|| End {
            by: op.stamp.peer.clone(),
            at: op.at,
        });
        self.lamport = op.stamp.lamport;
        self.updated_at = op.at;
    }

    fn note(&mut self, op: &TaskOp, kind: EventKind, conflict: Option<(PeerId, u64)>) {
        let fence = match &op.step {
            TaskStep::Claim { .. } => Some(op.stamp.lamport),
            TaskStep::Release { fence } => Some(*fence),
            TaskStep::Complete { fence } => *fence,
            _ => None,
        };
        self.events.push(TaskEvent {
            op: op.stamp.op,
            kind,
            peer: op.stamp.peer.clone(),
            lamport: op.stamp.lamport,
            at: op.at,
            fence,
            conflict,
        });
    }
}

fn holder_of(task: &Task) -> Option<(PeerId, u64)> {
    let claim = task.claim.as_ref()?;
    Some((claim.by.clone(), claim.fence))
}

#[cfg(test)]
mod tests;
