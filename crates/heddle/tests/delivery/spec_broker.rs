//! v10 §4.6.2 and §4.7.1, row by row, over a broker that is a process of its own, and the words of close code 4004.
//!
//! For the rows inside the transaction, a table of the running broker's file is made to refuse its row: then
//! none of the others may have one, and the same id goes through when the table is mended.

use crate::support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::hooks::Yard;
use support::ledger::{connected, inbox, metric, no_orphans, status, wait_drained};
use support::{Daemon, Home, wait_until};

const MESH: &str = "01HZX000000000000000000001";
const SENDER: &str = "01HZX000000000000000000002";
const READER: &str = "01HZX000000000000000000003";
/// The tables of an accept.
const TABLES: [&str; 5] = [
    "client_message_dedupe",
    "message",
    "message_history",
    "delivery_queue",
    "mention_index",
];

fn start(home: &Home, config: &str, policy: &str) -> BrokerProcess {
    let data: PathBuf = home.path().parent().unwrap().join("broker");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("config.toml"), config).unwrap();
    BrokerProcess::start(home, &data, "127.0.0.1:0", &["--policy", policy])
}

fn file(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}

/// How many rows each table of an accept has.
fn rows(broker: &BrokerProcess) -> [i64; 5] {
    let file = file(&broker.data.join("broker.db"));
    TABLES.map(|table| {
        let sql = format!("SELECT count(*) FROM {table}");
        file.query_row(&sql, [], |row| row.get(0)).unwrap()
    })
}

fn change(broker: &BrokerProcess, sql: &str) {
    let file = file(&broker.data.join("broker.db"));
    file.execute_batch(sql).unwrap();
}

/// A member with one agent that reads the topic.
fn enter(broker: &BrokerProcess, member: &str) -> RawLink {
    let mut link = RawLink::enter(broker, MESH, member);
    assert_eq!(link.next_of("welcome")["type"], "welcome");
    ask(
        &mut link,
        &json!({"what": "subscribe", "topic": "ops", "agent": "one"}),
    );
    link
}

fn ask(link: &mut RawLink, body: &Value) {
    link.say(&json!({"type": "request", "request": 1, "body": body}));
    assert_eq!(link.next_of("reply")["result"], "ok", "{body}");
}

/// A message with every effect that an accept can have.
fn envelope(topic: &str, text: &str) -> Value {
    json!({
        "v": 1, "kind": "message", "priority": "next", "body": text,
        "destination": {"kind": "topic", "ref": topic},
        "mentions": [format!("{READER}/one")],
    })
}

/// The verdict on it, or the code of its refusal.
fn say(link: &mut RawLink, id: &str, envelope: &Value) -> String {
    say_as(link, "one", id, envelope)
}

fn say_as(link: &mut RawLink, agent: &str, id: &str, envelope: &Value) -> String {
    let item = json!({"agent": agent, "client_message_id": id, "envelope": envelope});
    link.say(&json!({"type": "send", "batch": 1, "items": [item]}));
    let verdicts = link.next_of("verdicts");
    let one = &verdicts["items"][0];
    let word = one.get("code").unwrap_or(&one["verdict"]);
    word.as_str()
        .unwrap_or_else(|| panic!("{verdicts}"))
        .to_owned()
}

// --- v10 §4.6.2 ---------------------------------------------------------------------------------

#[test]
fn v10_4_6_2_b0_a_known_id_is_answered_in_a_full_window_and_changes_no_row() {
    let home = Home::new();
    let full = "[broker]\nrate_limit = 1\nrate_window_seconds = 3600\n";
    let broker = start(&home, full, "allow-concurrent");
    let mut link = enter(&broker, SENDER);
    assert_eq!(say(&mut link, "a", &envelope("ops", "text")), "created");
    let before = rows(&broker);
    assert_eq!(
        say(&mut link, "b", &envelope("ops", "text")),
        "rate_limited"
    );
    assert_eq!(say(&mut link, "a", &envelope("ops", "text")), "duplicate");
    assert_eq!(say(&mut link, "a", &envelope("ops", "other")), "conflict");
    assert_eq!(rows(&broker), before);
}

