//! Vectors as a caller meets them.

use serde_json::{Value, json};

use super::Daemon;

pub fn store(daemon: &Daemon, key: &str, content: &str) -> Value {
    let body = json!({"key": key, "content": content});
    daemon.http.post("/v1/vector/store", &body).expect(200)
}

pub fn search(daemon: &Daemon, body: &Value) -> Vec<Value> {
    let found = daemon.http.post("/v1/vector/search", body).expect(200);
    found["items"].as_array().unwrap().clone()
}

pub fn keys(items: &[Value]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item["key"].as_str().unwrap())
        .collect()
}
