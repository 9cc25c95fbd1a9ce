//! A mailbox as a caller meets it.

use std::path::Path;

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

/// Overwrites the beginning of the page on which this table begins, with the log moved in first.
pub fn damage(home: &Path, table: &str) {
    let path = home.join("data.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "journal_mode", "DELETE").unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: i64 = raw.query_row(sql, [table], |row| row.get(0)).unwrap();
    drop(raw);
    let mut bytes = std::fs::read(&path).unwrap();
    let start = usize::try_from(page - 1).unwrap() * 4096;
    bytes[start..start + 64].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
}
