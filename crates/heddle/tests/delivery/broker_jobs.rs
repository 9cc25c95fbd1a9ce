//! The jobs of a broker by hand, over the real binary: the orphan check, the sweep, and who does it.

use crate::support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Home, wait_until};

use super::broker::{inbox, send};

/// Rows of a broker's file, changed behind its back.
fn on_file(data: &std::path::Path, sql: &str) {
    let connection = rusqlite::Connection::open(data.join("broker.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection.execute_batch(sql).unwrap();
}

pub(crate) fn orphan_check(home: &Home, data: &str) -> (i32, Value) {
    let ran = home.cli(&["broker", "orphan-check", "--json", "--data", data]);
    let answer = ran.json();
    (ran.code, answer)
}

#[test]
fn v10_4_11_br_14_the_orphan_check_works_beside_a_daemon_and_alone_and_names_the_row() {
    let home = Home::new();
    let missing = home.cli(&["broker", "orphan-check"]);
    assert_eq!(missing.code, 4, "{missing:?}");
    let daemon = home.up();
    for id in ["A", "B", "C"] {
        send(&daemon, id, "@tester");
    }
    wait_until("the messages", || inbox(&daemon, "tester").len() == 3);
    let data = home.path();
    let data = data.to_str().unwrap();
    let (code, answer) = orphan_check(&home, data);
    assert_eq!(
        (code, answer["orphans"].clone()),
        (0, json!([])),
        "{answer}"
    );
    assert!(answer["checked"].as_u64().unwrap() >= 12, "{answer}");
    home.cli(&["down"]).ok();
    drop(daemon);
    assert_eq!(orphan_check(&home, data).0, 0);
    on_file(
        &home.path(),
        "DELETE FROM message_history WHERE broker_message_id = (SELECT broker_message_id FROM message
         WHERE client_message_id = 'B')",
    );
    let (code, answer) = orphan_check(&home, data);
    assert_eq!(code, 1);
    let rows = answer["orphans"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["problem"] == "dedupe_without_history"
                && row["row"].as_str().unwrap().ends_with("/tester B")),
        "{answer}"
    );
}

#[test]
fn br_12_xc_05_a_sweep_by_hand_forgets_what_is_over_whatever_the_walls_say_and_nothing_else() {
    let home = Home::new();
    home.config("[broker]\nmessage_retention_days = 30\n");
    let daemon = home.up();
    // What waits for its ack is kept whatever its age.
    let delivered = |count: usize| {
        wait_until("the messages", || inbox(&daemon, "tester").len() == count);
        wait_until("the acks", || {
            let connection = rusqlite::Connection::open(home.path().join("broker.db")).unwrap();
            let waiting: i64 = connection
                .query_row(
                    "SELECT count(*) FROM delivery_queue WHERE is_delivered = 0",
                    [],
                    |row| row.get(0),
                )
                .unwrap();
            waiting == 0
        });
    };
    let swept = |expired: u64, pruned: u64| {
        let ran = home.cli(&["broker", "sweep", "--json"]).ok();
        let swept = ran.json()["meshes"][0].clone();
        let found = (&swept["expired"], &swept["pruned"]);
        assert_eq!(found, (&json!(expired), &json!(pruned)), "{swept}");
    };
    // Time passes for the store.
    let days = |days: u64| {
        let ms = days * 86_400_000;
        let sql = format!("UPDATE age_clock SET age_ms = age_ms + {ms}");
        on_file(&home.path(), &sql);
    };
    for id in ["old", "aged"] {
        send(&daemon, id, "@tester");
    }
    delivered(2);
    swept(0, 0);
    // As if the wall had been years behind when they were accepted: by it their time is long over.
    on_file(
        &home.path(),
        "UPDATE client_message_dedupe SET first_seen_at = 1, expires_at = 31536000001;
         UPDATE message SET accepted_at = 1",
    );
    swept(0, 0);
    send(&daemon, "new", "@tester");
    delivered(3);
    days(31);
    swept(0, 2);
    let again = json!({"to": "@tester", "message": "old", "client_message_id": "old"});
    daemon.http.post("/v1/send", &again).expect(200);
    days(340);
    swept(2, 1);
    swept(0, 0);
    // What was shown is not said to be on its way again: what is not known any more is told as that.
    let story = home.cli(&["explain", "old"]).ok().stdout;
    let verdict = "old was committed; its broker has forgotten the id since";
    assert!(story.starts_with(verdict), "{story}");
    let data = home.path();
    assert_eq!(orphan_check(&home, data.to_str().unwrap()).0, 0);
    send(&daemon, "after", "@tester");
    wait_until("a message after it", || inbox(&daemon, "tester").len() == 4);
}

#[test]
fn br_12_a_sweep_that_was_killed_keeps_nobody_from_the_next_and_one_at_work_does() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "one", "@tester");
    wait_until("the message", || inbox(&daemon, "tester").len() == 1);
    // What one leaves that is killed in the middle: its row, and a file that nobody holds.
    let swept = home.cli(&["broker", "sweep", "--json"]).ok().json();
    assert_eq!(swept["meshes"][0]["held_by"], Value::Null);
    on_file(
        &home.path(),
        "INSERT INTO job_claim (mesh_id, job, holder, claimed_until)
         SELECT mesh_id, 'sweep', 'heddle broker sweep, process 1', (unixepoch() + 590) * 1000 FROM mesh",
    );
    let listed = || {
        let names = std::fs::read_dir(home.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.contains("sweep"))
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(), [""; 0], "nothing stays behind");
    let status = home.cli(&["status", "--json"]).ok().json();
    let mesh = status["meshes"][0]["mesh_id"].as_str().unwrap();
    let lock = home.path().join(format!("broker.db.sweep.{mesh}.lock"));
    let held = std::fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let refused = home.cli(&["broker", "sweep"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(
        refused
            .stdout
            .contains("heddle broker sweep, process 1 is at it"),
        "{refused:?}"
    );
    // It dies: the kernel has its lock back.
    drop(held);
    let swept = home.cli(&["broker", "sweep", "--json"]).ok().json();
    assert_eq!(swept["meshes"][0]["held_by"], Value::Null, "{swept}");
    assert_eq!(listed(), [""; 0]);
    // A pipe in its place is waited for by nobody.
    let made = std::process::Command::new("mkfifo").arg(&lock).status();
    assert!(made.unwrap().success());
    let refused = home.cli(&["broker", "sweep"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("it is no file"), "{refused:?}");
}
