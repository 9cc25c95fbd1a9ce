//! What a disk has changed is told to its sender as what it is: never as delivered, shown or done; `status` and the doctor
//! agree about what is wrong; a lease of before an older broker.db was put back settles nothing.

use crate::support;

use std::path::Path;

use serde_json::{Value, json};
use support::inbox::{items, send};
use support::outbox::{on_nothing, wait_for};
use support::queue::{committed, push, settle, take_none, take_one};
use support::{Daemon, Home, wait_until};

/// Changes a word in the stored message of a broker that is down.
fn change(home: &Home, from: &str, to: &str) {
    let raw = rusqlite::Connection::open(home.path().join("broker.db")).unwrap();
    let sql = format!(
        "UPDATE message SET envelope = replace(envelope, '{from}', '{to}') WHERE envelope LIKE '%{from}%'"
    );
    assert_eq!(raw.execute(&sql, []).unwrap(), 1);
}

fn explain(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/explain/{id}")).expect(200)
}

fn levels(story: &Value) -> Vec<String> {
    let receipts = story["receipts"].as_array().unwrap().iter();
    receipts.map(|one| one["level"].to_string()).collect()
}

#[track_caller]
fn is_held_back(home: &Home, daemon: &Daemon, id: &str, to: &str) {
    let story = explain(daemon, id);
    assert_eq!(story["damaged"], true, "{story}");
    assert_eq!(levels(&story), ["\"local\"", "\"committed\""], "{story}");
    let words = home.cli(&["explain", id]).ok().stdout;
    assert!(words.contains("is committed; it is held back"), "{words}");
    assert!(words.contains("orphan-check"), "{words}");
    for level in ["delivered", "shown", "acked"] {
        let target = format!("/v1/explain/{id}?wait={level}&timeout_seconds=30");
        let waited = daemon.http.get(&target).expect(200);
        assert_eq!(waited["reached"], false, "{level}: {waited}");
    }
    if to.starts_with('@') {
        let wait = "--wait=shown";
        let sent = home.cli(&["send", to, "pay one hundred", "--id", id, wait]);
        assert_eq!(sent.code, 1, "{sent:?}");
        assert!(sent.stderr.contains("held back"), "{sent:?}");
        assert!(sent.stderr.contains("under another id"), "{sent:?}");
    }
}

#[test]
fn c30_damaged_work_is_told_as_held_back_and_nobody_can_call_it_done() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "hurt-one", "next");
    committed(&daemon, 1);
    daemon.stop();
    change(&home, "\"hurt-one\"", "\"hurt-two\"");
    let daemon = home.up();
    // Also before anybody has met it.
    is_held_back(&home, &daemon, "hurt-one", "queue");
    take_none(&daemon, "tester");
    is_held_back(&home, &daemon, "hurt-one", "queue");
    let story = explain(&daemon, "hurt-one");
    let queue = &story["broker"]["queue"];
    assert_eq!(queue["status"], "waiting", "{queue}");
    assert_eq!(queue["delivery_count"], 0, "{queue}");
    // Whoever guesses the fence has nothing by it.
    let item = json!({"id": story["broker"]["history_id"], "fence": queue["fence"]});
    for verb in ["ack", "release"] {
        assert_eq!(settle(&daemon, verb, "tester", &item), "stale_fence");
    }
    is_held_back(&home, &daemon, "hurt-one", "queue");
    let both = agree(&home, &daemon);
    assert!(
        both.contains("messages of queues are not what was pushed"),
        "{both}"
    );
}

#[test]
fn c30_a_damaged_message_is_told_as_held_back_whoever_looks_at_it_or_acknowledges_it() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "bob"]).ok();
    send_to(&daemon, "@bob", "whole", "nothing to see");
    wait_for(&daemon, "whole", "done");
    send_to(&daemon, "@bob", "hurt", "pay one hundred");
    wait_for(&daemon, "hurt", "done");
    wait_until("the messages", || bobs(&daemon).len() == 2);
    daemon.stop();
    // As if it had come damaged: the broker's file, and with it what the inbox is to get.
    change(&home, "one hundred", "two hundred");
    lose_inbox(&home.path());
    let daemon = home.up();
    wait_until("the messages to come back", || bobs(&daemon).len() == 2);
    is_held_back(&home, &daemon, "hurt", "@bob");
    let shown = home.cli_as("bob", &["inbox"]).ok().stdout;
    assert!(shown.contains("(damaged: "), "{shown}");
    is_held_back(&home, &daemon, "hurt", "@bob");
    assert_eq!(explain(&daemon, "whole")["damaged"], Value::Null);
    let both = agree(&home, &daemon);
    assert!(both.contains("1 message in the inbox is damaged"), "{both}");
    home.cli_as("bob", &["inbox", "--ack"]).ok();
    wait_until("the receipt of the other", || {
        levels(&explain(&daemon, "whole")).contains(&"\"acked\"".to_owned())
    });
    is_held_back(&home, &daemon, "hurt", "@bob");
}

