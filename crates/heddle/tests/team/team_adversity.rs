//! The rows of the threat table about a broker's load, over real processes on PostgreSQL: a hot id (L-22), a database that
//! is stuck (L-23), a fan-out bomb (T-29).
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]

use crate::support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heddle_core::limits::RECIPIENTS_MAX;
use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::effect_pair::home_of;
use support::ledger::{inbox_in, status};
use support::servers::Postgres;
use support::team_broker::{Team, link_of};
use support::{Daemon, Home, wait_until, wait_until_within};

use super::team_members::{has, is_connected};

const MESH: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const SENDER: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAA";
/// Connections that retry at once, and how often each.
const RACERS: usize = 20;
const RETRIES: usize = 50;
/// L-22: no lock pile-up.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// L-23.
const STUCK_SECONDS: u64 = 30;

fn enter(broker: &BrokerProcess) -> RawLink {
    let mut link = RawLink::enter(broker, MESH, SENDER);
    assert_eq!(link.next_of("welcome")["type"], "welcome");
    link
}

fn item(id: &str, text: &str) -> Value {
    let envelope = json!({
        "v": 1, "kind": "message", "priority": "next", "body": text,
        "destination": {"kind": "topic", "ref": "ops"},
    });
    json!({"agent": "one", "client_message_id": id, "envelope": envelope})
}

/// What the broker says of it, where it says to be, and how long that took.
fn verdict(link: &mut RawLink, id: &str, text: &str) -> (String, Value, Duration) {
    let begun = Instant::now();
    link.say(&json!({"type": "send", "batch": 1, "items": [item(id, text)]}));
    let verdicts = link.next_of("verdicts");
    let one = &verdicts["items"][0];
    let word = one.get("code").unwrap_or(&one["verdict"]);
    let word = word.as_str().unwrap_or_else(|| panic!("{verdicts}"));
    (word.to_owned(), one["history_id"].clone(), begun.elapsed())
}

#[test]
fn l_22_br_08_a_thousand_retries_of_one_id_race_over_two_brokers_to_one_message_and_none_waits_long()
 {
    let (house, database) = (Home::new(), Postgres::start());
    let folder = house.path().parent().unwrap().to_owned();
    let url = database.url();
    let args = ["--database", &url, "--policy", "allow-concurrent"];
    let brokers = ["one", "two"]
        .map(|name| BrokerProcess::start(&house, &folder.join(name), "127.0.0.1:0", &args));
    let mut first = enter(&brokers[0]);
    first.say(
        &json!({"type": "request", "request": 1, "body": {"what": "create_topic", "topic": "ops"}}),
    );
    assert_eq!(first.next_of("reply")["result"], "ok");
    let start = std::sync::Barrier::new(RACERS);
    let race = |id: &str, text: &(dyn Fn(usize) -> String + Sync)| {
        std::thread::scope(|scope| {
            let racers: Vec<_> = (0..RACERS)
                .map(|n| {
                    let (start, broker) = (&start, &brokers[n % 2]);
                    scope.spawn(move || {
                        let mut link = enter(broker);
                        start.wait();
                        let tries = (0..RETRIES).map(|_| verdict(&mut link, id, &text(n)));
                        tries.collect::<Vec<_>>()
                    })
                })
                .collect();
            let all = racers.into_iter().flat_map(|racer| racer.join().unwrap());
            all.collect::<Vec<_>>()
        })
    };
    let told = race("hot", &|_| "the same".to_owned());
    let mut counts = BTreeMap::new();
    for (word, ..) in &told {
        *counts.entry(word.as_str()).or_insert(0) += 1;
    }
    let rest = RACERS * RETRIES - 1;
    assert_eq!(counts, [("created", 1), ("duplicate", rest)].into());
    assert!(
        told.iter().all(|one| one.1 == told[0].1),
        "one place for all"
    );
    let mut times: Vec<Duration> = told.iter().map(|one| one.2).collect();
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 < ANSWER_MAX, "{p99:?}");

    // Another text each: one wins, and everybody else is told of the conflict, every time.
    let told = race("mixed", &|n| format!("the text of {n}"));
    let of = |word: &str| told.iter().filter(|one| one.0 == word).count();
    assert_eq!(of("created"), 1);
    assert_eq!(of("duplicate"), RETRIES - 1, "the winner's own retries");
    assert_eq!(of("conflict"), (RACERS - 1) * RETRIES);
    let rows = "SELECT count(*) FROM mesh.message";
    assert_eq!(database.sql(rows), ["2"]);
}

/// Of whichever verdict.
fn counted(broker: &BrokerProcess, verdict: &str) -> usize {
    broker.metric(&format!(
        "heddle_broker_accept_total{{verdict=\"{verdict}\"}}"
    ))
}

