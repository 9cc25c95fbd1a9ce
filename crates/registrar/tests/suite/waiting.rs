//! What waits for the broker of its mesh is told as it was kept, or not at all.

use heddle_core::clock::WallMs;
use heddle_registrar::binding::LogicalKey;
use heddle_registrar::storage::sqlite::{Sqlite, Waiting, kept_in};
use heddle_registrar::storage::{Storage as _, StorageError};
use rusqlite::Connection;

use crate::world::mesh;

fn call(id: &str) -> Waiting {
    Waiting {
        key: "k".into(),
        caller: "planner".into(),
        call_id: id.into(),
        verb: "finish".into(),
        call: format!(r#"{{"exit_code":7,"id":"{id}"}}"#),
        since: WallMs(7),
    }
}

/// Past the trigger, as a disk or a hand would.
fn change(file: &std::path::Path, statement: &str) {
    let connection = Connection::open(file).unwrap();
    let hold = "SELECT sql FROM sqlite_schema WHERE name = 'effect_waiting_hold'";
    let hold: String = connection.query_row(hold, [], |row| row.get(0)).unwrap();
    connection
        .execute_batch("DROP TRIGGER effect_waiting_hold")
        .unwrap();
    assert_eq!(connection.execute(statement, []).unwrap(), 1, "{statement}");
    connection.execute_batch(&hold).unwrap();
}

#[tokio::test]
async fn a_call_that_was_changed_while_it_waited_is_nobodys_word() {
    for changed in [
        r#"call = '{"exit_code":0,"id":"c1"}'"#,
        "verb = 'compensated'",
        "caller = 'worker'",
        "call_id = 'c9'",
        "logical_request_key = 'other'",
        "waits_since = 8",
        "call = CAST(x'7b22ff' AS TEXT)",
        "digest = NULL",
        "digest = zeroblob(32)",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("effects.db");
        let store = Sqlite::open(file.clone()).unwrap();
        for id in ["c1", "c2"] {
            assert!(store.wait(mesh(), call(id)).await.unwrap());
        }
        assert!(!store.wait(mesh(), call("c1")).await.unwrap());
        assert!(store.kept().await.unwrap().changed.is_empty());
        change(
            &file,
            &format!("UPDATE effect_waiting SET {changed} WHERE call_id = 'c1'"),
        );
        let waiting = store.waiting(mesh(), 10).await.unwrap();
        let found: Vec<bool> = waiting.iter().map(|one| one.is_changed).collect();
        assert_eq!(found, [true, false], "{changed}");
        // What waits behind it is whole, and goes on.
        assert_eq!(waiting[1].call, call("c2"));
        let known = store.known_waiting(mesh(), "planner", "c1").await;
        assert!(
            matches!(known, Ok(None) | Err(StorageError::Changed { .. })),
            "{changed}: {known:?}"
        );
        for kept in [
            store.kept().await.unwrap(),
            kept_in(&file).unwrap().unwrap(),
        ] {
            assert_eq!(kept.changed.len(), 1, "{changed}: {kept:?}");
            assert!(kept.changed[0].contains("kept here for the broker"));
        }
        // Once it was found so, nothing of it is shown but that it was there.
        let told = store.waited(waiting[0].seq, "changed".into(), WallMs(9));
        told.await.unwrap();
        assert!(store.kept().await.unwrap().changed.is_empty());
        let key = LogicalKey::parse("k").unwrap();
        if let Some(last) = store.last_waited(mesh(), &key).await.unwrap() {
            assert_eq!(
                (last.call.call.as_str(), last.outcome.as_str()),
                ("", "changed")
            );
        }
        store.stop();
    }
}

#[tokio::test]
async fn what_waited_before_there_were_digests_is_told_and_nothing_is_added_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("effects.db");
    let store = Sqlite::open(file.clone()).unwrap();
    assert!(store.wait(mesh(), call("c1")).await.unwrap());
    store.stop();
    drop(store);
    // As the step before left it.
    let connection = Connection::open(&file).unwrap();
    connection
        .execute_batch(
            "DROP TRIGGER effect_migration_keep; DELETE FROM _migrations WHERE version >= 9;
            CREATE TRIGGER effect_migration_keep BEFORE DELETE ON _migrations
    BEGIN SELECT RAISE(ABORT, '_migrations is append-only'); END;
            ALTER TABLE effect_waiting DROP COLUMN digest; PRAGMA user_version = 8;",
        )
        .unwrap();
    drop(connection);
    assert!(kept_in(&file).unwrap().unwrap().changed.is_empty());
    let store = Sqlite::open(file.clone()).unwrap();
    assert!(store.wait(mesh(), call("c2")).await.unwrap());
    let waiting = store.waiting(mesh(), 10).await.unwrap();
    let whole = |one: &heddle_registrar::storage::sqlite::KeptCall| !one.is_changed;
    assert!(
        waiting.len() == 2 && waiting.iter().all(whole),
        "{waiting:?}"
    );
    // One of now that has lost its digest is none of those.
    change(
        &file,
        "UPDATE effect_waiting SET digest = NULL WHERE call_id = 'c2'",
    );
    let waiting = store.waiting(mesh(), 10).await.unwrap();
    assert_eq!(
        (waiting[0].is_changed, waiting[1].is_changed),
        (false, true)
    );
    let connection = Connection::open(&file).unwrap();
    let added = "INSERT INTO effect_undigested SELECT mesh_id, 'effect_waiting', call_id, seq FROM effect_waiting";
    assert!(connection.execute(added, []).is_err());
    store.stop();
}
