//! A saturated rate window over real processes: what waits, what is free, what is counted once.

use crate::support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Barrier;

use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::ledger::{connected, inbox, metric, outbox, status};
use support::lossy_proxy::LossyProxy;
use support::{Daemon, Home, wait_until, wait_until_within};

const MESH: &str = "01HZX000000000000000000001";
const MEMBER: &str = "01HZX000000000000000000002";
const CONSUMED: &str = "heddle_broker_rate_limit_consumed_total";
const SAVED: &str = "heddle_broker_rate_limit_saved_total";

fn limit(of: usize, seconds: u64) -> String {
    format!("[broker]\nrate_limit = {of}\nrate_window_seconds = {seconds}\n")
}

fn broker_with(home: &Home, of: usize) -> BrokerProcess {
    let data: PathBuf = home.path().parent().unwrap().join("broker");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("config.toml"), limit(of, 3600)).unwrap();
    let siblings = ["--policy", "allow-concurrent"];
    BrokerProcess::start(home, &data, "127.0.0.1:0", &siblings)
}

/// A sender with a topic to send to.
fn enter(broker: &BrokerProcess) -> RawLink {
    enter_mesh(broker, MESH)
}

fn enter_mesh(broker: &BrokerProcess, mesh: &str) -> RawLink {
    let mut link = RawLink::enter(broker, mesh, MEMBER);
    assert_eq!(link.next_of("welcome")["type"], "welcome");
    let body = json!({"what": "subscribe", "topic": "ops", "agent": "one"});
    link.say(&json!({"type": "request", "request": 1, "body": body}));
    assert_eq!(link.next_of("reply")["result"], "ok");
    link
}

fn item(id: &str) -> Value {
    let envelope = json!({
        "v": 1, "kind": "message", "priority": "next", "body": id,
        "destination": {"kind": "topic", "ref": "ops"},
    });
    json!({"agent": "one", "client_message_id": id, "envelope": envelope})
}

/// The verdict on one send, or the code of its refusal.
fn verdict(link: &mut RawLink, id: &str) -> String {
    link.say(&json!({"type": "send", "batch": 1, "items": [item(id)]}));
    let verdicts = link.next_of("verdicts");
    let one = &verdicts["items"][0];
    let word = one.get("code").unwrap_or(&one["verdict"]);
    word.as_str().unwrap().to_owned()
}

