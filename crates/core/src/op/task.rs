//! Ops on tasks: `task.create`, `claim`, `renew`, `release`, `complete`, `cancel`, `expire`.
//!
//! A create names no task: the task is called by the op that made it. The stamp's peer is who acts.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{OpError, fields, malformed, peer, unknown};
use crate::ids::OpId;
use crate::task::{Blockers, LeaseMs, TaskError, TaskId, TaskStep, TaskText, TaskTitle};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskChange {
    pub task: TaskId,
    pub step: TaskStep,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    title: String,
    description: String,
    blocked_by: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    task: String,
    lease_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fenced {
    task: String,
    fence: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Complete {
    task: String,
    /// Null for a task that nobody holds.
    fence: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    task: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expire {
    task: String,
    holder: String,
    fence: u64,
    renewed: u64,
}

impl From<TaskError> for OpError {
    fn from(error: TaskError) -> Self {
        malformed(error.to_string())
    }
}

impl TaskChange {
    pub(super) fn name(&self) -> &'static str {
        match self.step {
            TaskStep::Create { .. } => "task.create",
            TaskStep::Claim { .. } => "task.claim",
            TaskStep::Renew { .. } => "task.renew",
            TaskStep::Release { .. } => "task.release",
            TaskStep::Complete { .. } => "task.complete",
            TaskStep::Cancel => "task.cancel",
            TaskStep::Expire { .. } => "task.expire",
        }
    }

    pub(super) fn fields(&self) -> Value {
        let task = self.task.to_string();
        match &self.step {
            TaskStep::Create {
                title,
                description,
                blocked_by,
            } => {
                let blocked_by = blocked_by.as_slice().iter().map(OpId::to_string);
                json!({
                    "title": title.as_str(),
                    "description": description.as_str(),
                    "blocked_by": blocked_by.collect::<Vec<_>>(),
                })
            }
            TaskStep::Claim { lease } => json!({"task": task, "lease_ms": lease.get()}),
            TaskStep::Renew { fence } | TaskStep::Release { fence } => {
                json!({"task": task, "fence": fence})
            }
            TaskStep::Complete { fence } => json!({"task": task, "fence": fence}),
            TaskStep::Cancel => json!({"task": task}),
            TaskStep::Expire {
                holder,
                fence,
                renewed,
            } => json!({
                "task": task, "holder": holder.as_str(), "fence": fence, "renewed": renewed,
            }),
        }
    }

    /// `op` is the op's own id.
    pub(super) fn parse(verb: &str, given: Value, op: OpId) -> Result<Self, OpError> {
        let (task, step) = match verb {
            "create" => return create(fields(given)?, op),
            "claim" => {
                let given: Claim = fields(given)?;
                let lease = LeaseMs::new(given.lease_ms)?;
                (given.task, TaskStep::Claim { lease })
            }
            "renew" => {
                let Fenced { task, fence } = fields(given)?;
                (task, TaskStep::Renew { fence })
            }
            "release" => {
                let Fenced { task, fence } = fields(given)?;
                (task, TaskStep::Release { fence })
            }
            "complete" => {
                let Complete { task, fence } = fields(given)?;
                (task, TaskStep::Complete { fence })
            }
            "cancel" => {
                let Cancel { task } = fields(given)?;
                (task, TaskStep::Cancel)
            }
            "expire" => {
                let given: Expire = fields(given)?;
                let step = TaskStep::Expire {
                    holder: peer(&given.holder)?,
                    fence: given.fence,
                    renewed: given.renewed,
                };
                (given.task, step)
            }
            _ => return Err(unknown(&format!("task.{verb}"))),
        };
        let task = id(&task)?;
        if task == op {
            return Err(malformed("a task is called by its create, not by this op"));
        }
        Ok(Self { task, step })
    }
}

fn create(given: Create, op: OpId) -> Result<TaskChange, OpError> {
    let title = TaskTitle::parse(&given.title)?;
    let description = TaskText::parse(&given.description)?;
    let blocked_by = given.blocked_by.iter().map(|text| id(text));
    let blocked_by = Blockers::new(blocked_by.collect::<Result<Vec<_>, _>>()?)?;
    let is_normal = title.as_str() == given.title
        && description.as_str() == given.description
        && blocked_by.as_slice().len() == given.blocked_by.len()
        && !blocked_by.as_slice().contains(&op);
    if !is_normal {
        return Err(malformed("the task is not in its normal form"));
    }
    Ok(TaskChange {
        task: op,
        step: TaskStep::Create {
            title,
            description,
            blocked_by,
        },
    })
}

/// In its one spelling: another would make the op's bytes others than those that came.
fn id(text: &str) -> Result<OpId, OpError> {
    let id: OpId = text
        .parse()
        .map_err(|_| malformed(format!("{:?} is no id of a task", shown(text))))?;
    if id.to_string() == text {
        Ok(id)
    } else {
        Err(malformed("the id of a task is spelled in another way"))
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::{DataOp, OpBody, Over};
    use super::*;
    use crate::clock::WallMs;
    use crate::lamport::{PeerId, Stamp};

    fn op(task: u128, step: TaskStep) -> DataOp {
        DataOp {
            stamp: Stamp {
                lamport: 7,
                peer: PeerId::new("01M/planner"),
                op: OpId(Uuid::from_u128(9)),
            },
            incarnation: 1,
            at: WallMs(1000),
            over: Over::Unsaid,
            body: OpBody::Task(TaskChange {
                task: OpId(Uuid::from_u128(task)),
                step,
            }),
        }
    }

    fn every_kind() -> Vec<DataOp> {
        let blocked_by = vec![OpId(Uuid::from_u128(2)), OpId(Uuid::from_u128(1))];
        let create = TaskStep::Create {
            title: TaskTitle::parse("fix \u{202e}it").unwrap(),
            description: TaskText::parse("a\nb").unwrap(),
            blocked_by: Blockers::new(blocked_by).unwrap(),
        };
        let expire = TaskStep::Expire {
            holder: PeerId::new("01N/coder"),
            fence: 3,
            renewed: 5,
        };
        let lease = LeaseMs::new(60_000).unwrap();
        vec![
            op(9, create),
            op(4, TaskStep::Claim { lease }),
            op(4, TaskStep::Renew { fence: 3 }),
            op(4, TaskStep::Release { fence: 3 }),
            op(4, TaskStep::Complete { fence: Some(3) }),
            op(4, TaskStep::Complete { fence: None }),
            op(4, TaskStep::Cancel),
            op(4, expire),
        ]
    }

    #[test]
    fn every_step_comes_back_from_its_bytes() {
        for op in every_kind() {
            let bytes = op.to_bytes().unwrap();
            assert_eq!(DataOp::parse(&bytes).unwrap(), op);
            assert_eq!(DataOp::parse(&bytes).unwrap().to_bytes().unwrap(), bytes);
        }
    }

    #[test]
    fn hostile_steps_are_refused() {
        let of = |n: usize| String::from_utf8(every_kind()[n].to_bytes().unwrap()).unwrap();
        let own = Uuid::from_u128(9).to_string();
        let four = Uuid::from_u128(4).to_string();
        for (n, from, to) in [
            (0, "\"title\":\"fix", "\"title\":\"\\u001b[31m"),
            (0, "\"title\":\"fix", "\"title\":\"cafe\\u0301"),
            (0, "000000000001\",", "000000000002\","),
            (0, "\"blocked_by\":[", "\"blocked_by\":[\"x\","),
            (0, "000000000002", "000000000009"),
            (1, "60000", "0"),
            (1, "60000", "99999999999"),
            (1, &*four, &*own),
            (1, &*four, "nonsense"),
            (1, "\"lease_ms\"", "\"extra\":1,\"lease_ms\""),
            (2, "\"fence\":3", "\"fence\":-3"),
            (3, "\"fence\":3", "\"fence\":null"),
            (4, "\"fence\":3", "\"fence\":\"3\""),
            (7, "01N/coder", "cafe\\u0301"),
            (7, "\"renewed\":5,", ""),
        ] {
            let good = of(n);
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            let error = DataOp::parse(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, OpError::Malformed(_)), "{bad}: {error:?}");
        }
        let other = of(6).replace("task.cancel", "task.dream");
        let error = DataOp::parse(other.as_bytes()).unwrap_err();
        assert_eq!(error, OpError::UnknownOp("task.dream".to_owned()));
        // A spelling that the parser of ids would take, but that is not ours.
        let spelled = of(6).replace(&four, &four.replace('-', ""));
        assert!(DataOp::parse(spelled.as_bytes()).is_err());
    }
}
