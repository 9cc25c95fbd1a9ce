//! Requeue over the real binary (v10 §4.6.3, C5, C19): what travels along, what is buried, what a kill leaves.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use serde_json::{Value, json};
use support::outbox::{on_nothing, on_stub, refuse, row, send, send_to, wait_for};
use support::stub_broker::{Script, StubBroker};
use support::{Daemon, wait_until};

/// A dead row with everything that a message can have.
fn rich_dead(broker: &StubBroker, daemon: &Daemon) -> Value {
    broker.script(refuse("unknown_recipient"));
    let body = json!({
        "to": "#ops", "message": "text", "client_message_id": "rich", "priority": "now",
        "meta": {"b": 1, "a": [true]}, "reply_to_id": "r-1", "mentions": ["@tester"],
    });
    daemon.http.post("/v1/send", &body).expect(202);
    wait_for(daemon, "rich", "dead");
    broker.script(Script::Commit);
    row(daemon, "rich")
}

fn envelope(broker: &StubBroker, id: &str) -> Value {
    serde_json::from_str(&broker.sends_of(id)[0]).unwrap()
}

#[test]
fn c19_dr_15_everything_travels_along_and_the_same_payload_keeps_its_fingerprint() {
    let (broker, home, daemon) = on_stub();
    let old = rich_dead(&broker, &daemon);
    let args = [
        "daemon", "outbox", "requeue", "--id", "rich", "--auto", "--json",
    ];
    let answer = home.cli(&args).ok().json();
    assert_eq!(answer["old"]["status"], "aborted");
    assert_eq!(answer["old"]["aborted_by"], "operator");
    assert_eq!(answer["old"]["superseded_by"], answer["new"]["id"]);
    assert_eq!(
        answer["new"]["request_fingerprint"],
        old["request_fingerprint"]
    );
    assert_eq!(
        answer["old"]["request_fingerprint"],
        old["request_fingerprint"]
    );
    let new_id = answer["new"]["client_message_id"].as_str().unwrap();
    assert_ne!(new_id, "rich");
    wait_for(&daemon, new_id, "done");
    assert_eq!(envelope(&broker, new_id), envelope(&broker, "rich"));
}

