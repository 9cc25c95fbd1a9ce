//! `POST /v1/send` over the real binary: the OB invariants (the table of v10 §4.5.1 is in `accept_table.rs`).
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::stub_broker::{Script, StubBroker};
use support::{Answer, Daemon, Home, wait_until, wait_until_within};

fn send(daemon: &Daemon, id: &str, message: &str) -> Answer {
    daemon.http.post(
        "/v1/send",
        &json!({"to": "#ops", "message": message, "client_message_id": id}),
    )
}

fn row(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/outbox/{id}")).expect(200)
}

fn wait_for_status(daemon: &Daemon, id: &str, status: &str) {
    let mut last = Value::Null;
    let what = format!("{id} to be {status}");
    let reached = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_until(&what, || {
            last = row(daemon, id);
            last["status"] == status
        });
    }));
    assert!(reached.is_ok(), "{what}: {last:#} {}", daemon.log());
}

/// Brings one row into each of the five states through the daemon's own state machine.
///
/// The drain keeps four batches in flight. With four held, a fifth row stays `pending` for as long as the
/// daemon waits for a verdict.
fn five_states(broker: &StubBroker, daemon: &Daemon) -> BTreeMap<&'static str, String> {
    let put = |id: &str, status: &str, script: Script| {
        broker.script(script);
        send(daemon, id, "first").expect(202);
        wait_for_status(daemon, id, status);
    };
    let refuse = Script::Refuse {
        code: "unknown_recipient",
    };
    put("id-done", "done", Script::Commit);
    put("id-dead", "dead", refuse.clone());
    put("id-aborted", "dead", refuse);
    broker.script(Script::Hold);
    let body = json!({"new_client_id": "successor"});
    let requeued = daemon.http.post("/v1/outbox/id-aborted/requeue", &body);
    let requeued = requeued.expect(200);
    assert_eq!(requeued["old"]["status"], "aborted");
    assert_eq!(requeued["new"]["client_message_id"], "successor");
    wait_for_status(daemon, "successor", "inflight");
    for id in ["id-inflight", "filler-1", "filler-2"] {
        put(id, "inflight", Script::Hold);
    }
    send(daemon, "id-pending", "first").expect(202);
    ["done", "dead", "aborted", "inflight", "pending"]
        .map(|status| (status, format!("id-{status}")))
        .into()
}

#[test]
fn ob_12_ob_13_done_dead_and_aborted_ids_are_never_sent_again() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    let ids = five_states(&broker, &daemon);
    for status in ["done", "dead", "aborted"] {
        let id = &ids[status];
        let before = broker.sends_of(id).len();
        for _ in 0..5 {
            send(&daemon, id, "first");
        }
        assert_eq!(broker.sends_of(id).len(), before, "{status}");
    }
    daemon.kill();
    broker.script(Script::Commit);
    let counts: Vec<usize> = ["done", "dead", "aborted"]
        .iter()
        .map(|s| broker.sends_of(&ids[s]).len())
        .collect();
    let daemon = home.up();
    wait_for_status(&daemon, &ids["inflight"], "done");
    let again: Vec<usize> = ["done", "dead", "aborted"]
        .iter()
        .map(|s| broker.sends_of(&ids[s]).len())
        .collect();
    assert_eq!(counts, again);
}

#[test]
fn ob_03_a_refused_request_consumes_nothing() {
    let home = Home::new();
    let daemon = home.up();
    daemon
        .http
        .post("/v1/topic/create", &json!({"topic": "ops"}))
        .expect(200);
    let refused = [
        (json!({"to": "#nowhere", "message": "m"}), 404),
        (json!({"to": "nowhere", "message": "m"}), 400),
        (json!({"to": "#o\u{1}ps", "message": "m"}), 400),
        (
            json!({"to": "#ops", "message": "m", "priority": "soon"}),
            400,
        ),
        (json!({"to": "#ops", "message": "m", "colour": "red"}), 400),
        (
            json!({"to": "#ops", "message": "m", "mentions": ["@nobody"]}),
            404,
        ),
        (
            json!({"to": "#ops", "message": "m", "mesh": "elsewhere"}),
            404,
        ),
        (json!({"to": "#ops", "message": "x".repeat(1 << 20)}), 413),
    ];
    for (mut body, status) in refused {
        body["client_message_id"] = json!("the-id");
        let answer = daemon.http.post("/v1/send", &body);
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(daemon.http.get("/v1/outbox/the-id").status, 404);
    }
    assert_eq!(send(&daemon, "the-id", "m").expect(202)["status"], "queued");
}

