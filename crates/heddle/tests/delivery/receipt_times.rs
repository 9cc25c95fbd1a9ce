//! The times of a story over the real binary: each level is told as reached when it was, and not before the one before it.

use crate::support;

use std::time::Duration;

use serde_json::Value;
use support::{Daemon, Home, wait_until};

fn explain(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/explain/{id}")).expect(200)
}

fn at<'v>(story: &'v Value, level: &str) -> &'v str {
    let all = story["receipts"].as_array().unwrap();
    let found = all.iter().find(|receipt| receipt["level"] == level);
    let at = found.and_then(|receipt| receipt["at"].as_str());
    at.unwrap_or_else(|| panic!("{level}: {story}"))
}

#[test]
fn the_levels_of_a_message_were_reached_in_their_order() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..20 {
        let id = format!("m{n}");
        let sent = home.cli(&["send", "@tester", "x", "--id", &id, "--wait=delivered"]);
        sent.ok();
        home.cli(&["inbox", "--ack"]).ok();
        wait_until("the receipts", || {
            let story = explain(&daemon, &id);
            story["receipts"].as_array().unwrap().len() == 5
        });
        let story = explain(&daemon, &id);
        let tries = story["attempts"].as_array().unwrap();
        let last = tries.last().unwrap()["at"].as_str().unwrap();
        let times = [
            at(&story, "local"),
            last,
            at(&story, "committed"),
            at(&story, "delivered"),
            at(&story, "shown"),
            at(&story, "acked"),
        ];
        assert!(times.is_sorted(), "{times:?} {story}");
        assert!(
            at(&story, "committed") <= story["outbox"]["delivered_at"].as_str().unwrap(),
            "not after its answer: {story}"
        );
    }
}

/// A broker that takes its time: what it got before the lock is gone was committed after.
#[test]
fn a_message_is_committed_when_its_transaction_is_and_not_when_the_broker_got_it() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["send", "@tester", "x", "--wait=delivered"]).ok();
    let held = rusqlite::Connection::open(home.path().join("broker.db")).unwrap();
    held.busy_timeout(Duration::from_secs(5)).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    home.cli(&["send", "@tester", "x", "--id", "slow"]).ok();
    // Less than a write waits for a lock.
    std::thread::sleep(Duration::from_millis(600));
    let freed: String = held
        .query_row("SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')", [], |row| {
            row.get(0)
        })
        .unwrap();
    held.execute_batch("ROLLBACK").unwrap();
    wait_until("it is delivered", || {
        explain(&daemon, "slow")["receipts"]
            .as_array()
            .unwrap()
            .len()
            >= 3
    });
    let story = explain(&daemon, "slow");
    assert!(at(&story, "committed") >= freed.as_str(), "{freed} {story}");
    assert!(
        at(&story, "committed") <= at(&story, "delivered"),
        "{story}"
    );
}
