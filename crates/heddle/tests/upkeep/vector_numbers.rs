//! A disk changes the numbers of a vector into other numbers: nobody finds it by them, it is named, and it goes to nobody.

use crate::support;

use serde_json::{Value, json};
use support::{Home, wait_until};

/// Puts 1.5 in the place of the first number of a vector. SQLite finds nothing wrong with that.
fn change(home: &Home, key: &str) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let text = |sql: &str| raw.query_row(sql, [], |row| row.get::<_, String>(0));
    let chunks = text("SELECT name FROM sqlite_schema WHERE name LIKE 'vectors_%_vector_chunks00'");
    let chunks = chunks.unwrap();
    let rows = chunks.replace("_vector_chunks00", "_rowids");
    let sql = format!(
        "SELECT r.chunk_offset * 384 * 4 FROM \"{rows}\" AS r
         JOIN vector_metadata AS m ON m.place = r.rowid WHERE m.key = ?1"
    );
    let at: i64 = raw.query_row(&sql, [key], |row| row.get(0)).unwrap();
    let sql = format!(
        "UPDATE \"{chunks}\" SET vectors = CAST(substr(vectors, 1, {at}) || x'0000c03f'
            || substr(vectors, {at} + 5) AS BLOB)"
    );
    assert_eq!(raw.execute(&sql, []).unwrap(), 1);
    assert_eq!(text("PRAGMA integrity_check").unwrap(), "ok");
}

fn search(home: &Home) -> (Vec<String>, Value) {
    let found = home.cli(&["vector", "search", "kept here", "--json"]);
    let found = found.ok().json();
    let items = found["items"].as_array().unwrap().iter();
    let keys = items.map(|item| item["key"].as_str().unwrap().to_owned());
    (keys.collect(), found["left_out"].clone())
}

#[test]
fn numbers_that_a_disk_changed_into_other_numbers_are_found_by_nobody_and_named() {
    let home = Home::new();
    let daemon = home.up();
    for key in ["v1", "v2", "v3"] {
        home.cli(&["vector", "store", key, "kept here"]).ok();
    }
    daemon.stop();
    home.cli(&["doctor"]).ok();
    change(&home, "v2");

    let looked = home.cli(&["doctor"]);
    assert_eq!(looked.code, 1, "{looked:?}");
    assert!(looked.stdout.contains("vector \"v2\""), "{looked:?}");
    let daemon = home.up();
    let keys = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let without: Vec<String> = keys(&["v1", "v3"]);
    // The second one finds what the first has read.
    for _ in 0..2 {
        let expected = (without.clone(), json!(["vector \"v2\""]));
        assert_eq!(search(&home), expected);
    }
    let dumped = home.cli(&["advanced", "dump"]);
    assert_eq!(dumped.code, 1, "a dump without a row says so: {dumped:?}");
    assert!(!dumped.stdout.contains("\"v2\""), "{dumped:?}");
    assert!(dumped.stderr.contains("v2"), "{dumped:?}");
    // Storing it again mends it.
    home.cli(&["vector", "store", "v2", "kept here"]).ok();
    let all: Vec<String> = keys(&["v1", "v2", "v3"]);
    assert_eq!(search(&home), (all, Value::Null));
    daemon.stop();
    home.cli(&["doctor"]).ok();

    change(&home, "v3");
    let mended = home.cli(&["doctor", "--repair"]).ok();
    assert!(mended.stdout.contains("v3"), "{mended:?}");
    home.cli(&["doctor"]).ok();
    let _daemon = home.up();
    let rest: Vec<String> = keys(&["v1", "v2"]);
    assert_eq!(search(&home), (rest, Value::Null));
}

/// A row that names another table than its model's, and a model whose table is gone: what helps is a repair, and that is
/// what is told.
#[test]
fn a_model_whose_table_is_another_or_gone_is_told_with_what_helps() {
    for (spoil, names) in [
        (
            "UPDATE vector_models SET vec_table = 'memory'",
            "it is not the table of its model",
        ),
        (
            "PRAGMA writable_schema = ON;
             DELETE FROM sqlite_schema WHERE name LIKE 'vectors_%' AND sql LIKE 'CREATE VIRTUAL%';",
            "the table of a model, is missing",
        ),
    ] {
        let home = Home::new();
        let daemon = home.up();
        home.cli(&["vector", "store", "v", "kept here"]).ok();
        home.cli(&["state", "set", "s", "kept here"]).ok();
        daemon.stop();
        let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
        raw.execute_batch(spoil).unwrap();
        drop(raw);
        let daemon = home.up();
        let status = || home.cli(&["status", "--json"]).json();
        wait_until("the status to know of it", || {
            status()["verdict"] == "degraded"
        });
        let told = status();
        let said = told["degraded"].to_string();
        assert!(said.contains(names), "{said}");
        assert!(said.contains("heddle doctor --repair"), "{said}");
        assert!(!said.contains("Writing or deleting that key"), "{said}");
        assert_eq!(told["next"], "heddle doctor", "{told}");
        home.cli(&["state", "get", "s"]).ok();
        daemon.stop();
        home.cli(&["doctor", "--repair"]);
        home.cli(&["doctor"]).ok();
        let _daemon = home.up();
        home.cli(&["vector", "store", "v", "kept here"]).ok();
        let (keys, left_out) = search(&home);
        assert_eq!((keys.len(), left_out), (1, Value::Null));
        assert_eq!(
            home.cli(&["state", "get", "s"]).ok().stdout.trim(),
            "kept here"
        );
    }
}