#[test]
fn c30_what_was_shown_before_the_disk_changed_it_stays_shown() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "seen", "pay one hundred");
    wait_until("the message", || items(&daemon, "/v1/inbox").len() == 1);
    home.cli(&["inbox"]).ok();
    wait_until("the receipt", || {
        levels(&explain(&daemon, "seen")).contains(&"\"shown\"".to_owned())
    });
    daemon.stop();
    change(&home, "one hundred", "two hundred");
    let daemon = home.up();
    let story = explain(&daemon, "seen");
    assert_eq!(story["damaged"], Value::Null, "{story}");
    assert!(levels(&story).contains(&"\"shown\"".to_owned()), "{story}");
}

fn send_to(daemon: &Daemon, to: &str, id: &str, text: &str) {
    let body = json!({"to": to, "message": text, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn bobs(daemon: &Daemon) -> Vec<Value> {
    items(daemon, "/v1/inbox?agent=bob&all=true")
}

/// The inbox is gone, and asked for again.
fn lose_inbox(home: &Path) {
    let raw = rusqlite::Connection::open(home.join("data.db")).unwrap();
    raw.execute_batch(
        "DELETE FROM inbox; DELETE FROM inbox_receipt;
         INSERT OR REPLACE INTO inbox_lost (mesh_id) SELECT mesh_id FROM mesh",
    )
    .unwrap();
}

/// Whatever the status calls wrong the doctor calls wrong as well; what both say.
#[track_caller]
fn agree(home: &Home, daemon: &Daemon) -> String {
    let status = daemon.http.get("/v1/status").expect(200);
    let doctor = home.cli(&["doctor", "--json"]);
    let is_well = status["degraded"] == json!([]);
    assert_eq!(doctor.code == 0, is_well, "{status} {doctor:?}");
    assert_eq!(status["verdict"] == "ok", is_well, "{status}");
    if is_well {
        return String::new();
    }
    format!("{} {}", status["degraded"], doctor.stdout)
}

#[test]
fn the_doctor_calls_wrong_whatever_the_status_calls_wrong() {
    let home = Home::new();
    let daemon = home.up();
    assert_eq!(agree(&home, &daemon), "");
    daemon.stop();
    // A broker that is away, as one whose identity another has taken.
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let daemon = home.up();
    wait_until("the words", || {
        daemon.http.get("/v1/status").expect(200)["degraded"] != json!([])
    });
    let both = agree(&home, &daemon);
    assert_eq!(
        both.matches("has no connection to its broker").count(),
        2,
        "{both}"
    );
    daemon.stop();
    home.config("[broker]\nupkeep_interval_seconds = 1\n");
    let daemon = home.up();
    send(&daemon, "m", "text");
    wait_for(&daemon, "m", "done");
    daemon.stop();
    change(&home, "text", "TEXT");
    let daemon = home.up();
    wait_until("the orphan", || {
        daemon.http.get("/v1/status").expect(200)["orphans"] == 1
    });
    let both = agree(&home, &daemon);
    assert_eq!(both.matches("did not fit together").count(), 2, "{both}");
}

#[test]
fn what_the_doctor_has_found_in_the_files_the_status_tells_until_the_doctor_finds_it_no_more() {
    let home = Home::new();
    let daemon = home.up();
    let open = home.path().join("local_token");
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&open, mode).unwrap();
    };
    mode(0o644);
    assert_eq!(home.cli(&["doctor"]).code, 1);
    let both = agree(&home, &daemon);
    assert!(
        both.contains("others may read or change local_token"),
        "{both}"
    );
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["next"], "heddle doctor", "{status}");
    mode(0o600);
    home.cli(&["doctor"]).ok();
    assert_eq!(agree(&home, &daemon), "");
}

#[test]
fn lf_16_a_lease_of_before_an_older_broker_was_put_back_settles_nothing() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "work", "next");
    committed(&daemon, 1);
    daemon.stop();
    let file = home.path().join("broker.db");
    let older = std::fs::read(&file).unwrap();
    let daemon = home.up();
    let before = take_one(&daemon, "tester", 3600);
    daemon.stop();
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    std::fs::write(&file, older).unwrap();
    // Nothing is missing in it but the lease: nobody can know that it is an older one.
    let daemon = home.up();
    let now = take_one(&daemon, "tester", 3600);
    assert_eq!(now["id"], before["id"]);
    assert!(
        now["fence"].as_u64() > before["fence"].as_u64(),
        "{now} {before}"
    );
    for verb in ["ack", "release"] {
        assert_eq!(settle(&daemon, verb, "tester", &before), "stale_fence");
    }
    assert_eq!(settle(&daemon, "ack", "tester", &now), "acked");
}

