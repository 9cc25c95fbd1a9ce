//! Files of a home that another program holds a lock on: what fails then says so, status, health and doctor agree, and
//! all is well by itself when the lock is gone.

#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]

use crate::support;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::{Daemon, Home, wait_until};

/// As somebody has it who forgot a transaction in a `sqlite3`.
fn hold(file: &Path) -> rusqlite::Connection {
    let held = rusqlite::Connection::open(file).unwrap();
    held.busy_timeout(Duration::from_secs(20)).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    held
}

fn degraded(daemon: &Daemon) -> Value {
    daemon.http.get("/v1/status").expect(200)["degraded"].clone()
}

fn up(home: &Home) -> Daemon {
    let daemon = home.up();
    wait_until("all is well", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["connected"] == true && status["degraded"] == json!([])
    });
    daemon
}

#[test]
fn a_store_that_another_program_holds_is_told_by_status_health_and_doctor_and_only_as_long() {
    let home = Home::new();
    let daemon = up(&home);
    let held = hold(&home.path().join("data.db"));
    // Nobody has tried to write yet.
    let status = home.cli(&["status", "--json"]);
    let told = status.json();
    assert_eq!(told["verdict"], "degraded", "{told}");
    assert_eq!(told["next"], "heddle doctor", "{told}");
    assert_eq!(told["held"], json!(["data.db"]), "{told}");
    let says = told["degraded"].to_string();
    assert!(
        says.contains("another program holds a lock on data.db"),
        "{says}"
    );
    let health = daemon.http.get("/v1/health").expect(503);
    assert_eq!(health["status"], "degraded", "{health}");
    assert_eq!(health["degraded"], told["degraded"], "{health}");
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let path = home.path().join("data.db");
    let next = format!("`fuser -v {}` names the program", path.display());
    assert!(doctor.stdout.contains("lock of data.db"), "{doctor:?}");
    assert!(doctor.stdout.contains(&next), "{doctor:?}");

    let sent = home.cli(&["send", "@tester", "x", "--id", "held"]);
    assert_eq!(sent.code, 5, "{sent:?}");
    assert!(
        sent.stderr
            .contains("another program holds a lock on data.db")
            && sent.stderr.contains("heddle doctor"),
        "{sent:?}"
    );

    held.execute_batch("ROLLBACK").unwrap();
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["verdict"], "ok", "{status}");
    assert_eq!(status["held"], Value::Null, "{status}");
    assert_eq!(daemon.http.get("/v1/health").expect(200)["status"], "ok");
    home.cli(&["doctor"]).ok();
    home.cli(&["send", "@tester", "x", "--id", "held"]).ok();
}

#[test]
fn each_file_of_the_home_is_asked_and_those_without_which_it_works_do_not_end_its_health() {
    let home = Home::new();
    let daemon = up(&home);
    for file in ["broker.db", "effects.db"] {
        let held = hold(&home.path().join(file));
        let says = degraded(&daemon).to_string();
        let words = format!("another program holds a lock on {file}");
        assert!(says.contains(&words), "{says}");
        let health = daemon.http.get("/v1/health").expect(200);
        assert!(health.to_string().contains(&words), "{health}");
        held.execute_batch("ROLLBACK").unwrap();
        wait_until("all is well", || degraded(&daemon) == json!([]));
    }
}

#[test]
fn a_start_says_who_keeps_it_from_writing() {
    for file in ["data.db", "broker.db"] {
        let home = Home::new();
        up(&home).stop();
        let held = hold(&home.path().join(file));
        let refused = home.try_up().err().expect("it cannot start");
        assert_eq!(refused.code, 5, "{refused:?}");
        let path = home.path().join(file).display().to_string();
        for words in [
            format!("another program holds a lock on {path}"),
            format!("`fuser -v {path}` names the program"),
        ] {
            assert!(refused.stderr.contains(&words), "{refused:?}");
        }
        drop(held);
        up(&home);
    }
}

#[test]
fn a_broker_whose_file_is_held_is_not_ready() {
    let home = Home::new();
    let data = home.path().join("served");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    assert_eq!(broker.page("/readyz", None).0, 200);
    let held = hold(&data.join("broker.db"));
    let (code, says) = broker.page("/readyz", None);
    assert_eq!(code, 503, "{says}");
    assert!(says.contains("\"lock\""), "{says}");
    drop(held);
    assert_eq!(broker.page("/readyz", None).0, 200);
}

#[test]
fn a_job_by_hand_says_what_it_waits_for_and_ends() {
    let home = Home::new();
    up(&home).stop();
    let file = home.path().join("broker.db");
    let words = format!("another program holds a lock on {}", file.display());

    let held = hold(&file);
    // Who only reads waits for nobody.
    for args in [["broker", "orphan-check"], ["broker", "epoch"]] {
        let begun = Instant::now();
        let read = home.cli(&args).ok();
        assert_eq!(read.stderr, "", "{read:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{args:?}");
    }
    for args in [&["broker", "sweep"][..], &["broker", "epoch", "bump"][..]] {
        let refused = home.cli(args);
        assert_eq!(refused.code, 5, "{refused:?}");
        let mut lines = refused.stderr.lines();
        let first = lines.next().unwrap_or_default();
        assert!(
            first.starts_with(&words) && first.contains("waiting"),
            "{refused:?}"
        );
        assert!(refused.stderr.contains("`fuser -v "), "{refused:?}");
    }

    // One that is given back in time is all that it waited for.
    let sweeping = std::thread::scope(|scope| {
        let sweep = scope.spawn(|| home.cli(&["broker", "sweep"]));
        std::thread::sleep(Duration::from_secs(2));
        drop(held);
        sweep.join().unwrap()
    });
    let swept = sweeping.ok();
    assert!(swept.stderr.contains(&words), "{swept:?}");
    assert!(swept.stdout.contains("ids forgotten"), "{swept:?}");
}
