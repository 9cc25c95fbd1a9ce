//! The life of an outbox row over the real binary: v10 §4.11, v6 §4.5 and §4.12, as an operator meets them.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use serde_json::{Value, json};
use support::outbox::{metric, on_nothing, on_stub, refuse, row, send, send_to, wait_for};
use support::stub_broker::{Script, StubBroker};
use support::{Home, text_of, wait_until};

// --- what the broker says (v6 §4.5, v10 §4.11) ------------------------------------------------

#[test]
fn v6_4_5_created_is_done_with_the_brokers_id() {
    let (_broker, _home, daemon) = on_stub();
    send(&daemon, "a").expect(202);
    wait_for(&daemon, "a", "done");
    let row = row(&daemon, "a");
    assert_eq!(row["broker_message_id"], "01HZX000000000000000000001");
    assert_eq!(row["history_id"], "1.1");
    assert!(row.get("attempts_log").is_none(), "{row}");
}

#[test]
fn v6_4_5_v6_4_12_a_duplicate_is_done_whether_or_not_its_history_is_there() {
    for history_available in [true, false] {
        let (broker, home, daemon) = on_stub();
        broker.script(Script::Duplicate { history_available });
        send(&daemon, "a").expect(202);
        wait_for(&daemon, "a", "done");
        let pruned = metric(&daemon, "heddle_daemon_dedupe_history_pruned_total");
        let counted = if history_available { 0.0 } else { 1.0 };
        assert!((pruned - counted).abs() < 0.5, "counted {pruned} times");
        // Outcomes 2 and 3 of v6 §4.5: told at INFO, and at WARN where the body is gone.
        let (level, words) = if history_available {
            ("info", "the broker had it already")
        } else {
            ("warn", "the broker had it already, and has pruned it since")
        };
        wait_until("the line in the log", || {
            let log = text_of(&home.path().join("logs/daemon.jsonl"));
            let mut lines = log
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.any(|line| {
                line["message"] == words && line["level"] == level && line["fields"]["id"] == "a"
            })
        });
        if !history_available {
            daemon.wait_log("has pruned it since");
        }
        assert_eq!(send(&daemon, "a").expect(200)["duplicate"], true);
        assert_eq!(broker.send_count(), 1);
    }
}

#[test]
fn v6_4_5_v6_4_12_v10_4_11_a_conflict_at_the_broker_kills_and_is_listed_as_failed() {
    let (broker, home, daemon) = on_stub();
    broker.script(Script::Conflict);
    send(&daemon, "a").expect(202);
    wait_for(&daemon, "a", "dead");
    let failed = home.cli(&["daemon", "outbox", "--failed", "--json"]).ok();
    let failed = failed.json();
    assert_eq!(failed["rows"][0]["client_message_id"], "a");
    assert_eq!(failed["rows"][0]["outcome"], "not_delivered");
    let words = home.cli(&["daemon", "outbox", "--failed"]).ok().stdout;
    assert!(
        words.contains("idempotency_key_reused") && words.contains("requeue"),
        "{words}"
    );
    // It is not rotated by itself: nothing more is sent, and the id stays taken.
    assert_eq!(broker.send_count(), 1);
    let problem = send(&daemon, "a").expect(409);
    assert_eq!(problem["conflict"], "outbox_dead_fingerprint_match");
    // The operator rotates the id by hand: the same message goes out under the new one, the old one stays buried.
    broker.script(Script::Commit);
    let args = [
        "daemon",
        "outbox",
        "requeue",
        "--id",
        "a",
        "--new-client-id",
        "a2",
    ];
    home.cli(&args).ok();
    wait_for(&daemon, "a2", "done");
    assert_eq!(row(&daemon, "a")["status"], "aborted");
    assert_eq!(broker.sends_of("a2"), broker.sends_of("a"));
    assert_eq!(broker.send_count(), 2);
    let problem = send(&daemon, "a").expect(409);
    assert_eq!(problem["conflict"], "outbox_aborted_fingerprint_match");
}

