//! What the delivery contract says of itself is true, over the real binary: a store that is an earlier copy, levels that
//! nobody reached, a budget that a burst would pass, brokers that are unfit or hang, a limiter that says no.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]

use crate::support;

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::outbox::{on_nothing, row, send_to, wait_for};
use support::stub_broker::{StubBroker, features, good_features};
use support::{Daemon, Home, wait_until, wait_until_within};

fn explain(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/explain/{id}")).expect(200)
}

fn status(daemon: &Daemon) -> Value {
    daemon.http.get("/v1/status").expect(200)
}

fn inbox_ids(daemon: &Daemon) -> Vec<String> {
    let items = daemon.http.get("/v1/inbox?all=true&limit=100").expect(200);
    let ids = items["items"].as_array().unwrap().iter();
    ids.map(|item| item["client_message_id"].as_str().unwrap().to_owned())
        .collect()
}

fn send_delivered(home: &Home, id: &str) {
    home.cli(&["send", "@tester", id, "--id", id, "--wait=delivered"])
        .ok();
}

// --- a store that is an earlier copy of itself -----------------------------------------------------

#[test]
fn c39_an_older_store_beside_a_newer_broker_is_noticed_and_gets_its_messages_back() {
    let home = Home::new();
    let data = home.path().join("data.db");
    let daemon = home.up();
    send_delivered(&home, "kept");
    daemon.stop();
    let older = std::fs::read(&data).unwrap();
    let daemon = home.up();
    assert_eq!(status(&daemon)["degraded"], json!([]));
    for id in ["b", "c"] {
        send_delivered(&home, id);
    }
    daemon.stop();
    std::fs::write(&data, older).unwrap();

    let daemon = home.up();
    wait_until("the messages of the time since", || {
        let mut ids = inbox_ids(&daemon);
        ids.sort();
        ids == ["b", "c", "kept"]
    });
    let told = status(&daemon);
    let degraded = told["degraded"].to_string();
    assert!(degraded.contains("data.db is an earlier copy"), "{told}");
    assert_eq!(told["verdict"], "degraded");
    assert_eq!(told["next"], "heddle doctor");
    let words = home.cli(&["doctor"]);
    assert_eq!(words.code, 1, "{words:?}");
    let words = words.stdout + &words.stderr;
    assert!(words.contains("data.db is an earlier copy"), "{words}");
    assert!(words.contains("heddle daemon restore FILE"), "{words}");
    // Sent again under its old id it lands once, and what is said of it is true.
    send_delivered(&home, "b");
    assert_eq!(inbox_ids(&daemon).iter().filter(|id| *id == "b").count(), 1);
    daemon.stop();
    // Everything came back, so there is nothing to notice the next time.
    let daemon = home.up();
    wait_until("the connection", || status(&daemon)["connected"] == true);
    send_delivered(&home, "d");
    assert_eq!(status(&daemon)["degraded"], json!([]));
}

