//! Rows of an outbox as a caller meets them: sending, asking, waiting for a state; homes on brokers of the test's own.

use serde_json::{Value, json};

use super::stub_broker::{Script, StubBroker};
use super::{Answer, Daemon, Home, wait_until};

pub fn send_to(daemon: &Daemon, to: &str, id: &str, message: &str) -> Answer {
    let body = json!({"to": to, "message": message, "client_message_id": id});
    daemon.http.post("/v1/send", &body)
}

pub fn send(daemon: &Daemon, id: &str) -> Answer {
    send_to(daemon, "#ops", id, "first")
}

pub fn row(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/outbox/{id}")).expect(200)
}

pub fn wait_for(daemon: &Daemon, id: &str, status: &str) {
    wait_until(&format!("{id} to be {status}"), || {
        row(daemon, id)["status"] == status
    });
}

pub fn refuse(code: &'static str) -> Script {
    Script::Refuse { code }
}

/// A home on a broker of the test's own.
pub fn on_stub() -> (StubBroker, Home, Daemon) {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    (broker, home, daemon)
}

/// A home whose broker is never there.
pub fn on_nothing(more: &str) -> (Home, Daemon) {
    let home = Home::new();
    home.config(&format!("[broker]\nurl = \"ws://127.0.0.1:1/\"\n{more}"));
    let daemon = home.up();
    (home, daemon)
}

/// The value of the first series of that name.
pub fn metric(daemon: &Daemon, name: &str) -> f64 {
    let text = daemon.http.get("/v1/metrics").body;
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}
