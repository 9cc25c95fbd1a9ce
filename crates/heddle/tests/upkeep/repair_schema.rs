//! Repairing a store whose list of tables, or whose list of meshes, cannot be read any more.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{Daemon, Home, wait_until};

const PAGE_BYTES: usize = 4096;

fn set(daemon: &Daemon, key: &str, value: &Value) {
    let body = json!({"key": key, "value": value});
    daemon.http.post("/v1/state/set", &body).expect(200);
}

fn send(daemon: &Daemon, id: &str) {
    let body = json!({"to": "@tester", "message": "text ".repeat(100), "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

/// Some of everything, stopped in order.
fn filled() -> Home {
    let home = Home::new();
    let daemon = home.up();
    for number in 0..120 {
        send(&daemon, &format!("m{number}"));
        set(&daemon, &format!("k{number}"), &json!("v".repeat(300)));
    }
    let memory = json!({"key": "note", "value": {"deep": [1, 2]}, "tags": ["a"]});
    daemon.http.post("/v1/memory/remember", &memory).expect(200);
    let task = json!({"title": "write it down"});
    daemon.http.post("/v1/task/create", &task).expect(200);
    wait_until("all to be sent", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 120 && status["inbox"]["items"] == 120
    });
    daemon.stop();
    home
}

fn root_of(path: &Path, table: &str) -> usize {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let raw = rusqlite::Connection::open_with_flags(path, flags).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: i64 = raw.query_row(sql, [table], |row| row.get(0)).unwrap();
    usize::try_from(page).unwrap()
}

fn damage(path: &Path, page: usize, from: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let start = (page - 1) * PAGE_BYTES;
    bytes[start + from..start + PAGE_BYTES].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
}

/// The first leaf of the list of tables that is not the first page itself.
fn schema_leaf(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[100], 5, "the list of tables has leaves of its own");
    let number = |at: usize, len: usize| {
        bytes[at..at + len]
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    number(number(112, 2), 4)
}

fn assert_works_again(home: &Home, mended: &str) {
    let daemon = home.up();
    for id in ["m0", "m60", "m119"] {
        let again = json!({"to": "@tester", "message": "other", "client_message_id": id});
        let conflict = daemon.http.post("/v1/send", &again).expect(409);
        assert_eq!(conflict["conflict"], "outbox_done_fingerprint_mismatch");
    }
    for key in ["k0", "k60", "k119"] {
        let value = daemon.http.get(&format!("/v1/state/get?key={key}"));
        assert_eq!(value.expect(200)["value"], "v".repeat(300), "{mended}");
    }
    let note = home.cli(&["recall", "note", "--json"]).ok().json();
    assert_eq!(
        note["items"][0]["value"],
        json!({"deep": [1, 2]}),
        "{mended}"
    );
    let found = home
        .cli(&["recall", "--search", "deep", "--json"])
        .ok()
        .json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{mended}");
    let tasks = home.cli(&["task", "list", "--json"]).ok().json();
    assert!(tasks.to_string().contains("write it down"), "{mended}");
    set(&daemon, "after", &json!(1));
    send(&daemon, "after");
    wait_until("new mail", || {
        let page = daemon.http.get("/v1/inbox?limit=500").expect(200);
        page.to_string().contains("\"after\"")
    });
    home.cli(&["doctor"]).ok();
}

fn repair(home: &Home) -> Value {
    let damaged = std::fs::read(home.path().join("data.db")).unwrap();
    let refused = home.try_up().err().expect("it must not start");
    assert!(refused.stderr.contains("heddle doctor"), "{refused:?}");
    let told = home.cli(&["doctor", "--repair", "--json"]).ok().json();
    let kept = PathBuf::from(told["damaged"].as_str().unwrap());
    assert_eq!(std::fs::read(&kept).unwrap(), damaged);
    let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    told
}

#[test]
fn lf_39_a_first_page_that_is_gone_costs_no_row() {
    for from in [0, 100] {
        let home = filled();
        damage(&home.path().join("data.db"), 1, from);
        let told = repair(&home);
        assert_eq!(told["repaired"], true, "{told}");
        assert_works_again(&home, &told.to_string());
    }
}

#[test]
fn lf_39_a_leaf_of_the_list_of_tables_that_is_gone_costs_no_row() {
    let home = filled();
    let path = home.path().join("data.db");
    let leaf = schema_leaf(&path);
    damage(&path, leaf, 0);
    let told = repair(&home);
    assert_works_again(&home, &told.to_string());
}

#[test]
fn lf_39_a_lost_list_of_meshes_is_made_again_from_the_rows_of_the_others() {
    let home = filled();
    let before = {
        let daemon = home.up();
        let info = home.cli(&["mesh", "info", "--json"]).ok().json();
        daemon.stop();
        info
    };
    let path = home.path().join("data.db");
    let page = root_of(&path, "mesh");
    damage(&path, page, 0);
    let told = repair(&home);
    assert_eq!(told["lost"], true, "{told}");
    assert_works_again(&home, &told.to_string());
    let daemon = home.up();
    let after = home.cli(&["mesh", "info", "--json"]).ok().json();
    for id in ["mesh", "mesh_id", "member_id", "member", "broker_id"] {
        assert_eq!(after[id], before[id], "{id}");
    }
    daemon.stop();
}

#[test]
fn the_words_of_a_repair_say_what_was_lost_and_what_comes_back() {
    let home = filled();
    let path = home.path().join("data.db");
    let page = root_of(&path, "mesh");
    damage(&path, page, 0);
    let words = home.cli(&["doctor", "--repair"]).ok().stdout;
    assert!(words.contains("mesh"), "{words}");
    assert!(words.contains("made again"), "{words}");
    assert!(words.contains("the broker"), "{words}");
    assert!(words.contains("data.db.damaged-"), "{words}");
}

/// Whatever is cut off, the repair ends, and the home starts with what is left or says what to do.
#[test]
fn lf_39_a_file_that_was_cut_is_repaired_or_refused_and_never_without_end() {
    let home = filled();
    let path = home.path().join("data.db");
    let whole = std::fs::read(&path).unwrap();
    let _ = std::fs::remove_file(home.path().join("data.db-wal"));
    for share in [95, 90, 70, 50] {
        std::fs::write(&path, &whole[..whole.len() * share / 100]).unwrap();
        let told = home.cli(&["doctor", "--repair", "--json"]).ok().json();
        assert_eq!(told["repaired"], true, "{share}: {told}");
        let daemon = home.up();
        set(&daemon, "after", &json!(share));
        daemon.stop();
        // A message whose text was cut off is told; nothing else needs anybody.
        let told = home.cli(&["doctor"]);
        let wrong = told.stdout.lines().filter(|line| line.starts_with("  !"));
        let others = wrong.filter(|line| !line.starts_with("  ! inbox:")).count();
        assert_eq!(others, 0, "{share}: {told:?}");
    }
}

#[test]
fn a_repair_of_an_empty_file_says_that_it_is_empty() {
    let home = filled();
    let path = home.path().join("data.db");
    std::fs::write(&path, b"").unwrap();
    let refused = home.cli(&["doctor", "--repair"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(refused.stderr.contains("is empty"), "{refused:?}");
    assert!(
        refused.stderr.contains("heddle daemon restore"),
        "{refused:?}"
    );
    assert!(!refused.stdout.contains("nothing is wrong"), "{refused:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

/// A row that names another table than its model's: found, said with the command that helps, and mended without a loss.
#[test]
fn lf_31_a_forged_name_of_a_table_of_vectors_is_found_and_mended() {
    let home = Home::new();
    let daemon = home.up();
    let vector =
        json!({"key": "v", "content": "words", "embedding": [1.0, 0.0, 0.5], "model": "m"});
    daemon.http.post("/v1/vector/store", &vector).expect(200);
    daemon.stop();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let forged = raw.execute("UPDATE vector_models SET vec_table = 'outbox'", []);
    assert_eq!(forged.unwrap(), 1);
    drop(raw);
    let daemon = home.up();
    let query = json!({"embedding": [1.0, 0.0, 0.5], "model": "m", "limit": 3});
    let refused = daemon.http.post("/v1/vector/search", &query).expect(500);
    let next = refused["next"].as_str().unwrap();
    assert!(next.contains("heddle doctor --repair"), "{refused}");
    assert!(!next.contains("Try again"), "{refused}");
    let doctor = home.cli(&["doctor"]);
    assert!(
        doctor.code != 0 && doctor.stdout.contains("vector_models"),
        "{doctor:?}"
    );
    daemon.stop();
    let doctor = home.cli(&["doctor"]);
    assert!(
        doctor.stdout.contains("heddle doctor --repair"),
        "{doctor:?}"
    );
    let told = home.cli(&["doctor", "--repair", "--json"]).ok().json();
    assert_eq!(
        (&told["repaired"], &told["lost"]),
        (&json!(true), &json!(false)),
        "{told}"
    );
    // It could not be read before; it is mended, not taken out.
    assert_eq!(told["unreadable"], json!([]), "{told}");
    let daemon = home.up();
    let found = daemon.http.post("/v1/vector/search", &query).expect(200);
    assert_eq!(found["items"][0]["content"], "words", "{found}");
    daemon.http.post("/v1/vector/store", &vector).expect(200);
    home.cli(&["doctor"]).ok();
    daemon.stop();
}
