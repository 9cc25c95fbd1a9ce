//! Tasks: the fold on real rows, leases, dependencies, warnings, and what replicas agree on.

use std::time::Duration;

use heddle_core::clock::{Ids, WallMs};
use heddle_core::ids::{OpId, Party};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::names::{MemberName, MeshName};
use heddle_core::op::{DataOp, OpBody, Over, TaskChange};
use heddle_core::task::lease::Moment;
use heddle_core::task::{Blockers, LeaseMs, TaskId, TaskStatus, TaskStep, TaskText, TaskTitle};
use heddle_store::{
    Applied, ChangeKey, LossKind, Merged, NewMesh, NewTask, Receipt, Taken, TaskFilter,
    TaskRefusal, TaskRow, TaskStop, TaskWhich, TaskWish,
};

use crate::fixture::{Fixture, NOW, agent, client_id, print};

pub(crate) type Outcome = Applied<TaskStop<&'static str>>;

pub(crate) fn lease(seconds: u64) -> LeaseMs {
    LeaseMs::new(seconds * 1000).unwrap()
}

pub(crate) fn claim() -> TaskWish {
    TaskWish::Claim { lease: lease(60) }
}

pub(crate) fn at(seconds: u64) -> Moment {
    Moment {
        boot: 1,
        since: Duration::from_secs(seconds),
    }
}

