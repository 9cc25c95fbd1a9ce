//! What a repair makes of tasks whose ops, rows or bytes were lost.

use heddle_core::task::{Blockers, TaskId, TaskStatus, TaskText, TaskTitle};
use heddle_store::{NewTask, Repaired, StoreError, TaskWhich, TaskWish, repair};
use serde_json::json;

use crate::fixture::{Fixture, NOW, open, unseal};
use crate::mended::{hints, senseless};
use crate::park::damage;
use crate::tasks::{claim, fresh, lost};

fn mend(fixture: &Fixture) -> Repaired {
    let repaired = repair(&fixture.path(), &fixture.blobs(), &hints(), NOW).unwrap();
    repaired.unwrap()
}

/// A home with a task of every status; more of them than fit a page.
async fn with_tasks() -> (Fixture, [TaskId; 4]) {
    let fixture = Fixture::new().with_mesh().await;
    for number in 0..60 {
        fixture.add(&format!("task {number}"), &[]).await;
    }
    let open = fixture.add("open", &[]).await;
    let done = fixture.add("done", &[]).await;
    let held = fixture.add("held", &[done]).await;
    let behind = fixture.add("behind", &[open]).await;
    fresh(fixture.step("worker", "c1", done, claim()).await);
    let wish = TaskWish::Complete { fence: None };
    fresh(fixture.step("worker", "d1", done, wish).await);
    fresh(fixture.step("worker", "c2", held, claim()).await);
    (fixture, [open, done, held, behind])
}

fn again(mut fixture: Fixture) -> Fixture {
    fixture.store = open(&fixture.path()).unwrap();
    fixture
}

/// Whoever held or finished a task did; nobody else holds what is held, and what is open is claimed once.
async fn assert_alive(fixture: &Fixture, [open, done, held, behind]: [TaskId; 4]) {
    let status = |row: heddle_store::TaskRow| row.task.status;
    assert_eq!(fixture.listed(TaskWhich::All).await.len(), 64);
    assert_eq!(status(fixture.row(done).await), TaskStatus::Completed);
    assert_eq!(status(fixture.row(held).await), TaskStatus::Claimed);
    assert_eq!(fixture.row(behind).await.waits_for, 1);
    let row = lost(fixture.step("other", "o1", held, claim()).await);
    assert!(row.task.claim.unwrap().by.as_str().ends_with("/worker"));
    lost(fixture.step("other", "o2", done, claim()).await);
    fresh(fixture.step("worker", "c3", open, claim()).await);
    lost(fixture.step("other", "o3", open, claim()).await);
    let wish = TaskWish::Complete { fence: None };
    fresh(fixture.step("worker", "d3", open, wish.clone()).await);
    assert_eq!(status(fixture.row(open).await), TaskStatus::Completed);
    assert_eq!(fixture.row(behind).await.waits_for, 0);
    fresh(fixture.step("worker", "d2", held, wish).await);
    assert_eq!(status(fixture.row(held).await), TaskStatus::Completed);
}

#[tokio::test]
async fn lf_39_tasks_whose_ops_are_lost_stand_as_they_stood() {
    let (fixture, tasks) = with_tasks().await;
    fixture.store.stop();
    damage(&fixture.path(), "task_op");
    let told = mend(&fixture);
    assert_eq!(
        (told.tasks.restated, told.tasks.dropped),
        (64, 0),
        "{told:?}"
    );
    let fixture = again(fixture);
    assert_alive(&fixture, tasks).await;
}

#[tokio::test]
async fn lf_39_tasks_whose_rows_are_lost_are_folded_from_their_ops() {
    let (fixture, tasks) = with_tasks().await;
    let dumps = |fixture: &Fixture| {
        let of = |table| fixture.dump(table);
        ["task_op", "task_blocker", "task_claim_events", "warning"].map(of)
    };
    let before = dumps(&fixture);
    let rows = "SELECT group_concat(hex(task_id) || status || title || lamport, '|') FROM
        (SELECT * FROM tasks ORDER BY task_id)";
    let rows = |fixture: &Fixture| {
        fixture
            .raw()
            .query_row(rows, [], |row| row.get::<_, String>(0))
    };
    let rows_before = rows(&fixture).unwrap();
    fixture.store.stop();
    for table in ["tasks", "task_blocker", "task_claim_events"] {
        damage(&fixture.path(), table);
    }
    let told = mend(&fixture);
    let has_lost: Vec<_> = told.tables.iter().filter(|kept| !kept.is_whole()).collect();
    assert!(has_lost.is_empty(), "{has_lost:?}");
    assert_eq!(dumps(&fixture), before);
    assert_eq!(rows(&fixture).unwrap(), rows_before);
    let fixture = again(fixture);
    assert_alive(&fixture, tasks).await;
}