#[test]
fn fp_05_lossy_json_is_refused_at_the_door() {
    let home = Home::new();
    let daemon = home.up();
    for meta in [
        r#"{"n":9007199254740993}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"s":"\ud800"}"#,
        r#"{"n":1e400}"#,
        "[1]",
        "7",
    ] {
        let body = format!(r#"{{"to":"@tester","message":"m","meta":{meta}}}"#);
        let answer = daemon.http.post_with("/v1/send", &[], &body);
        assert_eq!(answer.expect(400)["code"], "invalid_request", "{meta}");
    }
    let deep = format!(
        r#"{{"to":"@tester","message":"m","meta":{{"a":{}{}}}}}"#,
        "[".repeat(500),
        "]".repeat(500)
    );
    daemon.http.post_with("/v1/send", &[], &deep).expect(400);
}

#[test]
fn ob_15_c46_header_and_body_ids_must_agree() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"to": "@tester", "message": "m", "client_message_id": "in-body"}).to_string();
    let differ = daemon
        .http
        .post_with("/v1/send", &[("idempotency-key", "in-header")], &body);
    assert_eq!(differ.expect(400)["code"], "invalid_request");
    for id in ["in-body", "in-header"] {
        assert_eq!(
            daemon.http.get(&format!("/v1/outbox/{id}")).status,
            404,
            "consumed {id}"
        );
    }
    let same = daemon
        .http
        .post_with("/v1/send", &[("idempotency-key", "in-body")], &body);
    assert_eq!(same.expect(202)["client_message_id"], "in-body");
    let bare = json!({"to": "@tester", "message": "m"});
    let header = daemon.http.post_with(
        "/v1/send",
        &[("Idempotency-Key", "alone")],
        &bare.to_string(),
    );
    assert_eq!(header.expect(202)["client_message_id"], "alone");
    let minted = daemon.http.post("/v1/send", &bare).expect(202);
    assert_eq!(minted["client_message_id"].as_str().unwrap().len(), 26);
}

