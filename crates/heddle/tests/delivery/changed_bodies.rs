//! A letter that a disk has changed is never handed on as what somebody has written: neither out of the broker's file nor
//! out of the inbox, and nobody else's messages are held up by it.

use crate::support;

use std::path::Path;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::inbox::{items, send};
use support::{Daemon, Home, wait_until};

const SENT: &str = "transfer one hundred";

/// What disks do to a stored envelope: another word, a byte that is no text any more, a text that is no JSON any more.
const DAMAGES: [(&[u8], &[u8]); 3] = [
    (b"one hundred", b"two hundred"),
    (b"one hundred", b"one \xe8undred"),
    (b"{\"", b"[\""),
];

/// Changes the stored envelope of a file whose owner is down.
fn change(path: &Path, table: &str, (from, to): (&[u8], &[u8])) {
    let raw = rusqlite::Connection::open(path).unwrap();
    let sql = format!(
        "SELECT typeof(envelope), CAST(envelope AS BLOB) FROM {table}
         WHERE CAST(envelope AS TEXT) LIKE '%one hundred%'"
    );
    let (kind, bytes): (String, Vec<u8>) = raw
        .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let at = bytes.windows(from.len()).position(|found| found == from);
    let at = at.unwrap();
    let changed = [&bytes[..at], to, &bytes[at + from.len()..]].concat();
    let sql = format!(
        "UPDATE {table} SET envelope = CAST(?1 AS {kind}) WHERE CAST(envelope AS BLOB) = ?2"
    );
    assert_eq!(raw.execute(&sql, [changed, bytes]).unwrap(), 1, "{table}");
}

fn degraded(daemon: &Daemon) -> String {
    daemon.http.get("/v1/status").expect(200)["degraded"].to_string()
}

fn counted(daemon: &Daemon) -> bool {
    let page = daemon.http.get("/v1/metrics").body;
    page.contains("heddle_inbox_differs_total 1")
}

fn by_id<'a>(page: &'a [Value], id: &str) -> &'a Value {
    page.iter()
        .find(|item| item["client_message_id"] == id)
        .unwrap()
}

fn assert_marked(page: &[Value]) {
    assert_eq!(page.len(), 2, "{page:?}");
    let hurt = by_id(page, "hurt");
    assert_eq!(
        (&hurt["damaged"], &hurt["body"]),
        (&json!(true), &json!("")),
        "{hurt}"
    );
    assert_eq!(by_id(page, "whole")["body"], "nothing to see");
    assert!(!format!("{page:?}").contains("two hundred"), "{page:?}");
}

#[test]
fn c30_a_body_changed_in_the_brokers_file_is_not_delivered_as_true() {
    for (damage, named) in DAMAGES.into_iter().zip([
        "message_differs_from_dedupe",
        "message_differs_from_dedupe",
        "message_unreadable",
    ]) {
        changed_at_the_broker(damage, named);
    }
}

fn changed_at_the_broker(damage: (&[u8], &[u8]), named: &str) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("broker");
    let (owner, alice, bob) = (Home::new(), Home::new(), Home::new());
    let broker = BrokerProcess::start(&owner, &data, "127.0.0.1:0", &[]);
    let listen = broker.listen();
    for (home, member) in [(&alice, "alice"), (&bob, "bob")] {
        home.config(&format!(
            "[[mesh]]\nname = \"team\"\nmember = {member:?}\nurl = \"ws://{listen}/\"\ntoken_file = {:?}\n",
            data.join("broker_token")
        ));
    }
    let receiver = bob.up();
    bob.cli(&["--mesh", "team", "topic", "subscribe", "#ops"])
        .ok();
    receiver.stop();
    let sender = alice.up();
    for (id, text) in [("hurt", SENT), ("whole", "nothing to see")] {
        alice
            .cli(&["--mesh", "team", "send", "#ops", text, "--id", id, "--wait"])
            .ok();
    }
    sender.stop();
    assert_eq!(broker.terminate(), 0);
    change(&data.join("broker.db"), "message", damage);

    let _broker = BrokerProcess::start(&owner, &data, &listen, &[]);
    let receiver = bob.up();
    wait_until("the messages", || {
        items(&receiver, "/v1/inbox?mesh=team").len() == 2
    });
    assert_marked(&items(&receiver, "/v1/inbox?mesh=team"));
    assert!(counted(&receiver));
    receiver.wait_log("is not what was accepted");
    let told = degraded(&receiver);
    assert!(told.contains("1 message in the inbox is damaged"), "{told}");
    assert!(told.contains("heddle inbox --all"), "{told}");
    let checked = owner.cli(&["broker", "orphan-check", "--data", data.to_str().unwrap()]);
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.stdout.contains(named), "{checked:?}");
    // It stays what it is behind a restart, and whoever acknowledges it is done with it.
    receiver.stop();
    let receiver = bob.up();
    wait_until("the look", || {
        degraded(&receiver).contains("1 message in the inbox")
    });
    assert_marked(&items(&receiver, "/v1/inbox?mesh=team"));
    bob.cli(&["--mesh", "team", "inbox", "--ack"]).ok();
    assert!(
        !degraded(&receiver).contains("damaged"),
        "{}",
        degraded(&receiver)
    );
}

#[test]
fn c30_a_body_changed_in_the_inbox_is_not_shown_as_true() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "hurt", SENT);
    send(&daemon, "whole", "nothing to see");
    wait_until("the messages", || items(&daemon, "/v1/inbox").len() == 2);
    daemon.stop();
    change(&home.path().join("data.db"), "inbox", DAMAGES[0]);
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(
        doctor.stdout.contains("1 message in the inbox is damaged"),
        "{doctor:?}"
    );

    let daemon = home.up();
    wait_until("the look", || {
        degraded(&daemon).contains("1 message in the inbox is damaged")
    });
    assert_marked(&items(&daemon, "/v1/inbox"));
    let shown = home.cli(&["inbox"]).ok().stdout;
    assert!(
        shown.contains("(damaged: ") && !shown.contains("two hundred"),
        "{shown}"
    );
}

#[test]
fn c30_work_changed_in_the_brokers_file_is_not_given_out_and_holds_up_nobody() {
    for damage in DAMAGES {
        work_changed(damage);
    }
}

fn work_changed(damage: (&[u8], &[u8])) {
    let home = Home::new();
    let daemon = home.up();
    for (id, text) in [("hurt", SENT), ("whole", "nothing to see")] {
        let body = json!({"queue": "jobs", "message": text, "client_message_id": id});
        daemon.http.post("/v1/queue/push", &body).expect(202);
        wait_until("the push", || {
            daemon.http.get(&format!("/v1/outbox/{id}")).expect(200)["status"] == "done"
        });
    }
    daemon.stop();
    change(&home.path().join("broker.db"), "message", damage);

    let daemon = home.up();
    let take = || {
        let answer = daemon
            .http
            .post("/v1/queue/take", &json!({"queue": "jobs"}));
        answer.expect(200)["items"].as_array().unwrap().clone()
    };
    let taken = take();
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(taken[0]["body"], "nothing to see");
    assert!(take().is_empty());
    assert!(counted(&daemon));
    let told = degraded(&daemon);
    assert!(told.contains("queue jobs"), "{told}");
    assert!(told.contains("heddle broker orphan-check"), "{told}");
}
