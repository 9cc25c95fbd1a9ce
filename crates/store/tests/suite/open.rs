//! Opening and stopping: what is refused, what is checked, and that a refusal changes no byte.

use std::fs;

use heddle_sqlite::OpenError;
use heddle_store::StoreError;

use crate::fixture::{Fixture, open};

#[tokio::test]
async fn a_file_of_a_newer_heddle_is_refused_with_its_bytes_unchanged() {
    let fixture = Fixture::new();
    fixture.accept("a").await;
    fixture.store.stop();
    let raw = fixture.raw();
    let known = raw.pragma_query_value(None, "user_version", |row| row.get(0));
    let known: u32 = known.unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    let before = fs::read(fixture.path()).unwrap();
    let error = open(&fixture.path()).err().unwrap();
    let newer = OpenError::NewerSchema { found: 99, known };
    assert_eq!(error.to_string(), StoreError::Open(newer).to_string());
    assert!(error.to_string().contains("newer Heddle"), "{error}");
    assert_eq!(fs::read(fixture.path()).unwrap(), before);
}

fn set_clean(fixture: &Fixture, clean: bool) {
    let sql = "UPDATE store_state SET clean = ?1";
    fixture.raw().execute(sql, [clean]).unwrap();
}

/// Overwrites the page on which the outbox begins.
fn damage(fixture: &Fixture) {
    let raw = fixture.raw();
    let page: i64 = raw
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'outbox'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    drop(raw);
    let mut bytes = fs::read(fixture.path()).unwrap();
    let start = usize::try_from(page - 1).unwrap() * 4096;
    bytes[start..start + 64].fill(0xff);
    fs::write(fixture.path(), bytes).unwrap();
}

#[tokio::test]
async fn dr_16_damage_after_an_unclean_stop_is_found_and_the_file_is_left_alone() {
    let fixture = Fixture::new();
    fixture.accept("a").await;
    fixture.store.stop();
    set_clean(&fixture, false);
    damage(&fixture);
    let before = fs::read(fixture.path()).unwrap();
    let error = open(&fixture.path()).err().unwrap();
    assert!(
        matches!(error, StoreError::Open(OpenError::Damaged(_))),
        "{error:?}"
    );
    assert!(error.to_string().contains("heddle doctor --repair"));
    assert_eq!(fs::read(fixture.path()).unwrap(), before);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_damage_and_not_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.db");
    fs::write(&path, [0x42; 8192]).unwrap();
    let error = open(&path).err().unwrap();
    assert!(
        matches!(error, StoreError::Open(OpenError::Damaged(_))),
        "{error:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), [0x42; 8192]);
}

#[tokio::test]
async fn the_file_is_clean_only_between_a_stop_and_the_next_start() {
    let fixture = Fixture::new();
    let clean = |fixture: &Fixture| fixture.dump("store_state") == ["1,1,0,0,1"];
    assert!(!clean(&fixture), "open for the first time");
    fixture.store.stop();
    fixture.store.stop();
    assert!(clean(&fixture));
    let again = open(&fixture.path()).unwrap();
    assert!(!clean(&fixture), "open again");
    drop(again);
    assert!(!clean(&fixture), "dropped and not stopped");
}

#[tokio::test]
async fn what_was_written_is_there_after_a_stop_and_a_stopped_store_says_so() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    let before = fixture.find(row).await;
    fixture.store.stop();
    let key = fixture.key("b", 1);
    let refused = fixture.store.accept::<()>(key, Ok(fixture.new_row())).await;
    assert!(matches!(refused, Err(StoreError::Stopped)), "{refused:?}");
    let refused = fixture.store.figures().await;
    assert!(matches!(refused, Err(StoreError::Stopped)), "{refused:?}");
    let again = Fixture {
        store: open(&fixture.path()).unwrap(),
        ..fixture
    };
    assert_eq!(again.find(row).await, before);
    assert_eq!(again.store.poisoned(), None);
    assert!(again.store.stats().transactions > 0);
}
