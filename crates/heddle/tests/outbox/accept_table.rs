//! The eleven rows of v10 §4.5.1, one test each, over the real binary (OB-04, OB-05, OB-11).
//!
//! The states are reached by the daemon's own state machine, before a broker that does what the test says.

use crate::support;

use serde_json::{Value, json};
use support::stub_broker::{Script, StubBroker};
use support::{Answer, Daemon, Home, wait_until};

const ID: &str = "the-id";

struct World {
    broker: StubBroker,
    home: Home,
    daemon: Daemon,
}

fn send(daemon: &Daemon, id: &str, message: &str) -> Answer {
    let body = json!({"to": "#ops", "message": message, "client_message_id": id});
    daemon.http.post("/v1/send", &body)
}

fn row(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/outbox/{id}")).expect(200)
}

fn wait_for(daemon: &Daemon, id: &str, status: &str) {
    wait_until(&format!("{id} to be {status}"), || {
        row(daemon, id)["status"] == status
    });
}

/// The drain keeps four batches in flight; with four held, the fifth row waits.
fn hold_the_drain(daemon: &Daemon) {
    for filler in ["f1", "f2", "f3", "f4"] {
        send(daemon, filler, "first").expect(202);
        wait_for(daemon, filler, "inflight");
    }
}

/// A home with the row `the-id` in this state, accepted with the message `first`.
fn with_row_in(status: &str) -> World {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    match status {
        "done" => {}
        "dead" | "aborted" => broker.script(Script::Refuse {
            code: "unknown_recipient",
        }),
        _ => broker.script(Script::Hold),
    }
    if status == "pending" {
        hold_the_drain(&daemon);
    }
    send(&daemon, ID, "first").expect(202);
    if status == "aborted" {
        wait_for(&daemon, ID, "dead");
        broker.script(Script::Hold);
        let requeue = json!({"new_client_id": "successor"});
        let target = format!("/v1/outbox/{ID}/requeue");
        daemon.http.post(&target, &requeue).expect(200);
    }
    wait_for(&daemon, ID, status);
    World {
        broker,
        home,
        daemon,
    }
}

/// Sends again under the same id; the stored row and the broker's view of it must not change.
fn again(world: &World, message: &str) -> (Answer, Value) {
    // A successor goes its own way meanwhile.
    let alone = || {
        let mut row = row(&world.daemon, ID);
        row["chain"] = Value::Null;
        row
    };
    let before = alone();
    let sent = world.broker.sends_of(ID).len();
    let answer = send(&world.daemon, ID, message);
    assert_eq!(alone(), before, "the row was changed");
    assert_eq!(world.broker.sends_of(ID).len(), sent, "it was sent again");
    (answer, before)
}

fn refused(world: &World, message: &str, conflict: &str) -> Value {
    let (answer, before) = again(world, message);
    assert!(answer.head.to_lowercase().contains("problem+json"));
    let problem = answer.expect(409);
    assert_eq!(problem["code"], "idempotency_key_reused");
    assert_eq!(problem["conflict"], conflict);
    let prefix = &before["request_fingerprint"].as_str().unwrap()[..16];
    assert_eq!(problem["daemon_fingerprint_prefix"], prefix);
    problem
}

#[test]
fn v10_4_5_1_row_01_no_row_inserts_pending_and_answers_202_queued() {
    let broker = StubBroker::start();
    broker.script(Script::Hold);
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    hold_the_drain(&daemon);
    daemon.http.get(&format!("/v1/outbox/{ID}")).expect(404);
    let answer = send(&daemon, ID, "first").expect(202);
    assert_eq!(answer["status"], "queued");
    assert_eq!(answer["durability"], "local");
    let row = row(&daemon, ID);
    assert_eq!(
        (&row["status"], &row["attempts"]),
        (&json!("pending"), &json!(0))
    );
    assert!(broker.sends_of(ID).is_empty(), "it does not wait");
    assert_eq!(row["request_fingerprint"], answer["request_fingerprint"]);
    assert_eq!(answer["request_fingerprint"].as_str().unwrap().len(), 64);
}

#[test]
fn v10_4_5_1_row_02_pending_and_match_answers_202_queued() {
    let (answer, _) = again(&with_row_in("pending"), "first");
    assert_eq!(answer.expect(202)["status"], "queued");
}

#[test]
fn v10_4_5_1_row_03_v10_4_11_pending_and_mismatch_answers_409() {
    let world = with_row_in("pending");
    refused(&world, "second", "outbox_pending_fingerprint_mismatch");
}

