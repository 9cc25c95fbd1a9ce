//! Receipts and the story of an id (DESIGN §13.1) over the real binary: `explain` and `send --wait`.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]

use crate::support;

use std::thread;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::stub_broker::{Script, StubBroker};
use support::{Daemon, Home, wait_until};

fn explain(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/explain/{id}")).expect(200)
}

/// Level and recipient of each receipt, in order.
fn receipts(story: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = story["receipts"].as_array().unwrap();
    all.iter()
        .map(|receipt| {
            assert!(receipt["at"].as_str().unwrap().ends_with('Z'), "{receipt}");
            (text(&receipt["level"]), text(&receipt["recipient"]))
        })
        .collect()
}

fn levels(story: &Value) -> Vec<String> {
    let receipts = receipts(story).into_iter();
    receipts.map(|(level, _)| level).collect()
}

#[test]
fn the_levels_are_climbed_one_by_one_and_per_recipient() {
    let home = Home::new();
    let daemon = home.up();
    for agent in ["ann", "bob"] {
        home.cli(&["agent", "register", agent]).ok();
        home.cli_as(agent, &["topic", "subscribe", "ops"]).ok();
    }
    let sent = home.cli(&[
        "send",
        "#ops",
        "hello",
        "--id",
        "m",
        "--wait=delivered",
        "--json",
    ]);
    let sent = sent.ok().json();
    assert_eq!(sent["durability"], "delivered");
    let story = explain(&daemon, "m");
    assert_eq!(
        levels(&story),
        ["local", "committed", "delivered", "delivered"]
    );
    assert_eq!(story["outbox"]["status"], "done");
    assert_eq!(story["broker"]["history_available"], true);
    assert_eq!(
        story["broker"]["broker_message_id"],
        sent["broker_message_id"]
    );
    assert_eq!(story["limiter"]["counted"], true);
    assert_eq!(story["attempts"][0]["outcome"], "committed");
    assert_eq!(story["stale"], false);

    // A raw read is a peek and shows nothing; printing it does; acknowledging comes last.
    daemon.http.get("/v1/inbox?agent=ann").expect(200);
    assert_eq!(
        explain(&daemon, "m")["deliveries"][0]["shown_at"],
        Value::Null
    );
    home.cli_as("ann", &["inbox"]).ok();
    wait_until("shown to ann", || {
        levels(&explain(&daemon, "m")).contains(&"shown".to_owned())
    });
    assert!(!levels(&explain(&daemon, "m")).contains(&"acked".to_owned()));
    home.cli_as("ann", &["inbox", "--ack"]).ok();
    wait_until("acked by ann", || {
        levels(&explain(&daemon, "m")).contains(&"acked".to_owned())
    });
    let story = explain(&daemon, "m");
    let of_bob = story["deliveries"].as_array().unwrap().iter();
    let of_bob = of_bob.filter(|d| d["recipient"].as_str().unwrap().ends_with("/bob"));
    for delivery in of_bob {
        assert_eq!(delivery["shown_at"], Value::Null, "nobody showed it to bob");
    }
    let words = home.cli(&["explain", "m"]).ok().stdout;
    for word in [
        "m is delivered; acked for 1 of 2",
        "try 1",
        "committed",
        "/ann",
        "/bob",
        "limiter",
    ] {
        assert!(words.contains(word), "{word}: {words}");
    }
}

#[test]
fn waiting_for_everybody_ends_when_the_last_one_has_acknowledged() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "ann"]).ok();
    home.cli(&["send", "@ann", "please", "--id", "m"]).ok();
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| home.cli(&["send", "@ann", "please", "--id", "m", "--wait=acked"]));
        wait_until("delivered", || {
            levels(&explain(&daemon, "m")).contains(&"delivered".to_owned())
        });
        home.cli_as("ann", &["inbox", "--ack"]).ok();
        let waited = waiting.join().unwrap().ok();
        assert!(waited.stdout.contains("(m)"), "{waited:?}");
    });
    assert_eq!(explain(&daemon, "m")["outbox"]["status"], "done");
}

