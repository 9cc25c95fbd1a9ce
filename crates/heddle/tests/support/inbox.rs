//! A mailbox as a caller meets it.

use serde_json::{Value, json};

use super::Daemon;

pub fn send(daemon: &Daemon, id: &str, text: &str) {
    let body = json!({"to": "@tester", "message": text, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

pub fn items(daemon: &Daemon, target: &str) -> Vec<Value> {
    let page = daemon.http.get(target).expect(200);
    page["items"].as_array().unwrap().clone()
}

pub fn texts(daemon: &Daemon, target: &str) -> Vec<String> {
    let text = |item: &Value| item["body"].as_str().unwrap().to_owned();
    items(daemon, target).iter().map(text).collect()
}

pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