fn send(daemon: &Daemon, id: &str) {
    let body = json!({"to": "@tester", "message": id, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn row(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/outbox/{id}")).expect(200)
}

/// The outcomes of a row's attempts so far.
fn attempts(daemon: &Daemon, id: &str) -> Vec<String> {
    let log = row(daemon, id)["attempts_log"].clone();
    let log = log.as_array().cloned().unwrap_or_default();
    log.iter()
        .map(|attempt| attempt["outcome"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn v10_4_11_rl_03_br_04_in_a_saturated_window_a_retry_of_a_committed_id_is_a_duplicate_and_costs_nothing()
 {
    let home = Home::new();
    let broker = broker_with(&home, 5);
    let mut link = enter(&broker);
    for number in 0..5 {
        assert_eq!(verdict(&mut link, &format!("m-{number}")), "created");
    }
    assert_eq!(verdict(&mut link, "m-5"), "rate_limited");
    for number in 0..5 {
        assert_eq!(verdict(&mut link, &format!("m-{number}")), "duplicate");
    }
    assert_eq!(verdict(&mut link, "m-5"), "rate_limited");
}

/// The whole of it in one run: the broker has committed, the daemon does not know, others have used up the window when
/// it asks again.
#[test]
fn v10_4_11_br_04_br_11_br_16_rl_03_a_lost_ack_is_asked_for_in_a_full_window_and_the_row_is_done_for_nothing()
 {
    const LIMIT: usize = 4;
    let home = Home::new();
    let broker = broker_with(&home, LIMIT);
    let proxy = LossyProxy::start(broker.listen());
    home.config(&broker.config().replace(&broker.listen(), &proxy.listen));
    let daemon = home.up();
    connected(&daemon);
    proxy.shut_when_lost();
    send(&daemon, "lost");
    wait_until("the lost ack", || proxy.cuts() == 1);
    let file = rusqlite::Connection::open(broker.data.join("broker.db")).unwrap();
    let count = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        file.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count("client_message_dedupe"), 1, "committed at the broker");
    wait_until("the row to wait", || {
        row(&daemon, "lost")["status"] == "pending"
    });

    let mesh = status(&daemon)["meshes"][0]["mesh_id"].clone();
    let mut others = enter_mesh(&broker, mesh.as_str().unwrap());
    for number in 1..LIMIT {
        assert_eq!(verdict(&mut others, &format!("m-{number}")), "created");
    }
    assert_eq!(verdict(&mut others, "over"), "rate_limited");
    let duplicates = "heddle_broker_accept_total{verdict=\"duplicate\"}";
    let figures = || [CONSUMED, SAVED, duplicates].map(|series| broker.metric(series));
    assert_eq!(figures(), [LIMIT, 0, 0]);

    proxy.open();
    wait_until_within(std::time::Duration::from_secs(60), "the row", || {
        row(&daemon, "lost")["status"] == "done"
    });
    assert_eq!(figures(), [LIMIT, 1, 1], "consumed, saved, duplicates");
    let outcomes = attempts(&daemon, "lost");
    assert!(
        !outcomes.contains(&"rate_limited".to_owned()),
        "{outcomes:?}"
    );
    assert_eq!(metric(&daemon, "heddle_daemon_duplicates_total"), 1);
    let body = json!({"to": "@tester", "message": "lost", "client_message_id": "lost"});
    let again = daemon.http.post("/v1/send", &body).expect(200);
    assert_eq!(again["duplicate"], true);
    assert_eq!(verdict(&mut others, "over"), "rate_limited", "still full");
    drop(others);

    // BR-11: whatever follows from the commit follows once.
    wait_until("the message", || {
        inbox(&daemon, "tester").get("lost") == Some(&1)
    });
    wait_until("the search", || {
        let found = daemon.http.get("/v1/inbox/search?q=lost").expect(200);
        found["items"].as_array().unwrap().len() == 1
    });
    for table in ["client_message_dedupe", "message", "message_history"] {
        assert_eq!(count(table), i64::try_from(LIMIT).unwrap(), "{table}");
    }
    let story = daemon.http.get("/v1/explain/lost").expect(200);
    let committed = story["receipts"].as_array().unwrap().iter();
    let committed = committed.filter(|receipt| receipt["level"] == "committed");
    assert_eq!(committed.count(), 1, "{story}");
}

#[test]
fn br_03_rl_02_thirty_two_racing_sends_of_one_id_are_one_message_and_one_unit() {
    let home = Home::new();
    let broker = broker_with(&home, 2);
    let links: Vec<RawLink> = (0..32).map(|_| enter(&broker)).collect();
    let start = Barrier::new(links.len());
    let mut counts = BTreeMap::new();
    let words: Vec<String> = std::thread::scope(|scope| {
        let race = |mut link: RawLink| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                verdict(&mut link, "one")
            })
        };
        let racers: Vec<_> = links.into_iter().map(race).collect();
        racers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for word in words {
        *counts.entry(word).or_insert(0) += 1;
    }
    let expected = [("created", 1), ("duplicate", 31)];
    assert_eq!(counts, expected.map(|(w, n)| (w.to_owned(), n)).into());
    // Of two units one was used, by all of them together.
    let mut link = enter(&broker);
    assert_eq!(verdict(&mut link, "two"), "created");
    assert_eq!(verdict(&mut link, "three"), "rate_limited");
}

#[test]
fn c6_dr_05_what_is_over_the_limit_waits_for_the_next_window_and_never_dies() {
    const MESSAGES: usize = 12;
    let home = Home::new();
    home.config(&limit(5, 1));
    let daemon = home.up();
    let body = |n: usize| format!("m-{n}");
    for number in 0..MESSAGES {
        send(&daemon, &body(number));
    }
    let patience = std::time::Duration::from_secs(60);
    wait_until_within(patience, "every row", || {
        let rows = outbox(&daemon);
        assert!(
            rows.values().flatten().all(|status| status != "dead"),
            "{rows:?}"
        );
        rows.len() == MESSAGES && rows.values().all(|states| *states == ["done"])
    });
    let limited =
        (0..MESSAGES).filter(|n| attempts(&daemon, &body(*n)).contains(&"rate_limited".to_owned()));
    assert!(limited.count() >= 1, "nothing was over the limit");
    assert_eq!(metric(&daemon, CONSUMED), MESSAGES);
    wait_until("the messages", || {
        inbox(&daemon, "tester").len() == MESSAGES
    });
    assert!(inbox(&daemon, "tester").values().all(|times| *times == 1));
}

/// A store that was put back from a backup asks again for what the broker has long committed.
#[test]
fn rl_03_a_store_from_a_backup_gets_its_rows_done_without_a_unit_of_budget() {
    let home = Home::new();
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let daemon = home.up();
    for number in 0..5 {
        send(&daemon, &format!("old-{number}"));
    }
    home.cli(&["down"]).ok();
    drop(daemon);
    let store = home.path().join("data.db");
    let backup = std::fs::read(&store).unwrap();
    let all_old_done = |daemon: &Daemon| {
        wait_until("the old ones", || {
            (0..5).all(|n| row(daemon, &format!("old-{n}"))["status"] == "done")
        });
    };

    home.config(&limit(5, 3600));
    let daemon = home.up();
    all_old_done(&daemon);
    assert_eq!(metric(&daemon, CONSUMED), 5);
    send(&daemon, "sixth");
    wait_until("the limit", || {
        attempts(&daemon, "sixth").contains(&"rate_limited".to_owned())
    });
    assert_eq!(row(&daemon, "sixth")["status"], "pending");
    home.cli(&["down"]).ok();
    drop(daemon);

    std::fs::write(&store, backup).unwrap();
    let daemon = home.up();
    all_old_done(&daemon);
    assert_eq!(metric(&daemon, SAVED), 5);
    assert_eq!(metric(&daemon, CONSUMED), 0, "a retry used budget");
    for number in 0..5 {
        let id = format!("new-{number}");
        send(&daemon, &id);
        wait_until(&id, || row(&daemon, &id)["status"] == "done");
    }
    send(&daemon, "over");
    wait_until("the limit", || {
        attempts(&daemon, "over").contains(&"rate_limited".to_owned())
    });
    assert_eq!(row(&daemon, "over")["status"], "pending");
}

const LOWS: usize = 25;

/// Fills the window with what is not urgent, until the limiter refuses some of it.
fn saturate(daemon: &Daemon) {
    for number in 0..LOWS {
        let id = format!("low-{number}");
        let body =
            json!({"to": "@tester", "message": id, "client_message_id": id, "priority": "low"});
        daemon.http.post("/v1/send", &body).expect(202);
    }
    wait_until("the limit", || {
        (0..LOWS)
            .any(|n| attempts(daemon, &format!("low-{n}")).contains(&"rate_limited".to_owned()))
    });
}

fn send_urgent(daemon: &Daemon) {
    let body =
        json!({"to": "@tester", "message": "!", "client_message_id": "urgent", "priority": "now"});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn all_done(daemon: &Daemon) {
    let patience = std::time::Duration::from_secs(90);
    wait_until_within(patience, "every row", || {
        let rows = outbox(daemon);
        let is_dead = |status: &String| status == "dead";
        assert!(!rows.values().flatten().any(is_dead), "{rows:?}");
        rows.len() == LOWS + 1 && rows.values().all(|states| *states == ["done"])
    });
}

/// Where the broker put a message: its number in the history, and the window in which it was let in.
fn place(daemon: &Daemon, id: &str) -> Option<(u64, u64)> {
    let story = daemon.http.get(&format!("/v1/explain/{id}")).expect(200);
    let seq = story["broker"]["history_id"].as_str()?;
    let (_, seq) = seq.split_once('.')?;
    Some((seq.parse().ok()?, story["limiter"]["window"].as_u64()?))
}

fn places_of_lows(daemon: &Daemon) -> Vec<(u64, u64)> {
    (0..LOWS)
        .filter_map(|n| place(daemon, &format!("low-{n}")))
        .collect()
}

#[test]
fn c6_the_first_window_after_an_urgent_send_carries_it_and_no_window_is_wasted() {
    let home = Home::new();
    home.config(&limit(5, 3));
    let daemon = home.up();
    saturate(&daemon);
    send_urgent(&daemon);
    let last = places_of_lows(&daemon);
    let last = last.iter().map(|(_, window)| *window).max().unwrap();
    all_done(&daemon);
    let (seq, window) = place(&daemon, "urgent").unwrap();
    let lows = places_of_lows(&daemon);
    assert_eq!(lows.len(), LOWS);
    let mut windows: Vec<u64> = lows.iter().map(|(_, window)| *window).collect();
    windows.push(window);
    windows.sort_unstable();
    windows.dedup();
    let nth = |window: u64| windows.iter().position(|one| *one == window).unwrap();
    assert!(
        nth(window) <= nth(last) + 1,
        "the urgent one waited for window {window} of {windows:?}; {last} was the last before it"
    );
    let before = lows.iter().filter(|low| low.1 == window && low.0 < seq);
    assert_eq!(before.count(), 0, "something low went before it");
    // Five in each: who is refused waits for the window, not for a time of its own.
    assert!(windows.len() <= LOWS.div_ceil(5) + 2, "{windows:?}");
    let refused = (0..LOWS).find_map(|n| {
        let story = daemon.http.get(&format!("/v1/explain/low-{n}")).expect(200);
        let log = story["attempts"].as_array().unwrap().clone();
        log.into_iter().find(|one| one["outcome"] == "rate_limited")
    });
    assert!(refused.unwrap()["at"].is_string());
}

#[test]
fn c6_what_is_urgent_goes_first_after_a_kill_too() {
    let home = Home::new();
    home.config(&limit(5, 3));
    let daemon = home.up();
    saturate(&daemon);
    send_urgent(&daemon);
    let before = places_of_lows(&daemon).len();
    daemon.kill();
    let daemon = home.up();
    all_done(&daemon);
    let (seq, _) = place(&daemon, "urgent").unwrap();
    let overtaken = places_of_lows(&daemon);
    let earlier = overtaken.iter().filter(|low| low.0 < seq).count();
    assert!(
        earlier <= before + 4,
        "{earlier} of {LOWS} went before it, {before} were there"
    );
    wait_until("the messages", || {
        inbox(&daemon, "tester").len() == LOWS + 1
    });
    assert!(inbox(&daemon, "tester").values().all(|times| *times == 1));
}
