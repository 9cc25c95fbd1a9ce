//! Two brokers on one database under load: one is killed, the database crashes; a ledger outside judges.
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]
#![allow(
    clippy::print_stderr,
    reason = "a run of the whole size says what it counted"
)]

use crate::support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use support::balancer::Balancer;
use support::broker_process::BrokerProcess;
use support::ledger::{inbox_in, outbox, register, status};
use support::servers::Postgres;
use support::{Daemon, Home, Http, wait_until_within};

/// How many daemons send how many messages in all while the database crashes how often, taken from
/// `HEDDLE_STORM_DAEMONS`, `HEDDLE_STORM_MESSAGES` and `HEDDLE_STORM_CRASHES`: the whole size of the team broker's
/// promise is 20, 20,000 and 10, and takes minutes on a busy machine.
const DAEMONS: usize = 6;
const MESSAGES: usize = 1_200;
const CRASHES: usize = 5;
/// Of the first broker.
const KILLS: usize = 4;
/// Of each broker.
const RESTARTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(600);
/// So long do the clients send, that every death falls among their messages.
const SENDING: Duration = Duration::from_secs(12);

fn size(variable: &str, default: usize) -> usize {
    let text = std::env::var(variable);
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn serve(house: &Home, data: &Path, listen: &str, args: &[&str]) -> BrokerProcess {
    // Somebody else's connection may have been given the port for a moment.
    let mut started = None;
    wait_until_within(PATIENCE, "a broker", || {
        started = BrokerProcess::try_start(house, data, listen, args).ok();
        started.is_some()
    });
    started.unwrap()
}

fn member(listen: &str, token: &Path, name: &str) -> Home {
    let home = Home::new();
    home.config(&format!(
        "[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = \"ws://{listen}/\"\ntoken_file = {token:?}\n",
    ));
    home
}

/// Sends so many, and what of it was acknowledged. Whoever was not answered asks again under the same id.
fn client(http: &Http, name: usize, count: usize, stop: &AtomicBool) -> BTreeSet<String> {
    let pace = SENDING / u32::try_from(count.max(1)).unwrap();
    let mut acknowledged = BTreeSet::new();
    for number in 0..count {
        let id = format!("d{name}-{number}");
        let body = json!({"to": format!("#ring-{name}"), "message": id, "client_message_id": id, "mesh": "team"});
        while !stop.load(Ordering::SeqCst) {
            let answer = http.request("POST", "/v1/send", &[], &body.to_string());
            // Told to come back: nothing was taken.
            if let Some(answer) = answer.filter(|answer| answer.status != 429) {
                assert!(matches!(answer.status, 200 | 202), "{answer:?}");
                acknowledged.insert(id);
                break;
            }
        }
        std::thread::sleep(pace);
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

/// Each reads what the one before it sends, which is at the other broker; and everybody knows whom it sends to.
fn join_the_ring(daemons: &[Daemon]) {
    for (n, daemon) in daemons.iter().enumerate() {
        register(daemon, "reader");
        let before = (n + daemons.len() - 1) % daemons.len();
        let body = json!({"topic": format!("ring-{before}"), "agent": "reader", "mesh": "team"});
        wait_until_within(PATIENCE, "the subscription", || {
            let answer = daemon
                .http
                .request("POST", "/v1/topic/subscribe", &[], &body.to_string());
            answer.is_some_and(|answer| answer.status == 200)
        });
    }
    for (n, daemon) in daemons.iter().enumerate() {
        let own = format!("\"ring-{n}\"");
        wait_until_within(PATIENCE, "a daemon to know whom it sends to", || {
            let list = daemon.http.get("/v1/topic/list?mesh=team");
            list.status == 200 && list.json().to_string().contains(&own)
        });
    }
}

#[test]
fn c4_br_14_brokers_and_database_die_under_load_and_what_was_acknowledged_arrives_once() {
    let count = size("HEDDLE_STORM_DAEMONS", DAEMONS);
    let crashes = size("HEDDLE_STORM_CRASHES", CRASHES);
    let each = size("HEDDLE_STORM_MESSAGES", MESSAGES).div_ceil(count);
    let house = Home::new();
    let mut database = Postgres::start();
    let url = database.url();
    let folder = |name: &str| -> PathBuf { house.path().parent().unwrap().join(name) };
    let (first, second) = (folder("one"), folder("two"));
    let args = ["--database", url.as_str()];
    let mut one = serve(&house, &first, "127.0.0.1:0", &args);
    let two = serve(&house, &second, "127.0.0.1:0", &args);
    let addresses = [(one.listen(), &first), (two.listen(), &second)];
    let homes: Vec<Home> = (0..count)
        .map(|n| {
            let (listen, data) = &addresses[n % 2];
            member(listen, &data.join("broker_token"), &format!("m{n}"))
        })
        .collect();
    let daemons: Vec<Daemon> = homes.iter().map(Home::up).collect();
    join_the_ring(&daemons);
    // The last of them lives on until everything has arrived.
    let (acknowledged, _one) = under_load(&daemons, each, || {
        for round in 0..KILLS.max(crashes) {
            std::thread::sleep(Duration::from_millis(700));
            if round < crashes {
                database.restart_immediate();
            }
            if round < KILLS {
                let listen = one.listen();
                one.kill();
                one = serve(&house, &first, &listen, &args);
            }
        }
        one
    });
    judge((&house, &database), &daemons, &acknowledged);
}

/// Everybody sends so many while `trouble` happens; what was acknowledged, which is all of it, and what the trouble left.
fn under_load<T>(
    daemons: &[Daemon],
    each: usize,
    trouble: impl FnOnce() -> T,
) -> (BTreeSet<String>, T) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = daemons
            .iter()
            .enumerate()
            .map(|(n, daemon)| {
                let stop = &stop;
                scope.spawn(move || client(&daemon.http, n, each, stop))
            })
            .collect();
        let stopping = Stop(&stop);
        let left = trouble();
        let clients = clients.into_iter();
        let acknowledged: BTreeSet<String> =
            clients.flat_map(|client| client.join().unwrap()).collect();
        drop(stopping);
        assert_eq!(acknowledged.len(), each * daemons.len(), "all got through");
        (acknowledged, left)
    })
}