#[test]
fn c19_dr_15_a_patch_changes_what_it_names_and_gets_fingerprints_of_its_own() {
    let (broker, home, daemon) = on_stub();
    let old = rich_dead(&broker, &daemon);
    let patch = home.path().join("patch.json");
    std::fs::write(&patch, r#"{"message": "other text"}"#).unwrap();
    let args = [
        "daemon",
        "outbox",
        "requeue",
        "--id",
        "rich",
        "--new-client-id",
        "patched",
        "--patch-payload",
        patch.to_str().unwrap(),
        "--json",
    ];
    let answer = home.cli(&args).ok().json();
    assert_ne!(
        answer["new"]["request_fingerprint"],
        old["request_fingerprint"]
    );
    wait_for(&daemon, "patched", "done");
    let mut expected = envelope(&broker, "rich");
    expected["body"] = json!("other text");
    assert_eq!(envelope(&broker, "patched"), expected);
    // The old row keeps its own, and answers with it.
    let problem = send_to(&daemon, "#ops", "rich", "other text").expect(409);
    assert_eq!(problem["conflict"], "outbox_aborted_fingerprint_mismatch");
    let prefix = &old["request_fingerprint"].as_str().unwrap()[..16];
    assert_eq!(problem["daemon_fingerprint_prefix"], prefix);
}

#[test]
fn c19_a_patch_is_checked_like_a_send_and_a_bad_one_changes_nothing() {
    let (broker, home, daemon) = on_stub();
    let before = rich_dead(&broker, &daemon);
    let patch = home.path().join("patch.json");
    for (text, code) in [
        (r#"{"colour": "red"}"#, 2),
        (r#"{"client_message_id": "x"}"#, 2),
        (r#"{"priority": "soon"}"#, 2),
        (r#"{"meta": [1]}"#, 2),
        (r#"{"message": 7}"#, 2),
        (r#"{"to": "nowhere"}"#, 2),
        (r##"{"to": "#nowhere"}"##, 4),
        ("[]", 2),
        ("{ torn", 2),
    ] {
        std::fs::write(&patch, text).unwrap();
        let args = [
            "daemon",
            "outbox",
            "requeue",
            "--id",
            "rich",
            "--auto",
            "--patch-payload",
            patch.to_str().unwrap(),
        ];
        let ran = home.cli(&args);
        assert_eq!(ran.code, code, "{text}: {ran:?}");
        assert!(ran.stderr.contains("next:"), "{ran:?}");
        assert_eq!(row(&daemon, "rich"), before, "{text}");
    }
    let ran = home.cli(&["daemon", "outbox", "requeue", "--id", "rich"]);
    assert_eq!(ran.code, 2, "neither --auto nor --new-client-id: {ran:?}");
    let ran = home.cli(&["daemon", "outbox", "requeue", "--id", "nobody", "--auto"]);
    assert_eq!(ran.code, 4, "{ran:?}");
}

#[test]
fn dr_12_dr_13_a_chain_of_three_is_shown_whole_and_every_old_id_stays_buried() {
    let (broker, home, daemon) = on_stub();
    broker.script(refuse("unknown_recipient"));
    send(&daemon, "one").expect(202);
    wait_for(&daemon, "one", "dead");
    for (old, new) in [("one", "two"), ("two", "three")] {
        let args = [
            "daemon",
            "outbox",
            "requeue",
            "--id",
            old,
            "--new-client-id",
            new,
        ];
        home.cli(&args).ok();
        wait_for(&daemon, new, "dead");
    }
    broker.script(Script::Commit);
    let args = [
        "daemon",
        "outbox",
        "requeue",
        "--id",
        "three",
        "--new-client-id",
        "four",
    ];
    home.cli(&args).ok();
    wait_for(&daemon, "four", "done");
    for id in ["one", "two", "three", "four"] {
        let shown = home
            .cli(&["daemon", "outbox", "inspect", id, "--json"])
            .ok()
            .json();
        let chain = shown["chain"].as_array().unwrap();
        let ids: Vec<&str> = chain
            .iter()
            .map(|r| r["client_message_id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["one", "two", "three", "four"]);
        let words = home.cli(&["daemon", "outbox", "inspect", id]).ok().stdout;
        let places: Vec<usize> = ids
            .iter()
            .map(|id| words.rfind(&format!(" {id} ")).unwrap())
            .collect();
        assert!(places.is_sorted(), "{words}");
    }
    // What happened then, and where it is now.
    let told = home.cli(&["explain", "two"]).ok().stdout;
    assert!(told.contains(" as three, which goes on as four"), "{told}");
    drop(daemon);
    let daemon = home.up();
    for id in ["one", "two", "three"] {
        for (message, end) in [("first", "match"), ("second", "mismatch")] {
            let problem = send_to(&daemon, "#ops", id, message).expect(409);
            let conflict = format!("outbox_aborted_fingerprint_{end}");
            assert_eq!(problem["conflict"], conflict);
        }
        let ran = home.cli(&["daemon", "outbox", "requeue", "--id", id, "--auto"]);
        assert_eq!(ran.code, 3, "{ran:?}");
    }
}

/// CONTRACT: a call whose answer was lost is repeated with its key, and gets that answer.
#[test]
fn a_requeue_with_a_key_is_answered_the_same_again_and_sends_once() {
    let (broker, _home, daemon) = on_stub();
    rich_dead(&broker, &daemon);
    let path = "/v1/outbox/rich/requeue";
    let ask = |key: &str, body: &str| {
        let headers = [
            ("Idempotency-Key", key),
            ("content-type", "application/json"),
        ];
        daemon.http.request("POST", path, &headers, body).unwrap()
    };
    let first = ask("again", "{}").expect(200);
    assert_eq!(first["new"]["client_message_id"], "again");
    wait_for(&daemon, "again", "done");
    let second = ask("again", "{}").expect(200);
    for row in ["old", "new"] {
        assert_eq!(second[row]["id"], first[row]["id"], "{second}");
    }
    assert_eq!(broker.sends_of("again").len(), 1);
    // The same key for something else, and another key for the same row, change nothing.
    ask("again", r#"{"patch_payload": {"message": "other"}}"#).expect(409);
    ask("another", "{}").expect(409);
    ask("again", r#"{"new_client_id": "differs"}"#).expect(400);
    assert!(broker.sends_of("another").is_empty());
    assert!(row(&daemon, "rich")["superseded_by"] == first["new"]["id"]);
}

#[test]
fn c5_without_the_broker_a_requeue_is_refused_unless_forced() {
    let (home, daemon) = on_nothing("");
    send_to(&daemon, "@tester", "a", "m").expect(202);
    let args = [
        "daemon",
        "outbox",
        "requeue",
        "--id",
        "a",
        "--new-client-id",
        "b",
    ];
    let ran = home.cli(&args);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("--force"), "{ran:?}");
    assert_eq!(row(&daemon, "a")["status"], "pending");
    assert_eq!(daemon.http.get("/v1/outbox/b").status, 404);
    let forced: Vec<&str> = args.into_iter().chain(["--force"]).collect();
    home.cli(&forced).ok();
    assert_eq!(row(&daemon, "a")["status"], "aborted");
    assert_eq!(row(&daemon, "b")["status"], "pending");
}

/// A requeue of what the broker has committed makes the row `done` instead, whatever it was before.
#[test]
fn c5_dr_05_a_dead_row_that_the_broker_holds_becomes_done_and_is_not_sent_twice() {
    let (broker, home, daemon) = on_stub();
    // Committed under this id before; then the broker says no for another reason.
    send(&daemon, "a").expect(202);
    wait_for(&daemon, "a", "done");
    broker.script(Script::CommitAndHangUp);
    send(&daemon, "b").expect(202);
    wait_until("the lost ack", || broker.send_count() >= 2);
    broker.script(refuse("not_a_member"));
    wait_for(&daemon, "b", "dead");
    let sent = broker.send_count();
    let requeue = [
        "daemon", "outbox", "requeue", "--id", "b", "--auto", "--json",
    ];
    let answer = home.cli(&requeue).ok().json();
    assert_eq!(answer["new"], Value::Null, "{answer}");
    assert_eq!(answer["old"]["status"], "done", "{answer}");
    assert!(answer["old"]["broker_message_id"].is_string(), "{answer}");
    assert!(answer["old"]["history_id"].is_string(), "{answer}");
    let rows = daemon.http.get("/v1/outbox").expect(200);
    assert_eq!(rows["rows"].as_array().unwrap().len(), 2, "{rows}");
    assert_eq!(broker.send_count(), sent, "OB-13: nothing was sent again");
    // The caller's own retry hears the same, and there is nothing left to requeue.
    let again = send(&daemon, "b").expect(200);
    assert_eq!(again["duplicate"], true);
    assert_eq!(home.cli(&requeue).code, 3);
    let log = row(&daemon, "b")["attempts_log"].clone();
    let last = log.as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["outcome"], "committed", "{log}");
    drop(daemon);
    let daemon = home.up();
    assert_eq!(row(&daemon, "b")["status"], "done");
}

/// Of a payload that was pruned nothing can be sent; whether it arrived can still be known.
#[test]
fn c5_a_pruned_dead_row_that_the_broker_holds_becomes_done() {
    let (broker, home, daemon) = on_stub();
    broker.script(Script::CommitAndHangUp);
    send(&daemon, "b").expect(202);
    wait_until("the lost ack", || broker.send_count() >= 1);
    broker.script(refuse("not_a_member"));
    wait_for(&daemon, "b", "dead");
    send(&daemon, "c").expect(202);
    wait_for(&daemon, "c", "dead");
    home.cli(&[
        "daemon",
        "outbox",
        "prune",
        "--older-than",
        "0s",
        "--confirm",
    ])
    .ok();
    let requeue = |id: &str| home.cli(&["daemon", "outbox", "requeue", "--id", id, "--auto"]);
    requeue("b").ok();
    assert_eq!(row(&daemon, "b")["status"], "done");
    let ran = requeue("c");
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("prune"), "{ran:?}");
    assert_eq!(row(&daemon, "c")["status"], "dead");
}

#[test]
fn dr_11_a_requeue_that_a_kill_cuts_short_has_happened_or_has_not() {
    let (home, mut daemon) = on_nothing("");
    send_to(&daemon, "@tester", "r0", "m").expect(202);
    for n in 0..6 {
        let (old, new) = (format!("r{n}"), format!("r{}", n + 1));
        let (http, target) = (daemon.http.clone(), format!("/v1/outbox/{old}/requeue"));
        let body = json!({"new_client_id": new, "force": true}).to_string();
        let asked = std::thread::spawn(move || http.request("POST", &target, &[], &body));
        daemon.kill();
        let answer = asked.join().unwrap();
        daemon = home.up();
        let before = row(&daemon, &old);
        let after = daemon.http.get(&format!("/v1/outbox/{new}"));
        match before["status"].as_str().unwrap() {
            "aborted" => {
                let after = after.expect(200);
                assert_eq!(before["superseded_by"], after["id"]);
                assert_eq!(before["aborted_by"], "operator");
                assert_eq!(after["status"], "pending");
            }
            status => {
                assert_eq!((status, after.status), ("pending", 404));
                assert!(
                    answer.is_none_or(|answer| answer.status != 200),
                    "told and forgotten"
                );
                let body = json!({"new_client_id": new, "force": true});
                daemon
                    .http
                    .post(&format!("/v1/outbox/{old}/requeue"), &body)
                    .expect(200);
            }
        }
    }
    assert_eq!(row(&daemon, "r6")["chain"].as_array().unwrap().len(), 7);
}