#[test]
fn a_level_that_is_not_reached_in_time_is_told_with_what_was_reached() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "ann"]).ok();
    let ran = home.cli(&[
        "send",
        "@ann",
        "x",
        "--id",
        "m",
        "--wait=acked",
        "--timeout",
        "1",
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("not yet acked"), "{ran:?}");
    assert!(ran.stderr.contains("heddle explain m"), "{ran:?}");
    let story = daemon
        .http
        .get("/v1/explain/m?wait=acked&timeout_seconds=0")
        .expect(200);
    assert_eq!(story["reached"], false);
    assert_eq!(home.cli(&["send", "@ann", "y", "--wait=soon"]).code, 2);
    let bad = daemon.http.get("/v1/explain/m?wait=soon").expect(400);
    assert_eq!(bad["code"], "invalid_request");
    daemon
        .http
        .get("/v1/explain/m?wait=acked&timeout_seconds=31")
        .expect(400);
    daemon.http.get("/v1/explain/nobody").expect(404);
    assert_eq!(home.cli(&["explain", "nobody"]).code, 4);
}

#[test]
fn attempts_and_errors_are_told_and_a_dead_message_ends_the_waiting() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    broker.script(Script::Refuse {
        code: "unknown_recipient",
    });
    let ran = home.cli(&["send", "#ops", "x", "--id", "m", "--wait"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("dead"), "{ran:?}");
    let story = explain(&daemon, "m");
    assert_eq!(levels(&story), ["local"]);
    assert_eq!(story["broker"], Value::Null);
    assert_eq!(
        story["attempts"][0]["outcome"], "unknown_recipient",
        "{story}"
    );
    let words = home.cli(&["explain", "m"]).ok().stdout;
    assert!(words.contains("m is dead: unknown_recipient"), "{words}");
}

#[test]
fn a_requeue_chain_of_three_is_in_the_story_of_each_of_its_ids() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    broker.script(Script::Refuse {
        code: "unknown_recipient",
    });
    let body = json!({"to": "#ops", "message": "x", "client_message_id": "one"});
    daemon.http.post("/v1/send", &body).expect(202);
    let is = |id: &str, status: &str| explain(&daemon, id)["outbox"]["status"] == status;
    wait_until("one is dead", || is("one", "dead"));
    for (old, new) in [("one", "two"), ("two", "three")] {
        let requeue = [
            "daemon",
            "outbox",
            "requeue",
            "--id",
            old,
            "--new-client-id",
            new,
        ];
        home.cli(&requeue).ok();
        wait_until("it is dead", || is(new, "dead"));
    }
    for id in ["one", "two", "three"] {
        let story = explain(&daemon, id);
        let chain = story["chain"].as_array().unwrap().iter();
        let ids: Vec<&str> = chain
            .map(|row| row["client_message_id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["one", "two", "three"], "{story}");
        let words = home.cli(&["explain", id]).ok().stdout;
        assert!(
            words.contains("one (aborted) → two (aborted) → three (dead)"),
            "{words}"
        );
    }
}

#[test]
fn c29_a_broker_that_is_away_makes_the_story_stale_and_not_shorter_than_known() {
    let home = Home::new();
    let data = Home::new();
    let broker = BrokerProcess::start(&data, &data.path(), "127.0.0.1:0", &[]);
    home.config(&broker.config());
    let daemon = home.up();
    home.cli(&["agent", "register", "ann"]).ok();
    home.cli(&["send", "@ann", "x", "--id", "m", "--wait=delivered"])
        .ok();
    broker.kill();
    wait_until("the link is lost", || {
        explain(&daemon, "m")["stale"] == true
    });
    let story = explain(&daemon, "m");
    // What lies in this home's own mailboxes is known here.
    assert_eq!(
        levels(&story),
        ["local", "committed", "delivered"],
        "{story}"
    );
    assert_eq!(story["deliveries_partial"], true);
    assert_eq!(story["broker"]["history_id"], story["outbox"]["history_id"]);
    let words = home.cli(&["explain", "m"]).ok().stdout;
    assert!(words.contains("cannot be asked now"), "{words}");
}

#[test]
fn the_story_of_a_queue_message_says_where_it_waits() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["send", "queue:work", "job", "--id", "m", "--wait"])
        .ok();
    let story = explain(&daemon, "m");
    assert_eq!(story["broker"]["queue"]["status"], "waiting");
    let waited = daemon
        .http
        .get("/v1/explain/m?wait=delivered&timeout_seconds=0")
        .expect(200);
    assert_eq!(waited["reached"], false, "nobody has taken it");
    let taken = home.cli(&["queue", "take", "work", "--json"]).ok().json();
    let story = explain(&daemon, "m");
    assert_eq!(
        levels(&story),
        ["local", "committed", "delivered"],
        "{story}"
    );
    let delivered = &story["receipts"][2];
    assert_eq!(delivered["recipient"], "@tester/tester", "{story}");
    assert_eq!(delivered["at"], story["broker"]["queue"]["taken_at"]);
    let words = home.cli(&["explain", "m"]).ok().stdout;
    assert!(words.starts_with("m is delivered\n"), "{words}");
    let item = &taken["items"][0];
    let fence = item["fence"].to_string();
    let ack = json!({"queue": "work", "items": [{"id": item["id"], "fence": item["fence"]}]});
    daemon.http.post("/v1/queue/ack", &ack).expect(200);
    let story = explain(&daemon, "m");
    let all = ["local", "committed", "delivered", "acked"];
    assert_eq!(levels(&story), all, "{fence}: {story}");
    // What is given back is with nobody, and was delivered to nobody.
    home.cli(&["send", "queue:work", "job", "--id", "n", "--wait"])
        .ok();
    let taken = home.cli(&["queue", "take", "work", "--json"]).ok().json();
    let item = &taken["items"][0];
    let back = json!({"queue": "work", "items": [{"id": item["id"], "fence": item["fence"]}]});
    daemon.http.post("/v1/queue/release", &back).expect(200);
    assert_eq!(levels(&explain(&daemon, "n")), ["local", "committed"]);
}