/// Behind one address, without stickiness: one broker after the other is stopped as an operator does it, and started again.
#[test]
fn a_rolling_restart_behind_a_load_balancer_loses_nothing() {
    let house = Home::new();
    let database = Postgres::start();
    let url = database.url();
    let folder = house.path().parent().unwrap().to_owned();
    let token = folder.join("shared_token");
    let args = ["--database", &url, "--token-file", token.to_str().unwrap()];
    let start = |name: &str, listen: &str| serve(&house, &folder.join(name), listen, &args);
    let mut brokers = ["one", "two"].map(|name| (name, start(name, "127.0.0.1:0")));
    let balancer = Balancer::start(brokers.iter().map(|(_, broker)| broker.listen()).collect());
    let homes: Vec<Home> = (0..DAEMONS)
        .map(|n| member(&balancer.listen, &token, &format!("m{n}")))
        .collect();
    let daemons: Vec<Daemon> = homes.iter().map(Home::up).collect();
    join_the_ring(&daemons);
    let (acknowledged, _brokers) = under_load(&daemons, MESSAGES / DAEMONS, || {
        for _ in 0..RESTARTS {
            brokers = brokers.map(|(name, broker)| {
                std::thread::sleep(Duration::from_millis(700));
                let listen = broker.listen();
                assert_eq!(broker.terminate(), 0, "{name} did not stop in order");
                (name, start(name, &listen))
            });
        }
        brokers
    });
    judge((&house, &database), &daemons, &acknowledged);
    let given = balancer.given();
    assert!(given.iter().all(|count| *count > DAEMONS / 2), "{given:?}");
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
    for (n, daemon) in daemons.iter().enumerate() {
        let before = format!("d{}-", (n + daemons.len() - 1) % daemons.len());
        let meant: BTreeSet<&String> = acknowledged
            .iter()
            .filter(|id| id.starts_with(&before))
            .collect();
        wait_until_within(PATIENCE, "everything to arrive", || {
            inbox_in(daemon, "team", "reader").len() >= meant.len()
        });
        let seen = inbox_in(daemon, "team", "reader");
        assert!(seen.values().all(|count| *count == 1), "a duplicate");
        assert_eq!(seen.keys().collect::<BTreeSet<_>>(), meant);
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
    let through = database.sql("SELECT max(seq) FROM mesh.message_history");
    eprintln!(
        "{} daemons, {} messages acknowledged, each delivered once; {} rows checked, 0 orphans; seq 1 to {} without a gap",
        daemons.len(),
        acknowledged.len(),
        checked.json()["checked"],
        through.join(", "),
    );
}
