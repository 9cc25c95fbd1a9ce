//! Work queues over the real binary: one consumer each, leases, fences, sudden death.

use crate::support;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::pushing_broker::PushingBroker;
use support::queue::{LONG, QUEUE, committed, push, settle, take_none, take_one, take_with};
use support::{Answer, Home, wait_until};

#[test]
fn two_consumers_never_have_the_same_message_under_a_lease() {
    const MESSAGES: usize = 60;
    let home = Home::new();
    let daemon = home.up();
    let taken: Mutex<BTreeMap<String, Vec<u64>>> = Mutex::default();
    std::thread::scope(|scope| {
        // They begin before there is a queue, and each name is new to two callers at once.
        for consumer in 0..4 {
            let (daemon, taken) = (&daemon, &taken);
            scope.spawn(move || {
                let agent = format!("worker-{}", consumer % 2);
                while taken.lock().unwrap().len() < MESSAGES {
                    let more = json!({"max": 3, "wait_seconds": 1});
                    for item in take_with(daemon, &agent, &more) {
                        assert_eq!(settle(daemon, "ack", &agent, &item), "acked");
                        let id = item["client_message_id"].as_str().unwrap().to_owned();
                        let fence = item["fence"].as_u64().unwrap();
                        taken.lock().unwrap().entry(id).or_default().push(fence);
                    }
                }
            });
        }
        for n in 0..MESSAGES {
            push(&daemon, &format!("m-{n}"), "next");
        }
    });
    let taken = taken.into_inner().unwrap();
    assert!(taken.values().all(|fences| fences.len() == 1), "{taken:?}");
    let mut fences: Vec<u64> = taken.into_values().flatten().collect();
    fences.sort_unstable();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    take_none(&daemon, "worker-0");
}

#[test]
fn a_lease_that_runs_out_brings_the_message_again_and_the_old_fence_is_refused() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"queue": "queue:builds", "message": "go", "client_message_id": "a",
        "meta": {"n": 1}, "reply_to_id": "q", "agent": "planner"});
    daemon.http.post("/v1/queue/push", &body).expect(202);
    let first = take_one(&daemon, "one", 1);
    for (field, value) in [
        ("id", first["history_id"].clone()),
        ("client_message_id", json!("a")),
        ("mesh", json!("home")),
        ("queue", json!(QUEUE)),
        ("agent", json!("one")),
        ("from", json!("@tester/planner")),
        ("body", json!("go")),
        ("priority", json!("next")),
        ("meta", json!({"n": 1})),
        ("reply_to_id", json!("q")),
        ("lease_seconds", json!(1)),
        ("delivery_count", json!(1)),
    ] {
        assert_eq!(first[field], value, "{field}");
    }
    let second = take_one(&daemon, "two", LONG);
    assert_eq!(second["id"], first["id"]);
    assert_eq!(second["delivery_count"], 2);
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
    assert_eq!(settle(&daemon, "ack", "one", &first), "stale_fence");
    assert_eq!(settle(&daemon, "release", "one", &first), "stale_fence");
    // Neither can somebody else settle with a number that was overheard.
    assert_eq!(settle(&daemon, "ack", "one", &second), "stale_fence");
    assert_eq!(settle(&daemon, "release", "two", &second), "released");
    let third = take_one(&daemon, "two", LONG);
    assert_eq!(third["delivery_count"], 3);
    // Once, however often it is said.
    assert_eq!(settle(&daemon, "ack", "two", &third), "acked");
    assert_eq!(settle(&daemon, "ack", "two", &third), "acked");
    assert_eq!(settle(&daemon, "release", "two", &third), "stale_fence");
    let nowhere = json!({"id": "1.999", "fence": 1});
    assert_eq!(settle(&daemon, "ack", "two", &nowhere), "unknown");
    take_none(&daemon, "one");
}

