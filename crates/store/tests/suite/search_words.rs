//! The indexes for searching keep no text, so that nothing compares them by itself: a word that a disk has taken out hid its row from
//! every search, and the doctor said that all was well.

use heddle_store::{Durability, NewInboxRow, Store, StoreOptions, check_up};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NOW, at, open};
use crate::mended::{mend_wholly, senseless};

fn body_of(envelope: &[u8]) -> Option<String> {
    let envelope: Value = serde_json::from_slice(envelope).ok()?;
    envelope["body"].as_str().map(str::to_owned)
}

async fn index_inbox(fixture: &Fixture) {
    while fixture.store.inbox_index_chunk(body_of).await.unwrap() > 0 {}
}

async fn filled() -> Fixture {
    let fixture = Fixture::new().with_mesh().await;
    for n in 0..3 {
        let value = json!({"text": format!("the word{n} of it"), "n": n});
        fixture
            .remember(&format!("r{n}"), &format!("key{n}"), &value)
            .await;
    }
    let items = (1..4).map(|n: u64| NewInboxRow {
        envelope: json!({"body": format!("deploy number{n}")})
            .to_string()
            .into_bytes(),
        ..fixture.item("coder", &format!("m{n}"), at(1, n))
    });
    let mut items: Vec<NewInboxRow> = items.collect();
    items.push(NewInboxRow {
        envelope: b"no json at all".to_vec(),
        ..fixture.item("coder", "m9", at(1, 9))
    });
    fixture.store.receive(fixture.mesh, items).await.unwrap();
    index_inbox(&fixture).await;
    // What is changed and forgotten is not told of.
    fixture
        .remember("r8", "key0", &json!("another value"))
        .await;
    fixture.forget("r9", "key2").await;
    fixture
}

