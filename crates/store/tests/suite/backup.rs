//! Copies of the store and putting them back: what is refused, and what a crash in between leaves.

use std::fs;
use std::path::PathBuf;

use heddle_store::{BackupError, Store, back_up, repair, restore};
use rusqlite::Connection;

use crate::fixture::{Fixture, NOW, agent, open};
use crate::mended::hints;
use crate::park::damage;

fn beside(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.folder.path().join(name)
}

fn names(fixture: &Fixture) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(fixture.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A store with a row, its copy, and another row behind that.
async fn copied() -> (Fixture, PathBuf) {
    let fixture = Fixture::new();
    fixture.accept("before").await;
    let copy = beside(&fixture, "copy.db");
    let made = back_up(&fixture.path(), &fixture.blobs(), &copy).unwrap();
    assert_eq!((made.blobs, made.missing), (0, 0));
    fixture.accept("since").await;
    fixture.store.stop();
    (fixture, copy)
}

fn ids(path: &std::path::Path) -> Vec<String> {
    let raw = Connection::open(path).unwrap();
    let mut statement = raw
        .prepare("SELECT client_message_id FROM outbox ORDER BY arrival")
        .unwrap();
    let ids = statement.query_map([], |row| row.get(0)).unwrap();
    ids.collect::<rusqlite::Result<_>>().unwrap()
}

#[tokio::test]
async fn lf_36_a_restore_that_a_crash_interrupted_is_finished_and_loses_neither_file() {
    let (fixture, copy) = copied().await;
    // Decided, and killed before the first rename of the exchange.
    fs::copy(&copy, beside(&fixture, "data.db.restored-T")).unwrap();
    Store::finish_parking(&fixture.path()).unwrap();
    assert_eq!(ids(&fixture.path()), ["before"]);
    let old = beside(&fixture, "data.db.before-restore-T");
    assert_eq!(ids(&old), ["before", "since"]);
    // And between its two renames: the name is free.
    fs::remove_file(fixture.path()).unwrap();
    fs::copy(&copy, beside(&fixture, "data.db.restored-T")).unwrap();
    Store::finish_parking(&fixture.path()).unwrap();
    assert_eq!(ids(&fixture.path()), ["before"]);
    assert_eq!(ids(&old), ["before", "since"]);
    open(&fixture.path()).unwrap().stop();
}

#[tokio::test]
async fn a_restore_keeps_the_file_of_before_and_counts_its_arrivals_on() {
    let (fixture, copy) = copied().await;
    let raw = fixture.raw();
    let far = "INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', 4711)";
    raw.execute(far, []).unwrap();
    drop(raw);
    let restored = restore(&copy, &fixture.path(), &fixture.blobs(), NOW).unwrap();
    assert_eq!(ids(&restored.before.unwrap()), ["before", "since"]);
    let seq = "SELECT seq FROM sqlite_sequence WHERE name = 'inbox'";
    let seq: i64 = fixture.raw().query_row(seq, [], |row| row.get(0)).unwrap();
    assert_eq!(seq, 4711, "a place of arrival would be given twice");
    // The file of the time since is lost: then nothing that it may have given is given again.
    fs::remove_file(fixture.path()).unwrap();
    for name in names(&fixture) {
        if name.starts_with("data.db.before") {
            fs::remove_file(beside(&fixture, &name)).unwrap();
        }
    }
    let restored = restore(&copy, &fixture.path(), &fixture.blobs(), NOW).unwrap();
    assert_eq!(restored.before, None);
    assert!(restored.incarnation > 1_000_000, "{restored:?}");
}

#[tokio::test]
async fn what_is_no_whole_backup_of_this_program_is_refused_and_changes_nothing() {
    let (fixture, copy) = copied().await;
    let before = fs::read(fixture.path()).unwrap();
    let refusal = |path: &PathBuf| {
        let refused = restore(path, &fixture.path(), &fixture.blobs(), NOW).unwrap_err();
        assert_eq!(fs::read(fixture.path()).unwrap(), before);
        refused
    };
    let newer = beside(&fixture, "newer.db");
    fs::copy(&copy, &newer).unwrap();
    let raw = Connection::open(&newer).unwrap();
    raw.pragma_update(None, "user_version", 9999).unwrap();
    drop(raw);
    assert!(matches!(
        refusal(&newer),
        BackupError::Newer { found: 9999, .. }
    ));
    let other = beside(&fixture, "other.db");
    let raw = Connection::open(&other).unwrap();
    raw.execute_batch("CREATE TABLE t (x); PRAGMA user_version = 3")
        .unwrap();
    drop(raw);
    assert!(matches!(refusal(&other), BackupError::NotAStore { .. }));
    let bad = beside(&fixture, "bad.db");
    fs::copy(&copy, &bad).unwrap();
    damage(&bad, "outbox");
    assert!(matches!(refusal(&bad), BackupError::Damaged { .. }));
}

#[tokio::test]
async fn a_backup_replaces_nothing_and_leaves_nothing_behind_when_it_fails() {
    let (fixture, copy) = copied().await;
    let make = |to: &PathBuf| back_up(&fixture.path(), &fixture.blobs(), to);
    assert!(matches!(
        make(&copy).unwrap_err(),
        BackupError::Exists { .. }
    ));
    let other = beside(&fixture, "other.db");
    let part = beside(&fixture, "other.db.part");
    fs::write(&part, "somebody's").unwrap();
    assert!(matches!(
        make(&other).unwrap_err(),
        BackupError::Unfinished { .. }
    ));
    assert_eq!(fs::read(&part).unwrap(), b"somebody's");
    fs::remove_file(&part).unwrap();
    damage(&fixture.path(), "outbox");
    let before = names(&fixture);
    assert!(matches!(
        make(&other).unwrap_err(),
        BackupError::Damaged { .. }
    ));
    assert_eq!(names(&fixture), before);
}

#[tokio::test]
async fn a_repair_without_a_mesh_that_can_be_read_changes_nothing() {
    let fixture = Fixture::new();
    // Nothing says who we were in its mesh, and nothing of it can be used without that.
    let mailbox = fixture
        .store
        .register_agent(fixture.mesh, agent("planner"), NOW);
    mailbox.await.unwrap();
    fixture.store.stop();
    let before = fs::read(fixture.path()).unwrap();
    let refused = repair(&fixture.path(), &fixture.blobs(), &hints(), NOW).unwrap_err();
    assert!(
        matches!(refused, BackupError::NothingLeft { .. }),
        "{refused}"
    );
    assert_eq!(fs::read(fixture.path()).unwrap(), before);
}