#[test]
fn verdicts_are_for_each_item_and_in_order() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "a", "next");
    push(&daemon, "b", "next");
    committed(&daemon, 2);
    let items = take_with(&daemon, "one", &json!({"max": 100}));
    let body = json!({"queue": QUEUE, "agent": "one", "items": [
        {"id": items[1]["id"], "fence": items[1]["fence"]},
        {"id": items[0]["id"], "fence": items[1]["fence"]},
        {"id": "7.7", "fence": 1},
    ]});
    let answer = daemon.http.post("/v1/queue/ack", &body).expect(200);
    let verdicts = answer["items"].as_array().unwrap();
    let verdicts: Vec<_> = verdicts.iter().map(|item| &item["verdict"]).collect();
    assert_eq!(verdicts, ["acked", "stale_fence", "unknown"]);
}

#[test]
fn what_is_urgent_comes_first_and_then_what_was_first() {
    let home = Home::new();
    let daemon = home.up();
    let order = ["low", "next", "now", "next", "low", "now"];
    for (n, priority) in order.iter().enumerate() {
        push(&daemon, &format!("{n}-{priority}"), priority);
        committed(&daemon, n + 1);
    }
    let items = take_with(&daemon, "one", &json!({"max": 5}));
    let last = take_with(&daemon, "one", &json!({}));
    let ids: Vec<_> = items
        .iter()
        .chain(&last)
        .map(|item| item["client_message_id"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids,
        ["2-now", "5-now", "1-next", "3-next", "0-low", "4-low"]
    );
}

#[test]
fn killed_between_take_and_ack_the_kept_fence_counts_until_the_lease_was_taken_over() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "kept", "now");
    push(&daemon, "lost", "next");
    committed(&daemon, 2);
    let kept = take_one(&daemon, "one", LONG);
    let lost = take_one(&daemon, "one", 1);
    assert_eq!(lost["client_message_id"], "lost");
    daemon.kill();
    let daemon = home.up();
    // The lease of one goes on across the restart, that of the other runs out.
    let again = take_one(&daemon, "two", LONG);
    assert_eq!(again["id"], lost["id"]);
    assert_eq!(again["delivery_count"], 2);
    assert!(again["fence"].as_u64() > lost["fence"].as_u64());
    assert_eq!(settle(&daemon, "ack", "one", &lost), "stale_fence");
    assert_eq!(settle(&daemon, "ack", "one", &kept), "acked");
    assert_eq!(settle(&daemon, "ack", "two", &again), "acked");
    take_none(&daemon, "two");
}

#[test]
fn a_daemon_that_dies_before_its_broker_leaves_its_leases_behind() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    home.config(&broker.config());
    let daemon = home.up();
    push(&daemon, "kept", "now");
    push(&daemon, "lost", "next");
    committed(&daemon, 2);
    let kept = take_one(&daemon, "one", LONG);
    let lost = take_one(&daemon, "one", 1);
    daemon.kill();
    let daemon = home.up();
    wait_until("the connection", || {
        daemon.http.get("/v1/status").expect(200)["connected"] == true
    });
    assert_eq!(settle(&daemon, "ack", "one", &kept), "acked");
    let again = take_one(&daemon, "one", LONG);
    assert_eq!(again["client_message_id"], "lost");
    assert_eq!(settle(&daemon, "ack", "one", &lost), "stale_fence");
}

#[test]
fn a_push_lands_once_under_its_key_and_another_body_is_refused() {
    let home = Home::new();
    let daemon = home.up();
    let key = [("idempotency-key", "k")];
    let push = |message: &str| -> Answer {
        let body = json!({"queue": QUEUE, "message": message}).to_string();
        daemon.http.post_with("/v1/queue/push", &key, &body)
    };
    push("go").expect(202);
    committed(&daemon, 1);
    assert_eq!(push("go").expect(200)["duplicate"], true);
    let conflict = push("stop").expect(409);
    assert_eq!(conflict["code"], "idempotency_key_reused");
    // The same request by its other name is the same request.
    let body = json!({"to": "queue:builds", "message": "go"}).to_string();
    let sent = daemon.http.post_with("/v1/send", &key, &body);
    assert_eq!(sent.expect(200)["duplicate"], true);
    let items = take_with(&daemon, "one", &json!({"max": 100}));
    assert_eq!(items.len(), 1, "{items:?}");
    let ran = home.cli(&["queue", "push", QUEUE, "stop", "--id", "k"]);
    assert_eq!(ran.code, 3, "{ran:?}");
}