#[test]
fn an_id_of_the_broker_finds_the_message_and_an_empty_one_is_refused() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["send", "@tester", "x", "--id", "m", "--wait"])
        .ok();
    let broker = explain(&daemon, "m")["broker"].clone();
    for name in ["broker_message_id", "history_id"] {
        let id = broker[name].as_str().unwrap();
        assert_eq!(explain(&daemon, id)["id"], "m", "{id}");
        assert!(home.cli(&["explain", id]).ok().stdout.starts_with("m is"));
    }
    daemon.http.get("/v1/explain/9.99").expect(404);
    for empty in ["", " "] {
        let ran = home.cli(&["explain", empty]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("next:"), "{ran:?}");
    }
}

#[test]
fn c2_the_door_compares_what_was_asked_and_the_broker_what_was_sent() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "ann"]).ok();
    let body = json!({"to": "@ann", "message": "x", "client_message_id": "m"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("it is committed", || {
        explain(&daemon, "m")["outbox"]["status"] == "done"
    });
    let story = explain(&daemon, "m");
    let asked = &story["outbox"]["request_fingerprint"].as_str().unwrap()[..16];
    let sent = story["outbox"]["wire_fingerprint_prefix"].as_str().unwrap();
    // One covers `@ann` as it was typed, the other the mailbox that it meant.
    assert_ne!(asked, sent);
    assert_eq!(story["broker"]["wire_fingerprint_prefix"], sent);
    let again = daemon.http.post("/v1/send", &body).expect(200);
    assert_eq!(again["duplicate"], true);
    assert_eq!(&again["request_fingerprint"].as_str().unwrap()[..16], asked);
}

#[test]
fn a_dead_message_is_not_told_the_story_of_another_one_under_its_id() {
    let home = Home::new();
    let data = home.path().join("data.db");
    home.up().stop();
    let older = std::fs::read(&data).unwrap();
    let daemon = home.up();
    let sent = home.cli(&["send", "@tester", "first", "--id", "m", "--wait=delivered"]);
    sent.ok();
    daemon.stop();
    // The home forgets, its broker does not.
    std::fs::write(&data, older).unwrap();
    let daemon = home.up();
    let ran = home.cli(&["send", "@tester", "second", "--id", "m", "--wait"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("idempotency_key_reused"), "{ran:?}");
    let story = daemon.http.get("/v1/explain/m?wait=delivered").expect(200);
    assert_eq!(story["reached"], false);
    assert_eq!(levels(&story), ["local"], "{story}");
    assert_eq!(story["broker"], Value::Null);
}

#[test]
fn a_wait_claims_no_level_that_nobody_has_reached() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["topic", "create", "void"]).ok();
    let send = ["send", "#void", "x", "--id", "v1"];
    for level in ["--wait=delivered", "--wait=shown", "--wait=acked"] {
        let ran = home.cli(&[&send[..], &[level, "--timeout", "1"]].concat());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains("nobody receives #void"), "{ran:?}");
    }
    home.cli(&[&send[..], &["--wait"]].concat()).ok();
    daemon.stop();
}

