//! Tasks on several replicas: same ops, same rows, whatever the order; and who is told of a loss.

use heddle_core::clock::Ids;
use heddle_core::ids::OpId;
use heddle_core::op::DataOp;
use heddle_core::task::{TaskId, TaskStatus, TaskStep};
use heddle_store::{Applied, LossAbout, LossKind, Taken, TaskWhich, TaskWish};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

use crate::fixture::{Fixture, NOW, agent, open};
use crate::tasks::{claim, create, fresh, remote_claim};

const DERIVED: [&str; 3] = ["task_op", "task_blocker", "task_claim_events"];

async fn dump(fixture: &Fixture) -> Vec<String> {
    let lines = fixture.store.dump_tasks(fixture.mesh).await.unwrap();
    lines.iter().map(ToString::to_string).collect()
}

/// A life with two claims that did not know of each other, a loser who finished all the same, and a
/// claim that came too late.
fn ops(fixture: &Fixture, task: TaskId) -> Vec<DataOp> {
    let op = |lamport, by, step| fixture.remote(lamport, by, task, step);
    vec![
        op(1, "A/ann", create("t")),
        op(2, "B/bob", remote_claim()),
        op(3, "C/cat", remote_claim()),
        op(4, "C/cat", TaskStep::Complete { fence: Some(3) }),
        op(5, "B/bob", TaskStep::Complete { fence: Some(2) }),
        op(6, "D/dan", remote_claim()),
    ]
}

#[tokio::test]
async fn lf_09_lf_22_any_order_with_duplicates_gives_byte_identical_dumps() {
    let origin = Fixture::new();
    let task = OpId(origin.ids.uuid_v7());
    let ops = ops(&origin, task);
    for op in &ops {
        assert_eq!(origin.take_remote(op).await, Taken::Applied);
    }
    let expected = dump(&origin).await;
    let rows: Vec<_> = DERIVED.iter().map(|table| origin.dump(table)).collect();
    assert_eq!(origin.row(task).await.task.status, TaskStatus::Completed);
    // Every rotation of both directions, each op twice.
    for (reverse, start) in (0..2).flat_map(|r| (0..ops.len()).map(move |s| (r == 1, s))) {
        let mut order = ops.clone();
        order.rotate_left(start);
        if reverse {
            order.reverse();
        }
        let mut replica = Fixture::new();
        replica.mesh = origin.mesh;
        for op in &order {
            replica.take_remote(op).await;
            assert_eq!(replica.take_remote(op).await, Taken::Same);
        }
        assert_eq!(dump(&replica).await, expected, "{reverse} {start}");
        let derived: Vec<_> = DERIVED.iter().map(|table| replica.dump(table)).collect();
        assert_eq!(derived, rows);
    }
}

#[tokio::test]
async fn lf_08_random_ops_in_random_orders_converge() {
    let origin = Fixture::new();
    let task = OpId(origin.ids.uuid_v7());
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    for _ in 0..12 {
        let plan = proptest::collection::vec((2..7_u64, 0..3_usize, 0..6_u8, 0..7_u64), 1..9)
            .prop_flat_map(|steps| {
                let order: Vec<usize> = (0..=steps.len()).collect();
                (Just(steps), Just(order).prop_shuffle())
            });
        let (steps, order) = plan.new_tree(&mut runner).unwrap().current();
        let mut ops = vec![origin.remote(1, "A/ann", task, create("t"))];
        for (lamport, by, kind, fence) in steps {
            let step = match kind {
                0 | 1 => remote_claim(),
                2 => TaskStep::Release { fence },
                3 => TaskStep::Complete { fence: Some(fence) },
                4 => TaskStep::Renew { fence },
                _ => TaskStep::Cancel,
            };
            ops.push(origin.remote(lamport, ["A/ann", "B/bob", "C/cat"][by], task, step));
        }
        let (mut one, mut other) = (Fixture::new(), Fixture::new());
        one.mesh = origin.mesh;
        other.mesh = origin.mesh;
        for (index, op) in order.iter().zip(&ops) {
            one.take_remote(op).await;
            other.take_remote(&ops[*index]).await;
        }
        assert_eq!(dump(&one).await, dump(&other).await);
        assert_eq!(
            one.dump("task_claim_events"),
            other.dump("task_claim_events")
        );
    }
}

