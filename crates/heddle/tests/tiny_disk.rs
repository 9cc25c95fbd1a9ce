//! A home on a disk of a few megabytes: its own logs never take the last of it, and nobody lends a hand.
#![cfg(test)]

mod support;

use std::time::Duration;

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::ledger::{connected, outbox, status, wait_drained};
use support::small_disk::SmallDisk;
use support::{Daemon, Home, wait_until_within};

const DISK_MB: u32 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

/// A home on a tiny disk, and its broker elsewhere.
fn world(home: &Home) -> (SmallDisk, BrokerProcess, Daemon) {
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(home, &data, "127.0.0.1:0", &[]);
    let disk = SmallDisk::over(&home.path(), DISK_MB);
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    let topic = json!({"topic": "ops"});
    daemon.http.post("/v1/topic/create", &topic).expect(200);
    (disk, broker, daemon)
}

/// Whether it was taken; refused is only what finds no room.
fn is_taken(daemon: &Daemon, id: &str, text: &str) -> bool {
    let body = json!({"to": "#ops", "message": text, "client_message_id": id});
    let answer = daemon.http.post("/v1/send", &body);
    assert!(matches!(answer.status, 202 | 200 | 507), "{}", answer.body);
    answer.status != 507
}

#[test]
fn c33_more_goes_through_a_tiny_disk_than_it_holds() {
    let home = Home::new();
    let (_disk, _broker, daemon) = world(&home);
    // More than the disk, in messages that fill more than a page; what a row keeps for ever is a part of one.
    let text = "x".repeat(4500);
    let count = (DISK_MB as usize) * (5 << 18) / text.len();
    for number in 0..count {
        // Refused while there is no room: the same id again, as the refusal says.
        wait_until_within(PATIENCE, &format!("room for message {number}"), || {
            is_taken(&daemon, &format!("m-{number}"), &text)
        });
    }
    wait_until_within(PATIENCE, "all of them at the broker", || {
        status(&daemon)["outbox"]["done"] == count
    });
    let held = std::fs::read_dir(home.path().join("logs")).unwrap();
    let held: u64 = held
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(held < u64::from(DISK_MB << 20) / 8, "{held} bytes of logs");
}

#[test]
fn ob_02_c33_a_tiny_disk_that_is_full_of_ids_says_so_keeps_everything_and_goes_on_with_more_room() {
    let home = Home::new();
    let (disk, _broker, daemon) = world(&home);
    let pid = daemon.child.id();
    // Ids stay for ever: some day nothing is left to give back.
    let text = "y".repeat(900);
    let mut accepted = Vec::new();
    loop {
        let id = format!("m-{}", accepted.len());
        if is_taken(&daemon, &id, &text) {
            accepted.push(id);
            continue;
        }
        // The disk lets go of what was delivered; only when there is none of it left, it is full.
        wait_drained(&daemon);
        let left = home.cli(&["daemon", "outbox", "prune", "--json"]);
        let said = status(&daemon)["degraded"].to_string();
        if left.ok().json()["rows"] == 0 && said.contains("new sends are refused. What delivered") {
            break;
        }
    }
    let said = home.cli(&["status"]).stdout;
    assert!(said.contains("new sends are refused"), "{said}");
    assert_eq!(
        daemon
            .http
            .post(
                "/v1/send",
                &json!({"to": "#ops", "message": text,
        "client_message_id": "new"})
            )
            .expect(507)["retry"],
        "same_id"
    );
    let rows = outbox(&daemon);
    assert_eq!(rows.len(), accepted.len(), "a row is lost, or one too many");
    assert!(rows.values().all(|states| *states == ["done"]));
    assert!(is_taken(&daemon, "m-0", &text), "a known id is answered");

    disk.grow(DISK_MB + 4);
    wait_until_within(PATIENCE, "room", || is_taken(&daemon, "new", &text));
    wait_until_within(PATIENCE, "all is well", || {
        status(&daemon)["degraded"] == json!([])
    });
    wait_drained(&daemon);
    assert_eq!(outbox(&daemon)["new"], ["done"]);
    assert_eq!(status(&daemon)["pid"], pid);
}
