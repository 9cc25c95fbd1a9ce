//! A home on a disk of a few megabytes: its own logs never take the last of it, and nobody lends a hand.

use crate::support;

use std::time::Duration;

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::ledger::{connected, inbox, outbox, register, status, wait_drained};
use support::outbox::refuse;
use support::small_disk::SmallDisk;
use support::stub_broker::StubBroker;
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

/// Sends bodies of 60 KB to the reader by several callers at once until each of them is refused; what was taken.
fn flood(daemon: &Daemon, to: &str, round: usize) -> Vec<String> {
    let text = "z".repeat(60_000);
    let caller = |caller: usize| {
        let mut taken = Vec::new();
        loop {
            let id = format!("r{round}-c{caller}-{}", taken.len());
            let body = json!({"to": to, "message": text, "client_message_id": id});
            let answer = daemon.http.post("/v1/send", &body);
            if answer.status == 507 {
                return taken;
            }
            answer.expect(202);
            taken.push(id);
        }
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || caller(number)))
            .collect();
        let taken = callers.into_iter().map(|caller| caller.join().unwrap());
        taken.flatten().collect()
    })
}

#[test]
fn ob_02_what_heddle_fills_by_itself_has_room_for_all_of_its_way_and_for_a_prune() {
    const MB: u32 = 24;
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), MB);
    let daemon = home.up();
    connected(&daemon);
    register(&daemon, "reader");
    // Each message lies in the outbox, at the broker and in the inbox, all on this disk.
    let mut accepted = Vec::new();
    for round in 0.. {
        let taken = flood(&daemon, "@reader", round);
        let is_full = taken.is_empty();
        accepted.extend(taken);
        // What was taken arrives, however full the disk is by now.
        wait_until_within(PATIENCE, "every message in the inbox", || {
            let status = status(&daemon);
            status["inbox"]["items"] == accepted.len() && status["outbox"]["done"] == accepted.len()
        });
        // A log that was moved gives some room back: it is full when nothing more goes in and it says so.
        let told = home.cli(&["status", "--json"]).ok().json();
        let said = told["degraded"].to_string();
        if is_full && said.contains("What delivered messages held is given back already") {
            assert_eq!(told["verdict"], "degraded", "{told}");
            assert_eq!(told["next"], "heddle doctor", "{told}");
            break;
        }
    }
    assert!(accepted.len() > 30, "only {} were taken", accepted.len());
    let rows = outbox(&daemon);
    assert_eq!(rows.len(), accepted.len());
    assert!(rows.values().all(|states| *states == ["done"]));
    assert!(inbox(&daemon, "reader").values().all(|times| *times == 1));
    assert!(
        disk.free_bytes() > u64::from(MB << 20) / 64,
        "the logs have no room left"
    );

    let doctor = home.cli(&["doctor"]).stdout;
    assert!(
        doctor.contains("MB are free; of this home data.db"),
        "{doctor}"
    );
    let prune = [
        "daemon",
        "outbox",
        "prune",
        "--older-than",
        "0s",
        "--confirm",
    ];
    home.cli(&prune).ok();
    disk.grow(2 * MB);
    let pid = daemon.child.id();
    wait_until_within(PATIENCE, "room", || {
        !flood(&daemon, "@reader", 1000).is_empty()
    });
    assert_eq!(status(&daemon)["pid"], pid);
}

#[test]
fn c33_a_disk_full_of_dead_messages_is_told_to_prune_and_goes_on_then() {
    let broker = StubBroker::start();
    broker.script(refuse("unknown_recipient"));
    let home = Home::new();
    let _disk = SmallDisk::over(&home.path(), DISK_MB);
    home.config(&broker.config());
    let daemon = home.up();
    let mut dead = 0;
    for round in 0.. {
        dead += flood(&daemon, "#ops", round).len();
        wait_drained(&daemon);
        if status(&daemon)["degraded"]
            .to_string()
            .contains("new sends are refused")
        {
            break;
        }
    }
    assert_eq!(status(&daemon)["outbox"]["dead"], dead);
    let next = "heddle daemon outbox prune --older-than 0s";
    wait_until_within(PATIENCE, "the advice", || status(&daemon)["next"] == next);
    // The first word destroys nothing, and says what the second one would.
    let mut words: Vec<&str> = next.split(' ').skip(1).collect();
    let would = home.cli(&words).ok().stdout;
    assert!(
        would.contains("would give back") && would.contains("cannot be requeued"),
        "{would}"
    );
    words.push("--confirm");
    let said = home.cli(&words).ok().stdout;
    assert!(said.contains("gave back"), "{said}");
    wait_until_within(PATIENCE, "room", || is_taken(&daemon, "after", "x"));
    // Room again, though nobody has looked at the dead ones.
    assert_eq!(status(&daemon)["next"], "heddle daemon outbox --failed");
}