#[test]
fn v10_4_6_2_b1_a_refusal_before_the_claim_leaves_no_row_and_the_id_free() {
    const CONSUMED: &str = "heddle_broker_rate_limit_consumed_total";
    let home = Home::new();
    let broker = start(&home, "", "allow-concurrent");
    let mut link = enter(&broker, SENDER);
    let before = rows(&broker);
    let good = envelope("ops", "text");
    let (mut priority, mut kind) = (good.clone(), good.clone());
    priority["priority"] = json!("at once");
    kind["destination"]["kind"] = json!("letter");
    let long = envelope("ops", &"x".repeat((1 << 20) + 1));
    for (agent, envelope, expected) in [
        ("one", &priority, "invalid_request"),
        ("one", &kind, "invalid_request"),
        ("one", &long, "payload_too_large"),
        ("nobody", &good, "unknown_agent"),
    ] {
        let code = say_as(&mut link, agent, "a", envelope);
        assert_eq!(code, expected);
        assert_eq!(rows(&broker), before, "{code}");
        assert_eq!(broker.metric(CONSUMED), 0, "{code} used budget");
    }
    // When the condition clears, the same id goes through: for each sender, which have one each (C1).
    assert_eq!(say(&mut link, "a", &good), "created");
    let register = json!({"what": "register_agent", "agent": "nobody"});
    ask(&mut link, &register);
    assert_eq!(say_as(&mut link, "nobody", "a", &good), "created");
    assert_eq!(broker.metric(CONSUMED), 2);
}

#[test]
fn v10_4_6_2_b2_a_refusal_in_the_transaction_is_rolled_back_and_the_id_free() {
    let home = Home::new();
    let broker = start(&home, "", "allow-concurrent");
    let mut link = enter(&broker, SENDER);
    let before = rows(&broker);
    let code = say(&mut link, "a", &envelope("nowhere", "text"));
    assert_eq!(code, "unknown_recipient");
    assert_eq!(rows(&broker), before);
    ask(
        &mut link,
        &json!({"what": "create_topic", "topic": "nowhere"}),
    );
    assert_eq!(say(&mut link, "a", &envelope("nowhere", "text")), "created");
}

#[test]
fn v10_4_6_2_b3_an_accept_commits_all_effects_and_consumes_the_id_for_ever() {
    let home = Home::new();
    let broker = start(&home, "", "allow-concurrent");
    let (listen, data) = (broker.listen(), broker.data.clone());
    let mut link = enter(&broker, SENDER);
    drop(enter(&broker, READER));
    assert_eq!(say(&mut link, "a", &envelope("ops", "text")), "created");
    // A delivery for each of the two that read the topic.
    assert_eq!(rows(&broker), [1, 1, 1, 2, 1]);
    broker.kill();
    let broker = BrokerProcess::start(&home, &data, &listen, &["--policy", "allow-concurrent"]);
    let mut link = enter(&broker, SENDER);
    assert_eq!(say(&mut link, "a", &envelope("ops", "text")), "duplicate");
    assert_eq!(rows(&broker), [1, 1, 1, 2, 1]);
}

// --- v10 §4.7.1: in the transaction ---------------------------------------------------------------

fn is_in_the_transaction(table: &str) {
    let home = Home::new();
    let broker = start(&home, "", "allow-concurrent");
    let mut link = enter(&broker, SENDER);
    drop(enter(&broker, READER));
    assert_eq!(say(&mut link, "before", &envelope("ops", "x")), "created");
    let before = rows(&broker);
    change(
        &broker,
        &format!(
            "CREATE TRIGGER broken BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'broken'); END"
        ),
    );
    assert_eq!(say(&mut link, "a", &envelope("ops", "x")), "internal");
    assert_eq!(rows(&broker), before, "{table}: half an accept");
    change(&broker, "DROP TRIGGER broken");
    assert_eq!(say(&mut link, "a", &envelope("ops", "x")), "created");
    let after = rows(&broker);
    assert!(
        before
            .iter()
            .zip(after)
            .all(|(before, after)| after > *before)
    );
    let data = broker.data.clone();
    assert_eq!(broker.terminate(), 0);
    no_orphans(&home, &data);
}