#[tokio::test]
async fn a_word_that_is_gone_from_an_index_is_noticed_and_a_repair_finds_the_row_again() {
    let place = "(SELECT place FROM memory WHERE key = 'key1')";
    let other = "(rowid, key, words, tags) VALUES";
    let spoil = [
        ("memory_fts", format!("DELETE FROM memory_fts WHERE rowid = {place}")),
        (
            "memory_fts",
            format!("DELETE FROM memory_fts WHERE rowid = {place};
                INSERT INTO memory_fts {other} ({place}, 'key1', 'text the word7 of it n 1', '[]')"),
        ),
        ("inbox_fts", "DELETE FROM inbox_fts WHERE rowid = 2".to_owned()),
        (
            "inbox_fts",
            "DELETE FROM inbox_fts WHERE rowid = 2;
             INSERT INTO inbox_fts (rowid, body, topic, sender) 
                SELECT 2, 'deploy number7', topic, sender_name || ' ' || sender_agent FROM inbox WHERE arrival = 2".to_owned(),
        ),
    ];
    for (index, sql) in spoil {
        let fixture = filled().await;
        assert_eq!(senseless(&fixture, false), "");
        fixture.raw().execute_batch(&sql).unwrap();
        let said = senseless(&fixture, false);
        assert!(said.contains(index), "{sql}: {said}");
        let fixture = mend_wholly(fixture);
        index_inbox(&fixture).await;
        assert_eq!(senseless(&fixture, false), "", "{sql}");
        assert_eq!(fixture.keys_with("word1").await, ["key1"], "{sql}");
        let found = "SELECT rowid FROM inbox_fts WHERE inbox_fts MATCH 'number2'";
        let found = fixture
            .raw()
            .query_row(found, [], |row| row.get::<_, i64>(0));
        assert_eq!(found.unwrap(), 2, "{sql}");
    }
}

/// What a disk can take from an index beside its words. SQLite's own check finds none of it but the last.
const TAKEN: [&str; 5] = [
    "DELETE FROM {}_data WHERE id = 1",
    "DELETE FROM {}_docsize WHERE id = 1",
    "DELETE FROM {}_docsize",
    "DELETE FROM {}_config",
    "UPDATE {}_data SET block = x'00' WHERE id = 10",
];

async fn works(fixture: &Fixture, what: &str) {
    index_inbox(fixture).await;
    fixture
        .remember("w1", "key1", &json!("the word1 again"))
        .await;
    let item = fixture.item("coder", "w2", at(1, 20));
    let item = NewInboxRow {
        envelope: br#"{"body":"deploy number20"}"#.to_vec(),
        ..item
    };
    let received = fixture.store.receive(fixture.mesh, vec![item]).await;
    received.unwrap();
    index_inbox(fixture).await;
    assert_eq!(fixture.keys_with("word1").await, ["key1"], "{what}");
    let found = "SELECT count(*) FROM inbox_fts WHERE inbox_fts MATCH 'deploy'";
    let found = fixture
        .raw()
        .query_row(found, [], |row| row.get::<_, i64>(0));
    assert_eq!(found.unwrap(), 4, "{what}");
    assert_eq!(fixture.store.poisoned(), None, "{what}");
    assert_eq!(senseless(fixture, false), "", "{what}");
}

#[tokio::test]
async fn a_damaged_index_for_searching_is_made_anew_by_the_next_start_and_blocks_no_write() {
    for index in ["memory_fts", "inbox_fts"] {
        for sql in TAKEN {
            let sql = sql.replace("{}", index);
            let mut fixture = filled().await;
            fixture.store.stop();
            let unclean = "UPDATE store_state SET clean = 0";
            fixture
                .raw()
                .execute_batch(&format!("{sql}; {unclean}"))
                .unwrap();
            let options = StoreOptions {
                path: fixture.path(),
                durability: Durability::Normal,
                vfs: None,
            };
            fixture.store = Store::open_or_park(options, NOW).unwrap().0;
            works(&fixture, &sql).await;
        }
    }
}

#[tokio::test]
async fn what_no_write_goes_through_without_is_looked_for_after_an_orderly_end_as_well() {
    for index in ["memory_fts", "inbox_fts"] {
        for sql in [TAKEN[0], TAKEN[3], TAKEN[4]] {
            let sql = sql.replace("{}", index);
            let mut fixture = filled().await;
            fixture.store.stop();
            // Too large for a quick start to read all of it.
            let large =
                "CREATE TABLE filler (x BLOB); INSERT INTO filler VALUES (zeroblob(5000000))";
            fixture.raw().execute_batch(large).unwrap();
            fixture.raw().execute_batch(&sql).unwrap();
            let options = StoreOptions {
                path: fixture.path(),
                durability: Durability::Normal,
                vfs: None,
            };
            fixture.store = Store::open_or_park(options, NOW).unwrap().0;
            works(&fixture, &sql).await;
        }
    }
}

#[tokio::test]
async fn the_doctor_tells_of_a_damaged_index_and_a_repair_makes_it_anew() {
    for index in ["memory_fts", "inbox_fts"] {
        for sql in TAKEN {
            let sql = sql.replace("{}", index);
            let fixture = filled().await;
            fixture.store.stop();
            fixture.raw().execute_batch(&sql).unwrap();
            let blobs = fixture.folder.path().join("blobs");
            let looked = check_up(&fixture.path(), &blobs, |_, _| true, true).unwrap();
            let is_told =
                looked.outlook.condition.damage().is_some() || !looked.senseless.is_empty();
            assert!(is_told, "{sql}: {looked:?}");
            let fixture = mend_wholly(fixture);
            works(&fixture, &sql).await;
        }
    }
}

#[tokio::test]
async fn the_lost_row_of_the_state_of_a_file_is_put_back() {
    let mut fixture = filled().await;
    fixture.accept("m1").await;
    fixture.store.stop();
    let gone = "DELETE FROM store_state";
    fixture.raw().execute_batch(gone).unwrap();
    assert!(senseless(&fixture, false).contains("store_state"));
    fixture.store = open(&fixture.path()).unwrap();
    assert_eq!(fixture.dump("store_state"), ["1,0,0,0,1"]);
    works(&fixture, gone).await;
    fixture.store.stop();
    fixture.raw().execute_batch(gone).unwrap();
    let fixture = mend_wholly(fixture);
    assert_eq!(fixture.dump("store_state"), ["1,0,0,0,1"]);
}
