//! v10 §4.11, v6 §4.5, §4.12 and §15.5, bullet by bullet, over the real broker and the real daemon.
//!
//! | bullet | where else |
//! |---|---|
//! | mismatch in any state, `aborted` and match | `accept_table.rs`, rows 3 to 11 |
//! | daemon outcomes of v6 §4.5, permanent and passing refusals of B1 | `outbox.rs` |
//! | a full window: what waits, what is free | `rate_window.rs` |
//! | an override beyond the broker's memory | `cli.rs` |
//! | an orphan | `broker.rs` |

use crate::support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::ledger::{connected, inbox, metric};
use support::stub_broker::{StubBroker, features};
use support::{Daemon, Home, wait_until, wait_until_within};

const MESH: &str = "01HZX000000000000000000001";
const MEMBER: &str = "01HZX000000000000000000002";

fn broker_with(home: &Home, config: &str) -> BrokerProcess {
    let data: PathBuf = home.path().parent().unwrap().join("broker");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("config.toml"), config).unwrap();
    let siblings = ["--policy", "allow-concurrent"];
    BrokerProcess::start(home, &data, "127.0.0.1:0", &siblings)
}

/// The same broker again, at the same place.
fn back(home: &Home, listen: &str) -> BrokerProcess {
    let data = home.path().parent().unwrap().join("broker");
    BrokerProcess::start(home, &data, listen, &["--policy", "allow-concurrent"])
}

fn on_file(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection.execute_batch(sql).unwrap();
}