#[test]
fn v10_4_7_1_dedupe_record_is_in_the_transaction() {
    is_in_the_transaction("client_message_dedupe");
}

#[test]
fn v10_4_7_1_message_body_is_in_the_transaction() {
    is_in_the_transaction("message");
}

#[test]
fn v10_4_7_1_history_row_is_in_the_transaction() {
    is_in_the_transaction("message_history");
}

#[test]
fn v10_4_7_1_fan_out_work_is_in_the_transaction() {
    is_in_the_transaction("delivery_queue");
}

#[test]
fn v10_4_7_1_mention_index_entries_are_in_the_transaction() {
    is_in_the_transaction("mention_index");
}

// --- v10 §4.7.1: outside of it --------------------------------------------------------------------

#[test]
fn v10_4_7_1_ws_push_is_outside_and_who_was_away_gets_the_row_when_it_is_back() {
    let home = Home::new();
    let broker = start(&home, "", "allow-concurrent");
    drop(enter(&broker, READER));
    let mut link = enter(&broker, SENDER);
    assert_eq!(say(&mut link, "a", &envelope("ops", "text")), "created");
    let mut reader = RawLink::enter(&broker, MESH, READER);
    let deliver = reader.next_of("deliver");
    assert!(deliver.to_string().contains("\"a\""), "{deliver}");
}

/// A push follows from the commit: of a message whose last row is refused, a reader that is there hears nothing.
#[test]
fn v10_4_7_1_ws_push_never_comes_before_the_commit() {
    let home = Home::new();
    let broker = start(&home, "", "allow-concurrent");
    let mut reader = enter(&broker, READER);
    let mut link = enter(&broker, SENDER);
    // The last table that an accept writes to.
    change(
        &broker,
        "CREATE TRIGGER broken BEFORE INSERT ON mention_index BEGIN SELECT RAISE(ABORT, 'broken'); END",
    );
    assert_eq!(say(&mut link, "never", &envelope("ops", "x")), "internal");
    change(&broker, "DROP TRIGGER broken");
    assert_eq!(say(&mut link, "after", &envelope("ops", "x")), "created");
    let deliver = reader.next_of("deliver");
    let ids: Vec<&Value> = deliver["items"].as_array().unwrap().iter().collect();
    let ids: Vec<&Value> = ids.iter().map(|one| &one["client_message_id"]).collect();
    assert_eq!(ids, ["after"], "{deliver}");
}