#[test]
fn c20_what_this_home_was_shown_is_told_although_the_broker_lost_its_file() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"to": "@tester", "message": "x", "client_message_id": "kept"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("its delivery", || {
        home.cli(&["inbox"]).ok().stdout.contains("→")
    });
    let shown = |daemon: &Daemon| {
        let story = daemon.http.get("/v1/explain/kept").expect(200);
        let receipts = story["receipts"].as_array().unwrap().clone();
        let levels = receipts
            .iter()
            .map(|r| r["level"].as_str().unwrap().to_owned());
        levels.collect::<Vec<_>>()
    };
    let expected = ["local", "committed", "delivered", "shown"];
    wait_until("all levels", || shown(&daemon) == expected);
    daemon.stop();
    for name in ["broker.db", "broker.db-wal", "broker.db-shm"] {
        let _ = std::fs::remove_file(home.path().join(name));
    }
    let daemon = home.up();
    // Who has it is known here at any time; that its broker has it, once it does again.
    let told = shown(&daemon);
    assert!(
        told.ends_with(&["delivered".to_owned(), "shown".to_owned()]),
        "{told:?}"
    );
    wait_until("all levels", || shown(&daemon) == expected);
    let told = home.cli(&["explain", "kept"]).ok();
    assert!(told.stdout.starts_with("kept is shown"), "{told:?}");
}

/// Two agents of one home may use one id (C1); who names no agent means its own send.
#[test]
fn c1_a_wait_is_for_the_senders_own_message_where_another_agent_used_the_same_id() {
    let home = Home::new();
    let _daemon = home.up();
    for agent in ["p", "tester"] {
        let mut args = vec!["send", "@tester", "same", "--id", "S", "--wait", "--json"];
        if agent != "tester" {
            args.extend(["--agent", agent]);
        }
        let sent = home.cli(&args).ok().json();
        assert_eq!(sent["client_message_id"], "S", "{sent}");
    }
    home.cli(&["explain", "S"]).ok();
}

#[test]
fn a_mention_of_somebody_who_gets_no_copy_is_told_at_once_and_in_the_story() {
    let home = Home::new();
    let daemon = home.up();
    for agent in ["reader", "other"] {
        let body = json!({"agent": agent});
        daemon.http.post("/v1/agent/register", &body).expect(200);
    }
    let mention = |story: &Value| -> Vec<(String, Value)> {
        let all = story["mentions"].as_array().unwrap().iter();
        let one = |one: &Value| {
            let agent = one["agent"].as_str().unwrap();
            let (_, agent) = agent.split_once('/').unwrap();
            (agent.to_owned(), one["gets_it"].clone())
        };
        all.map(one).collect()
    };
    // A direct message goes to one.
    let send = |to: &str, id: &str, mentions: &[&str]| {
        let mut args = vec!["--json", "send", to, "text", "--id", id, "--wait=committed"];
        for mention in mentions {
            args.extend(["--mention", mention]);
        }
        home.cli(&args).ok().json()
    };
    let told = send("@reader", "dm", &["@reader", "@other"]);
    assert_eq!(told["unreached"], json!(["@other"]), "{told}");
    let warnings = told["warnings"].to_string();
    assert!(warnings.contains("mentioned_without_copy"), "{told}");
    let expected = [
        ("other".to_owned(), json!(false)),
        ("reader".to_owned(), json!(true)),
    ];
    assert_eq!(mention(&explain(&daemon, "dm")), expected);
    let text = home.cli(&["explain", "dm"]).ok().stdout;
    assert!(text.contains("/other, who is no recipient"), "{text}");
    // A topic goes to those who follow it.
    let body = json!({"topic": "ops", "agent": "other"});
    daemon.http.post("/v1/topic/subscribe", &body).expect(200);
    let told = send("#ops", "post", &["@reader", "@other"]);
    assert_eq!(told["unreached"], json!(["@reader"]), "{told}");
    let expected = [
        ("other".to_owned(), json!(true)),
        ("reader".to_owned(), json!(false)),
    ];
    assert_eq!(mention(&explain(&daemon, "post")), expected);
    let told = send("#ops", "fine", &["@other"]);
    assert_eq!(told["warnings"], Value::Null, "{told}");
}

#[test]
fn a_wait_for_those_whom_nobody_is_ends_with_the_commit_and_not_with_the_time() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"topic": "void"});
    daemon.http.post("/v1/topic/create", &body).expect(200);
    let body = json!({"to": "#void", "message": "x", "client_message_id": "lonely"});
    daemon.http.post("/v1/send", &body).expect(202);
    let asked = std::time::Instant::now();
    let path = "/v1/explain/lonely?wait=delivered&timeout_seconds=20";
    let story = daemon.http.get(path).expect(200);
    assert_eq!(story["reached"], false, "{story}");
    assert_eq!(story["deliveries"], json!([]), "{story}");
    // The whole time would be twenty.
    assert!(asked.elapsed() < std::time::Duration::from_secs(15));
}
