//! A value that a disk has changed into text that is no JSON any more: every list, search, dump and export goes on
//! without that one row and names it; who asks for that very key is told what helps.

use crate::support;

use serde_json::json;
use support::{Home, wait_until};

const KEPT: &str = r#"{"MARKSTA":1}"#;
const SPOILT: &str = r#"{"MARKSTA:11}"#;

/// The bytes in the file, as a disk changes them, wherever they stand: no trigger and no index hears of it.
fn spoil(home: &Home) {
    let path = home.path().join("data.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    for (table, name) in [
        ("memory", "key = 'k2'"),
        ("state_kv", "key = 's2'"),
        ("vector_metadata", "key = 'v2'"),
    ] {
        let column = if table == "vector_metadata" {
            "metadata"
        } else {
            "value"
        };
        let triggers = format!(
            "SELECT ifnull(group_concat('DROP TRIGGER ' || name, ';'), ''), ifnull(group_concat(sql, ';'), '')
             FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = '{table}'"
        );
        let (drop, make): (String, String) = raw
            .query_row(&triggers, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        raw.execute_batch(&drop).unwrap();
        let sql = format!("UPDATE {table} SET {column} = ?1 WHERE {name} AND {column} = ?2");
        let changed = raw.execute(&sql, [SPOILT, KEPT]).unwrap();
        assert_eq!(changed, 1, "{sql}");
        raw.execute_batch(&make).unwrap();
    }
}

fn spoilt() -> Home {
    let home = Home::new();
    let daemon = home.up();
    for number in 1..=4 {
        let name = |noun: &str| format!("{noun}{number}");
        home.cli(&["remember", &name("k"), KEPT]).ok();
        home.cli(&["state", "set", &name("s"), KEPT]).ok();
        let body = json!({"key": name("v"), "content": "kept here", "metadata": {"MARKSTA": 1}});
        daemon.http.post("/v1/vector/store", &body).expect(200);
    }
    daemon.stop();
    spoil(&home);
    home
}

const BAD: [&str; 3] = ["memory \"k2\"", "state \"s2\"", "vector \"v2\""];

#[test]
fn a_value_that_is_no_json_holds_up_no_list_and_is_named() {
    let home = spoilt();
    let daemon = home.up();
    wait_until("the status to know of it", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["degraded"].to_string().contains("s2")
    });
    let lists: [(&[&str], &str, &str); 8] = [
        (&["recall"], "k3", BAD[0]),
        (&["recall", "--scope", "all"], "k3", BAD[0]),
        (&["recall", "--search", "MARKSTA"], "k3", BAD[0]),
        (&["state", "list"], "s3", BAD[1]),
        (&["vector", "search", "kept here"], "v3", BAD[2]),
        (&["vector", "list"], "v3", BAD[2]),
        (&["advanced", "dump"], "s3", BAD[1]),
        (&["advanced", "export"], "k3", BAD[0]),
    ];
    for (call, there, bad) in lists {
        let ran = home.cli(call);
        let is_all = call[0] == "advanced";
        assert_eq!(ran.code, i32::from(is_all), "{call:?}: {ran:?}");
        assert!(ran.stdout.contains(there), "{call:?}: {ran:?}");
        assert!(!ran.stdout.contains("MARKSTA:11"), "{call:?}: {ran:?}");
        let words = ran.stderr.replace('\\', "");
        assert!(words.contains("left out"), "{call:?}: {ran:?}");
        assert!(words.contains(bad), "{call:?}: {ran:?}");
    }
    for call in [&["recall", "k2"][..], &["state", "get", "s2"]] {
        let asked = home.cli(call);
        assert_eq!(asked.code, 1, "{call:?}: {asked:?}");
        assert!(asked.stderr.contains(call[call.len() - 1]), "{asked:?}");
        assert!(asked.stderr.contains("doctor --repair"), "{asked:?}");
        assert!(!asked.stderr.contains("Try again with"), "{asked:?}");
    }
    // Writing it again mends it.
    home.cli(&["state", "set", "s2", "anew"]).ok();
    assert!(!home.cli(&["state", "list"]).ok().stderr.contains("s2"));
    home.cli(&["forget", "k2"]).ok();
    assert!(!home.cli(&["recall"]).ok().stderr.contains("k2"));
    daemon.stop();
    home.cli(&["doctor", "--repair"]);
    home.cli(&["doctor"]).ok();
}

#[test]
fn a_page_with_a_row_that_cannot_be_read_is_not_the_last_one() {
    let home = spoilt();
    let daemon = home.up();
    for (path, names) in [
        ("/v1/state/list?limit=1", ["s1", "s3", "s4"]),
        ("/v1/memory/recall?limit=1", ["k1", "k3", "k4"]),
        ("/v1/vector/list?limit=1", ["v1", "v3", "v4"]),
    ] {
        let (mut found, mut next) = (Vec::new(), path.to_owned());
        loop {
            let page = daemon.http.get(&next).expect(200);
            let items = page["items"].as_array().unwrap().iter();
            found.extend(items.map(|one| one["key"].as_str().unwrap().to_owned()));
            let Some(cursor) = page["cursor"].as_str() else {
                break;
            };
            let cursor: String = cursor.bytes().map(|byte| format!("%{byte:02X}")).collect();
            next = format!("{path}&cursor={cursor}");
            assert!(found.len() < 9, "{path} does not end: {found:?}");
        }
        assert_eq!(found, names, "{path}");
    }
    // What lies behind the prefix is none of this list's.
    let page = daemon.http.get("/v1/state/list?prefix=s1").expect(200);
    assert!(page["left_out"].is_null(), "{page}");
    daemon.stop();
}
