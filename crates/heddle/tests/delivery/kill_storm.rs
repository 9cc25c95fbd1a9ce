//! Broker and daemon are killed at random, two hundred times, under load; a ledger outside judges.
#![allow(clippy::disallowed_methods, reason = "the seed comes from outside")]
#![allow(clippy::print_stderr, reason = "a failed run must say its seed")]

use crate::support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::ledger::{connected, inbox, no_orphans, outbox, register, status, wait_drained};
use support::{Daemon, Home, Http, wait_until_within};

/// Of each of the two.
const KILLS: usize = 100;
const CLIENTS: usize = 4;
/// A pace that leaves the processes time to get somewhere between two deaths.
const PACE: Duration = Duration::from_millis(15);
/// The topic has two subscribers, so a message at one place of the history has two deliveries.
const READERS: [&str; 2] = ["reader", "second"];

/// xorshift64*: a test needs no better.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }

    fn pause(&mut self, from_ms: u64, to_ms: u64) {
        let ms = from_ms + self.below(to_ms - from_ms);
        std::thread::sleep(Duration::from_millis(ms));
    }
}

fn seed() -> u64 {
    let given = std::env::var("HEDDLE_STORM_SEED").ok();
    let now = || UNIX_EPOCH.elapsed().unwrap().as_nanos();
    given.map_or_else(
        || u64::try_from(now() & u128::from(u64::MAX)).unwrap() | 1,
        |text| text.parse().unwrap(),
    )
}

/// Starts a process and kills it before it can be ready; what it had begun is for the next one to find.
fn stillborn(home: &Home, args: &[&str], random: &mut Random) {
    let mut command = home.command(args);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    random.pause(1, 80);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn broker_dies(home: &Home, data: &Path, mut broker: BrokerProcess, seed: u64) -> BrokerProcess {
    let mut random = Random(seed);
    let listen = broker.listen();
    let folder = data.to_str().unwrap();
    let serve = ["broker", "serve", "--listen", &listen, "--data", folder];
    for _ in 0..KILLS {
        random.pause(20, 300);
        broker.kill();
        if random.below(5) == 0 {
            stillborn(home, &serve, &mut random);
        }
        broker = BrokerProcess::start(home, data, &listen, &[]);
    }
    broker
}

fn daemon_dies(home: &Home, mut daemon: Daemon, seed: u64) -> Daemon {
    let mut random = Random(seed);
    for _ in 0..KILLS {
        random.pause(20, 400);
        daemon.kill();
        if random.below(5) == 0 {
            stillborn(home, &["up"], &mut random);
        }
        daemon = home.up();
    }
    daemon
}

#[derive(Default)]
struct Ledger {
    tried: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
}

/// Sends until it is told to stop. An unanswered send is repeated under its id, or given up and left open.
fn client(http: &Http, name: usize, stop: &AtomicBool, seed: u64) -> Ledger {
    let mut random = Random(seed);
    let mut ledger = Ledger::default();
    for number in 0.. {
        let id = format!("c{name}-{number}");
        let priority = ["now", "next", "low"][number % 3];
        let body =
            json!({"to": "#storm", "message": id, "client_message_id": id, "priority": priority});
        ledger.tried.insert(id.clone());
        while !stop.load(Ordering::SeqCst) {
            std::thread::sleep(PACE);
            match http.request("POST", "/v1/send", &[], &body.to_string()) {
                Some(answer) => {
                    assert!(matches!(answer.status, 200 | 202), "{answer:?}");
                    ledger.acknowledged.insert(id);
                    break;
                }
                None if random.below(4) == 0 => break,
                None => {}
            }
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    ledger
}

#[test]
fn br_02_ob_01_in_01_in_02_killed_two_hundred_times_nothing_acknowledged_is_lost_or_doubled() {
    let seed = seed();
    eprintln!("HEDDLE_STORM_SEED={seed}");
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    for agent in READERS {
        register(&daemon, agent);
        let body = json!({"topic": "storm", "agent": agent});
        daemon.http.post("/v1/topic/subscribe", &body).expect(200);
    }
    let stop = AtomicBool::new(false);
    let http = daemon.http.clone();
    let (broker, daemon, ledgers) = std::thread::scope(|scope| {
        let of = |name: usize| (name, seed.wrapping_add(3 + name as u64) | 1);
        let clients: Vec<_> = (0..CLIENTS)
            .map(of)
            .map(|(name, seed)| {
                let (http, stop) = (&http, &stop);
                scope.spawn(move || client(http, name, stop, seed))
            })
            .collect();
        let brokers = scope.spawn(|| broker_dies(&home, &data, broker, seed));
        let daemons = scope.spawn(|| daemon_dies(&home, daemon, seed.wrapping_mul(3)));
        let ends = (brokers.join(), daemons.join());
        stop.store(true, Ordering::SeqCst);
        let ledgers: Vec<Ledger> = clients.into_iter().map(|c| c.join().unwrap()).collect();
        (ends.0.unwrap(), ends.1.unwrap(), ledgers)
    });
    let mut ledger = Ledger::default();
    for one in ledgers {
        ledger.tried.extend(one.tried);
        ledger.acknowledged.extend(one.acknowledged);
    }
    judge(&home, daemon, &ledger);
    assert_eq!(broker.terminate(), 0);
    no_orphans(&home, &data);
}

fn judge(home: &Home, daemon: Daemon, ledger: &Ledger) {
    assert!(
        ledger.acknowledged.len() > 500,
        "only {} sends were acknowledged",
        ledger.acknowledged.len()
    );
    let done = status(&daemon)["outbox"]["done"].as_u64().unwrap();
    assert!(done > 100, "only {done} messages got anywhere in the storm");
    // Waits that grew in the storm begin anew with a start.
    daemon.kill();
    let daemon = home.up();
    wait_drained(&daemon);
    let rows = outbox(&daemon);
    let odd: Vec<_> = rows.iter().filter(|(_, s)| **s != ["done"]).collect();
    assert!(odd.is_empty(), "{odd:?}");
    let missing: Vec<_> = ledger
        .acknowledged
        .iter()
        .filter(|id| !rows.contains_key(*id))
        .collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
    assert!(
        rows.keys().all(|id| ledger.tried.contains(id)),
        "a row from nowhere"
    );
    wait_until_within(Duration::from_secs(30), "every message", || {
        status(&daemon)["inbox"]["items"] == rows.len() * READERS.len()
    });
    for agent in READERS {
        let seen = inbox(&daemon, agent);
        let doubled: Vec<_> = seen.iter().filter(|(_, times)| **times != 1).collect();
        assert!(doubled.is_empty(), "twice at {agent}: {doubled:?}");
        assert!(seen.keys().eq(rows.keys()), "{agent} holds something else");
    }
}
