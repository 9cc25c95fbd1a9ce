//! `heddle explain` of the data: an op's id, an idempotency key and a key of the data tell who, when and what
//! became of it.

use crate::support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Daemon, Home, wait_until_within};

fn explain(daemon: &Daemon, id: &str, mesh: &str) -> Value {
    let target = format!("/v1/explain/{id}?mesh={mesh}");
    daemon.http.get(&target).expect(200)
}

fn op_of(answer: &Value) -> String {
    answer["stamp"]["op_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_change_in_a_personal_mesh_is_told_by_op_by_idempotency_key_and_by_key() {
    let home = Home::new();
    let daemon = home.up();
    let set = |id: &str, value: u64| {
        let body = json!({"key": "phase", "value": value}).to_string();
        let headers = [("Idempotency-Key", id)];
        daemon
            .http
            .post_with("/v1/state/set", &headers, &body)
            .expect(200)
    };
    let first = set("first-set", 1);
    let told = explain(&daemon, &op_of(&first), "home");
    assert_eq!(
        (&told["kind"], &told["result"]),
        (&json!("data"), &json!("stands"))
    );
    assert_eq!(told["request"]["idempotency_key"], "first-set");
    assert_eq!(told["rows"][0]["noun"], "state");
    assert_eq!(told["rows"][0]["key"], "phase");
    assert_eq!(told["rows"][0]["lamport"], first["stamp"]["lamport"]);
    assert!(told["rows"][0]["at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(told["outbox"], Value::Null, "nobody else has this mesh");
    let second = set("second-set", 2);
    // By the key of the request, and what became of it.
    let told = explain(&daemon, "first-set", "home");
    assert_eq!(told["op_id"], json!(op_of(&first)));
    assert_eq!(told["result"], "superseded");
    // By the key of the data: what stands there.
    let told = explain(&daemon, "phase", "home");
    assert_eq!(told["result"], "key");
    assert_eq!(told["rows"][0]["op_id"], json!(op_of(&second)));
    daemon
        .http
        .post("/v1/state/delete", &json!({"key": "phase"}))
        .expect(200);
    assert_eq!(
        explain(&daemon, "phase", "home")["rows"][0]["deleted"],
        true
    );
}

#[test]
fn every_noun_is_told_and_a_task_by_all_its_ops() {
    let home = Home::new();
    let daemon = home.up();
    for (route, body, noun) in [
        (
            "/v1/memory/remember",
            json!({"key": "n", "value": 1}),
            "memory",
        ),
        (
            "/v1/vector/store",
            json!({"key": "v", "content": "plum cake"}),
            "vector",
        ),
        (
            "/v1/file/share",
            json!({"path": "a/b.txt", "content_base64": "aGk="}),
            "file",
        ),
    ] {
        let answer = daemon.http.post(route, &body).expect(200);
        let told = explain(&daemon, &op_of(&answer), "home");
        assert_eq!(told["rows"][0]["noun"], noun, "{told}");
        assert_eq!(told["result"], "stands", "{told}");
    }
    let made = daemon
        .http
        .post("/v1/task/create", &json!({"title": "dig"}))
        .expect(200);
    let task = made["task"]["id"].as_str().unwrap();
    daemon
        .http
        .post("/v1/task/claim", &json!({"id": task}))
        .expect(200);
    let told = explain(&daemon, task, "home");
    let ops: Vec<&str> = told["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["op"].as_str().unwrap())
        .collect();
    assert_eq!(ops, ["task.create", "task.claim"], "{told}");
    let shown = home.cli(&["explain", task]).ok().stdout;
    assert!(shown.contains("task.claim"), "{shown}");
    let unknown = daemon.http.get("/v1/explain/nothing-of-ours").expect(404);
    assert_eq!(unknown["code"], "not_found");
}

#[test]
fn an_op_of_a_shared_mesh_is_told_on_both_sides_with_its_place_in_the_log() {
    let (host, guest) = (Home::new(), Home::new());
    host.config("[daemon]\nmember = \"anna\"\n");
    guest.config("[daemon]\nmember = \"bert\"\n");
    let (host_up, guest_up) = (host.up(), guest.up());
    let invited = host.cli(&["mesh", "invite", "--json"]).ok().json();
    let link = invited["link"].as_str().unwrap();
    let joined = guest.cli(&["mesh", "join", link, "--json"]).ok().json();
    let mesh = joined["mesh"].as_str().unwrap();
    let set = host_up
        .http
        .post("/v1/state/set", &json!({"key": "k", "value": 1}))
        .expect(200);
    let op = op_of(&set);
    let target = format!("/v1/explain/{op}?mesh={mesh}");
    wait_until_within(
        Duration::from_secs(30),
        "the op to be known in the other home",
        || guest_up.http.get(&target).status == 200,
    );
    let there = explain(&guest_up, &op, mesh);
    assert_eq!(there["result"], "stands", "{there}");
    assert_eq!(there["arrival"]["state"], "applied", "{there}");
    assert!(
        there["rows"][0]["peer"].as_str().unwrap().contains("anna"),
        "{there}"
    );
    // Here it was sent: the story of the send, with what it did to the data.
    let here = explain(&host_up, &op, "home");
    assert_eq!(here["outbox"]["client_message_id"], json!(op));
    assert_eq!(here["broker"]["history_id"], there["arrival"]["history_id"]);
    assert_eq!(here["data"]["result"], "stands", "{here}");
    assert_eq!(here["data"]["rows"][0]["key"], "k");
}