#[tokio::test]
async fn c38_ops_wait_for_their_create_and_the_clock_does_not() {
    let fixture = Fixture::new();
    let task = OpId(fixture.ids.uuid_v7());
    let claimed = fixture.remote(40, "B/bob", task, remote_claim());
    fixture.take_remote(&claimed).await;
    assert_eq!(fixture.store.task(fixture.mesh, task).await.unwrap(), None);
    let none = fixture.step("ann", "k", task, claim()).await;
    assert_eq!(none, Applied::Absent);
    fixture
        .take_remote(&fixture.remote(7, "A/ann", task, create("t")))
        .await;
    let row = fixture.row(task).await;
    assert_eq!(row.task.claim.unwrap().by.as_str(), "B/bob");
    // A step of this home stands behind everything that was kept.
    let cancelled = fresh(fixture.step("ann", "k", task, TaskWish::Cancel).await);
    assert!(cancelled.stamp.lamport > 40);
    assert_eq!(fixture.row(task).await.task.status, TaskStatus::Cancelled);
}

#[tokio::test]
async fn a_blocker_that_comes_late_or_is_undone_counts_as_it_is() {
    let fixture = Fixture::new();
    let task = OpId(fixture.ids.uuid_v7());
    let blocker = fixture.remote(5, "B/bob", task, create("first"));
    fixture.take_remote(&blocker).await;
    let waiting = fixture.add("second", &[task]).await;
    fixture
        .take_remote(&fixture.remote(8, "B/bob", task, TaskStep::Complete { fence: None }))
        .await;
    assert_eq!(fixture.listed(TaskWhich::Ready).await, [waiting]);
    // An earlier claim of another comes late: the completion did not count after all.
    fixture
        .take_remote(&fixture.remote(7, "C/cat", task, remote_claim()))
        .await;
    assert_eq!(fixture.row(task).await.task.status, TaskStatus::Claimed);
    assert!(fixture.listed(TaskWhich::Ready).await.is_empty());
}

// --- warnings ------------------------------------------------------------------------------------

#[tokio::test]
async fn lf_24_the_local_loser_of_a_claim_is_told_once_with_both_sides() {
    let fixture = Fixture::new().with_mesh().await;
    let task = fixture.add("t", &[]).await;
    let mine = fresh(fixture.step("ann", "c", task, claim()).await).stamp;
    // Another home claimed it first, by the order of stamps: the same counter, a smaller peer.
    let theirs = fixture.remote(mine.lamport, "!/bob", task, remote_claim());
    fixture.take_remote(&theirs).await;
    assert_eq!(
        fixture.row(task).await.task.claim.unwrap().by.as_str(),
        "!/bob"
    );
    assert_eq!(fixture.warned("cat").await, [], "nobody else");
    // What the loser did meanwhile is lost as well, and is the same loss.
    let own = mine.peer.as_str().to_owned();
    let late = TaskStep::Complete {
        fence: Some(mine.lamport),
    };
    fixture
        .take_remote(&fixture.remote(mine.lamport + 1, &own, task, late))
        .await;
    fixture.take_remote(&theirs).await;
    // It outlives the process until it was told.
    let fixture_path = fixture.path();
    fixture.store.stop();
    let store = open(&fixture_path).unwrap();
    let told = store
        .take_warnings(fixture.mesh, agent("ann"), NOW)
        .await
        .unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].kind, LossKind::ClaimSuperseded);
    assert_eq!(
        (told[0].yours.peer.as_str(), told[0].yours.lamport),
        (&*own, mine.lamport)
    );
    assert_eq!(
        (told[0].theirs.peer.as_str(), told[0].theirs.lamport),
        ("!/bob", mine.lamport)
    );
    assert_eq!(
        told[0].about,
        LossAbout::Task {
            id: task.to_string(),
            title: "t".to_owned()
        }
    );
    let again = store
        .take_warnings(fixture.mesh, agent("ann"), NOW)
        .await
        .unwrap();
    assert!(again.is_empty());
}