fn count(path: &Path, sql: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn row(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/outbox/{id}")).expect(200)
}

fn wait_for(daemon: &Daemon, id: &str, status: &str) {
    let patience = Duration::from_secs(60);
    wait_until_within(patience, &format!("{id} to be {status}"), || {
        row(daemon, id)["status"] == status
    });
}

fn send(daemon: &Daemon, id: &str, to: &str) {
    let body = json!({"to": to, "message": id, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

/// A raw sender with a topic to send to.
fn enter(broker: &BrokerProcess, mesh: &str, member: &str, agent: &str) -> RawLink {
    let mut link = RawLink::enter(broker, mesh, member);
    assert_eq!(link.next_of("welcome")["type"], "welcome");
    for body in [
        json!({"what": "register_agent", "agent": agent}),
        json!({"what": "subscribe", "topic": "ops", "agent": agent}),
    ] {
        link.say(&json!({"type": "request", "request": 1, "body": body}));
        assert_eq!(link.next_of("reply")["result"], "ok");
    }
    link
}

fn verdict(link: &mut RawLink, agent: &str, id: &str, text: &str) -> Value {
    let envelope = json!({
        "v": 1, "kind": "message", "priority": "next", "body": text,
        "destination": {"kind": "topic", "ref": "ops"},
    });
    let item = json!({"agent": agent, "client_message_id": id, "envelope": envelope});
    link.say(&json!({"type": "send", "batch": 1, "items": [item]}));
    link.next_of("verdicts")["items"][0].clone()
}

// --- v6 §4.5: the three cases ---------------------------------------------------------------------

#[test]
fn v6_4_5_case_1_a_first_insert_is_created_with_its_ids() {
    let home = Home::new();
    let broker = broker_with(&home, "");
    let mut link = enter(&broker, MESH, MEMBER, "one");
    let created = verdict(&mut link, "one", "a", "text");
    assert_eq!(created["verdict"], "created");
    assert_eq!(created["broker_message_id"].as_str().unwrap().len(), 26);
    assert_eq!(created["history_id"], "1.1");
    assert_eq!(created["client_message_id"], "a");
    assert_eq!(created["duplicate"], false);
}

#[test]
fn v6_4_5_case_2_a_duplicate_that_matches_names_the_first_one() {
    let home = Home::new();
    let broker = broker_with(&home, "");
    let mut link = enter(&broker, MESH, MEMBER, "one");
    let created = verdict(&mut link, "one", "a", "text");
    let again = verdict(&mut link, "one", "a", "text");
    assert_eq!(again["verdict"], "duplicate");
    assert_eq!(again["broker_message_id"], created["broker_message_id"]);
    assert_eq!(again["history_id"], created["history_id"]);
    assert_eq!(again["history_available"], true);
    assert_eq!(again["client_message_id"], "a");
    assert_eq!(again["duplicate"], true);
    let file = broker.data.join("broker.db");
    let seen = count(&file, "SELECT first_seen_at FROM client_message_dedupe");
    assert_eq!(again["first_seen_at"], seen, "{again}");
}

#[test]
fn v6_4_5_case_3_a_duplicate_that_differs_is_refused_with_the_brokers_prefix() {
    let home = Home::new();
    let broker = broker_with(&home, "");
    let mut link = enter(&broker, MESH, MEMBER, "one");
    verdict(&mut link, "one", "a", "text");
    let refused = verdict(&mut link, "one", "a", "another text");
    assert_eq!(refused["verdict"], "conflict");
    let prefix = refused["broker_fingerprint_prefix"].as_str().unwrap();
    assert_eq!(refused["client_message_id"], "a");
    assert_eq!(refused["conflict"], "request_fingerprint_mismatch");
    let file = broker.data.join("broker.db");
    let of_first = "SELECT lower(hex(substr(wire_fingerprint, 1, 8))) FROM client_message_dedupe";
    let connection = rusqlite::Connection::open(&file).unwrap();
    let of_first: String = connection
        .query_row(of_first, [], |row| row.get(0))
        .unwrap();
    assert_eq!(prefix, of_first, "the first 8 bytes of the one that stands");
    let stored = "SELECT count(*) FROM message";
    assert_eq!(count(&file, stored), 1, "a second message was made");
}

// --- v10 §4.11 --------------------------------------------------------------------------------------

#[test]
fn v10_4_11_a_mismatch_at_the_broker_is_told_at_b0_in_a_full_window_and_the_row_dies() {
    let home = Home::new();
    let broker = broker_with(
        &home,
        "[broker]\nrate_limit = 1\nrate_window_seconds = 3600\n",
    );
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    let mesh = daemon.http.get("/v1/status").expect(200)["meshes"][0]["mesh_id"].clone();
    let member = {
        let file = rusqlite::Connection::open(broker.data.join("broker.db")).unwrap();
        let sql = "SELECT member_id FROM member";
        let bytes: [u8; 16] = file.query_row(sql, [], |row| row.get(0)).unwrap();
        ulid::Ulid::from_bytes(bytes).to_string()
    };
    // Somebody used the id for another text, as the same sender, and with it the whole window.
    let mut link = enter(&broker, mesh.as_str().unwrap(), &member, "tester");
    assert_eq!(
        verdict(&mut link, "tester", "a", "other")["verdict"],
        "created"
    );
    assert_eq!(
        verdict(&mut link, "tester", "b", "x")["code"],
        "rate_limited"
    );
    drop(link);
    send(&daemon, "a", "@tester");
    wait_for(&daemon, "a", "dead");
    let reason = row(&daemon, "a")["last_error"].to_string();
    assert!(reason.contains("idempotency_key_reused"), "{reason}");
    // The operator's way out is shown.
    let failed = home.cli(&["daemon", "outbox", "--failed"]).ok().stdout;
    let way = format!(
        "requeue --id {} --auto",
        row(&daemon, "a")["id"].as_str().unwrap()
    );
    assert!(failed.contains(&way), "{failed}");
}

#[test]
fn v10_4_11_a_b2_refusal_on_a_retry_leaves_no_dedupe_row_and_a_requeue_mends_it() {
    let home = Home::new();
    let broker = broker_with(&home, "");
    let listen = broker.listen();
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    let subscribe = json!({"topic": "ops", "agent": "tester"});
    daemon
        .http
        .post("/v1/topic/subscribe", &subscribe)
        .expect(200);
    let file = broker.data.join("broker.db");
    broker.kill();
    send(&daemon, "a", "#ops");
    // While it is away the topic goes: what the daemon resolved does not exist any more.
    on_file(
        &file,
        "DELETE FROM topic_subscription WHERE topic = 'ops'; DELETE FROM topic WHERE topic = 'ops'",
    );
    let broker = back(&home, &listen);
    wait_for(&daemon, "a", "dead");
    let dedupe = "SELECT count(*) FROM client_message_dedupe";
    assert_eq!(count(&file, dedupe), 0, "a refusal consumed the id");
    assert_eq!(count(&file, "SELECT count(*) FROM message"), 0);
    daemon
        .http
        .post("/v1/topic/subscribe", &subscribe)
        .expect(200);
    let requeue = json!({"new_client_id": "a2"});
    daemon
        .http
        .post("/v1/outbox/a/requeue", &requeue)
        .expect(200);
    wait_for(&daemon, "a2", "done");
    assert_eq!(row(&daemon, "a")["status"], "aborted");
    wait_until("the message", || {
        inbox(&daemon, "tester").get("a2") == Some(&1)
    });
    drop(broker);
}

#[test]
fn v10_4_11_a_row_stuck_in_dead_is_requeued_under_a_fresh_id_by_the_operator() {
    let home = Home::new();
    let daemon = home.up();
    let long = "x".repeat(100);
    send(&daemon, "fine", "@tester");
    wait_for(&daemon, "fine", "done");
    let broker = StubBroker::start();
    broker.script(support::stub_broker::Script::Refuse {
        code: "payload_too_large",
    });
    home.cli(&["down"]).ok();
    drop(daemon);
    home.config(&broker.config());
    let daemon = home.up();
    let body = json!({"to": "@tester", "message": long, "client_message_id": "a"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_for(&daemon, "a", "dead");
    broker.script(support::stub_broker::Script::Commit);
    let args = [
        "daemon", "outbox", "requeue", "--id", "a", "--auto", "--json",
    ];
    let requeued = home.cli(&args).ok().json();
    let fresh = requeued["new"]["client_message_id"].as_str().unwrap();
    assert_ne!(fresh, "a");
    wait_for(&daemon, fresh, "done");
    assert_eq!(row(&daemon, "a")["superseded_by"], requeued["new"]["id"]);
    let again = daemon.http.post("/v1/send", &body).expect(409);
    assert_eq!(again["conflict"], "outbox_aborted_fingerprint_match");
}

// --- v6 §4.12 ---------------------------------------------------------------------------------------

fn sweep(home: &Home, data: &Path) -> Value {
    let data = data.to_str().unwrap();
    let swept = home.cli(&["broker", "sweep", "--json", "--data", data]);
    swept.ok().json()["meshes"][0].clone()
}

/// Days pass for a store: what is there is noted, and then its clock moves on.
fn days_pass(home: &Home, data: &Path, days: u64) {
    sweep(home, data);
    let ms = days * 86_400_000;
    let sql = format!("UPDATE age_clock SET age_ms = age_ms + {ms}");
    on_file(&data.join("broker.db"), &sql);
}

#[test]
fn v6_4_12_v10_4_11_an_id_that_the_sweep_forgot_is_new_again_for_whoever_still_sends_it() {
    let home = Home::new();
    let broker = broker_with(&home, "[broker]\ndedupe_retention_days = 7\n");
    let mut link = enter(&broker, MESH, MEMBER, "one");
    let first = verdict(&mut link, "one", "a", "text");
    days_pass(&home, &broker.data, 6);
    assert_eq!(sweep(&home, &broker.data)["expired"], 0);
    days_pass(&home, &broker.data, 2);
    assert_eq!(sweep(&home, &broker.data)["expired"], 1);
    let again = verdict(&mut link, "one", "a", "text");
    assert_eq!(again["verdict"], "created");
    assert_ne!(again["broker_message_id"], first["broker_message_id"]);
}

#[test]
fn v6_4_12_in_permanent_mode_no_sweep_forgets_an_id() {
    let home = Home::new();
    let broker = broker_with(&home, "[broker]\ndedupe_retention_days = \"permanent\"\n");
    let mut link = enter(&broker, MESH, MEMBER, "one");
    verdict(&mut link, "one", "a", "text");
    let file = broker.data.join("broker.db");
    let ending = "SELECT count(*) FROM client_message_dedupe WHERE expires_at IS NOT NULL";
    assert_eq!(count(&file, ending), 0);
    days_pass(&home, &broker.data, 3650);
    assert_eq!(sweep(&home, &broker.data)["expired"], 0);
    let again = verdict(&mut link, "one", "a", "text");
    assert_eq!(again["verdict"], "duplicate");
}

#[test]
fn v6_4_5_v6_4_12_a_duplicate_whose_history_was_pruned_is_done_counted_and_warned_of() {
    let home = Home::new();
    let broker = broker_with(&home, "[broker]\nmessage_retention_days = 30\n");
    let (listen, data) = (broker.listen(), broker.data.clone());
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    broker.kill();
    send(&daemon, "a", "@tester");
    daemon.stop();
    let store = home.path().join("data.db");
    let backup = std::fs::read(&store).unwrap();
    let broker = back(&home, &listen);
    let daemon = home.up();
    wait_for(&daemon, "a", "done");
    wait_until("the message", || inbox(&daemon, "tester").len() == 1);
    let file = data.join("broker.db");
    wait_until("its ack", || {
        let waiting = "SELECT count(*) FROM delivery_queue WHERE is_delivered = 0";
        count(&file, waiting) == 0
    });
    daemon.stop();
    days_pass(&home, &data, 31);
    assert_eq!(sweep(&home, &data)["pruned"], 1);
    std::fs::write(&store, backup).unwrap();
    let daemon = home.up();
    wait_for(&daemon, "a", "done");
    daemon.wait_log("has pruned it since");
    let line = daemon.log();
    let line = line
        .lines()
        .find(|line| line.contains("has pruned it since"));
    assert!(line.unwrap().contains(" WARN "), "{line:?}");
    let pruned = metric(&daemon, "heddle_daemon_dedupe_history_pruned_total");
    assert_eq!(pruned, 1);
    drop(broker);
}

// --- v6 §15.5 ---------------------------------------------------------------------------------------

/// A daemon before a broker that advertises this: it ends non-zero, says why, and sends nothing.
fn ends_with(advertised: Value, code: u16, reason: &str) {
    let broker = StubBroker::start();
    broker.features(advertised);
    let home = Home::new();
    home.config(&broker.config());
    let (ended, words) = match home.try_up() {
        Ok(mut daemon) => {
            let ended = daemon.wait(Duration::from_secs(15)).unwrap();
            daemon.wait_log(reason);
            (ended, daemon.log())
        }
        Err(ran) => (ran.code, ran.stderr),
    };
    assert_ne!(ended, 0);
    wait_until("the close code", || broker.close_codes() == [code]);
    assert!(words.contains(&code.to_string()), "{words}");
    assert!(words.contains(reason), "{words}");
    // The whole of what was advertised, at WARN.
    let warned = words
        .lines()
        .find(|line| line.contains("negotiation failed"));
    let warned = warned.unwrap_or_else(|| panic!("{words}"));
    assert!(
        warned.contains("WARN") && warned.contains("features"),
        "{warned}"
    );
    assert!(warned.contains(reason), "{warned}");
    let is_debug = ["Object", "String(", "Number("];
    assert!(
        !is_debug.iter().any(|word| warned.contains(word)),
        "{warned}"
    );
    assert_eq!(broker.send_count(), 0);
    // Whoever comes later and finds no daemon is told, too.
    let status = home.cli(&["status"]).ok().stdout;
    assert!(status.contains("the last one stopped: "), "{status}");
    assert!(status.contains(reason), "{status}");
}

fn scoped(days: i64) -> Value {
    json!({"mode": "retention_scoped", "dedupe_retention_days": days, "request_fingerprint": true})
}

#[test]
fn v6_15_5_a_missing_feature_closes_with_4010_feature_unavailable() {
    ends_with(json!({}), 4010, "feature_unavailable");
    let mut without_policy = features(scoped(30));
    let map = without_policy.as_object_mut().unwrap();
    map.remove("concurrent_connection_policy");
    ends_with(without_policy, 4010, "feature_unavailable");
}

#[test]
fn v6_15_5_wrong_parameters_close_with_4011_feature_param_invalid() {
    for params in [
        json!({"mode": "permanent"}),
        json!({"mode": "retention_scoped", "request_fingerprint": true}),
        json!({"mode": "sometimes", "request_fingerprint": true}),
        json!({"mode": "permanent", "request_fingerprint": false}),
        scoped(-1),
    ] {
        ends_with(features(params), 4011, "feature_param_invalid");
    }
}

#[test]
fn v6_15_5_a_window_below_the_floor_closes_with_4012_feature_param_below_floor() {
    for days in [0, 3, 6] {
        ends_with(features(scoped(days)), 4012, "feature_param_below_floor");
    }
}