#[test]
fn ob_06_concurrent_same_id_inserts_once() {
    let home = Home::new();
    let daemon = home.up();
    for round in 0..20 {
        let id = format!("race-{round}");
        let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..32)
                .map(|n| {
                    let (http, id) = (daemon.http.clone(), id.clone());
                    // Two different requests under one id: exactly one of them may win.
                    let message = if n % 2 == 0 { "even" } else { "odd" };
                    scope.spawn(move || {
                        let body =
                            json!({"to": "@tester", "message": message, "client_message_id": id});
                        let answer = http.post("/v1/send", &body);
                        (answer.status, answer.json())
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let accepted: std::collections::BTreeSet<&str> = answers
            .iter()
            .filter(|(status, _)| matches!(status, 200 | 202))
            .filter_map(|(_, body)| body["request_fingerprint"].as_str())
            .collect();
        assert_eq!(accepted.len(), 1, "both requests were accepted");
        let conflicts = answers.iter().filter(|(status, _)| *status == 409).count();
        assert_eq!(conflicts, 16, "{answers:?}");
    }
    let rows = daemon.http.get("/v1/outbox?limit=500").expect(200);
    assert_eq!(rows["rows"].as_array().unwrap().len(), 20);
}

#[test]
fn c1_two_agents_may_use_the_same_id_for_the_same_text() {
    let home = Home::new();
    let daemon = home.up();
    daemon
        .http
        .post("/v1/agent/register", &json!({"agent": "reader"}))
        .expect(200);
    for agent in ["host-a", "host-b"] {
        let body = json!({"to": "@reader", "message": "same", "client_message_id": "deploy-42", "agent": agent});
        daemon.http.post("/v1/send", &body).expect(202);
    }
    wait_until("both messages", || {
        let inbox = daemon.http.get("/v1/inbox?agent=reader").expect(200);
        inbox["items"].as_array().unwrap().len() == 2
    });
    let ambiguous = daemon.http.get("/v1/outbox/deploy-42");
    assert_eq!(ambiguous.status, 400, "{ambiguous:?}");
    daemon
        .http
        .get("/v1/outbox/deploy-42?agent=host-a")
        .expect(200);
}

#[test]
fn c47_a_known_id_is_answered_although_its_recipient_is_gone() {
    let broker = StubBroker::start();
    broker.takes_a_guest();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    let send = |daemon: &Daemon, id: &str, message: &str| {
        let body = json!({"to": "@guest/away", "message": message, "client_message_id": id});
        daemon.http.post("/v1/send", &body)
    };
    send(&daemon, "known", "m").expect(202);
    wait_for_status(&daemon, "known", "done");
    drop(daemon);
    // The same home on its embedded broker, which has never heard of that member.
    home.config("");
    let daemon = home.up();
    assert_eq!(send(&daemon, "unknown", "m").status, 404);
    assert_eq!(send(&daemon, "known", "m").expect(200)["duplicate"], true);
    assert_eq!(send(&daemon, "known", "other").status, 409);
}

#[test]
fn dr_01_dr_06_one_transmission_at_a_time_and_every_one_byte_identical() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    broker.script(Script::Hold);
    let daemon = home.up();
    let body = json!({"to": "#ops", "message": "m", "client_message_id": "held", "meta": {"b": 1.0, "a": "é"}});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_for_status(&daemon, "held", "inflight");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(
        broker.sends_of("held").len(),
        1,
        "sent again while in flight"
    );
    daemon.kill();
    broker.script(Script::CommitAndHangUp);
    let daemon = home.up();
    wait_until("a second transmission", || {
        broker.sends_of("held").len() >= 2
    });
    broker.script(Script::Commit);
    wait_for_status(&daemon, "held", "done");
    let sends = broker.sends_of("held");
    assert!(sends.len() >= 3);
    assert!(
        sends
            .iter()
            .all(|sent| *sent == sends[0] && !sent.is_empty()),
        "{sends:?}"
    );
    assert_eq!(
        row(&daemon, "held")["broker_message_id"],
        "01HZX000000000000000000001"
    );
}

#[test]
fn dr_02_a_row_in_flight_at_a_crash_is_pending_after_it_with_one_more_attempt() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    broker.script(Script::Hold);
    let daemon = home.up();
    send(&daemon, "held", "m").expect(202);
    wait_for_status(&daemon, "held", "inflight");
    wait_until("the first transmission", || broker.send_count() == 1);
    daemon.kill();
    let started = Instant::now();
    let daemon = home.up();
    let found = row(&daemon, "held");
    // On a machine that stands still the next try may have begun before we looked.
    assert!(
        found["status"] == "pending" || broker.send_count() == 2,
        "{found}"
    );
    assert_eq!(found["attempts"], 1);
    wait_until("the next try", || broker.send_count() == 2);
    let waited = broker.sent_at()[1].duration_since(started);
    assert!(
        waited >= Duration::from_secs(1),
        "sent before one minimum backoff: {waited:?}"
    );
}

#[test]
fn dr_17_with_a_healthy_broker_every_pending_row_ends() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    broker.script(Script::Refuse {
        code: "storage_unavailable",
    });
    let daemon = home.up();
    for n in 0..50 {
        send(&daemon, &format!("row-{n}"), "m").expect(202);
    }
    wait_until("the first tries", || broker.send_count() >= 50);
    broker.script(Script::Commit);
    wait_until("all rows to be done", || {
        daemon.http.get("/v1/status").expect(200)["outbox"]["done"] == 50
    });
}