#[test]
fn xc_02_hostile_requests_are_refused_in_words_and_take_nothing() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "a", "next");
    committed(&daemon, 1);
    let leased =
        |id: Value, fence: Value| json!({"queue": QUEUE, "items": [{"id": id, "fence": fence}]});
    let too_many = vec![json!({"id": "1.1", "fence": 1}); 101];
    let cases = [
        ("take", json!({"queue": "a\u{0}b"})),
        ("take", json!({"queue": "a\nb"})),
        ("take", json!({"queue": "queue:queue:a"})),
        ("take", json!({"queue": ""})),
        ("take", json!({"queue": "x".repeat(129)})),
        ("take", json!({"queue": 7})),
        ("take", json!({})),
        ("take", json!({"queue": QUEUE, "max": 0})),
        ("take", json!({"queue": QUEUE, "max": 101})),
        ("take", json!({"queue": QUEUE, "max": -1})),
        ("take", json!({"queue": QUEUE, "max": "1"})),
        ("take", json!({"queue": QUEUE, "max": 1.5})),
        ("take", json!({"queue": QUEUE, "lease_seconds": 0})),
        ("take", json!({"queue": QUEUE, "lease_seconds": 86_401})),
        ("take", json!({"queue": QUEUE, "wait_seconds": 31})),
        ("take", json!({"queue": QUEUE, "agent": "a\u{1b}b"})),
        ("take", json!({"queue": QUEUE, "colour": "red"})),
        ("take", json!([QUEUE])),
        ("ack", leased(json!("1.1"), json!("1"))),
        ("ack", leased(json!("1.1"), json!(-1))),
        (
            "ack",
            leased(json!("1.1"), json!(9_007_199_254_740_993_u64)),
        ),
        ("ack", leased(json!("1"), json!(1))),
        ("ack", leased(json!("a\u{0}"), json!(1))),
        ("ack", leased(json!(1.1), json!(1))),
        ("ack", json!({"queue": QUEUE, "items": []})),
        ("ack", json!({"queue": QUEUE, "items": too_many})),
        ("release", leased(json!("1.1"), Value::Null)),
        (
            "release",
            json!({"queue": "a b", "items": [{"id": "1.1", "fence": 1}]}),
        ),
        ("push", json!({"queue": "a\tb", "message": "m"})),
        ("push", json!({"queue": QUEUE})),
        (
            "push",
            json!({"queue": QUEUE, "message": "m", "to": "#ops"}),
        ),
    ];
    for (verb, body) in cases {
        let answer = daemon.http.post(&format!("/v1/queue/{verb}"), &body);
        let problem = answer.expect(400);
        assert_eq!(problem["code"], "invalid_request", "{body}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{body}");
        assert!(!answer.body.contains('\u{1b}'), "{answer:?}");
    }
    daemon.http.get("/v1/queue/list?colour=red").expect(400);
    let huge = leased(json!("18446744073709551615.18446744073709551615"), json!(1));
    let answer = daemon.http.post("/v1/queue/ack", &huge).expect(200);
    assert_eq!(answer["items"][0]["verdict"], "unknown");
    let item = take_one(&daemon, "one", LONG);
    assert_eq!(item["delivery_count"], 1, "a refused take took something");
}