pub(crate) fn fresh(outcome: Outcome) -> Receipt {
    match outcome {
        Applied::Fresh(receipt) => receipt,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn lost(outcome: Outcome) -> TaskRow {
    match outcome {
        Applied::Refused(TaskStop::Task(TaskRefusal::Lost { row, .. })) => *row,
        other => panic!("{other:?}"),
    }
}

impl Fixture {
    pub(crate) fn task_key(&self, peer: Party, id: &str, fingerprint: u8) -> ChangeKey {
        ChangeKey {
            mesh: self.mesh,
            peer,
            id: client_id(id),
            fingerprint: print(fingerprint),
            op: OpId(self.ids.uuid_v7()),
            now: NOW,
        }
    }

    pub(crate) async fn add(&self, id: &str, blocked_by: &[TaskId]) -> TaskId {
        let new = NewTask {
            title: TaskTitle::parse(id).unwrap(),
            description: TaskText::parse("do it").unwrap(),
            blocked_by: Blockers::new(blocked_by.to_vec()).unwrap(),
        };
        let key = self.task_key(self.party("planner"), id, 1);
        let applied = self.store.create_task::<&str>(key, Ok(new)).await.unwrap();
        let receipt = fresh(applied);
        receipt.note["task"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) async fn step(&self, by: &str, id: &str, task: TaskId, wish: TaskWish) -> Outcome {
        self.step_at(by, id, task, wish, at(0)).await
    }

    pub(crate) async fn step_at(
        &self,
        by: &str,
        id: &str,
        task: TaskId,
        wish: TaskWish,
        now: Moment,
    ) -> Outcome {
        let key = self.task_key(self.party(by), id, 2);
        let applied = self.store.step_task(key, task, wish, now, Ok(())).await;
        applied.unwrap()
    }

    pub(crate) async fn row(&self, task: TaskId) -> TaskRow {
        let row = self.store.task(self.mesh, task).await.unwrap();
        row.unwrap()
    }

    pub(crate) async fn listed(&self, which: TaskWhich) -> Vec<TaskId> {
        let filter = TaskFilter {
            mesh: self.mesh,
            which,
            after: None,
            limit: 1000,
            bytes_max: usize::MAX,
        };
        let (rows, _) = self.store.list_tasks(filter).await.unwrap();
        rows.into_iter().map(|row| row.id).collect()
    }

    pub(crate) async fn events(&self, task: TaskId) -> Vec<(String, &'static str)> {
        let story = self.store.task_story(self.mesh, task).await.unwrap();
        let events = story.unwrap().task.events;
        let short = |peer: &PeerId| peer.as_str().rsplit('/').next().unwrap().to_owned();
        events
            .iter()
            .map(|event| (short(&event.peer), event.kind.as_str()))
            .collect()
    }

    /// An op of another home.
    pub(crate) fn remote(&self, lamport: u64, by: &str, task: TaskId, step: TaskStep) -> DataOp {
        let op = match &step {
            TaskStep::Create { .. } => task,
            _ => OpId(self.ids.uuid_v7()),
        };
        DataOp {
            stamp: Stamp {
                lamport,
                peer: PeerId::new(by),
                op,
            },
            incarnation: 1,
            at: WallMs(NOW.0 + 1),
            over: Over::Unsaid,
            body: OpBody::Task(TaskChange { task, step }),
        }
    }

    pub(crate) async fn take_remote(&self, op: &DataOp) -> Taken {
        match self.store.take_in(self.mesh, op.clone()).await.unwrap() {
            Merged::Taken(taken) => taken,
            other @ Merged::Refused(_) => panic!("{other:?}"),
        }
    }

    /// The mesh's row, which says which peers are ours.
    pub(crate) async fn with_mesh(self) -> Self {
        let new = NewMesh {
            mesh: self.mesh,
            name: MeshName::parse("home").unwrap(),
            member: self.member,
            member_name: MemberName::parse("tester").unwrap(),
            broker_url: None,
            now: NOW,
        };
        self.store.ensure_mesh(new).await.unwrap();
        self
    }

    pub(crate) async fn warned(&self, name: &str) -> Vec<LossKind> {
        let losses = self.store.take_warnings(self.mesh, agent(name), NOW).await;
        losses.unwrap().iter().map(|loss| loss.kind).collect()
    }
}

pub(crate) fn create(title: &str) -> TaskStep {
    TaskStep::Create {
        title: TaskTitle::parse(title).unwrap(),
        description: TaskText::default(),
        blocked_by: Blockers::default(),
    }
}

pub(crate) fn remote_claim() -> TaskStep {
    TaskStep::Claim { lease: lease(60) }
}

// --- one home ------------------------------------------------------------------------------------

#[tokio::test]
async fn a_task_goes_through_its_life_and_its_record_says_so() {
    let fixture = Fixture::new();
    let task = fixture.add("t", &[]).await;
    let claimed = fresh(fixture.step("ann", "c1", task, claim()).await);
    let row = fixture.row(task).await;
    let held = row.task.claim.unwrap();
    assert_eq!(held.fence, claimed.stamp.lamport);
    assert_eq!(row.seen, Some(at(0)));
    let release = TaskWish::Release { fence: None };
    fresh(fixture.step("ann", "r1", task, release).await);
    fresh(fixture.step("bob", "c2", task, claim()).await);
    let done = fresh(
        fixture
            .step("bob", "d", task, TaskWish::Complete { fence: None })
            .await,
    );
    let row = fixture.row(task).await;
    assert_eq!(row.task.status, TaskStatus::Completed);
    assert_eq!(row.task.lamport, done.stamp.lamport);
    assert!(row.task.end.unwrap().by.as_str().ends_with("/bob"));
    let expected = [
        ("ann", "claimed"),
        ("ann", "released"),
        ("bob", "claimed"),
        ("bob", "completed"),
    ];
    let events = fixture.events(task).await;
    let events: Vec<_> = events
        .iter()
        .map(|(by, kind)| (by.as_str(), *kind))
        .collect();
    assert_eq!(events, expected);
}

#[tokio::test]
async fn what_would_be_lost_is_refused_at_home_and_the_key_stays_free() {
    let fixture = Fixture::new();
    let task = fixture.add("t", &[]).await;
    fresh(fixture.step("ann", "c", task, claim()).await);
    let fence = fixture.row(task).await.task.claim.unwrap().fence;
    let before = fixture.dump("task_op");
    for wish in [
        claim(),
        TaskWish::Release { fence: None },
        TaskWish::Release { fence: Some(fence) },
        TaskWish::Complete { fence: None },
        TaskWish::Complete { fence: Some(fence) },
    ] {
        let row = lost(fixture.step("bob", "k", task, wish).await);
        assert!(row.task.claim.unwrap().by.as_str().ends_with("/ann"));
    }
    for wish in [
        TaskWish::Release {
            fence: Some(fence + 1),
        },
        TaskWish::Complete {
            fence: Some(fence + 1),
        },
    ] {
        lost(fixture.step("ann", "k", task, wish).await);
    }
    assert_eq!(fixture.dump("task_op"), before);
    let nothing = fixture
        .step("bob", "k", OpId(fixture.ids.uuid_v7()), claim())
        .await;
    assert_eq!(nothing, Applied::Absent);
    // The key that was refused is used at last.
    fresh(
        fixture
            .step("ann", "r", task, TaskWish::Release { fence: Some(fence) })
            .await,
    );
    fresh(fixture.step("bob", "k", task, claim()).await);
}

#[tokio::test]
async fn lf_25_a_repeated_claim_by_the_holder_adds_no_event_and_keeps_its_fence() {
    let fixture = Fixture::new();
    let task = fixture.add("t", &[]).await;
    let first = fresh(fixture.step("ann", "c1", task, claim()).await);
    let longer = TaskWish::Claim { lease: lease(120) };
    let again = fresh(fixture.step("ann", "c2", task, longer).await);
    assert_eq!(again.note["fence"], first.stamp.lamport);
    let held = fixture.row(task).await.task.claim.unwrap();
    assert_eq!(held.fence, first.stamp.lamport);
    assert_eq!(
        (held.renewed, held.lease),
        (again.stamp.lamport, lease(120))
    );
    assert_eq!(fixture.events(task).await.len(), 1);
    // The very same request again is the same answer, and no op.
    let ops = fixture.dump("task_op").len();
    let key = fixture.task_key(fixture.party("ann"), "c1", 2);
    let same = fixture
        .store
        .step_task::<()>(key, task, claim(), at(0), Ok(()))
        .await;
    assert_eq!(same.unwrap(), Applied::Duplicate(first));
    assert_eq!(fixture.dump("task_op").len(), ops);
}

#[tokio::test]
async fn lf_03_a_refused_create_consumes_nothing() {
    let fixture = Fixture::new();
    let unknown = OpId(fixture.ids.uuid_v7());
    let new = || NewTask {
        title: TaskTitle::parse("t").unwrap(),
        description: TaskText::default(),
        blocked_by: Blockers::new(vec![unknown]).unwrap(),
    };
    let key = fixture.task_key(fixture.party("planner"), "k", 1);
    let refused = fixture
        .store
        .create_task::<&str>(key.clone(), Ok(new()))
        .await;
    let expected = TaskRefusal::UnknownBlockers(vec![unknown]);
    assert_eq!(refused.unwrap(), Applied::Refused(TaskStop::Task(expected)));
    let full = fixture.store.create_task(key, Err("full")).await.unwrap();
    assert_eq!(full, Applied::Refused(TaskStop::NoRoom("full")));
    for table in ["task_op", "tasks", "applied_request", "lamport_clock"] {
        assert!(fixture.dump(table).is_empty(), "{table}");
    }
}

// --- leases --------------------------------------------------------------------------------------

#[tokio::test]
async fn c18_a_lease_is_seen_once_until_renewed_and_anew_after_a_boot() {
    let fixture = Fixture::new();
    let task = fixture.add("t", &[]).await;
    fresh(fixture.step_at("ann", "c", task, claim(), at(10)).await);
    fixture
        .store
        .see_leases(fixture.mesh, at(50))
        .await
        .unwrap();
    assert_eq!(fixture.row(task).await.seen, Some(at(10)), "seen before");
    let fence = fixture.row(task).await.task.claim.unwrap().fence;
    fresh(
        fixture
            .step_at("ann", "n", task, TaskWish::Renew { fence }, at(60))
            .await,
    );
    assert_eq!(fixture.row(task).await.seen, Some(at(60)));
    let next_boot = Moment { boot: 2, ..at(5) };
    fixture
        .store
        .see_leases(fixture.mesh, next_boot)
        .await
        .unwrap();
    assert_eq!(fixture.row(task).await.seen, Some(next_boot));
    let held = fixture.store.held_tasks(fixture.mesh).await.unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].id, held[0].seen), (task, next_boot));
    fresh(
        fixture
            .step("ann", "d", task, TaskWish::Complete { fence: None })
            .await,
    );
    assert!(
        fixture
            .store
            .held_tasks(fixture.mesh)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(fixture.dump("task_lease").is_empty());
}

#[tokio::test]
async fn an_expired_claim_is_taken_over_and_the_old_fence_is_refused() {
    let fixture = Fixture::new().with_mesh().await;
    let task = fixture.add("t", &[]).await;
    fresh(fixture.step("ann", "c", task, claim()).await);
    let held = fixture
        .store
        .held_tasks(fixture.mesh)
        .await
        .unwrap()
        .remove(0);
    let expire = TaskWish::Expire {
        holder: held.claim.by.clone(),
        fence: held.claim.fence,
        renewed: held.claim.renewed,
    };
    fresh(fixture.step("bob", "e", task, expire.clone()).await);
    lost(fixture.step("cat", "e2", task, expire).await);
    let taken = fresh(fixture.step("bob", "c", task, claim()).await);
    assert!(taken.stamp.lamport > held.claim.fence, "fences rise");
    let old = Some(held.claim.fence);
    let row = lost(
        fixture
            .step("ann", "d", task, TaskWish::Complete { fence: old })
            .await,
    );
    assert!(row.task.claim.unwrap().by.as_str().ends_with("/bob"));
    // Told once, of one loss.
    assert_eq!(fixture.warned("bob").await, []);
    assert_eq!(fixture.warned("ann").await, [LossKind::LeaseExpired]);
    assert_eq!(fixture.warned("ann").await, []);
}

// --- dependencies --------------------------------------------------------------------------------

#[tokio::test]
async fn ready_is_open_and_not_blocked_by_anything_unfinished() {
    let fixture = Fixture::new();
    let a = fixture.add("a", &[]).await;
    let b = fixture.add("b", &[]).await;
    let c = fixture.add("c", &[a, b]).await;
    let d = fixture.add("d", &[c]).await;
    assert_eq!(fixture.listed(TaskWhich::Ready).await, [a, b]);
    assert_eq!(fixture.row(c).await.waits_for, 2);
    fresh(fixture.step("ann", "1", a, claim()).await);
    assert_eq!(fixture.listed(TaskWhich::Ready).await, [b]);
    fresh(
        fixture
            .step("ann", "2", a, TaskWish::Complete { fence: None })
            .await,
    );
    assert_eq!(fixture.listed(TaskWhich::Ready).await, [b]);
    // Cancelled is finished, too.
    fresh(fixture.step("ann", "3", b, TaskWish::Cancel).await);
    assert_eq!(fixture.listed(TaskWhich::Ready).await, [c]);
    assert_eq!(fixture.listed(TaskWhich::All).await, [a, b, c, d]);
    let open = TaskWhich::With(TaskStatus::Open);
    assert_eq!(fixture.listed(open).await, [c, d]);
    let cancelled = TaskWhich::With(TaskStatus::Cancelled);
    assert_eq!(fixture.listed(cancelled).await, [b]);
}

#[tokio::test]
async fn a_forged_circle_is_never_ready_and_stops_nobody_else() {
    let fixture = Fixture::new();
    let free = fixture.add("free", &[]).await;
    let (a, b) = (OpId(fixture.ids.uuid_v7()), OpId(fixture.ids.uuid_v7()));
    for (task, on) in [(a, b), (b, a)] {
        let step = TaskStep::Create {
            title: TaskTitle::parse("circle").unwrap(),
            description: TaskText::default(),
            blocked_by: Blockers::new(vec![on]).unwrap(),
        };
        assert_eq!(
            fixture
                .take_remote(&fixture.remote(9, "X/x", task, step))
                .await,
            Taken::Applied
        );
    }
    assert_eq!(fixture.listed(TaskWhich::Ready).await, [free]);
    fresh(fixture.step("ann", "1", a, TaskWish::Cancel).await);
    assert_eq!(fixture.listed(TaskWhich::Ready).await, [free, b]);
}

#[tokio::test]
async fn pages_go_on_behind_the_last_and_end() {
    let fixture = Fixture::new();
    let mut all = Vec::new();
    for n in 0..7 {
        all.push(fixture.add(&format!("t{n}"), &[]).await);
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let filter = TaskFilter {
            mesh: fixture.mesh,
            which: TaskWhich::Ready,
            after,
            limit: 3,
            bytes_max: usize::MAX,
        };
        let (rows, more) = fixture.store.list_tasks(filter).await.unwrap();
        assert!(rows.len() <= 3);
        found.extend(rows.iter().map(|row| row.id));
        after = found.last().copied();
        if !more {
            break;
        }
    }
    assert_eq!(found, all);
}
