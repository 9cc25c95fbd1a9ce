//! A work queue as its consumers meet it.

use serde_json::{Value, json};

use super::{Daemon, wait_until};

pub const QUEUE: &str = "builds";
/// Longer than any test.
pub const LONG: u64 = 86_400;

#[track_caller]
pub fn push(daemon: &Daemon, id: &str, priority: &str) {
    let body =
        json!({"queue": QUEUE, "message": id, "client_message_id": id, "priority": priority});
    daemon.http.post("/v1/queue/push", &body).expect(202);
}

/// Waits until the broker has this many messages of ours.
#[track_caller]
pub fn committed(daemon: &Daemon, count: usize) {
    wait_until("the broker's commits", || {
        daemon.http.get("/v1/status").expect(200)["outbox"]["done"] == count
    });
}

#[track_caller]
pub fn take_with(daemon: &Daemon, agent: &str, more: &Value) -> Vec<Value> {
    let mut body = json!({"queue": QUEUE, "agent": agent, "lease_seconds": LONG});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let taken = daemon.http.post("/v1/queue/take", &body).expect(200);
    taken["items"].as_array().unwrap().clone()
}

/// The one message that there is, or will be within ten seconds.
#[track_caller]
pub fn take_one(daemon: &Daemon, agent: &str, lease_seconds: u64) -> Value {
    let more = json!({"lease_seconds": lease_seconds, "wait_seconds": 10});
    let mut items = take_with(daemon, agent, &more);
    assert_eq!(items.len(), 1, "{items:?}");
    items.remove(0)
}

#[track_caller]
pub fn take_none(daemon: &Daemon, agent: &str) {
    let items = take_with(daemon, agent, &json!({}));
    assert!(items.is_empty(), "{items:?}");
}

/// The verdict on one message.
#[track_caller]
pub fn settle(daemon: &Daemon, verb: &str, agent: &str, item: &Value) -> String {
    let leased = json!([{"id": item["id"], "fence": item["fence"]}]);
    let body = json!({"queue": QUEUE, "agent": agent, "items": leased});
    let answer = daemon
        .http
        .post(&format!("/v1/queue/{verb}"), &body)
        .expect(200);
    assert_eq!(answer["items"][0]["id"], item["id"]);
    answer["items"][0]["verdict"].as_str().unwrap().to_owned()
}
