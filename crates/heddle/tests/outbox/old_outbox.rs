//! What was accepted long ago, and what is only alike: rows of the first schema are retried byte for byte (FP-06, DR-06),
//! and a fingerprint is compared whole (FP-07), at the daemon and at the broker.

use crate::support;

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::outbox::{metric, refuse, row, send_to, wait_for};
use support::stub_broker::{Script, StubBroker};
use support::{Answer, Daemon, Home, wait_until};

/// The store of the first version; see its head.
const OUTBOX_V1: &str = include_str!("../fixtures/outbox_v1.sql");
const TEXT: &str = "as the first version wrote it";
const REQUEST_FINGERPRINT: &str =
    "6b4da98a92239b8d174de39154156e276b3702ca713006a8c7d01462380ab9de";
const WIRE_FINGERPRINT: &str = "ec0aa37b978965f5904622f3310732b907b609185dd5d7f7a7b71d62c6a110ee";
const PAYLOAD: &str = r#"{"v":1,"kind":"message","destination":{"kind":"dm","ref":"01M7KHW74K69007A87EVTZY2D1/tester"},"priority":"now","meta":{"a":[true,"ü"],"b":1},"body":"as the first version wrote it","mentions":["01M7KHW74K69007A87EVTZY2D1/tester"]}"#;

