//! Leases that are renewed, and takes that wait for work, over the real processes.

use crate::support;

use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::{Daemon, Home, wait_until};

const QUEUE: &str = "builds";
const MESH: &str = "01HZX000000000000000000001";

fn push(daemon: &Daemon, id: &str) {
    let body = json!({"queue": QUEUE, "message": id, "client_message_id": id});
    daemon.http.post("/v1/queue/push", &body).expect(202);
}

fn take(daemon: &Daemon, agent: &str, lease: u64, wait: u64) -> Vec<Value> {
    let body =
        json!({"queue": QUEUE, "agent": agent, "lease_seconds": lease, "wait_seconds": wait});
    let taken = daemon.http.post("/v1/queue/take", &body).expect(200);
    taken["items"].as_array().unwrap().clone()
}

/// The one message that there is, or will be within ten seconds.
fn take_one(daemon: &Daemon, agent: &str, lease: u64) -> Value {
    let mut items = take(daemon, agent, lease, 10);
    assert_eq!(items.len(), 1, "{items:?}");
    items.remove(0)
}

fn renew(daemon: &Daemon, agent: &str, item: &Value, seconds: u64) -> String {
    let items = json!([{"id": item["id"], "fence": item["fence"]}]);
    let body = json!({"queue": QUEUE, "agent": agent, "items": items, "lease_seconds": seconds});
    let answer = daemon.http.post("/v1/queue/renew", &body).expect(200);
    answer["items"][0]["verdict"].as_str().unwrap().to_owned()
}

fn settle(daemon: &Daemon, verb: &str, agent: &str, item: &Value) -> String {
    let items = json!([{"id": item["id"], "fence": item["fence"]}]);
    let body = json!({"queue": QUEUE, "agent": agent, "items": items});
    let answer = daemon.http.post(&format!("/v1/queue/{verb}"), &body);
    let answer = answer.expect(200);
    answer["items"][0]["verdict"].as_str().unwrap().to_owned()
}

#[test]
fn a_renewed_lease_outlives_its_first_end_and_keeps_its_fence() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "renewed");
    push(&daemon, "left");
    let first = take_one(&daemon, "one", 1);
    let second = take_one(&daemon, "one", 1);
    assert_eq!(renew(&daemon, "one", &first, 3600), "renewed");
    assert_eq!(renew(&daemon, "two", &first, 3600), "stale_fence");
    // The one that was left runs out and comes again; the renewed one does not.
    let again = take_one(&daemon, "two", 3600);
    assert_eq!(again["id"], second["id"]);
    assert_eq!(again["delivery_count"], 2);
    assert!(take(&daemon, "two", 1, 0).is_empty());
    assert_eq!(renew(&daemon, "one", &second, 60), "stale_fence");
    assert_eq!(settle(&daemon, "ack", "one", &first), "acked");
    assert_eq!(renew(&daemon, "one", &first, 60), "stale_fence");
    let unknown = json!({"id": "9.9", "fence": 1});
    assert_eq!(renew(&daemon, "one", &unknown, 60), "unknown");
}

#[test]
fn a_renewal_survives_the_death_of_the_daemon_and_its_broker() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "a");
    let item = take_one(&daemon, "one", 2);
    assert_eq!(renew(&daemon, "one", &item, 3600), "renewed");
    daemon.kill();
    let daemon = home.up();
    assert!(
        take(&daemon, "two", 1, 3).is_empty(),
        "the renewal was lost"
    );
    assert_eq!(settle(&daemon, "ack", "one", &item), "acked");
}

#[test]
fn renewals_that_make_no_sense_are_refused_in_words() {
    let home = Home::new();
    let daemon = home.up();
    let leased = json!([{"id": "1.1", "fence": 1}]);
    for body in [
        json!({"queue": QUEUE, "items": leased, "lease_seconds": 0}),
        json!({"queue": QUEUE, "items": leased, "lease_seconds": 86_401}),
        json!({"queue": QUEUE, "items": []}),
        json!({"queue": QUEUE, "items": [{"id": "x", "fence": 1}]}),
        json!({"queue": QUEUE, "items": leased, "colour": 1}),
        json!({"queue": "a b", "items": leased}),
        json!({"items": leased}),
    ] {
        let problem = daemon.http.post("/v1/queue/renew", &body).expect(400);
        assert_eq!(problem["code"], "invalid_request", "{body}");
        assert!(!problem["next"].as_str().unwrap().is_empty());
    }
}