#[tokio::test]
async fn lf_39_an_op_whose_bytes_are_none_does_not_come_over() {
    let (fixture, tasks) = with_tasks().await;
    fixture.store.stop();
    let raw = fixture.raw();
    let change = "UPDATE task_op SET body = CAST(x'7b00' || body AS BLOB) WHERE task_id = ?1";
    for task in [tasks[0], tasks[2]] {
        raw.execute(change, [task.to_bytes()]).unwrap();
    }
    drop(raw);
    damage(&fixture.path(), "tasks_by_status");
    let told = mend(&fixture);
    let ops = told.tables.iter().find(|kept| kept.table == "task_op");
    assert_eq!(ops.unwrap().refused, 3, "{told:?}");
    assert_eq!(told.tasks.restated, 2, "{told:?}");
    let fixture = again(fixture);
    assert_alive(&fixture, tasks).await;
}

/// The log of a shared mesh has the ops; what is made up here would part the homes for ever.
#[tokio::test]
async fn lf_39_tasks_of_a_shared_mesh_whose_ops_are_lost_wait_for_the_log() {
    let (fixture, _) = with_tasks().await;
    publish(&fixture).await;
    fixture.store.stop();
    let raw = fixture.raw();
    raw.execute("UPDATE mesh SET log_seq = 5", []).unwrap();
    drop(raw);
    damage(&fixture.path(), "task_op");
    let told = mend(&fixture);
    assert_eq!(
        (told.tasks.restated, told.tasks.from_log),
        (0, 64),
        "{told:?}"
    );
    let fixture = again(fixture);
    assert_eq!(fixture.listed(TaskWhich::All).await.len(), 0);
    let seq = "SELECT log_seq FROM mesh";
    let seq = fixture.raw().query_row(seq, [], |row| row.get::<_, i64>(0));
    assert_eq!(seq.unwrap(), 0);
}

async fn publish(fixture: &Fixture) {
    let (store, mesh) = (&fixture.store, fixture.mesh);
    store.begin_publish(mesh, NOW).await.unwrap();
    loop {
        let step = store.step_publish(mesh, NOW).await.unwrap().unwrap();
        if step.finished_at.is_some() {
            break;
        }
    }
}

fn rows_of(fixture: &Fixture) -> String {
    let rows = "SELECT group_concat(hex(task_id) || status || title || lamport || coalesce(claimed_by, '') || hex(digest), '|')
        FROM (SELECT * FROM tasks ORDER BY task_id)";
    fixture.raw().query_row(rows, [], |row| row.get(0)).unwrap()
}

fn ops_to_send(fixture: &Fixture) -> i64 {
    let count = "SELECT count(*) FROM op_outbox";
    fixture
        .raw()
        .query_row(count, [], |row| row.get(0))
        .unwrap()
}

/// A publish passes over what it cannot read, so that the log never hears of it: it was taken out for the log to bring.
#[tokio::test]
async fn lf_39_steps_that_a_publish_passed_over_are_said_again_and_go_out() {
    let (fixture, [open, _, held, _]) = with_tasks().await;
    let before = rows_of(&fixture);
    // The create of one task, and the claim of another.
    let spoil = "UPDATE task_op SET body = CAST(x'7b00' || body AS BLOB) WHERE task_id = ?1 AND (op_id = ?1) = ?2";
    for (task, is_create) in [(open, true), (held, false)] {
        let spoilt = fixture.raw().execute(spoil, (task.to_bytes(), is_create));
        assert_eq!(spoilt.unwrap(), 1);
    }
    publish(&fixture).await;
    let sent = ops_to_send(&fixture);
    fixture.store.stop();
    let told = mend(&fixture);
    assert_eq!(
        (told.tasks.restated, told.tasks.from_log),
        (2, 0),
        "{told:?}"
    );
    assert_eq!(rows_of(&fixture), before);
    assert_eq!(ops_to_send(&fixture), sent + 2);
    assert_eq!(senseless(&fixture, true), "");
}

/// SQLite finds nothing wrong with a file that a row is gone from. The next step would be folded without it.
#[tokio::test]
async fn lf_39_a_lost_step_of_a_task_is_noticed_and_said_again() {
    for is_create in [true, false] {
        let (fixture, [_, _, held, _]) = with_tasks().await;
        let before = rows_of(&fixture);
        fixture.store.stop();
        let lose = "DELETE FROM task_op WHERE task_id = ?1 AND (op_id = ?1) = ?2";
        let lost = fixture.raw().execute(lose, (held.to_bytes(), is_create));
        assert_eq!(lost.unwrap(), 1);
        assert!(
            senseless(&fixture, true).contains(&held.to_string()),
            "{}",
            senseless(&fixture, true)
        );
        let told = mend(&fixture);
        assert_eq!(told.tasks.restated, 1, "{told:?}");
        assert_eq!(rows_of(&fixture), before);
        assert_eq!(senseless(&fixture, true), "");
    }
}