fn send(daemon: &Daemon, id: &str) {
    let body =
        json!({"to": "@tester", "message": format!("text of {id}"), "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

/// What a webhook is here: a hook of the receiving home. It follows from the committed delivery.
#[test]
fn v10_4_7_1_webhook_fan_out_is_outside_and_follows_from_the_committed_row() {
    let yard = Yard::new("[hook.on-message]\nenabled = true\n");
    yard.script("on-message", "exit 1");
    let daemon = yard.home.up();
    send(&daemon, "a");
    let audit = yard.wait_audit(1);
    assert_ne!(audit[0]["outcome"], "ok", "{audit:?}");
    // The hook failed; the message is where it was, once, and its row is done.
    wait_drained(&daemon);
    assert_eq!(status(&daemon)["outbox"]["done"], 1);
    assert_eq!(inbox(&daemon, "tester").get("a"), Some(&1));
}

#[test]
fn v10_4_7_1_rate_limit_counters_are_outside_and_decide_nothing() {
    let home = Home::new();
    let broker = start(&home, "", "allow-concurrent");
    let mut link = enter(&broker, SENDER);
    change(&broker, "DROP TABLE rate_limit_counter");
    assert_eq!(say(&mut link, "a", &envelope("ops", "text")), "created");
    assert_eq!(say(&mut link, "a", &envelope("ops", "text")), "duplicate");
}

/// The audit of an id is made from the rows each time; the log on disk is words.
#[test]
fn v10_4_7_1_audit_log_is_outside_and_the_story_of_an_id_is_told_without_it() {
    let home = Home::new();
    let daemon = home.up();
    std::fs::remove_dir_all(home.path().join("logs")).unwrap();
    send(&daemon, "a");
    wait_drained(&daemon);
    let story = daemon.http.get("/v1/explain/a").expect(200);
    let levels = story["receipts"].to_string();
    assert!(levels.contains("committed"), "{story}");
}

#[test]
fn v10_4_7_1_search_index_is_outside_and_is_made_again_from_the_rows() {
    let home = Home::new();
    let daemon = home.up();
    for id in ["first", "second"] {
        send(&daemon, id);
    }
    let found = |daemon: &Daemon| {
        let page = daemon.http.get("/v1/inbox/search?q=second").expect(200);
        page["items"].as_array().unwrap().len()
    };
    wait_until("the search", || found(&daemon) == 1);
    daemon.stop();
    file(&home.path().join("data.db"))
        .execute_batch(
            "INSERT INTO inbox_fts (inbox_fts) VALUES ('delete-all');
             UPDATE inbox_state SET indexed_through = 0",
        )
        .unwrap();
    let daemon = home.up();
    assert_eq!(
        inbox(&daemon, "tester").len(),
        2,
        "no index, and no message is missing"
    );
    send(&daemon, "third");
    wait_until("the search again", || found(&daemon) == 1);
}

#[test]
fn v10_4_7_1_metrics_are_outside_and_forgotten_without_harm() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "a");
    wait_drained(&daemon);
    let accepted = "heddle_broker_accept_total{verdict=\"created\"}";
    assert_eq!(metric(&daemon, accepted), 1);
    daemon.kill();
    let daemon = home.up();
    assert_eq!(
        metric(&daemon, accepted),
        0,
        "counted from the start of the process"
    );
    let body = json!({"to": "@tester", "message": "text of a", "client_message_id": "a"});
    assert_eq!(
        daemon.http.post("/v1/send", &body).expect(200)["duplicate"],
        true
    );
}

// --- duplicate identity ---------------------------------------------------------------------------

#[test]
fn v6_15_4004_a_home_that_another_was_before_says_so_and_comes_in_when_that_one_is_gone() {
    let home = Home::new();
    let broker = start(&home, "", "prefer-oldest");
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    let mesh = status(&daemon)["meshes"][0]["mesh_id"].clone();
    let member = {
        let file = file(&broker.data.join("broker.db"));
        let sql = "SELECT member_id FROM member";
        let bytes: [u8; 16] = file.query_row(sql, [], |row| row.get(0)).unwrap();
        ulid::Ulid::from_bytes(bytes).to_string()
    };
    daemon.stop();
    // A copy of this home is there first.
    let mut copy = RawLink::enter(&broker, mesh.as_str().unwrap(), &member);
    assert_eq!(copy.next_of("welcome")["type"], "welcome");
    let daemon = home.up();
    let said = || status(&daemon)["degraded"].to_string();
    wait_until("the words", || said().contains("was there first"));
    assert!(
        said().contains("another process uses this home's identity"),
        "{}",
        said()
    );
    assert!(
        said().contains("4004") && said().contains("stop one of the two"),
        "{}",
        said()
    );
    let words = home.cli(&["status"]).stdout;
    assert!(words.contains("stop one of the two"), "{words}");
    // What is sent meanwhile is kept.
    send(&daemon, "a");
    drop(copy);
    connected(&daemon);
    wait_until("the message", || {
        inbox(&daemon, "tester").get("a") == Some(&1)
    });
    wait_until("all is well", || said() == "[]");
}