#[test]
fn a_broker_out_of_reach_is_said_and_the_list_says_how_old_it_is() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    home.config(&broker.config());
    let daemon = home.up();
    push(&daemon, "a", "next");
    let item = take_one(&daemon, "one", LONG);
    let listed = || daemon.http.get("/v1/queue/list").expect(200);
    wait_until("the roster", || listed()["queues"][0]["queue"] == QUEUE);
    assert_eq!(listed()["stale"], false);
    broker.kill();
    wait_until("the loss", || listed()["stale"] == true);
    assert_eq!(listed()["queues"][0]["queue"], QUEUE);
    assert!(listed()["as_of"].is_string());
    let take = json!({"queue": QUEUE, "wait_seconds": 30});
    let ack = json!({"queue": QUEUE, "items": [{"id": item["id"], "fence": item["fence"]}]});
    for (verb, body) in [("take", &take), ("ack", &ack), ("release", &ack)] {
        let problem = daemon.http.post(&format!("/v1/queue/{verb}"), body);
        let problem = problem.expect(503);
        assert_eq!(problem["code"], "not_connected");
        assert!(problem["next"].as_str().unwrap().contains("heddle status"));
    }
    assert_eq!(home.cli(&["queue", "take", QUEUE]).code, 5);
    let ran = home.cli(&["queue", "list"]).ok();
    assert!(ran.stdout.contains("out of reach"), "{ran:?}");
    // A push needs nobody.
    push(&daemon, "b", "next");
}

#[test]
fn consumers_that_wait_leave_places_to_those_who_bring_work() {
    const WAITS_MAX: usize = 32;
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"queue": QUEUE, "lease_seconds": LONG, "wait_seconds": 30});
    let (sender, answers) = std::sync::mpsc::channel();
    for _ in 0..WAITS_MAX {
        let (http, body, sender) = (daemon.http.clone(), body.clone(), sender.clone());
        std::thread::spawn(move || {
            let answer = http.request("POST", "/v1/queue/take", &[], &body.to_string());
            let _ = sender.send(answer);
        });
    }
    wait_until("all of them to wait", || {
        let metrics = daemon.http.get("/v1/metrics").body;
        metrics.contains(&format!("heddle_ipc_queue_waits {WAITS_MAX}\n"))
    });
    let busy = daemon.http.post("/v1/queue/take", &body).expect(429);
    assert_eq!(busy["code"], "daemon_busy");
    take_none(&daemon, "one");
    push(&daemon, "a", "next");
    let first = answers.recv().unwrap().unwrap().expect(200);
    assert_eq!(first["items"][0]["client_message_id"], "a");
    // The others are told when the daemon stops, which does not wait for them.
    daemon.terminate();
    for _ in 1..WAITS_MAX {
        let told = answers.recv().unwrap().unwrap().expect(503);
        assert_eq!(told["code"], "shutting_down");
    }
    let mut daemon = daemon;
    assert_eq!(daemon.wait(Duration::from_secs(12)), Some(0));
}

#[test]
fn in_06_a_broker_that_talks_nonsense_takes_the_daemon_nowhere() {
    let broker = PushingBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    wait_until("the connection", || {
        daemon.http.get("/v1/status").expect(200)["connected"] == true
    });
    let take = json!({"queue": QUEUE});
    let ack = json!({"queue": QUEUE, "items": [{"id": "1.1", "fence": 1}]});
    for (verb, body) in [("take", &take), ("ack", &ack)] {
        let answer = daemon.http.post(&format!("/v1/queue/{verb}"), body);
        assert_eq!(answer.expect(500)["code"], "internal");
    }
}

#[test]
fn what_is_urgent_is_taken_first_from_behind_more_than_a_thousand_that_are_not() {
    const LOW: usize = 1_100;
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "one"]).ok();
    for number in 0..LOW {
        push(&daemon, &format!("low-{number}"), "low");
    }
    push(&daemon, "urgent", "now");
    committed(&daemon, LOW + 1);
    let first = take_with(&daemon, "one", &json!({"max": 2}));
    assert_eq!(first[0]["client_message_id"], "urgent", "{first:?}");
}