#[tokio::test]
async fn lf_24_a_claim_that_was_repeated_while_it_seemed_to_hold_is_lost_once() {
    let fixture = Fixture::new().with_mesh().await;
    let task = fixture.add("t", &[]).await;
    let mine = fresh(fixture.step("ann", "c1", task, claim()).await).stamp;
    for id in ["c2", "c3"] {
        let again = fresh(fixture.step("ann", id, task, claim()).await);
        assert_eq!(again.note["fence"], mine.lamport, "it is the same claim");
    }
    let theirs = fixture.remote(mine.lamport, "!/bob", task, remote_claim());
    fixture.take_remote(&theirs).await;
    let events = [("bob", "claimed"), ("ann", "superseded")];
    let events = events.map(|(by, kind)| (by.to_owned(), kind));
    assert_eq!(fixture.events(task).await, events);
    assert_eq!(fixture.warned("ann").await.len(), 1);
}

#[tokio::test]
async fn lf_23_a_late_claim_and_a_cancelled_one_are_told_and_a_loss_undone_is_not() {
    let fixture = Fixture::new().with_mesh().await;
    // Finished elsewhere before the claim.
    let task = fixture.add("late", &[]).await;
    let mine = fresh(fixture.step("ann", "c", task, claim()).await).stamp;
    let done = TaskStep::Complete { fence: None };
    fixture
        .take_remote(&fixture.remote(mine.lamport, "!/bob", task, done))
        .await;
    assert_eq!(
        fixture.events(task).await.last().unwrap().1,
        "rejected_terminal"
    );
    assert_eq!(fixture.warned("ann").await, [LossKind::FinishedElsewhere]);
    // Cancelled by another agent of this home.
    let task = fixture.add("cancelled", &[]).await;
    fresh(fixture.step("ann", "c2", task, claim()).await);
    fresh(fixture.step("bob", "x", task, TaskWish::Cancel).await);
    assert_eq!(fixture.warned("ann").await, [LossKind::Cancelled]);
    assert_eq!(fixture.warned("bob").await, []);
    // One's own release and cancel are no losses.
    let task = fixture.add("own", &[]).await;
    fresh(fixture.step("ann", "c3", task, claim()).await);
    fresh(
        fixture
            .step("ann", "r3", task, TaskWish::Release { fence: None })
            .await,
    );
    fresh(fixture.step("ann", "c4", task, claim()).await);
    fresh(fixture.step("ann", "x4", task, TaskWish::Cancel).await);
    assert_eq!(fixture.warned("ann").await, []);
    // A loss that a late op undoes before it was told.
    let task = fixture.add("undone", &[]).await;
    let mine = fresh(fixture.step("ann", "c5", task, claim()).await).stamp;
    let before = mine.lamport - 1;
    fixture
        .take_remote(&fixture.remote(before, "!/bob", task, remote_claim()))
        .await;
    assert_eq!(
        fixture.row(task).await.task.claim.unwrap().by.as_str(),
        "!/bob"
    );
    let release = TaskStep::Release { fence: before };
    fixture
        .take_remote(&fixture.remote(mine.lamport, "!/bob", task, release))
        .await;
    assert_eq!(fixture.row(task).await.task.claim.unwrap().by, mine.peer);
    assert_eq!(fixture.warned("ann").await, []);
}

#[tokio::test]
async fn damaged_ops_are_an_error_that_names_its_place() {
    let fixture = Fixture::new();
    let task = fixture.add("t", &[]).await;
    fixture
        .raw()
        .execute("UPDATE task_op SET body = x'00'", [])
        .unwrap();
    let key = fixture.task_key(fixture.party("ann"), "c", 2);
    let moment = crate::tasks::at(0);
    let failed = fixture
        .store
        .step_task::<()>(key, task, claim(), moment, Ok(()))
        .await;
    let error = failed.unwrap_err().to_string();
    assert!(error.contains(&format!("a step of task {task}")), "{error}");
    assert_eq!(fixture.dump("task_op").len(), 1, "nothing was written");
}
