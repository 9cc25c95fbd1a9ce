//! The ops that make a task what its row says it is, where its own ops were lost. Pure.

use heddle_core::clock::WallMs;
use heddle_core::ids::OpId;
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::op::{DataOp, OpBody, Over, TaskChange};
use heddle_core::task::fold::{Claim, Task, TaskEvent, TaskOp, fold_task};
use heddle_core::task::{EventKind, TaskId, TaskStatus, TaskStep};

/// What is missing between the ops that are left and the row; `None` where no ops say what the row says. What a later op
/// did than the row knows stands.
pub(super) fn restated(id: TaskId, row: &Task, left: &[TaskOp]) -> Option<Vec<DataOp>> {
    let mut ops = Ops {
        id,
        events: &row.events,
        all: left.to_vec(),
        made: Vec::new(),
    };
    if fold_task(left).is_none() {
        let create = TaskStep::Create {
            title: row.title.clone(),
            description: row.description.clone(),
            blocked_by: row.blocked_by.clone(),
        };
        ops.add(
            id,
            first(row, left),
            &row.created_by,
            row.created_at,
            create,
        );
    }
    let now = fold_task(&ops.all)?;
    let is_behind = now.lamport < row.lamport && !now.status.is_finished();
    if !is_same(&now, row) && is_behind {
        ops.bring(&now, row);
    }
    let after = fold_task(&ops.all)?;
    let is_told = is_same(&after, row) || after.lamport >= row.lamport;
    let is_plain = |op: &DataOp| {
        let bytes = op.to_bytes();
        bytes.is_ok_and(|bytes| DataOp::parse(&bytes).as_ref() == Ok(op))
    };
    (is_told && ops.made.iter().all(is_plain)).then_some(ops.made)
}

/// The number of its create: the row's own where nothing has happened since, and below everything that has.
fn first(row: &Task, left: &[TaskOp]) -> u64 {
    let is_untouched = row.status == TaskStatus::Open && row.updated_at == row.created_at;
    if is_untouched && left.is_empty() {
        return row.lamport;
    }
    let claim = row.claim.as_ref().map(|claim| claim.fence);
    let others = left.iter().map(|op| op.stamp.lamport);
    let lowest = others.chain(claim).chain([row.lamport]).min();
    lowest.unwrap_or(1).saturating_sub(1)
}

fn is_same(one: &Task, other: &Task) -> bool {
    let by = |task: &Task| task.end.as_ref().map(|end| end.by.clone());
    one.status == other.status && one.claim == other.claim && by(one) == by(other)
}

struct Ops<'t> {
    id: TaskId,
    /// What the record says that was done, under the ids it was done by.
    events: &'t [TaskEvent],
    all: Vec<TaskOp>,
    made: Vec<DataOp>,
}

impl Ops<'_> {
    fn bring(&mut self, now: &Task, row: &Task) {
        match (&row.claim, &row.end) {
            (Some(claim), _) => self.claim(now, claim),
            (None, None) => self.free(now.claim.as_ref(), row.lamport, row.updated_at),
            (None, Some(end)) if row.status == TaskStatus::Cancelled => {
                self.step(row.lamport, &end.by, end.at, TaskStep::Cancel);
            }
            (None, Some(end)) => {
                let own = now.claim.as_ref().filter(|claim| claim.by == end.by);
                if own.is_none() {
                    self.free(now.claim.as_ref(), row.lamport.saturating_sub(1), end.at);
                }
                let fence = own.map(|claim| claim.fence);
                self.step(row.lamport, &end.by, end.at, TaskStep::Complete { fence });
            }
        }
    }

    fn claim(&mut self, now: &Task, claim: &Claim) {
        let held = now.claim.as_ref();
        if held.is_none_or(|held| (&held.by, held.fence) != (&claim.by, claim.fence)) {
            self.free(held, claim.fence.saturating_sub(1), claim.at);
            let step = TaskStep::Claim { lease: claim.lease };
            self.step(claim.fence, &claim.by, claim.at, step);
        }
        if claim.renewed > claim.fence {
            let step = TaskStep::Renew { fence: claim.fence };
            self.step(claim.renewed, &claim.by, claim.renewed_at, step);
        }
    }

    /// Whoever held it does not any more.
    fn free(&mut self, held: Option<&Claim>, lamport: u64, at: WallMs) {
        if let Some(held) = held {
            let step = TaskStep::Release { fence: held.fence };
            self.step(lamport, &held.by, at, step);
        }
    }

    /// Under the id that it had, where the record says it, so that it is one step wherever else it stands; under one that
    /// only this step of this task has, where it does not.
    fn step(&mut self, lamport: u64, by: &PeerId, at: WallMs, step: TaskStep) {
        let is_it = |event: &&TaskEvent| {
            (event.lamport, &event.peer) == (lamport, by) && kind(&step) == Some(event.kind)
        };
        let had = self.events.iter().find(is_it).map(|event| event.op);
        let had = had.filter(|id| self.all.iter().all(|op| op.stamp.op != *id));
        let made = u128::from_be_bytes(self.id.to_bytes()) ^ u128::from(lamport);
        let id = had.unwrap_or_else(|| OpId::from_bytes(made.to_be_bytes()));
        self.add(id, lamport, by, at, step);
    }

    fn add(&mut self, op: OpId, lamport: u64, by: &PeerId, at: WallMs, step: TaskStep) {
        let stamp = Stamp {
            lamport,
            peer: by.clone(),
            op,
        };
        let op = TaskOp { stamp, at, step };
        self.made.push(as_op(self.id, &op));
        self.all.push(op);
    }
}

