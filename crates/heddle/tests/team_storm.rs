//! Two brokers on one database under load: one is killed, the database crashes; a ledger outside judges.
#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::ledger::{inbox_in, outbox, register, status};
use support::servers::Postgres;
use support::{Daemon, Home, Http, wait_until_within};

const DAEMONS: usize = 4;
/// Of the first broker, and of the database.
const KILLS: usize = 4;
const CRASHES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(240);
/// A pace that leaves everybody time to get somewhere between two deaths.
const PACE: Duration = Duration::from_millis(20);

fn serve(house: &Home, data: &Path, listen: &str, url: &str) -> BrokerProcess {
    // Somebody else's connection may have been given the port for a moment.
    let mut started = None;
    wait_until_within(PATIENCE, "a broker", || {
        let tried = BrokerProcess::try_start(house, data, listen, &["--database", url]);
        started = tried.ok();
        started.is_some()
    });
    started.unwrap()
}

fn member(listen: &str, data: &Path, name: &str) -> Home {
    let home = Home::new();
    home.config(&format!(
        "[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = \"ws://{listen}/\"\ntoken_file = {:?}\n",
        data.join("broker_token"),
    ));
    home
}

/// Sends until it is told to stop; what was acknowledged.
fn client(http: &Http, name: usize, stop: &AtomicBool) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let id = format!("d{name}-{number}");
        let body = json!({"to": "#storm", "message": id, "client_message_id": id, "mesh": "team"});
        if let Some(answer) = http.request("POST", "/v1/send", &[], &body.to_string()) {
            assert!(matches!(answer.status, 200 | 202), "{answer:?}");
            acknowledged.insert(id);
        }
        std::thread::sleep(PACE);
    }
    acknowledged
}

/// Ends the clients when the test is over, however it ends.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn quiet(daemon: &Daemon) -> bool {
    let outbox = &status(daemon)["outbox"];
    outbox["pending"] == 0 && outbox["inflight"] == 0
}

#[test]
fn c4_br_14_brokers_and_database_die_under_load_and_what_was_acknowledged_arrives_once() {
    let house = Home::new();
    let mut database = Postgres::start();
    let url = database.url();
    let folder = |name: &str| -> PathBuf { house.path().parent().unwrap().join(name) };
    let (first, second) = (folder("one"), folder("two"));
    let mut one = serve(&house, &first, "127.0.0.1:0", &url);
    let two = serve(&house, &second, "127.0.0.1:0", &url);
    let addresses = [(one.listen(), &first), (two.listen(), &second)];
    let homes: Vec<Home> = (0..DAEMONS)
        .map(|n| {
            let (listen, data) = &addresses[n % 2];
            member(listen, data, &format!("m{n}"))
        })
        .collect();
    let daemons: Vec<Daemon> = homes.iter().map(Home::up).collect();
    for daemon in &daemons {
        register(daemon, "reader");
        let body = json!({"topic": "storm", "agent": "reader", "mesh": "team"});
        wait_until_within(PATIENCE, "the subscription", || {
            let answer = daemon
                .http
                .request("POST", "/v1/topic/subscribe", &[], &body.to_string());
            answer.is_some_and(|answer| answer.status == 200)
        });
    }
    let stop = AtomicBool::new(false);
    // The last of them lives on until everything has arrived.
    let (acknowledged, _one): (BTreeSet<String>, _) = std::thread::scope(|scope| {
        let clients: Vec<_> = daemons
            .iter()
            .enumerate()
            .map(|(n, daemon)| {
                let stop = &stop;
                scope.spawn(move || client(&daemon.http, n, stop))
            })
            .collect();
        let stopping = Stop(&stop);
        for round in 0..KILLS.max(CRASHES) {
            std::thread::sleep(Duration::from_millis(700));
            if round < CRASHES {
                database.restart_immediate();
            }
            if round < KILLS {
                let listen = one.listen();
                one.kill();
                one = serve(&house, &first, &listen, &url);
            }
        }
        drop(stopping);
        let clients = clients.into_iter();
        let acknowledged = clients.flat_map(|client| client.join().unwrap()).collect();
        (acknowledged, one)
    });
    assert!(
        acknowledged.len() > 50,
        "too little happened: {}",
        acknowledged.len()
    );
    judge((&house, &database), &daemons, &acknowledged);
}

/// Acknowledged is a subset of delivered, nothing came twice, and the tables are whole.
fn judge(
    (house, database): (&Home, &Postgres),
    daemons: &[Daemon],
    acknowledged: &BTreeSet<String>,
) {
    let url = database.url();
    for daemon in daemons {
        wait_until_within(PATIENCE, "an outbox to drain", || quiet(daemon));
        for (id, states) in outbox(daemon) {
            assert_eq!(states, ["done"], "{id}");
        }
    }
    for daemon in daemons {
        wait_until_within(PATIENCE, "everything to arrive", || {
            inbox_in(daemon, "team", "reader").len() >= acknowledged.len()
        });
        let seen = inbox_in(daemon, "team", "reader");
        assert!(seen.values().all(|count| *count == 1), "a duplicate");
        let missing: Vec<_> = acknowledged
            .iter()
            .filter(|id| !seen.contains_key(*id))
            .collect();
        assert_eq!(missing, Vec::<&String>::new());
    }
    // Orphans, and holes in the sequence.
    let checked = house.cli(&["broker", "orphan-check", "--json", "--database", &url]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert_eq!(checked.json()["orphans"], json!([]));
    let places =
        "SELECT count(*) = max(seq) AND min(seq) = 1 FROM mesh.message_history GROUP BY epoch";
    assert!(database.sql(places).iter().all(|whole| whole == "t"));
    let twice = "SELECT client_message_id FROM mesh.message GROUP BY sender_member, client_message_id HAVING count(*) > 1";
    assert!(database.sql(twice).is_empty());
}