#[test]
fn v10_4_5_1_row_04_inflight_and_match_answers_202_inflight() {
    let (answer, _) = again(&with_row_in("inflight"), "first");
    assert_eq!(answer.expect(202)["status"], "inflight");
}

#[test]
fn v10_4_5_1_row_05_v10_4_11_inflight_and_mismatch_answers_409() {
    let world = with_row_in("inflight");
    refused(&world, "second", "outbox_inflight_fingerprint_mismatch");
}

#[test]
fn v10_4_5_1_row_06_done_and_match_answers_200_duplicate_with_the_brokers_ids() {
    let (answer, before) = again(&with_row_in("done"), "first");
    let body = answer.expect(200);
    assert_eq!(body["duplicate"], true);
    assert_eq!(body["durability"], "committed");
    assert_eq!(body["broker_message_id"], before["broker_message_id"]);
    assert_eq!(body["history_id"], before["history_id"]);
    assert!(body["history_id"].is_string(), "C20");
}

#[test]
fn v10_4_5_1_row_07_v10_4_11_done_and_mismatch_answers_409_with_the_brokers_id() {
    let world = with_row_in("done");
    let problem = refused(&world, "second", "outbox_done_fingerprint_mismatch");
    let row = row(&world.daemon, ID);
    assert_eq!(problem["broker_message_id"], row["broker_message_id"]);
}

#[test]
fn v10_4_5_1_row_08_dead_and_match_answers_409_with_the_reason() {
    let world = with_row_in("dead");
    let problem = refused(&world, "first", "outbox_dead_fingerprint_match");
    let reason = problem["reason"].as_str().unwrap();
    assert!(reason.starts_with("unknown_recipient"), "{reason}");
    // The next command, for exactly this id; explain says the same.
    let command = format!("heddle daemon outbox requeue --id {ID} --auto");
    let next = problem["next"].as_str().unwrap();
    assert!(next.contains(&command), "{next}");
    let words = world.home.cli(&["explain", ID]).ok().stdout;
    assert!(words.contains(&command), "{words}");
    let inspected = world.home.cli(&["daemon", "outbox", "inspect", ID]).ok();
    assert!(!inspected.stdout.contains("committed"), "{inspected:?}");
    world.broker.script(Script::Commit);
    let args = [
        "daemon", "outbox", "requeue", "--id", ID, "--auto", "--json",
    ];
    let fresh = world.home.cli(&args).ok().json()["new"]["client_message_id"].clone();
    let fresh = fresh.as_str().unwrap();
    wait_for(&world.daemon, fresh, "done");
    // From then on its successor is named, to whoever comes with the old id.
    let problem = refused(&world, "first", "outbox_aborted_fingerprint_match");
    assert_eq!(problem["successor"], fresh, "{problem}");
    let command = format!("heddle explain {fresh}");
    let next = problem["next"].as_str().unwrap();
    assert!(next.contains(&command), "{next}");
    let words = world.home.cli(&["explain", ID]).ok().stdout;
    assert!(words.contains(&command), "{words}");
    let inspected = world.home.cli(&["daemon", "outbox", "inspect", fresh]).ok();
    let words = inspected.stdout;
    assert!(
        words.contains("committed  20") && !words.contains("delivered"),
        "{words}"
    );
}

#[test]
fn v10_4_5_1_row_09_v10_4_11_dead_and_mismatch_answers_409() {
    let world = with_row_in("dead");
    refused(&world, "second", "outbox_dead_fingerprint_mismatch");
}

#[test]
fn v10_4_5_1_row_10_v10_4_11_aborted_and_match_answers_409_for_ever() {
    let world = with_row_in("aborted");
    for _ in 0..3 {
        refused(&world, "first", "outbox_aborted_fingerprint_match");
    }
}

#[test]
fn v10_4_5_1_row_11_v10_4_11_aborted_and_mismatch_answers_409() {
    let world = with_row_in("aborted");
    refused(&world, "second", "outbox_aborted_fingerprint_mismatch");
}

#[test]
fn ob_11_every_409_carries_exactly_the_first_eight_bytes_of_the_daemons_fingerprint() {
    for status in ["pending", "inflight", "done", "dead", "aborted"] {
        let world = with_row_in(status);
        let (answer, before) = again(&world, "second");
        let problem = answer.expect(409);
        let whole = before["request_fingerprint"].as_str().unwrap();
        assert_eq!(whole.len(), 64, "{before}");
        assert_eq!(
            problem["daemon_fingerprint_prefix"],
            whole[..16],
            "{status}"
        );
    }
}