/// As an op that says nothing but the step.
pub(super) fn as_op(id: TaskId, op: &TaskOp) -> DataOp {
    DataOp {
        stamp: op.stamp.clone(),
        incarnation: 0,
        at: op.at,
        over: Over::Unsaid,
        body: OpBody::Task(TaskChange {
            task: id,
            step: op.step.clone(),
        }),
    }
}

/// What the record calls a step that was done.
fn kind(step: &TaskStep) -> Option<EventKind> {
    match step {
        TaskStep::Claim { .. } => Some(EventKind::Claimed),
        TaskStep::Release { .. } => Some(EventKind::Released),
        TaskStep::Complete { .. } => Some(EventKind::Completed),
        TaskStep::Cancel => Some(EventKind::Cancelled),
        TaskStep::Create { .. } | TaskStep::Renew { .. } | TaskStep::Expire { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::task::{Blockers, LeaseMs, TaskText, TaskTitle};

    use super::*;

    fn op(number: u8, lamport: u64, by: &str, step: TaskStep) -> TaskOp {
        TaskOp {
            stamp: Stamp {
                lamport,
                peer: PeerId::new(by),
                op: OpId::from_bytes([number; 16]),
            },
            at: WallMs(i64::try_from(lamport).unwrap() * 1000),
            step,
        }
    }

    fn lease() -> LeaseMs {
        LeaseMs::new(60_000).unwrap()
    }

    /// Every kind of life, each as a row of ops.
    fn lives() -> Vec<Vec<TaskOp>> {
        let create = || {
            let step = TaskStep::Create {
                title: TaskTitle::parse("t").unwrap(),
                description: TaskText::parse("d").unwrap(),
                blocked_by: Blockers::new(vec![OpId::from_bytes([9; 16])]).unwrap(),
            };
            op(1, 3, "m/planner", step)
        };
        let claim =
            |number, lamport, by| op(number, lamport, by, TaskStep::Claim { lease: lease() });
        let release =
            |number, lamport, by, fence| op(number, lamport, by, TaskStep::Release { fence });
        let done = |fence| op(7, 20, "m/b", TaskStep::Complete { fence });
        vec![
            vec![create()],
            vec![create(), claim(2, 5, "m/a")],
            vec![
                create(),
                claim(2, 5, "m/a"),
                op(3, 8, "m/a", TaskStep::Renew { fence: 5 }),
            ],
            vec![create(), claim(2, 5, "m/a"), release(3, 8, "m/a", 5)],
            vec![
                create(),
                claim(2, 5, "m/a"),
                release(3, 8, "m/a", 5),
                claim(4, 11, "m/b"),
            ],
            vec![
                create(),
                claim(2, 5, "m/a"),
                release(3, 8, "m/a", 5),
                claim(4, 11, "m/b"),
                done(Some(11)),
            ],
            vec![create(), done(None)],
            vec![
                create(),
                claim(2, 5, "m/a"),
                op(6, 9, "m/b", TaskStep::Cancel),
            ],
        ]
    }

    #[test]
    fn whatever_ops_of_a_life_are_lost_the_row_says_them_again() {
        for life in lives() {
            let row = fold_task(&life).unwrap();
            for mask in 0_u32..1 << life.len() {
                let is_left = |place: &usize| mask >> place & 1 == 1;
                let places = (0..life.len()).filter(is_left);
                let left: Vec<TaskOp> = places.map(|place| life[place].clone()).collect();
                let made = restated(OpId::from_bytes([1; 16]), &row, &left);
                let made = made.unwrap_or_else(|| panic!("{mask:b} of {life:?}"));
                let ids: Vec<OpId> = made.iter().map(|op| op.stamp.op).collect();
                assert!(
                    ids.iter()
                        .all(|id| !left.iter().any(|op| op.stamp.op == *id))
                );
                let mut all = left.clone();
                all.extend(made.into_iter().filter_map(|op| match op.body {
                    OpBody::Task(change) => Some(TaskOp {
                        stamp: op.stamp,
                        at: op.at,
                        step: change.step,
                    }),
                    _ => None,
                }));
                let again = fold_task(&all).unwrap();
                assert!(is_same(&again, &row), "{mask:b} of {life:?}: {again:?}");
                assert_eq!(
                    (&again.title, &again.blocked_by),
                    (&row.title, &row.blocked_by)
                );
                assert_eq!(again.created_by, row.created_by);
            }
        }
    }

    #[test]
    fn a_row_that_no_op_can_say_is_not_said() {
        let mut row = fold_task(&lives()[0]).unwrap();
        row.created_by = PeerId::new("m/\u{7}bell");
        assert_eq!(restated(OpId::from_bytes([1; 16]), &row, &[]), None);
    }
}