#[test]
fn v10_4_11_c6_rl_09_a_rate_limit_is_waited_out_and_every_attempt_is_told() {
    let (broker, home, daemon) = on_stub();
    broker.script(refuse("rate_limited"));
    send(&daemon, "a").expect(202);
    wait_until("two attempts", || row(&daemon, "a")["attempts"] == 2);
    assert_eq!(row(&daemon, "a")["status"], "pending");
    broker.script(Script::Commit);
    wait_for(&daemon, "a", "done");
    let shown = row(&daemon, "a");
    let log = shown["attempts_log"].as_array().unwrap();
    let outcomes: Vec<&str> = log.iter().map(|a| a["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes.first(), Some(&"rate_limited"));
    assert_eq!(outcomes.last(), Some(&"committed"));
    assert_eq!(log.len() as u64, shown["attempts"].as_u64().unwrap());
    let words = home.cli(&["daemon", "outbox", "inspect", "a"]).ok().stdout;
    assert!(
        words.contains("as scripted") && words.contains("prints"),
        "{words}"
    );
}

#[test]
fn dr_03_what_a_blocked_member_sent_waits_until_the_block_is_lifted() {
    let (broker, _home, daemon) = on_stub();
    broker.script(refuse("member_blocked"));
    send(&daemon, "blocked").expect(202);
    wait_until("a refusal", || {
        row(&daemon, "blocked")["last_error"]
            .to_string()
            .contains("member_blocked")
    });
    assert_eq!(row(&daemon, "blocked")["status"], "pending");
    broker.script(Script::Commit);
    wait_for(&daemon, "blocked", "done");
}

#[test]
fn v10_4_11_permanent_refusals_of_b1_and_b2_kill_and_requeue_mends_them() {
    let (broker, home, daemon) = on_stub();
    for code in ["payload_too_large", "invalid_request", "unknown_recipient"] {
        broker.script(refuse(code));
        send(&daemon, code).expect(202);
        wait_for(&daemon, code, "dead");
        broker.script(Script::Commit);
        let new_id = format!("{code}-again");
        let args = [
            "daemon",
            "outbox",
            "requeue",
            "--id",
            code,
            "--new-client-id",
            &new_id,
        ];
        let words = home.cli(&args).ok().stdout;
        assert!(words.contains(&new_id), "{words}");
        wait_for(&daemon, &new_id, "done");
        assert_eq!(row(&daemon, code)["status"], "aborted");
        assert_eq!(broker.sends_of(code).len(), 1, "the old id was sent again");
    }
}

#[test]
fn v10_4_11_a_retry_of_a_committed_id_is_done_and_nothing_is_split() {
    let (broker, _home, daemon) = on_stub();
    broker.script(Script::CommitAndHangUp);
    send(&daemon, "a").expect(202);
    wait_until("the lost ack", || broker.send_count() >= 1);
    broker.script(Script::Commit);
    wait_for(&daemon, "a", "done");
    let shown = row(&daemon, "a");
    assert_eq!(shown["broker_message_id"], "01HZX000000000000000000001");
    assert_eq!(shown["attempts_log"][0]["outcome"], "no_answer");
    assert!(metric(&daemon, "heddle_daemon_duplicates_total") >= 1.0);
}

#[test]
fn a_verdict_about_another_id_is_no_answer_to_ours() {
    let (broker, _home, daemon) = on_stub();
    broker.script(Script::CommitAnother);
    send(&daemon, "a").expect(202);
    wait_until("the note", || {
        row(&daemon, "a")["last_error"]
            .to_string()
            .contains("another id")
    });
    assert_ne!(row(&daemon, "a")["status"], "done");
    broker.script(Script::Commit);
    wait_for(&daemon, "a", "done");
    assert_eq!(
        row(&daemon, "a")["broker_message_id"],
        "01HZX000000000000000000001"
    );
}

#[test]
fn rows_that_waited_together_are_sent_by_priority() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let daemon = home.up();
    for (n, priority) in ["low", "next", "now", "low", "now"].iter().enumerate() {
        let id = format!("{priority}-{n}");
        let body =
            json!({"to": "@tester", "message": "m", "priority": priority, "client_message_id": id});
        daemon.http.post("/v1/send", &body).expect(202);
    }
    drop(daemon);
    home.config(&broker.config());
    let daemon = home.up();
    wait_for(&daemon, "low-3", "done");
    assert_eq!(
        broker.sent_ids(),
        ["now-2", "now-4", "next-1", "low-0", "low-3"]
    );
}

// --- damage -----------------------------------------------------------------------------------

#[test]
fn a_damaged_row_is_parked_and_shown_and_the_others_go_on() {
    let (home, daemon) = on_nothing("");
    for id in ["a", "damaged", "c"] {
        send_to(&daemon, "@tester", id, "m").expect(202);
    }
    drop(daemon);
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    raw.execute_batch(
        "DROP TRIGGER outbox_frozen;
         UPDATE outbox SET priority = 'soon' WHERE client_message_id = 'damaged'",
    )
    .unwrap();
    drop(raw);
    let broker = StubBroker::start();
    home.config(&broker.config());
    let daemon = home.up();
    wait_for(&daemon, "c", "done");
    wait_for(&daemon, "a", "done");
    let status = daemon.http.get("/v1/status").expect(200);
    assert!(
        status["degraded"]
            .to_string()
            .contains("1 damaged outbox row"),
        "{status}"
    );
    assert_eq!(status["outbox"]["pending"], 1);
    assert_eq!(broker.sent_ids(), ["a", "c"]);
}

#[test]
fn dr_16_a_damaged_outbox_is_refused_at_start_and_its_file_is_left_alone() {
    let (home, daemon) = on_nothing("");
    send_to(&daemon, "@tester", "a", "m").expect(202);
    daemon.kill();
    let path = home.path().join("data.db");
    // The last one to close moves the log into the file.
    let raw = rusqlite::Connection::open(&path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'outbox'";
    let page: i64 = raw.query_row(sql, [], |row| row.get(0)).unwrap();
    raw.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let start = usize::try_from(page - 1).unwrap() * 4096;
    bytes[start..start + 64].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let ran = home.cli(&["up"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("backup"), "{ran:?}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

// --- listing ----------------------------------------------------------------------------------

#[test]
fn the_outbox_is_listed_by_state_and_page() {
    let (broker, home, daemon) = on_stub();
    let empty = home.cli(&["daemon", "outbox", "list"]).ok().stdout;
    assert!(empty.contains("empty"), "{empty}");
    for n in 0..3 {
        send(&daemon, &format!("ok-{n}")).expect(202);
        wait_for(&daemon, &format!("ok-{n}"), "done");
    }
    broker.script(refuse("not_a_member"));
    send(&daemon, "bad").expect(202);
    wait_for(&daemon, "bad", "dead");
    let ids = |args: &[&str]| -> Vec<String> {
        let page = home.cli(args).ok().json();
        let rows = page["rows"].as_array().unwrap().iter();
        rows.map(|row| row["client_message_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let list = ["daemon", "outbox", "list", "--json"];
    assert_eq!(ids(&list), ["bad", "ok-2", "ok-1", "ok-0"]);
    assert_eq!(ids(&[&list[..], &["--failed"]].concat()), ["bad"]);
    assert_eq!(
        ids(&[&list[..], &["--status", "done"]].concat()),
        ["ok-2", "ok-1", "ok-0"]
    );
    let page = home
        .cli(&[&list[..], &["--limit", "2"]].concat())
        .ok()
        .json();
    let cursor = page["cursor"].as_str().unwrap().to_owned();
    assert_eq!(
        ids(&[&list[..], &["--cursor", &cursor]].concat()),
        ["ok-1", "ok-0"]
    );
    assert_eq!(
        home.cli(&["daemon", "outbox", "list", "--status", "lost"])
            .code,
        2
    );
    let status = home.cli(&["status"]).ok().stdout;
    assert!(status.contains("heddle daemon outbox --failed"), "{status}");
}