#[test]
fn delivered_is_never_said_of_an_inbox_that_does_not_hold_the_message() {
    let home = Home::new();
    let daemon = home.up();
    send_delivered(&home, "gone");
    send_delivered(&home, "kept");
    daemon.stop();
    let connection = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let deleted = connection
        .execute("DELETE FROM inbox WHERE client_message_id = 'gone'", [])
        .unwrap();
    assert_eq!(deleted, 1);
    drop(connection);
    let daemon = home.up();
    wait_until("the connection", || {
        explain(&daemon, "gone")["stale"] == false
    });
    assert_eq!(
        explain(&daemon, "kept")["receipts"][2]["level"],
        "delivered"
    );
    let story = explain(&daemon, "gone");
    let levels: Vec<&Value> = story["receipts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|receipt| &receipt["level"])
        .collect();
    assert_eq!(levels, ["local", "committed"], "{story}");
    let send = ["send", "@tester", "gone", "--id", "gone", "--timeout", "1"];
    let ran = home.cli(&[&send[..], &["--wait=delivered"]].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("gone is committed"), "{ran:?}");
}

// --- the disk budget -------------------------------------------------------------------------------

#[test]
fn c47_a_burst_does_not_pass_the_disk_budget_by_a_byte() {
    const BODY: usize = 300_000;
    const SENDERS: usize = 24;
    let (_home, daemon) = on_nothing("[outbox]\ndisk_budget_mb = 1\n");
    let barrier = Barrier::new(SENDERS);
    let body = "x".repeat(BODY);
    let answers: Vec<u16> = thread::scope(|scope| {
        let one = |number: usize| {
            let (daemon, barrier, body) = (&daemon, &barrier, &body);
            scope.spawn(move || {
                barrier.wait();
                send_to(daemon, "@tester", &format!("m{number}"), body).status
            })
        };
        let sending: Vec<_> = (0..SENDERS).map(one).collect();
        sending.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let taken = answers.iter().filter(|status| **status == 202).count();
    let refused = answers.iter().filter(|status| **status == 507).count();
    assert_eq!(taken + refused, SENDERS, "{answers:?}");
    assert!(taken > 0, "{answers:?}");
    assert!(
        taken * BODY <= 1 << 20,
        "{taken} of {BODY} bytes: {answers:?}"
    );
    // Whoever is in is still answered, and costs nothing.
    let known = (0..SENDERS).find(|n| answers[*n] == 202).unwrap();
    for _ in 0..3 {
        assert_eq!(
            send_to(&daemon, "@tester", &format!("m{known}"), &body).status,
            202
        );
    }
    let told = status(&daemon);
    assert!(told["degraded"].to_string().contains("budget"), "{told}");
    // Something small still has room, as long as less than 95 % are used: at the latest when the next look has seen what the burst
    // left, for a look in the middle of it counts what came meanwhile twice. Asked again under the same id, as the refusal says.
    wait_until_within(Duration::from_secs(10), "room for something small", || {
        let answer = send_to(&daemon, "@tester", "small", "x");
        assert!(matches!(answer.status, 202 | 507), "{}", answer.body);
        answer.status == 202
    });
}

// --- brokers that cannot be worked with --------------------------------------------------------------

#[test]
fn v6_15_5_features_of_the_wrong_type_close_with_4011_and_end_the_daemon() {
    let mut as_text = good_features();
    as_text["client_message_id_dedupe"]["version"] = json!("2");
    let mut policy = good_features();
    policy["concurrent_connection_policy"] = json!([]);
    for advertised in [json!([]), json!("all"), as_text, policy] {
        ends_with_4011(|broker| broker.features(advertised.clone()));
    }
}

#[test]
fn v6_15_5_a_greeting_that_is_none_closes_with_4011_and_ends_the_daemon() {
    let other = r#"{"type":"verdicts","batch":1,"items":[]}"#;
    let challenge = r#"{"type":"challenge","protocol":1,"nonce":"n"}"#;
    for text in ["hello, who is there?", "{}", "[1,", other] {
        ends_with_4011(|broker| broker.greets(Some(text), None));
        ends_with_4011(|broker| broker.greets(None, Some(text)));
    }
    ends_with_4011(|broker| broker.greets(None, Some(challenge)));
}

/// A daemon whose only broker greets as it is told ends, says why, and has sent nothing.
#[track_caller]
fn ends_with_4011(tell: impl FnOnce(&StubBroker)) {
    let broker = StubBroker::start();
    tell(&broker);
    let home = Home::new();
    home.config(&broker.config());
    let (code, words) = match home.try_up() {
        Ok(mut daemon) => {
            let code = daemon.wait(std::time::Duration::from_secs(20)).unwrap();
            daemon.wait_log("feature_param_invalid");
            (code, daemon.log())
        }
        Err(ran) => (ran.code, ran.stderr),
    };
    assert_ne!(code, 0, "{words}");
    assert!(words.contains("feature_param_invalid"), "{words}");
    wait_until("the close code", || broker.close_codes() == [4011]);
    assert_eq!(broker.send_count(), 0);
}

#[test]
fn v6_15_5_one_unfit_broker_of_several_stops_its_own_mesh_only_and_the_status_says_so() {
    let low = json!({"mode": "retention_scoped", "dedupe_retention_days": 6, "request_fingerprint": true});
    let (unfit, fit) = (StubBroker::start(), StubBroker::start());
    unfit.features(features(low));
    let home = Home::new();
    home.config(&format!(
        "{}{}",
        unfit.mesh_config("low"),
        fit.mesh_config("team")
    ));
    let daemon = home.up();
    wait_until("the close code", || unfit.close_codes().contains(&4012));
    let mesh = |name: &str| {
        let told = status(&daemon);
        let meshes = told["meshes"].as_array().unwrap().clone();
        meshes
            .into_iter()
            .find(|mesh| mesh["mesh"] == name)
            .unwrap()
    };
    wait_until("the word about it", || mesh("low")["refused"].is_string());
    let told = mesh("low")["refused"].to_string();
    assert!(
        told.contains("4012") && told.contains("feature_param_below_floor"),
        "{told}"
    );
    // The others go on.
    for (mesh, to) in [("team", "#ops"), ("home", "@tester")] {
        let body = json!({"to": to, "message": "x", "client_message_id": mesh, "mesh": mesh});
        daemon.http.post("/v1/send", &body).expect(202);
        wait_for(&daemon, mesh, "done");
    }
    let body = json!({"to": "@tester", "message": "x", "client_message_id": "low", "mesh": "low"});
    daemon.http.post("/v1/send", &body).expect(202);
    assert_eq!(row(&daemon, "low")["status"], "pending");
    assert_eq!(unfit.send_count(), 0);
    assert_eq!(status(&daemon)["next"], "heddle doctor");
    let words = home.cli(&["doctor"]);
    let words = words.stdout + &words.stderr;
    assert!(words.contains("its broker cannot be used"), "{words}");
    daemon.stop();
}

/// Every door says the same of a broker that hangs, and nothing is said to be fresher than it is.
#[test]
fn c29_a_broker_that_hangs_is_told_alike_by_every_door() {
    let home = Home::new();
    let data = Home::new();
    let broker = BrokerProcess::start(&data, &data.path(), "127.0.0.1:0", &[]);
    home.config(&broker.config());
    let daemon = home.up();
    wait_until("the connection", || status(&daemon)["connected"] == true);
    let pid = Pid::from_child(&broker.child);
    kill_process(pid, Signal::STOP).unwrap();
    let stat = format!("/proc/{}/stat", broker.child.id());
    wait_until("it to stand still", || {
        std::fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    // It has been asked for the time that the caller had, and it is the broker that is told of.
    let send = [
        "send",
        "@tester",
        "x",
        "--id",
        "waits",
        "--wait",
        "--timeout",
        "1",
    ];
    let waited = home.cli(&send);
    let explained = home.cli(&["explain", "waits"]);
    let ran = home.cli(&["topic", "create", "ops"]);
    // It has been asked in vain for seconds: what was on its way has come by now.
    send_to(&daemon, "@tester", "later", "x").expect(202);
    let later = row(&daemon, "later")["enqueued_at"].clone();
    let (told, peers) = (status(&daemon), daemon.http.get("/v1/peers").expect(200));
    let queues = daemon.http.get("/v1/queue/list").expect(200);
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(waited.code, 5, "{waited:?}");
    let silent = "the broker of mesh home does not answer";
    assert!(waited.stderr.contains(silent), "{waited:?}");
    assert!(explained.ok().stdout.contains(silent));
    let mesh = &told["meshes"][0];
    assert_eq!(mesh["connected"], false, "{told}");
    assert_eq!(
        (&peers["stale"], &queues["stale"]),
        (&json!(true), &json!(true))
    );
    for fresh in [&peers["as_of"], &mesh["as_of"]] {
        assert!(
            fresh.as_str().unwrap() < later.as_str().unwrap(),
            "{fresh} {later}"
        );
    }
    // When it goes on, so does everything else.
    wait_for(&daemon, "later", "done");
    wait_until("the connection", || status(&daemon)["connected"] == true);
}

// --- the limiter --------------------------------------------------------------------------------------

#[test]
fn rl_09_what_the_limiter_does_not_let_in_is_told_by_status_and_explain() {
    let home = Home::new();
    home.config("[broker]\nrate_limit = 1\nrate_window_seconds = 86400\n");
    let daemon = home.up();
    home.cli(&["send", "@tester", "x", "--id", "first", "--wait"])
        .ok();
    let story = explain(&daemon, "first");
    assert_eq!(story["limiter"]["decision"], "counted", "{story}");
    send_to(&daemon, "@tester", "second", "x").expect(202);
    wait_until("its refusal", || {
        explain(&daemon, "second")["limiter"]["decision"] == "refused"
    });
    let story = explain(&daemon, "second");
    assert!(
        story["limiter"]["refused"].as_u64().unwrap() >= 1,
        "{story}"
    );
    assert!(story["limiter"]["last_refused_at"].is_string(), "{story}");
    assert_eq!(story["limiter"]["window"], Value::Null, "{story}");
    let waits = story["outbox"]["waits_for"].as_str().unwrap_or_default();
    assert!(waits.contains("rate_limited"), "{story}");
    let words = home.cli(&["explain", "second"]).ok().stdout;
    assert!(
        words.contains("limiter") && words.contains("refused"),
        "{words}"
    );
    wait_until("the status", || {
        status(&daemon)["meshes"][0]["limited"].is_string()
    });
    let words = home.cli(&["status"]).ok().stdout;
    assert!(words.contains("rate_limited"), "{words}");
}

// --- answers that are lost -----------------------------------------------------------------------------

#[test]
fn a_send_that_a_silent_daemon_does_not_answer_names_its_id_and_the_way_to_repeat_it() {
    let home = Home::new();
    let daemon = home.up();
    let pid = Pid::from_child(&daemon.child);
    kill_process(pid, Signal::STOP).unwrap();
    let ran = home.cli(&["send", "@tester", "once", "--json"]);
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(ran.code, 5, "{ran:?}");
    let told = ran.json();
    let id = told["client_message_id"].as_str().unwrap();
    assert!(ran.stderr.contains(&format!("--id {id}")), "{ran:?}");
    home.cli(&["send", "@tester", "once", "--id", id, "--wait=delivered"])
        .ok();
    assert_eq!(inbox_ids(&daemon), [id]);
    wait_until_within(std::time::Duration::from_secs(30), "one row", || {
        status(&daemon)["outbox"]["done"] == 1
    });
}