fn on_file(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// The caller's request as it was then, with this text.
fn again(daemon: &Daemon, id: &str, text: &str) -> Answer {
    let body = json!({
        "to": "@tester", "message": text, "client_message_id": id, "priority": "now",
        "meta": {"b": 1, "a": [true, "ü"]}, "mentions": ["@tester"],
    });
    daemon.http.post("/v1/send", &body)
}

fn conflict(answer: &Answer) -> Value {
    let problem = answer.expect(409);
    let prefix = &REQUEST_FINGERPRINT[..16];
    assert_eq!(problem["daemon_fingerprint_prefix"], prefix, "{problem}");
    problem["conflict"].clone()
}

/// Client id, both fingerprints, payload.
type Frozen = (String, Vec<u8>, Vec<u8>, Vec<u8>);

/// What a store holds of its rows, as bytes.
fn frozen(store: &Path) -> Vec<Frozen> {
    let file = Connection::open(store).unwrap();
    let sql = "SELECT client_message_id, request_fingerprint, wire_fingerprint, payload FROM outbox ORDER BY arrival";
    let mut rows = file.prepare(sql).unwrap();
    let rows = rows
        .query_map([], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn fp_06_dr_06_a_row_of_the_first_schema_is_migrated_and_retried_with_the_same_bytes_and_fingerprints()
 {
    let home = Home::new();
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let store = home.path().join("data.db");
    on_file(&store, OUTBOX_V1);
    let before = frozen(&store);
    assert_eq!(before.len(), 3);

    // Without a broker: the ids are taken, each in its state, by those very requests.
    let daemon = home.up();
    let version: u32 = Connection::open(&store)
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert!(version > 1, "it was not migrated");
    let queued = again(&daemon, "old-pending", TEXT).expect(202);
    assert_eq!(queued["status"], "queued");
    assert_eq!(queued["request_fingerprint"], REQUEST_FINGERPRINT);
    let done = again(&daemon, "old-done", TEXT).expect(200);
    assert_eq!(done["duplicate"], true);
    assert_eq!(done["history_id"], "1.7");
    assert_eq!(done["broker_message_id"], "01M7KHWA80000000000000005A");
    for (id, text, expected) in [
        (
            "old-pending",
            "other",
            "outbox_pending_fingerprint_mismatch",
        ),
        ("old-done", "other", "outbox_done_fingerprint_mismatch"),
        ("old-dead", TEXT, "outbox_dead_fingerprint_match"),
        ("old-dead", "other", "outbox_dead_fingerprint_mismatch"),
    ] {
        assert_eq!(conflict(&again(&daemon, id, text)), expected);
    }
    daemon.stop();

    // With one: what goes out is what was written then, and its fingerprint at the broker is the one of then.
    let broker = StubBroker::start();
    home.config(&broker.config());
    let daemon = home.up();
    wait_for(&daemon, "old-pending", "done");
    assert_eq!(broker.sends_of("old-pending"), [PAYLOAD]);
    assert_eq!(broker.sent_ids(), ["old-pending"], "only what waited");
    let wire = heddle_wire::broker::Envelope::parse(PAYLOAD.as_bytes()).unwrap();
    assert_eq!(wire.wire_fingerprint().unwrap().to_hex(), WIRE_FINGERPRINT);
    let duplicate = again(&daemon, "old-pending", TEXT).expect(200);
    assert_eq!(duplicate["duplicate"], true);
    let other = again(&daemon, "old-pending", "other");
    assert_eq!(conflict(&other), "outbox_done_fingerprint_mismatch");
    daemon.stop();
    assert_eq!(frozen(&store), before);
}

/// Nobody can make two requests whose fingerprints begin alike; so the one that is kept is changed behind its prefix.
#[test]
fn fp_07_a_request_that_shares_the_shown_prefix_only_is_another_one_at_the_daemon() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    send_to(&daemon, "@tester", "a", "m").expect(202);
    wait_for(&daemon, "a", "done");
    let shown = row(&daemon, "a")["request_fingerprint"].clone();
    let shown = shown.as_str().unwrap().to_owned();
    daemon.stop();
    let store = home.path().join("data.db");
    let file = Connection::open(&store).unwrap();
    let frozen: String = file
        .query_row(
            "SELECT sql FROM sqlite_master WHERE name = 'outbox_frozen'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let tail = u8::from_str_radix(&shown[62..], 16).unwrap() ^ 1;
    let alike = format!("{}{tail:02x}", &shown[..62]);
    file.execute_batch(&format!(
        "DROP TRIGGER outbox_frozen; UPDATE outbox SET request_fingerprint = x'{alike}'; {frozen}"
    ))
    .unwrap();
    drop(file);
    let daemon = home.up();
    let problem = send_to(&daemon, "@tester", "a", "m").expect(409);
    assert_eq!(problem["conflict"], "outbox_done_fingerprint_mismatch");
    assert_eq!(problem["daemon_fingerprint_prefix"], shown[..16]);
    assert_eq!(broker.send_count(), 1);
}

#[test]
fn fp_07_a_request_that_shares_the_shown_prefix_only_is_another_one_at_the_broker() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let mesh = "01HZX000000000000000000001";
    let mut link = RawLink::enter(&broker, mesh, "01HZX000000000000000000002");
    assert_eq!(link.next_of("welcome")["type"], "welcome");
    let mut send = || {
        let envelope = json!({
            "v": 1, "kind": "message", "priority": "next", "body": "m",
            "destination": {"kind": "queue", "ref": "work"},
        });
        let item = json!({"agent": "one", "client_message_id": "a", "envelope": envelope});
        link.say(&json!({"type": "send", "batch": 1, "items": [item]}));
        link.next_of("verdicts")["items"][0].clone()
    };
    assert_eq!(send()["verdict"], "created");
    assert_eq!(send()["verdict"], "duplicate");
    let file = data.join("broker.db");
    let kept = || -> Vec<u8> {
        let sql = "SELECT wire_fingerprint FROM client_message_dedupe";
        let file = Connection::open(&file).unwrap();
        file.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let mut alike = kept();
    alike[31] ^= 1;
    let sql = format!(
        "UPDATE client_message_dedupe SET wire_fingerprint = x'{}'",
        hex(&alike)
    );
    on_file(&file, &sql);
    let refused = send();
    assert_eq!(refused["verdict"], "conflict", "{refused}");
    assert_eq!(refused["broker_fingerprint_prefix"], hex(&alike[..8]));
}

/// v6 §4.12: what may be taken for a new message by a broker that has forgotten its id is counted and told, and goes out.
#[test]
fn v6_4_12_a_retry_after_the_brokers_memory_goes_out_is_counted_and_told() {
    const LATE: &str = "heddle_daemon_retry_after_dedupe_expired_total";
    let broker = StubBroker::start();
    broker.script(refuse("storage_unavailable"));
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    send_to(&daemon, "@tester", "late", "x").expect(202);
    wait_until("a try", || row(&daemon, "late")["attempts"] != 0);
    daemon.stop();
    // The machine was off for two months; the row itself must not be changed, so its guard steps aside.
    let store = Connection::open(home.path().join("data.db")).unwrap();
    let guard = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'outbox'
        AND sql LIKE '%NEW.enqueued_at <> OLD.enqueued_at%'";
    let (name, sql): (String, String) = store
        .query_row(guard, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let days_ms = 60 * 86_400_000_i64;
    store
        .execute_batch(&format!(
            "DROP TRIGGER {name}; UPDATE outbox SET enqueued_at = enqueued_at - {days_ms}; {sql}"
        ))
        .unwrap();
    drop(store);
    broker.script(Script::Commit);
    let daemon = home.up();
    wait_for(&daemon, "late", "done");
    daemon.wait_log("after the time for which the broker promised to remember it");
    send_to(&daemon, "@tester", "first", "x").expect(202);
    wait_for(&daemon, "first", "done");
    assert!(
        (metric(&daemon, LATE) - 1.0).abs() < 0.5,
        "the retry, and not the first try"
    );
}
