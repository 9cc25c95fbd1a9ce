//! Copies of a home, putting them back, the doctor's verdict, repair and export, over the real binary.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::files::{noise, share};
use support::{Daemon, Home, wait_until, wait_until_within};

const PAGE_BYTES: usize = 4096;

fn beside(home: &Home, name: &str) -> PathBuf {
    home.path().parent().unwrap().join(name)
}

fn set(daemon: &Daemon, mesh: &str, key: &str, value: &Value) -> Value {
    let body = json!({"key": key, "value": value, "mesh": mesh});
    daemon.http.post("/v1/state/set", &body).expect(200)
}

fn dump(home: &Home, mesh: &str) -> String {
    home.cli(&["--mesh", mesh, "advanced", "dump"]).ok().stdout
}

fn clock(daemon: &Daemon, mesh: &str) -> Value {
    daemon
        .http
        .get(&format!("/v1/mesh/clock?mesh={mesh}"))
        .expect(200)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn send(daemon: &Daemon, id: &str) {
    let body = json!({"to": "@tester", "message": "text ".repeat(100), "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

#[test]
fn lf_36_a_backup_made_while_it_runs_restores_to_an_equal_dump_and_a_higher_incarnation() {
    let home = Home::new();
    let daemon = home.up();
    let bytes = noise(7, 300_000);
    share(&daemon, "dir/large", &bytes);
    set(&daemon, "home", "kept", &json!([1, 2]));
    let vector = json!({"key": "v", "content": "some words to be found"});
    daemon.http.post("/v1/vector/store", &vector).expect(200);
    let before = dump(&home, "home");
    let file = beside(&home, "copy.db");
    let made = home
        .cli(&["doctor", "--backup", file.to_str().unwrap(), "--json"])
        .ok()
        .json();
    assert_eq!(
        (&made["blobs"], &made["blobs_missing"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(mode(&file), 0o600);
    let blobs = beside(&home, "copy.db.blobs");
    assert_eq!(mode(&blobs), 0o700);
    // What is there is never replaced, by the daemon or without it.
    let bytes_before = std::fs::read(&file).unwrap();
    let again = home.cli(&["daemon", "backup", file.to_str().unwrap()]);
    assert_eq!(again.code, 3, "{again:?}");
    set(&daemon, "home", "later", &json!("forgotten"));
    let held = home.cli(&["daemon", "restore", file.to_str().unwrap()]);
    assert_eq!(held.code, 3, "{held:?}");
    assert_eq!(clock(&daemon, "home")["incarnation"], 1);
    daemon.stop();
    let again = home.cli(&["daemon", "backup", file.to_str().unwrap()]);
    assert_eq!(again.code, 3, "{again:?}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes_before);
    // Also the bytes of large files come back.
    std::fs::remove_dir_all(home.path().join("blobs")).unwrap();
    let restored = home
        .cli(&["daemon", "restore", file.to_str().unwrap(), "--json"])
        .ok()
        .json();
    assert_eq!(
        (&restored["blobs"], &restored["incarnation"]),
        (&json!(1), &json!(2))
    );
    let old = PathBuf::from(restored["before"].as_str().unwrap());
    assert!(old.exists());
    let daemon = home.up();
    assert_eq!(dump(&home, "home"), before);
    assert_eq!(clock(&daemon, "home")["incarnation"], 2);
    let got = home
        .command(&["file", "get", "dir/large"])
        .output()
        .unwrap();
    assert!(
        got.stdout == bytes,
        "{}",
        String::from_utf8_lossy(&got.stderr)
    );
    let found = json!({"query": "words", "limit": 3});
    let found = daemon.http.post("/v1/vector/search", &found).expect(200);
    assert!(found.to_string().contains("some words"), "{found}");
    let stamp = set(&daemon, "home", "new", &json!(1));
    assert_eq!(stamp["stamp"]["incarnation"], 2);
    daemon.stop();
    // The same backup once more: the life in between is counted.
    let restored = home
        .cli(&["daemon", "restore", file.to_str().unwrap(), "--json"])
        .ok()
        .json();
    assert_eq!(restored["incarnation"], 3);
}

#[test]
fn what_is_no_backup_is_refused_and_nothing_changes() {
    let home = Home::new();
    home.up().stop();
    let now = std::fs::read(home.path().join("data.db")).unwrap();
    let junk = beside(&home, "junk");
    std::fs::write(&junk, "no database").unwrap();
    let refused = home.cli(&["daemon", "restore", junk.to_str().unwrap()]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let missing = home.cli(&["daemon", "restore", "/nowhere/at/all"]);
    assert_eq!(missing.code, 4, "{missing:?}");
    assert_eq!(std::fs::read(home.path().join("data.db")).unwrap(), now);
}

#[test]
fn lf_36_c39_a_home_put_back_from_an_old_copy_gets_its_own_later_ops_again_and_converges() {
    let house = Home::new();
    let data = beside(&house, "broker");
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &["--mesh", "team"]);
    let member = |name: &str| {
        let home = Home::new();
        home.config(&format!(
            "[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
            broker.listen(),
            data.join("broker_token"),
        ));
        home
    };
    let (ann, bob) = (member("ann"), member("bob"));
    let (a, b) = (ann.up(), bob.up());
    let agree = |a: &Daemon, b: &Daemon| {
        wait_until_within(Duration::from_secs(60), "both to agree", || {
            let quiet = [a, b].iter().all(|daemon| {
                let sync = &clock(daemon, "team")["sync"];
                sync["out_waiting"] == 0 && sync["in_waiting"] == 0
            });
            quiet && dump(&ann, "team") == dump(&bob, "team")
        });
    };
    set(&a, "team", "old", &json!(1));
    agree(&a, &b);
    let file = beside(&ann, "copy.db");
    ann.cli(&["doctor", "--backup", file.to_str().unwrap()])
        .ok();
    let mut stamps = Vec::new();
    let mut note = |answer: Value| {
        let stamp = &answer["stamp"];
        stamps.push((
            stamp["incarnation"].to_string(),
            stamp["lamport"].to_string(),
        ));
    };
    for number in 0..10 {
        note(set(&a, "team", &format!("since{number}"), &json!(number)));
        note(set(&a, "team", "both", &json!(number)));
    }
    agree(&a, &b);
    a.stop();
    ann.cli(&["daemon", "restore", file.to_str().unwrap()]).ok();
    let a = ann.up();
    for number in 0..10 {
        note(set(&a, "team", "both", &json!(["again", number])));
        set(&b, "team", &format!("theirs{number}"), &json!(number));
    }
    agree(&a, &b);
    let text = dump(&ann, "team");
    // What this home had forgotten has come back, and what is newest has won on both sides.
    assert!(
        text.contains("since9") && text.contains("theirs9"),
        "{text}"
    );
    assert_eq!(clock(&a, "team")["incarnation"], 2);
    let count = stamps.len();
    stamps.sort();
    stamps.dedup();
    assert_eq!(stamps.len(), count, "a stamp was issued twice");
    let orphans = ["broker", "orphan-check", "--data", data.to_str().unwrap()];
    house.cli(&orphans).ok();
}

#[test]
fn the_doctor_has_a_verdict_with_and_without_a_daemon_and_names_one_command() {
    let home = Home::new();
    let nothing = home.cli(&["doctor", "--json"]).ok().json();
    assert_eq!(nothing["ok"], true);
    assert!(!home.path().exists(), "a look made a home");
    let daemon = home.up();
    set(&daemon, "home", "k", &json!(1));
    let running = home.cli(&["doctor", "--json"]).ok().json();
    let checks: Vec<&str> = running["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["check"].as_str().unwrap())
        .collect();
    for check in [
        "store",
        "data.db",
        "broker.db",
        "blobs",
        "disk",
        "modes",
        "cold start",
    ] {
        assert!(checks.contains(&check), "{running}");
    }
    let status = home.cli(&["status", "--json"]).ok().json();
    let took = status["cold_start_ms"].as_u64().unwrap();
    assert!(
        running.to_string().contains(&format!("took {took} ms")),
        "{running}"
    );
    daemon.stop();
    let path = home.path().join("data.db");
    let before = std::fs::read(&path).unwrap();
    home.cli(&["doctor"]).ok();
    // Others may read a file: said, with the command.
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&path, open).unwrap();
    let drifted = home.cli(&["doctor"]);
    assert_eq!(drifted.code, 1, "{drifted:?}");
    assert!(drifted.stdout.contains("chmod -R go="), "{drifted:?}");
    assert_eq!(
        std::fs::read(&path).unwrap(),
        before,
        "a look changed the file"
    );
    let whole = home.cli(&["doctor", "--repair"]).ok();
    assert!(whole.stdout.contains("nothing is wrong"), "{whole:?}");
}

fn root_of(path: &Path, table: &str) -> usize {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let raw = rusqlite::Connection::open_with_flags(path, flags).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: i64 = raw.query_row(sql, [table], |row| row.get(0)).unwrap();
    usize::try_from(page).unwrap()
}

/// A leaf in the middle of a table: neither where it begins nor where it ends.
fn damage_in_the_middle(path: &Path, table: &str) {
    let mut page = root_of(path, table);
    let mut bytes = std::fs::read(path).unwrap();
    loop {
        let start = (page - 1) * PAGE_BYTES;
        if !matches!(bytes[start], 2 | 5) {
            bytes[start..start + 64].fill(0xff);
            break;
        }
        let number = |at: usize, len: usize| {
            bytes[at..at + len]
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        };
        let cell = number(start + 12 + 2 * (number(start + 3, 2) / 2), 2);
        page = number(start + cell, 4);
    }
    std::fs::write(path, bytes).unwrap();
}

/// A home with rows in every table, damaged in the middle of two of them after it was stopped.
fn damaged() -> Home {
    let home = Home::new();
    let daemon = home.up();
    for number in 0..200 {
        send(&daemon, &format!("m{number}"));
        set(
            &daemon,
            "home",
            &format!("k{number}"),
            &json!("v".repeat(300)),
        );
    }
    let vector = json!({"key": "v", "content": "some words to be found"});
    daemon.http.post("/v1/vector/store", &vector).expect(200);
    wait_until("all to be sent", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 200
    });
    daemon.stop();
    let path = home.path().join("data.db");
    damage_in_the_middle(&path, "outbox");
    damage_in_the_middle(&path, "state_kv");
    home
}

#[test]
fn lf_39_a_damaged_store_is_refused_by_every_verb_and_no_byte_of_it_changes() {
    let home = damaged();
    let path = home.path().join("data.db");
    let damaged = std::fs::read(&path).unwrap();
    let refused = home.try_up().err().expect("it must not start");
    assert!(
        refused.stderr.contains("heddle doctor --repair"),
        "{refused:?}"
    );
    let verdict = home.cli(&["doctor"]);
    assert_eq!(verdict.code, 1, "{verdict:?}");
    assert!(
        verdict.stdout.contains("heddle daemon restore"),
        "{verdict:?}"
    );
    let file = beside(&home, "copy.db");
    let copy = home.cli(&["doctor", "--backup", file.to_str().unwrap()]);
    assert_eq!(
        copy.code, 1,
        "a damaged file was copied as a whole one: {copy:?}"
    );
    assert!(!file.exists() && !beside(&home, "copy.db.part").exists());
    assert_eq!(std::fs::read(&path).unwrap(), damaged, "a byte was changed");
}

#[test]
fn lf_39_repair_saves_what_can_be_read_says_what_was_lost_and_keeps_the_damaged_file() {
    let home = damaged();
    let damaged = std::fs::read(home.path().join("data.db")).unwrap();
    let repaired = home.cli(&["doctor", "--repair", "--json"]).ok().json();
    assert_eq!(
        (&repaired["repaired"], &repaired["lost"]),
        (&json!(true), &json!(true))
    );
    let kept = PathBuf::from(repaired["damaged"].as_str().unwrap());
    assert_eq!(std::fs::read(&kept).unwrap(), damaged);
    assert_eq!(mode(&kept), 0o600);
    let rows = |table: &str| {
        let tables = repaired["tables"].as_array().unwrap();
        let found = tables.iter().find(|kept| kept["table"] == table).unwrap();
        (
            found["rows"].as_u64().unwrap(),
            found["gaps"].as_u64().unwrap(),
        )
    };
    for table in ["outbox", "state_kv"] {
        let (saved, gaps) = rows(table);
        assert!(
            (150..200).contains(&saved) && gaps == 1,
            "{table}: {repaired}"
        );
    }
    assert_eq!(rows("applied_request"), (201, 0));
    let daemon = home.up();
    // Ids on both sides of the damage are as taken as before; new work is done.
    for id in ["m0", "m199"] {
        let again = json!({"to": "@tester", "message": "other", "client_message_id": id});
        let conflict = daemon.http.post("/v1/send", &again).expect(409);
        assert_eq!(conflict["conflict"], "outbox_done_fingerprint_mismatch");
    }
    let first = daemon.http.get("/v1/state/get?key=k0").expect(200);
    assert_eq!(first["value"], "v".repeat(300));
    let stamp = set(&daemon, "home", "after", &json!(1));
    assert!(stamp["stamp"]["incarnation"].as_u64() > Some(1), "{stamp}");
    let found = json!({"query": "words", "limit": 3});
    let found = daemon.http.post("/v1/vector/search", &found).expect(200);
    assert!(found.to_string().contains("some words"), "{found}");
    send(&daemon, "after");
    home.cli(&["doctor"]).ok();
}

#[test]
fn an_export_is_json_lines_with_every_row_of_every_kind() {
    let home = Home::new();
    let daemon = home.up();
    set(&daemon, "home", "k", &json!({"deep": [1]}));
    send(&daemon, "m1");
    wait_until("the message", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["inbox"]["items"] == 1
    });
    let text = home
        .cli(&["advanced", "export", "--format", "jsonl"])
        .ok()
        .stdout;
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
    assert_eq!(
        (of("mesh"), of("data"), of("outbox"), of("inbox")),
        (1, 1, 1, 1),
        "{text}"
    );
    assert!(
        rows.iter()
            .all(|row| row["mesh"] == "home" && row["row"].is_object())
    );
    let none = home.cli(&["--mesh", "nobody", "advanced", "export"]);
    assert_eq!(none.code, 4, "{none:?}");
}
