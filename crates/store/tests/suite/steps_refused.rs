//! Something is in the way of a step of the schema: no start goes well, and a repair leaves it behind.

use heddle_store::{Repaired, Undone, repair, undo_step};
use rusqlite::Connection;
use serde_json::json;

use crate::fixture::{Fixture, NOW, open};
use crate::mended::hints;

fn mend(fixture: &Fixture) -> Option<Repaired> {
    repair(&fixture.path(), &fixture.blobs(), &hints(), NOW).unwrap()
}

/// A home with rows of several tables, as a Heddle of that version would have left it.
async fn at_version(version: u32) -> Fixture {
    let fixture = Fixture::new().with_mesh().await;
    fixture.accept("waits").await;
    fixture.add("a task", &[]).await;
    fixture.remember("m", "where", &json!("kept")).await;
    fixture.store.stop();
    loop {
        let raw = fixture.raw();
        let now: u32 = raw
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        drop(raw);
        if now == version {
            return fixture;
        }
        let undone = undo_step(&fixture.path(), now).unwrap();
        assert!(matches!(undone, Undone::Done { .. }), "{now}: {undone:?}");
    }
}

fn kept(fixture: &Fixture) -> Vec<String> {
    ["outbox", "memory", "tasks"]
        .iter()
        .map(|table| {
            let sql = format!("SELECT count(*) FROM {table}");
            let count: u32 = fixture.raw().query_row(&sql, [], |row| row.get(0)).unwrap();
            format!("{table} {count}")
        })
        .collect()
}

#[tokio::test]
async fn lf_35_a_repair_leaves_behind_what_is_in_the_way_of_a_step_and_nothing_else() {
    let strays = [
        (24, "ALTER TABLE vector_metadata ADD COLUMN digest BLOB"),
        (10, "CREATE TABLE vector_digest (x)"),
    ];
    for (version, stray) in strays {
        let mut fixture = at_version(version).await;
        assert_eq!(
            mend(&fixture),
            None,
            "{version}: steps wait, and none is refused"
        );
        fixture.raw().execute_batch(stray).unwrap();
        let refused = open(&fixture.path()).err().unwrap().to_string();
        assert!(refused.contains("nothing was changed"), "{refused}");
        assert!(
            refused.contains(&format!("(version {version})")),
            "{refused}"
        );
        let before = kept(&fixture);
        let told = mend(&fixture).unwrap();
        assert!(told.problem.contains("cannot be taken"), "{told:?}");
        assert!(
            told.tables.iter().all(heddle_store::Kept::is_whole),
            "{told:?}"
        );
        assert!(told.unmended.is_empty(), "{told:?}");
        assert_eq!(kept(&fixture), before);
        fixture.store = open(&fixture.path()).unwrap();
        assert_eq!(kept(&fixture), before);
        fixture.store.stop();
        // What was in the way is in the file that was kept.
        let old = Connection::open(&told.damaged).unwrap();
        let found: u32 = old
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(found, version);
    }
}