#[tokio::test]
async fn lf_39_a_lost_row_of_a_task_is_noticed_and_folded_from_its_steps() {
    let (fixture, [_, _, held, _]) = with_tasks().await;
    let before = rows_of(&fixture);
    fixture.store.stop();
    let raw = fixture.raw();
    let lost = raw.execute("DELETE FROM tasks WHERE task_id = ?1", [held.to_bytes()]);
    assert_eq!(lost.unwrap(), 1);
    drop(raw);
    assert!(
        senseless(&fixture, true).contains(&held.to_string()),
        "{}",
        senseless(&fixture, true)
    );
    mend(&fixture);
    assert_eq!(rows_of(&fixture), before);
}

#[tokio::test]
async fn lf_06_a_repair_takes_no_impossible_stamp_into_the_clock() {
    for with_another in [true, false] {
        let fixture = Fixture::new().with_mesh().await;
        for key in ["a", "b", "c"] {
            fixture.set(key, key, &json!(1)).await;
        }
        fixture.store.stop();
        let raw = fixture.raw();
        let ahead = "UPDATE state_kv SET lamport = 9223372036854775807 WHERE key = 'a'";
        raw.execute(ahead, []).unwrap();
        if with_another {
            let bad = "UPDATE state_kv SET value = '{x' WHERE key = 'b'";
            raw.execute(bad, []).unwrap();
        }
        drop(raw);
        // As a Heddle wrote it, and no disk.
        unseal(&fixture.path());
        open(&fixture.path()).unwrap().stop();
        let says = senseless(&fixture, true);
        assert!(says.contains("state \"a\" (its stamp is ahead"), "{says}");
        let told = mend(&fixture);
        let named = told.unreadable.join("; ");
        assert!(named.contains("state \"a\""), "{named}");
        assert_eq!(senseless(&fixture, true), "");
        let fixture = again(fixture);
        let stamp = fixture.set("c2", "c", &json!(3)).await.stamp;
        assert_eq!(stamp.lamport, 4, "the clock goes on where it was");
        fixture.set("a2", "a", &json!(4)).await;
    }
}

#[tokio::test]
async fn lf_06_an_impossible_clock_takes_nothing_and_is_mended_from_the_rows() {
    let fixture = Fixture::new().with_mesh().await;
    fixture.set("a", "a", &json!(1)).await;
    let raw = fixture.raw();
    let clock = "UPDATE lamport_clock SET value = 9223372036854775806";
    raw.execute(clock, []).unwrap();
    drop(raw);
    let key = fixture.task_key(fixture.party("planner"), "t", 1);
    let new = NewTask {
        title: TaskTitle::parse("t").unwrap(),
        description: TaskText::parse("do it").unwrap(),
        blocked_by: Blockers::default(),
    };
    let refused = fixture.store.create_task::<&str>(key, Ok(new)).await;
    assert!(
        matches!(refused, Err(StoreError::Corrupt(_))),
        "{refused:?}"
    );
    fixture.store.stop();
    let says = senseless(&fixture, true);
    assert!(says.contains("the clock of mesh home stands at"), "{says}");
    mend(&fixture);
    assert_eq!(senseless(&fixture, true), "");
    let fixture = again(fixture);
    let stamp = fixture.set("b", "b", &json!(3)).await.stamp;
    assert_eq!(stamp.lamport, 2);
}

#[tokio::test]
async fn lf_33_a_publish_knows_the_rows_that_it_left_out() {
    let fixture = Fixture::new().with_mesh().await;
    for key in ["a", "b"] {
        fixture.set(key, key, &json!(1)).await;
    }
    let task = fixture.add("a task", &[]).await;
    let raw = fixture.raw();
    let ahead = "UPDATE state_kv SET lamport = lamport | (1 << 62) WHERE key = 'a'";
    raw.execute(ahead, []).unwrap();
    let change = "UPDATE task_op SET body = CAST(x'7b00' || body AS BLOB) WHERE task_id = ?1";
    raw.execute(change, [task.to_bytes()]).unwrap();
    drop(raw);
    unseal(&fixture.path());
    let fixture = again(fixture);
    let found = fixture.store.unreadable(fixture.mesh, u64::MAX).await;
    let found: Vec<String> = found.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "state \"a\" (its stamp is ahead of its mesh's clock)",
            "task \"a task\""
        ]
    );
}
