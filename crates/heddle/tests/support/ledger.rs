//! What a judge outside reads at the end: mailboxes and outbox whole, and the broker's orphans.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Daemon, Home, wait_until_within};

/// Everything in a mailbox, page by page: client id → how often.
pub fn inbox(daemon: &Daemon, agent: &str) -> BTreeMap<String, usize> {
    inbox_of(daemon, agent, "")
}

/// The same in a mesh that is not the default one.
pub fn inbox_in(daemon: &Daemon, mesh: &str, agent: &str) -> BTreeMap<String, usize> {
    inbox_of(daemon, agent, &format!("&mesh={mesh}"))
}

fn inbox_of(daemon: &Daemon, agent: &str, mesh: &str) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let target = format!("/v1/inbox?agent={agent}&limit=500&since={cursor}{mesh}");
        let page = daemon.http.get(&target).expect(200);
        let items = page["items"].as_array().unwrap();
        if items.is_empty() {
            return seen;
        }
        for item in items {
            let id = item["client_message_id"].as_str().unwrap().to_owned();
            *seen.entry(id).or_insert(0) += 1;
        }
        page["cursor"].as_str().unwrap().clone_into(&mut cursor);
    }
}

/// Client id → the states of all rows under it.
pub fn outbox(daemon: &Daemon) -> BTreeMap<String, Vec<String>> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = daemon
            .http
            .get(&format!("/v1/outbox?limit=500{cursor}"))
            .expect(200);
        for row in page["rows"].as_array().unwrap() {
            let id = row["client_message_id"].as_str().unwrap().to_owned();
            let status = row["status"].as_str().unwrap().to_owned();
            rows.entry(id).or_default().push(status);
        }
        match &page["cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => return rows,
        }
    }
}

pub fn status(daemon: &Daemon) -> Value {
    daemon.http.get("/v1/status").expect(200)
}

pub fn connected(daemon: &Daemon) {
    wait_until_within(Duration::from_secs(30), "the connection", || {
        status(daemon)["connected"] == true
    });
}

pub fn wait_drained(daemon: &Daemon) {
    wait_until_within(Duration::from_secs(90), "the outbox to drain", || {
        let outbox = &status(daemon)["outbox"];
        outbox["pending"] == 0 && outbox["inflight"] == 0
    });
}

/// The broker's tables hold nothing half: its own check says so and ends with 0.
#[track_caller]
pub fn no_orphans(home: &Home, data: &Path) {
    let folder = data.to_str().unwrap();
    let ran = home.cli(&["broker", "orphan-check", "--json", "--data", folder]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer = ran.json();
    assert_eq!(answer["orphans"], json!([]), "{answer}");
    assert!(answer["checked"].as_u64().unwrap() > 0, "{answer}");
}

pub fn register(daemon: &Daemon, agent: &str) {
    let body = json!({"agent": agent});
    daemon.http.post("/v1/agent/register", &body).expect(200);
}

/// The value of a counter; nothing counted yet is zero.
pub fn metric(daemon: &Daemon, series: &str) -> usize {
    let text = daemon.http.get("/v1/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}
