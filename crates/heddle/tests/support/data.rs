//! Memory and state as a caller meets them.

use serde_json::Value;

use super::{Answer, Daemon};

pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

pub fn under(daemon: &Daemon, id: &str, target: &str, body: &Value) -> Answer {
    let headers = [("idempotency-key", id)];
    daemon.http.post_with(target, &headers, &body.to_string())
}

pub fn recalled(daemon: &Daemon, query: &str) -> Vec<Value> {
    let page = daemon.http.get(&format!("/v1/memory/recall?{query}"));
    page.expect(200)["items"].as_array().unwrap().clone()
}

pub fn get(daemon: &Daemon, key: &str) -> Answer {
    let target = format!("/v1/state/get?key={}", encoded(key));
    daemon.http.get(&target)
}