#[test]
fn the_verb_that_a_take_prints_renews_what_it_took() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "a");
    let args = ["queue", "take", QUEUE, "--wait", "10s", "--agent", "coder"];
    let said = home.cli(&args).ok().stdout;
    let line = said.lines().find(|line| line.contains("longer:")).unwrap();
    let verb = line.split("heddle ").nth(1).unwrap();
    let words: Vec<&str> = verb.split(' ').collect();
    let ran = home.cli(&words).ok();
    assert!(ran.stdout.contains("is yours for longer"), "{ran:?}");
    let json = home.cli(&[&words[..], &["--json", "--lease", "2h"]].concat());
    assert_eq!(json.ok().json()["items"][0]["verdict"], "renewed");
    // Without the agent that took it, it is somebody else's.
    let ran = home.cli(&words[..words.len() - 2]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("--agent"), "{ran:?}");
    let bad = home.cli(&[&words[..], &["--lease", "2d"]].concat());
    assert_eq!(bad.code, 2, "{bad:?}");
}

#[test]
fn a_take_that_waits_gets_what_comes_meanwhile_and_one_that_waits_in_vain_gets_nothing() {
    let home = Home::new();
    let daemon = home.up();
    push(&daemon, "first");
    take_one(&daemon, "one", 3600);
    let taken = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| take(&daemon, "one", 3600, 30));
        wait_until("the wait", || {
            let page = daemon.http.get("/v1/metrics").body;
            page.lines().any(|line| line == "heddle_ipc_queue_waits 1")
        });
        push(&daemon, "second");
        waiting.join().unwrap()
    });
    assert_eq!(taken[0]["client_message_id"], "second");
    assert!(take(&daemon, "one", 3600, 1).is_empty());
}

fn enter(broker: &BrokerProcess, member: &str) -> RawLink {
    let mut link = RawLink::enter(broker, MESH, member);
    assert_eq!(link.next_of("welcome")["type"], "welcome");
    link
}

fn take_raw(link: &mut RawLink, wake: bool) -> Value {
    let mut body =
        json!({"what": "queue_take", "queue": QUEUE, "agent": "one", "max": 9, "lease_ms": 99_999});
    if wake {
        body["wake"] = json!(true);
    }
    link.say(&json!({"type": "request", "request": 1, "body": body}));
    link.next_of("reply")["items"].clone()
}

fn push_raw(link: &mut RawLink, id: &str) {
    let envelope = json!({
        "v": 1, "kind": "message", "priority": "next", "body": id,
        "destination": {"kind": "queue", "ref": QUEUE},
    });
    let item = json!({"agent": "one", "client_message_id": id, "envelope": envelope});
    link.say(&json!({"type": "send", "batch": 1, "items": [item]}));
    assert_eq!(link.next_of("verdicts")["items"][0]["verdict"], "created");
}

#[test]
fn a_broker_tells_whoever_waits_of_new_and_of_released_work_once_and_nobody_else() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let mut waiting = enter(&broker, "01HZX000000000000000000002");
    let mut working = enter(&broker, "01HZX000000000000000000003");
    assert_eq!(take_raw(&mut waiting, true), json!([]));
    push_raw(&mut working, "a");
    let told = waiting.next_of("work");
    assert_eq!(told, json!({"type": "work", "queue": QUEUE}));
    // Another takes it first; then the one that waits asks again, and is told when it is given back.
    let taken = take_raw(&mut working, false);
    assert_eq!(taken.as_array().unwrap().len(), 1);
    assert_eq!(take_raw(&mut waiting, true), json!([]));
    let items =
        json!([{"history_id": taken[0]["delivery"]["history_id"], "fence": taken[0]["fence"]}]);
    let release = json!({"what": "queue_release", "queue": QUEUE, "agent": "one", "items": items});
    working.say(&json!({"type": "request", "request": 2, "body": release}));
    assert_eq!(working.next_of("reply")["items"], json!(["released"]));
    assert_eq!(waiting.next_of("work")["queue"], QUEUE);
    // A look that finds something ends the wait, and without `wake` there is none: the next frame is
    // the answer to the next question, and nothing in between.
    assert_eq!(take_raw(&mut waiting, true).as_array().unwrap().len(), 1);
    assert_eq!(take_raw(&mut waiting, false), json!([]));
    push_raw(&mut working, "b");
    waiting.say(&json!({"type": "request", "request": 3, "body": {"what": "roster"}}));
    let frames: Vec<Value> = std::iter::repeat_with(|| waiting.next())
        .take_while(|frame| frame["type"] != "reply")
        .collect();
    assert!(
        frames.iter().all(|frame| frame["type"] != "work"),
        "{frames:?}"
    );
}