/// Asks for a requeue until it is answered.
fn requeued(daemon: &Daemon, id: &str) -> Value {
    let mut outcome = Value::Null;
    wait_until_within(Duration::from_secs(90), "the requeue", || {
        let requeue = json!({"new_client_id": "again"});
        let answer = daemon
            .http
            .post(&format!("/v1/outbox/{id}/requeue"), &requeue);
        match answer.status {
            200 => outcome = answer.json(),
            // A transmission of it is on its way at this moment.
            409 => assert_eq!(answer.json()["conflict"], "outbox_inflight_not_requeueable"),
            // The link is not there again yet.
            status => assert!(status >= 500, "{answer:?}"),
        }
        !outcome.is_null()
    });
    outcome
}

#[test]
fn c5_requeue_of_a_row_whose_ack_was_lost_becomes_done() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    broker.script(Script::CommitAndHangUp);
    let daemon = home.up();
    send(&daemon, "lost-ack", "m").expect(202);
    wait_until("the lost ack", || broker.send_count() >= 1);
    wait_for_status(&daemon, "lost-ack", "pending");
    // Nothing but the look makes it done: what is sent again is told to wait.
    broker.script(Script::Refuse {
        code: "rate_limited",
    });
    let outcome = requeued(&daemon, "lost-ack");
    assert_eq!(outcome["old"]["status"], "done");
    assert!(outcome["old"]["broker_message_id"].is_string(), "{outcome}");
    assert!(outcome["new"].is_null(), "{outcome}");
    assert_eq!(row(&daemon, "lost-ack")["status"], "done");
    assert_eq!(
        daemon.http.get("/v1/outbox/again").status,
        404,
        "a second message was made"
    );
}

/// The drain takes the row for its next try while the broker is asked for its id.
#[test]
fn c5_a_row_that_is_sent_again_while_the_broker_is_asked_becomes_done() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    broker.script(Script::CommitAndHangUp);
    let daemon = home.up();
    send(&daemon, "lost-ack", "m").expect(202);
    wait_until("the lost ack", || broker.send_count() >= 1);
    broker.script(Script::Refuse {
        code: "storage_unavailable",
    });
    broker.holds_looks();
    let outcome = requeued(&daemon, "lost-ack");
    assert_eq!(outcome["old"]["status"], "done", "{outcome}");
    assert!(outcome["new"].is_null(), "{outcome}");
    assert_eq!(row(&daemon, "lost-ack")["status"], "done");
    assert_eq!(daemon.http.get("/v1/outbox/again").status, 404);
}

#[test]
fn dr_12_dr_14_a_retired_id_stays_buried_and_final_rows_are_not_requeued() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    let ids = five_states(&broker, &daemon);
    for status in ["done", "inflight", "aborted"] {
        let before = row(&daemon, &ids[status]);
        let answer = daemon
            .http
            .post(&format!("/v1/outbox/{}/requeue", ids[status]), &json!({}));
        assert_eq!(answer.status, 409, "{status}: {answer:?}");
        assert_eq!(row(&daemon, &ids[status]), before);
    }
    let taken = daemon.http.post(
        &format!("/v1/outbox/{}/requeue", ids["dead"]),
        &json!({"new_client_id": ids["done"]}),
    );
    assert_eq!(taken.status, 409, "{taken:?}");
    assert_eq!(row(&daemon, &ids["dead"])["status"], "dead");
    let shown = row(&daemon, &ids["aborted"]);
    let chain: Vec<&str> = shown["chain"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["client_message_id"].as_str())
        .collect();
    assert_eq!(chain, ["id-aborted", "successor"]);
}
