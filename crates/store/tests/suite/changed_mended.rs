//! What mends a row that a disk has changed: a write, a delete or the next step under its name, a repair, and the log of the mesh;
//! and how rows of before there were digests got theirs.

use std::fs;

use heddle_core::clock::ManualIds;
use heddle_core::task::TaskStatus;
use heddle_store::{Blobs, StoreError, TaskWhich, TaskWish, repair};
use rusqlite::Connection;
use serde_json::json;

use crate::changed_rows::{changed, doctor, served, whole};
use crate::data::key;
use crate::fixture::{Fixture, NOW, SEALED, open, unseal};
use crate::lost_writes::Log;
use crate::mended::hints;
use crate::sync_home::Home;
use crate::tasks::fresh;

/// Whatever was changed of a row: the next write under its name takes its place, and so does a delete.
#[tokio::test]
async fn lf_39_a_write_or_a_delete_mends_a_row_that_was_changed() {
    let whole = whole().await;
    whole.fixture.store.stop();
    for column in [
        "lamport",
        "updated_at",
        "op_id",
        "value",
        "digest",
        "incarnation",
    ] {
        let new = match column {
            "value" => "'\"other\"'".to_owned(),
            "op_id" | "digest" => format!("CAST(x'ff' || substr({column}, 2) AS BLOB)"),
            _ => format!("{column} + 1000"),
        };
        for table in ["memory", "state_kv"] {
            let folder = changed(
                &whole,
                &format!("UPDATE {table} SET {column} = {new} WHERE place = 1"),
            );
            let of = |store| Fixture {
                store,
                folder: tempfile::tempdir().unwrap(),
                ids: ManualIds::seeded(9),
                ..whole.fixture
            };
            for delete in [false, true] {
                let copy = tempfile::tempdir().unwrap();
                fs::copy(folder.path().join("data.db"), copy.path().join("data.db")).unwrap();
                let home = of(open(&copy.path().join("data.db")).unwrap());
                let clock = home.store.data_clock(home.mesh).await.unwrap().value;
                let stamp = match (table, delete) {
                    ("memory", false) => home.remember("again", "one", &json!("new")).await.stamp,
                    ("memory", true) => crate::data::fresh(home.forget("again", "one").await).stamp,
                    (_, false) => home.set("again", "one", &json!("new")).await.stamp,
                    (_, true) => {
                        let change = home.change(home.party("planner"), "again", 2);
                        let deleted = home.store.delete_state::<()>(change, key("one")).await;
                        crate::data::fresh(deleted.unwrap()).stamp
                    }
                };
                let what = format!("{table}.{column} {delete}");
                assert_eq!(stamp.lamport, clock + 1, "{what}");
                let found = home.store.unreadable(home.mesh, u64::MAX).await.unwrap();
                assert_eq!(found, [], "{what}");
                let value = match table {
                    "memory" => home.one("one").await.map(|row| row.value),
                    _ => {
                        let row = home.store.get_state(home.mesh, key("one")).await;
                        row.unwrap().map(|row| row.value)
                    }
                };
                assert_eq!(value, (!delete).then(|| "\"new\"".to_owned()), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn lf_39_a_task_that_was_changed_is_folded_anew_by_the_next_step() {
    let whole = whole().await;
    let [_, held, waits, open_task] = whole.tasks;
    whole.fixture.store.stop();
    for sql in [
        "UPDATE tasks SET title = 'other' WHERE title = 'held'",
        "UPDATE tasks SET fence = fence + 1 WHERE title = 'held'",
        "UPDATE tasks SET waits_for = 3 WHERE title = 'held'",
        "DELETE FROM task_blocker WHERE task_id = (SELECT task_id FROM tasks WHERE title = 'held')",
    ] {
        let folder = changed(&whole, sql);
        let home = Fixture {
            store: open(&folder.path().join("data.db")).unwrap(),
            folder,
            ids: ManualIds::seeded(9),
            ..whole.fixture
        };
        let wish = TaskWish::Complete { fence: None };
        fresh(home.step("worker", "d2", held, wish).await);
        let row = home.row(held).await;
        assert_eq!(
            (row.task.title.as_str(), row.task.status),
            ("held", TaskStatus::Completed),
            "{sql}"
        );
        assert_eq!(home.listed(TaskWhich::Ready).await, [waits, open_task]);
        let found = home.store.unreadable(home.mesh, u64::MAX).await.unwrap();
        assert_eq!(found, [], "{sql}");
    }
}

/// LF-35: a file of before gets a digest for every row, in pieces, and what it holds is the same.
#[tokio::test]
async fn lf_35_rows_of_before_there_were_digests_get_theirs_when_the_file_is_opened() {
    let whole = whole().await;
    // More than one piece of it.
    for number in 0..1200 {
        whole
            .fixture
            .set(
                &format!("n-{number}"),
                &format!("n{number}"),
                &json!(number),
            )
            .await;
    }
    let truth = served(&whole, &whole.fixture.store).await;
    let bytes: Vec<Vec<String>> = SEALED.map(|table| whole.fixture.dump(table)).to_vec();
    whole.fixture.store.stop();
    unseal(&whole.fixture.path());
    let raw = whole.fixture.raw();
    let without = || -> i64 {
        let count = |table: &&str| {
            let sql = format!("SELECT count(*) FROM {table} WHERE digest IS NULL");
            raw.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        SEALED.iter().map(count).sum()
    };
    assert!(without() > 1200);
    let store = open(&whole.fixture.path()).unwrap();
    assert_eq!(without(), 0);
    assert_eq!(served(&whole, &store).await, truth);
    let after: Vec<Vec<String>> = SEALED.map(|table| whole.fixture.dump(table)).to_vec();
    assert_eq!(after, bytes, "the same digests that its writers make");
    let fts = "SELECT count(*) FROM memory_fts WHERE memory_fts MATCH 'text'";
    let found: i64 = raw.query_row(fts, [], |row| row.get(0)).unwrap();
    assert_eq!(found, 2);
    // From now on, a row without one has lost it.
    raw.execute_batch("UPDATE state_kv SET digest = NULL WHERE key = 'one'")
        .unwrap();
    let lost = store.get_state(whole.fixture.mesh, key("one")).await;
    assert!(matches!(lost, Err(StoreError::Corrupt(_))), "{lost:?}");
    store.stop();
    let store = open(&whole.fixture.path()).unwrap();
    let lost = store.get_state(whole.fixture.mesh, key("one")).await;
    assert!(matches!(lost, Err(StoreError::Corrupt(_))), "{lost:?}");
}

/// A repair of a file that an older Heddle has left, whose tables know no digests.
#[tokio::test]
async fn lf_35_a_file_of_before_there_were_digests_is_repaired_as_it_is() {
    let whole = whole().await;
    let truth = served(&whole, &whole.fixture.store).await;
    whole.fixture.store.stop();
    let path = whole.fixture.path();
    let version = heddle_store::steps_of(&path).unwrap().version;
    let undone = heddle_store::undo_step(&path, version).unwrap();
    assert!(
        matches!(undone, heddle_store::Undone::Done { .. }),
        "{undone:?}"
    );
    let raw = whole.fixture.raw();
    raw.execute_batch(
        "UPDATE task_op SET body = x'00' WHERE op_id = (SELECT max(op_id) FROM task_op)",
    )
    .unwrap();
    drop(raw);
    let mended = repair(&path, &whole.fixture.blobs(), &hints(), NOW).unwrap();
    assert!(mended.is_some());
    let store = open(&path).unwrap();
    let now = served(&whole, &store).await;
    for door in ["recall all", "state list", "file list", "named"] {
        assert_eq!(now[door], truth[door], "{door}");
    }
    assert_eq!(now["task list All"].len(), truth["task list All"].len());
}

pub(crate) async fn dumped(home: &Home) -> Vec<String> {
    home.store
        .dump(home.mesh, 0, usize::MAX)
        .await
        .unwrap()
        .lines
}

/// The file of a stopped home, with one cell that is another.
fn vandal(home: &Home, sql: &str) {
    home.store.stop();
    let raw = Connection::open(home.folder.path().join("data.db")).unwrap();
    assert_eq!(raw.execute(sql, []).unwrap(), 1, "{sql}");
}

fn start(home: Home) -> Home {
    let store = open(&home.folder.path().join("data.db")).unwrap();
    Home { store, ..home }
}

/// LF-09: one home's disk changes a row, whichever cell of it; after a repair both have the same bytes again.
#[tokio::test]
async fn lf_09_homes_are_the_same_again_after_a_row_of_one_was_changed_and_repaired() {
    for sql in [
        "UPDATE state_kv SET value = '\"other\"' WHERE key = 'both'",
        "UPDATE state_kv SET lamport = lamport + 100 WHERE key = 'both'",
        "UPDATE state_kv SET key = 'bath' WHERE key = 'both'",
        "UPDATE state_kv SET updated_by = 'x' || updated_by WHERE key = 'theirs'",
    ] {
        let (mut ann, bob) = (Home::shared(1).await, Home::shared(2).await);
        let mut log = Log::default();
        for (home, own) in [(&ann, "mine"), (&bob, "theirs")] {
            home.set(own, json!(own)).await;
            home.set("both", json!(own)).await;
            log.push(home).await;
        }
        for home in [&ann, &bob] {
            log.pull(home, usize::MAX).await;
        }
        let truth = dumped(&bob).await;
        assert_eq!(dumped(&ann).await, truth);
        vandal(&ann, sql);
        ann = start(ann);
        assert!(
            ann.store.dump(ann.mesh, 0, usize::MAX).await.is_err(),
            "{sql}"
        );
        ann.store.stop();
        let folder = ann.folder.path();
        assert_ne!(doctor(folder), "", "{sql}");
        let blobs = Blobs::open(&folder.join("blobs")).unwrap();
        let mut hints = hints();
        hints.home = heddle_core::names::MeshName::parse("team").unwrap();
        repair(&folder.join("data.db"), &blobs, &hints, NOW).unwrap();
        ann = start(ann);
        log.push(&ann).await;
        log.pull(&ann, usize::MAX).await;
        log.pull(&bob, usize::MAX).await;
        assert_eq!(dumped(&ann).await, truth, "{sql}");
        assert_eq!(dumped(&bob).await, truth, "{sql}");
    }
}

/// An op from elsewhere may be older than what stood there: it waits until the row is mended, and then both homes agree.
#[tokio::test]
async fn lf_09_an_op_that_meets_a_changed_row_waits_and_counts_when_a_write_has_mended_it() {
    let (mut ann, bob) = (Home::shared(1).await, Home::shared(2).await);
    let mut log = Log::default();
    ann.set("k", json!("first")).await;
    log.push(&ann).await;
    for home in [&ann, &bob] {
        log.pull(home, usize::MAX).await;
    }
    vandal(
        &ann,
        "UPDATE state_kv SET lamport = lamport + 7 WHERE key = 'k'",
    );
    ann = start(ann);
    for number in 0..20 {
        bob.set("k", json!(number)).await;
    }
    log.push(&bob).await;
    log.pull(&ann, usize::MAX).await;
    let aside = ann.store.set_aside_ops(ann.mesh, 99).await.unwrap();
    assert_eq!(aside.len(), 20);
    assert!(
        aside[0].reason.contains("not what was written here"),
        "{aside:?}"
    );
    let lost = ann.store.get_state(ann.mesh, key("k")).await;
    assert!(matches!(lost, Err(StoreError::Corrupt(_))), "{lost:?}");
    ann.set("k", json!("mended")).await;
    assert_eq!(ann.get("k").await.as_deref(), Some("\"mended\""));
    log.push(&ann).await;
    for home in [&ann, &bob] {
        log.pull(home, usize::MAX).await;
    }
    assert_eq!(ann.store.set_aside_ops(ann.mesh, 99).await.unwrap(), []);
    assert_eq!(dumped(&ann).await, dumped(&bob).await);
    assert_eq!(ann.get("k").await.as_deref(), Some("19"), "the younger one");
}