#[test]
fn lf_16_a_lease_that_the_older_broker_file_holds_itself_settles_nothing() {
    let home = Home::new();
    let daemon = home.up();
    for agent in ["c", "d"] {
        home.cli(&["agent", "register", agent]).ok();
    }
    push(&daemon, "work", "next");
    committed(&daemon, 1);
    let before = take_one(&daemon, "c", 3600);
    daemon.stop();
    let file = home.path().join("broker.db");
    let older = std::fs::read(&file).unwrap();
    let daemon = home.up();
    assert_eq!(settle(&daemon, "release", "c", &before), "released");
    let given = take_one(&daemon, "d", 3600);
    assert_eq!(given["id"], before["id"]);
    // Its place is missing in the copy: that is noticed.
    send(&daemon, "later", "hello");
    committed(&daemon, 2);
    daemon.stop();
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    std::fs::write(&file, older).unwrap();

    let daemon = home.up();
    for (agent, lease) in [("c", &before), ("d", &given)] {
        assert_eq!(settle(&daemon, "ack", agent, lease), "stale_fence");
    }
    let now = take_one(&daemon, "d", 3600);
    assert_eq!(now["id"], before["id"]);
    assert_eq!(settle(&daemon, "ack", "c", &before), "stale_fence");
    assert_eq!(settle(&daemon, "ack", "d", &now), "acked");
    take_none(&daemon, "c");
}

#[test]
fn c30_a_retry_of_what_is_damaged_in_the_outbox_is_not_called_safe() {
    let (home, daemon) = on_nothing("");
    for (id, text) in [("whole", "nothing to see"), ("hurt", "pay one hundred")] {
        send_to(&daemon, "@tester", id, text);
    }
    daemon.stop();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let frozen = "SELECT sql FROM sqlite_master WHERE name = 'outbox_frozen'";
    let frozen: String = raw.query_row(frozen, [], |row| row.get(0)).unwrap();
    raw.execute_batch(&format!(
        "DROP TRIGGER outbox_frozen;
         UPDATE outbox SET payload = CAST(replace(CAST(payload AS TEXT), 'one hundred', 'two hundred') AS BLOB);
         {frozen}"
    ))
    .unwrap();
    drop(raw);
    let daemon = home.up();
    let again = |id: &str, text: &str| home.cli(&["send", "@tester", text, "--id", id]);
    let whole = again("whole", "nothing to see").ok();
    assert!(whole.stdout.contains("safe on disk"), "{whole:?}");
    let hurt = again("hurt", "pay one hundred");
    assert_eq!(hurt.code, 3, "{hurt:?}");
    assert!(!hurt.stdout.contains("safe on disk"), "{hurt:?}");
    assert!(
        hurt.stderr.contains("damaged, so it is not sent"),
        "{hurt:?}"
    );
    assert!(hurt.stderr.contains("--patch-payload"), "{hurt:?}");
    let body = json!({"to": "@tester", "message": "pay one hundred", "client_message_id": "hurt"});
    let told = daemon.http.post("/v1/send", &body).expect(409);
    assert_eq!(told["conflict"], "outbox_damaged_fingerprint_match");
    // The step that is named works.
    let file = home.path().join("meant.json");
    std::fs::write(&file, r#"{"message": "pay one hundred"}"#).unwrap();
    let step = told["next"].as_str().unwrap().split('`').nth(1).unwrap();
    let step = step.replace("FILE", file.to_str().unwrap());
    let mut step: Vec<&str> = step.split(' ').skip(1).collect();
    // Its broker is out of reach in this test, so it cannot be asked.
    step.push("--force");
    home.cli(&step).ok();
}

#[test]
fn dr_16_what_is_said_of_a_lost_inbox_names_the_file_that_ends_it() {
    let home = Home::new();
    let daemon = home.up();
    for number in 0..40 {
        send(&daemon, &format!("m{number}"), &format!("text {number}"));
    }
    wait_until("the messages", || items(&daemon, "/v1/inbox").len() == 40);
    daemon.stop();
    support::inbox::damage(&home.path(), "inbox");
    home.cli(&["doctor", "--repair"]).ok();
    let daemon = home.up();
    wait_until("the messages to come back", || {
        items(&daemon, "/v1/inbox?all=true&limit=100").len() == 40
    });
    let both = agree(&home, &daemon);
    assert!(both.contains("of the lost inbox"), "{both}");
    assert!(both.contains("data.db.damaged-"), "{both}");
    assert!(both.contains("this is not said any more"), "{both}");
    for entry in std::fs::read_dir(home.path()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains(".damaged-") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    assert_eq!(agree(&home, &daemon), "");
}
