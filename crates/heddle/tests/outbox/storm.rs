//! Load and sudden death over the real binary, judged by a ledger outside it.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::{Daemon, Home, wait_until_within};

const CLIENTS: usize = 64;
const READER: &str = "reader";
/// Both receive the topic, so every message has two deliveries at one place of the history.
const SUBSCRIBERS: [&str; 2] = [READER, "second"];

/// Everything in a mailbox, page by page: client id → how often.
fn inbox(daemon: &Daemon, agent: &str) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let target = format!("/v1/inbox?agent={agent}&limit=500&since={cursor}");
        let page = daemon.http.get(&target).expect(200);
        let items = page["items"].as_array().unwrap();
        if items.is_empty() {
            return seen;
        }
        for item in items {
            *seen
                .entry(item["client_message_id"].as_str().unwrap().to_owned())
                .or_insert(0) += 1;
        }
        page["cursor"].as_str().unwrap().clone_into(&mut cursor);
    }
}

/// Client id → status of every row of the outbox.
fn outbox(daemon: &Daemon) -> BTreeMap<String, Vec<String>> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let target = format!("/v1/outbox?limit=500{cursor}");
        let page = daemon.http.get(&target).expect(200);
        for row in page["rows"].as_array().unwrap() {
            let id = row["client_message_id"].as_str().unwrap().to_owned();
            rows.entry(id)
                .or_default()
                .push(row["status"].as_str().unwrap().to_owned());
        }
        match &page["cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => return rows,
        }
    }
}

fn wait_drained(daemon: &Daemon) {
    wait_until_within(Duration::from_secs(60), "the outbox to drain", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["pending"] == 0 && status["outbox"]["inflight"] == 0
    });
}

#[test]
fn in_03_64_clients_10_000_messages_no_error_no_duplicate_no_loss() {
    const MESSAGES: usize = 10_000;
    let home = Home::new();
    let daemon = home.up();
    daemon
        .http
        .post("/v1/agent/register", &json!({"agent": READER}))
        .expect(200);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = daemon.http.keep().unwrap();
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= MESSAGES {
                        return;
                    }
                    let body = json!({"to": format!("@{READER}"), "message": format!("message {n}"), "client_message_id": format!("m-{n}")});
                    let answer = connection.post("/v1/send", &body).unwrap();
                    assert_eq!(answer.status, 202, "{answer:?}");
                }
            });
        }
    });
    wait_drained(&daemon);
    wait_until_within(Duration::from_secs(60), "every message", || {
        daemon.http.get("/v1/status").expect(200)["inbox"]["items"] == MESSAGES
    });
    let seen = inbox(&daemon, READER);
    assert_eq!(seen.len(), MESSAGES);
    assert!(
        seen.values().all(|times| *times == 1),
        "a message arrived twice"
    );
    assert_eq!(
        daemon.http.get("/v1/status").expect(200)["outbox"]["done"],
        MESSAGES
    );
}

#[test]
fn ob_01_in_01_in_02_dr_18_kill_nine_under_load_loses_and_repeats_nothing_acknowledged() {
    const ROUNDS: usize = 8;
    let home = Home::new();
    let daemon = home.up();
    for agent in SUBSCRIBERS {
        let body = json!({"topic": "storm", "agent": agent});
        daemon.http.post("/v1/topic/subscribe", &body).expect(200);
    }
    let mut daemon = Some(daemon);
    let mut acknowledged = BTreeSet::new();
    let mut attempted = BTreeSet::new();
    for round in 0..ROUNDS {
        let running = daemon.take().unwrap();
        let stop = AtomicBool::new(false);
        let next = AtomicUsize::new(0);
        let http = running.http.clone();
        let ledgers: Vec<(Vec<String>, Vec<String>)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut tried, mut acked) = (Vec::new(), Vec::new());
                        let Some(mut connection) = http.keep() else {
                            return (tried, acked);
                        };
                        while !stop.load(Ordering::SeqCst) {
                            let id = format!("r{round}-{}", next.fetch_add(1, Ordering::SeqCst));
                            tried.push(id.clone());
                            let body =
                                json!({"to": "#storm", "message": "m", "client_message_id": id});
                            match connection.post("/v1/send", &body) {
                                Some(answer) if answer.status == 202 => acked.push(id),
                                Some(answer) => panic!("{answer:?}"),
                                None => break,
                            }
                        }
                        (tried, acked)
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(150 + 70 * round as u64));
            // SIGKILL in the middle of it, also in the middle of the drain and of the inbox.
            running.kill();
            stop.store(true, Ordering::SeqCst);
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for (tried, acked) in ledgers {
            attempted.extend(tried);
            acknowledged.extend(acked);
        }
        daemon = Some(home.up());
    }
    let daemon = daemon.unwrap();
    assert!(
        acknowledged.len() > 100,
        "only {} sends were acknowledged",
        acknowledged.len()
    );
    wait_drained(&daemon);
    let rows = outbox(&daemon);
    wait_until_within(Duration::from_secs(60), "every message", || {
        daemon.http.get("/v1/status").expect(200)["inbox"]["items"]
            == rows.len() * SUBSCRIBERS.len()
    });
    assert!(rows.values().flatten().all(|status| status == "done"));
    for agent in SUBSCRIBERS {
        let seen = inbox(&daemon, agent);
        for id in &acknowledged {
            assert_eq!(rows.get(id).map(Vec::len), Some(1), "{id} in the outbox");
            assert_eq!(seen.get(id), Some(&1), "{id} in the mailbox of {agent}");
        }
        assert!(
            seen.values().all(|times| *times == 1),
            "a message arrived twice"
        );
        assert!(
            seen.keys().all(|id| attempted.contains(id)),
            "a message from nowhere"
        );
    }
}

#[test]
fn l_29_a_graceful_stop_under_load_ends_in_time_and_loses_nothing() {
    let home = Home::new();
    let mut daemon = home.up();
    daemon
        .http
        .post("/v1/agent/register", &json!({"agent": READER}))
        .expect(200);
    let http = daemon.http.clone();
    let stop = AtomicBool::new(false);
    let next = AtomicUsize::new(0);
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let mut acked = Vec::new();
                    while !stop.load(Ordering::SeqCst) {
                        let id = format!("s-{}", next.fetch_add(1, Ordering::SeqCst));
                        let body = json!({"to": format!("@{READER}"), "message": "m", "client_message_id": id}).to_string();
                        match http.request("POST", "/v1/send", &[], &body) {
                            Some(answer) if answer.status == 202 => acked.push(id),
                            Some(answer) => assert_eq!(answer.status, 503, "{answer:?}"),
                            None => break,
                        }
                    }
                    acked
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        daemon.terminate();
        assert_eq!(daemon.wait(Duration::from_secs(10)), Some(0));
        stop.store(true, Ordering::SeqCst);
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(acknowledged.len() > 50);
    let daemon = home.up();
    wait_drained(&daemon);
    wait_until_within(Duration::from_secs(60), "every message", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["inbox"]["items"].as_u64().unwrap() >= acknowledged.len() as u64
    });
    let seen = inbox(&daemon, READER);
    assert!(acknowledged.iter().all(|id| seen.get(id) == Some(&1)));
}