fn post(daemon: &Daemon, id: &str) {
    let body = json!({"to": "@alice/alice", "message": id, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

#[test]
fn l_23_a_database_that_is_stuck_for_half_a_minute_is_told_as_later_and_no_row_dies() {
    let (house, database) = (Home::new(), Postgres::start());
    let folder = house.path().parent().unwrap().to_owned();
    let url = database.url();
    let broker = BrokerProcess::start(
        &house,
        &folder.join("one"),
        "127.0.0.1:0",
        &["--database", &url],
    );
    let home = home_of("alice");
    home.config(&format!(
        "[daemon]\nmember = \"alice\"\n{}",
        broker.config()
    ));
    let alice = home.up();
    wait_until("the broker", || is_connected(&home, "home"));
    post(&alice, "before");
    wait_until("the first", || has(&home, "home", "alice", "before"));
    // Whoever writes or reads what a mesh is waits, so every connection of the pool is soon taken.
    let stuck = format!(
        "BEGIN; LOCK TABLE mesh.mesh IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({STUCK_SECONDS}); COMMIT"
    );
    std::thread::scope(|scope| {
        let holding = scope.spawn(|| database.sql(&stuck));
        wait_until("the lock", || {
            let held = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND relation = 'mesh.mesh'::regclass";
            database.sql(held) == ["1"]
        });
        for n in 0..50 {
            post(&alice, &format!("stuck-{n}"));
        }
        wait_until_within(Duration::from_secs(60), "the word later", || {
            counted(&broker, "storage_unavailable") > 0
        });
        assert!(!holding.is_finished(), "told while it was stuck");
        holding.join().unwrap();
    });
    wait_until_within(Duration::from_secs(120), "everything to arrive", || {
        inbox_in(&alice, "home", "alice").len() == 51
    });
    let twice = inbox_in(&alice, "home", "alice");
    assert!(twice.values().all(|count| *count == 1), "{twice:?}");
    // Of some the answer came too late, so they are asked about once more.
    wait_until("nothing to wait", || {
        status(&alice)["outbox"]["pending"] == json!(0)
    });
    assert_eq!(status(&alice)["outbox"]["dead"], json!(0));
    for verdict in [
        "unknown_recipient",
        "unknown_agent",
        "invalid_request",
        "internal",
        "rate_limited",
    ] {
        assert_eq!(counted(&broker, verdict), 0, "{verdict}");
    }
    let rows = "SELECT count(*), count(DISTINCT client_message_id) FROM mesh.message";
    assert_eq!(database.sql(rows), ["51|51"]);
}

/// T-29: a topic that everybody was subscribed to takes nobody more, and a post to it reaches them all, once.
#[test]
fn t_29_a_post_reaches_so_many_and_one_more_subscriber_is_refused_with_words() {
    let team = Team::on(Some(Postgres::start()));
    let database = team.database.as_ref().unwrap();
    let made = team.cli("team", &["invite", "--role", "owner"]).ok().json();
    let home = home_of("alice");
    let _up = home.up();
    home.cli(&["mesh", "join", link_of(&made), "--as", "team"])
        .ok();
    let subscribe = |agent: &str| {
        home.cli(&["--mesh", "team", "agent", "register", agent])
            .ok();
        home.cli(&[
            "--mesh",
            "team",
            "topic",
            "subscribe",
            "ops",
            "--agent",
            agent,
        ])
    };
    subscribe("first").ok();
    // The rest by hand, because it is many.
    let rest = RECIPIENTS_MAX - 1;
    for (table, columns) in [
        ("agent", "mesh_id, member_id, 'n' || n"),
        ("topic_subscription", "mesh_id, 'ops', member_id, 'n' || n"),
    ] {
        database.sql(&format!(
            "INSERT INTO mesh.{table} SELECT {columns} FROM mesh.member, generate_series(1, {rest}) n"
        ));
    }
    let refused = subscribe("late");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("1024 subscribers"), "{refused:?}");
    home.cli(&[
        "--mesh",
        "team",
        "send",
        "#ops",
        "all of you",
        "--id",
        "A",
        "--wait",
    ])
    .ok();
    let reached = "SELECT count(*), count(DISTINCT agent) FROM mesh.delivery_queue";
    assert_eq!(
        database.sql(reached),
        [format!("{RECIPIENTS_MAX}|{RECIPIENTS_MAX}")]
    );
    home.cli(&[
        "--mesh",
        "team",
        "topic",
        "unsubscribe",
        "ops",
        "--agent",
        "first",
    ])
    .ok();
    subscribe("late").ok();
}
