//! Tasks: what a change says, its receipt, and what is read back; and the warnings of an answer.

use heddle_core::error_code::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::problem::Problem;

use super::StampView;

/// Body of `task/create`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskCreateBody {
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Tasks that must be finished before this one is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `task/claim`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskClaimBody {
    pub id: String,
    /// How long the claim lasts without a sign of life; 1800 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `task/release` and `task/complete`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSettleBody {
    pub id: String,
    /// The number that the claim gave. With it, a claim that was lost meanwhile is refused; without
    /// it, the agent's claim as it stands counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `task/cancel`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskCancelBody {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    pub id: String,
    pub mesh: String,
    pub title: String,
    pub description: String,
    /// `open`, `claimed`, `completed` or `cancelled`.
    pub status: String,
    /// Open, and nothing unfinished blocks it.
    pub ready: bool,
    pub blocked_by: Vec<String>,
    /// How many of those are not finished, or not here yet.
    #[serde(default)]
    pub waits_for: u64,
    /// `@member/agent`.
    pub created_by: String,
    pub created_at: String,
    pub updated_at: String,
    pub lamport: u64,
    /// `@member/agent`, while it is claimed; `claim` says more.
    pub claimed_by: Option<String>,
    pub claim: Option<TaskClaimView>,
    /// Once it is completed or cancelled.
    pub finished_by: Option<String>,
    pub finished_at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskClaimView {
    /// `@member/agent`.
    pub by: String,
    pub at: String,
    /// Rises with every claim that follows another.
    pub fence: u64,
    pub lease_seconds: u64,
    /// When the lease ends unless its holder is active before; by this machine's wall clock.
    pub until: String,
}

/// The receipt of a change to a task, and the task as it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAnswer {
    pub task: TaskView,
    /// Of a claim: the number to complete or release it with.
    pub fence: Option<u64>,
    pub client_message_id: String,
    pub mesh: String,
    pub agent: String,
    /// True when this very change was made before: then the receipt is what was answered first.
    pub duplicate: bool,
    /// `local`: it is on this home's disk.
    pub durability: String,
    pub stamp: StampView,
    pub at: String,
    /// Of a claim: this agent held the task already, perhaps in another of its sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub already_yours: bool,
    /// Of a claim: the mesh has others, who may have claimed it before, and the broker is out of reach.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tentative: bool,
    #[serde(default)]
    pub warnings: Vec<WarningView>,
}

impl TaskAnswer {
    /// The answer to a claim that is said again tells what was; this is what is, where the claim did not last.
    ///
    /// It is shown instead of the answer, so it tells what the answer had to tell beside itself.
    pub fn lost_claim(&self) -> Option<Problem> {
        let lost = self.ended_claim()?;
        if self.warnings.is_empty() {
            return Some(lost);
        }
        let told = serde_json::to_value(&self.warnings).unwrap_or_default();
        Some(lost.with("warnings", told))
    }

    fn ended_claim(&self) -> Option<Problem> {
        let fence = self.fence.filter(|_| self.duplicate)?;
        let task = &self.task;
        let claim = task.claim.as_ref();
        if claim.is_some_and(|claim| claim.fence == fence) {
            return None;
        }
        let title = format!("{:?}", task.title);
        let with_task = |problem: Problem| {
            let problem = problem.with("task_id", task.id.clone());
            problem.with("task_status", task.status.clone())
        };
        if let Some(by) = &task.finished_by {
            let at = task.finished_at.as_deref().unwrap_or("a time unknown");
            let detail = format!(
                "your claim of {title} (fence {fence}) ended: it was {} by {by} at {at}",
                task.status
            );
            let problem = with_task(Problem::new(ErrorCode::TaskFinished, detail));
            let next = "Stop working on it; `heddle task ready` shows what else can be begun.";
            return Some(problem.with("finished_by", by.clone()).next(next));
        }
        let Some(claim) = claim else {
            let detail =
                format!("your claim of {title} (fence {fence}) ended, and nobody holds it now");
            let next = format!(
                "Claim it anew with `heddle task claim {}`, under another id.",
                task.id
            );
            return Some(with_task(Problem::new(ErrorCode::StaleFence, detail)).next(next));
        };
        let detail = format!(
            "your claim of {title} (fence {fence}) ended: {} holds it until {}, fence {}",
            claim.by, claim.until, claim.fence
        );
        let problem = with_task(Problem::new(ErrorCode::TaskClaimed, detail))
            .with("holder", claim.by.clone())
            .with("until", claim.until.clone())
            .with("fence", claim.fence);
        let next = "Stop working on it; `heddle task ready` shows what else can be begun.";
        Some(problem.next(next))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPage {
    /// The oldest first.
    pub items: Vec<TaskView>,
    pub cursor: Option<String>,
    #[serde(default)]
    pub warnings: Vec<WarningView>,
    /// Tasks that cannot be read, and that the page is without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// One line of a task's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEventView {
    /// `claimed`, `superseded`, `rejected_terminal`, `released`, `completed` or `cancelled`.
    pub event: String,
    /// `@member/agent`.
    pub peer: String,
    pub lamport: u64,
    pub at: String,
    pub fence: Option<u64>,
    /// Whom it lost to, or who ended it.
    pub conflict_peer: Option<String>,
    pub conflict_lamport: Option<u64>,
}

/// Answer of `task/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStory {
    pub task: TaskView,
    pub events: Vec<TaskEventView>,
    #[serde(default)]
    pub warnings: Vec<WarningView>,
}

/// What an agent that only sends is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarningsView {
    pub warnings: Vec<WarningView>,
}

/// What the agent lost since its last call. Told once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarningView {
    /// `task_claim_superseded`, `task_completion_superseded`, `task_finished_elsewhere`, `task_lease_expired` or `task_cancelled`;
    /// `state_write_superseded` or `memory_write_superseded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Empty where a write was lost.
    pub task_id: String,
    /// Of the task; where a write was lost, its key.
    pub title: String,
    /// Of the write that was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `@member/agent` of the one whose word counts.
    pub by_peer: String,
    pub at_lamport: u64,
    /// What the agent had done.
    pub yours: WarningSide,
    /// What counts instead.
    pub theirs: WarningSide,
    /// What stands by now, where a write that came after it took its place in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands: Option<WarningSide>,
    pub message: String,
    /// The one thing to do now.
    pub next: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarningSide {
    pub peer: String,
    pub lamport: u64,
    /// What was written, of a write; a long one is in `value_begins`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The beginning of a long value's JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_begins: Option<String>,
    /// How long that text is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_bytes: Option<u64>,
    /// The write took the key away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}
