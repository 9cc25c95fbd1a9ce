//! A broker that hangs, or is away, keeps nobody waiting: what is local is local at once.
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]

use crate::support;
use crate::sync::{Team, value};

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::{Daemon, wait_until, wait_until_within};

/// Less than an answer of the broker is waited for elsewhere, and far more than a busy machine needs.
const SOON: Duration = Duration::from_secs(7);

fn post(daemon: &Daemon, path: &str, agent: &str, mut body: Value) -> Value {
    body["mesh"] = json!("team");
    body["agent"] = json!(agent);
    let asked = Instant::now();
    let answer = daemon.http.post(path, &body);
    let took = asked.elapsed();
    assert!(answer.status < 300, "{answer:?}");
    assert!(took < SOON, "{path} of {agent} took {took:?}");
    answer.json()
}

#[test]
fn lf_19_the_first_call_of_an_agent_does_not_wait_for_a_broker_that_hangs() {
    let team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    let made = post(&a, "/v1/task/create", "ann", json!({"title": "held up"}));
    let task = made["task"]["id"].as_str().unwrap().to_owned();
    post(&b, "/v1/state/set", "bob", json!({"key": "k", "value": 1}));
    wait_until("both to be connected", || value(&a, "k") == Some(json!(1)));
    wait_until("the mailbox of bob to be known", || {
        a.http.get("/v1/peers?mesh=team").body.contains("@bob/bob")
    });

    let broker = Pid::from_child(&team.broker.as_ref().unwrap().child);
    kill_process(broker, Signal::STOP).unwrap();
    post(&a, "/v1/task/claim", "fresh-1", json!({ "id": task }));
    let fields = json!({"key": "from", "value": "fresh-2"});
    post(&a, "/v1/state/set", "fresh-2", fields);
    let letter = json!({"to": "@bob", "message": "from a new name"});
    post(&a, "/v1/send", "fresh-3", letter);
    kill_process(broker, Signal::CONT).unwrap();

    wait_until("what was done meanwhile to arrive", || {
        let path = format!("/v1/task/get?id={task}&mesh=team");
        let there = b.http.get(&path).expect(200)["task"].clone();
        there["claimed_by"] == "@ann/fresh-1" && value(&b, "from") == Some(json!("fresh-2"))
    });
    wait_until("the letter", || {
        let inbox = b.http.get("/v1/inbox?mesh=team&agent=bob").expect(200);
        let items = inbox["items"].as_array().unwrap();
        items.iter().any(|item| item["from"] == "@ann/fresh-3")
    });
}

#[test]
fn lf_19_a_start_does_not_wait_for_a_broker_that_is_away() {
    let mut team = Team::new();
    let ann = team.member("ann");
    ann.up().stop();
    team.cut();
    // Of three, because a busy machine may hold up one; each waited for three seconds once.
    let quickest = (0..3).map(|_| {
        let begun = Instant::now();
        let daemon = ann.up();
        let took = begun.elapsed();
        let status = daemon.http.get("/v1/status").expect(200);
        assert_eq!(status["connected"], false, "{status}");
        daemon.stop();
        took
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < Duration::from_millis(2500), "{quickest:?}");
    team.mend();
    let daemon = ann.up();
    wait_until("the broker that is back", || {
        daemon.http.get("/v1/status").expect(200)["connected"] == true
    });
}

/// Its connection is open for a while yet. From when the status says that it does not answer, nothing else may speak as if it did.
#[test]
fn lf_19_behind_a_broker_that_hangs_every_door_says_offline_and_a_claim_is_tentative() {
    let team = Team::new();
    let ann = team.member("ann");
    let a = ann.up();
    let made = post(&a, "/v1/task/create", "ann", json!({"title": "held up"}));
    let task = made["task"]["id"].as_str().unwrap().to_owned();
    let clock = || a.http.get("/v1/mesh/clock?mesh=team").expect(200);
    wait_until("the op to be sent", || {
        clock()["sync"]["out_waiting"] == 0 && clock()["sync_state"] != "offline"
    });

    let broker = Pid::from_child(&team.broker.as_ref().unwrap().child);
    kill_process(broker, Signal::STOP).unwrap();
    let change = json!({"key": "asks", "value": 1});
    post(&a, "/v1/state/set", "ann", change);
    let connected = || a.http.get("/v1/status").expect(200)["meshes"][1]["connected"].clone();
    wait_until_within(Duration::from_secs(30), "the status to tell", || {
        connected() == false
    });
    let claimed = post(&a, "/v1/task/claim", "ann", json!({ "id": task }));
    let (state, info) = (clock(), a.http.get("/v1/mesh/info?mesh=team").expect(200));
    let still = connected();
    kill_process(broker, Signal::CONT).unwrap();
    assert_eq!(still, false, "it was told of while it hung");
    assert_eq!(claimed["tentative"], true, "{claimed}");
    assert_eq!(state["sync_state"], "offline", "{state}");
    assert_eq!(info["connected"], false, "{info}");
}
