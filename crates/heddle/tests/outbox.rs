//! The life of an outbox row over the real binary: v10 §4.6.3 and §4.11, v6 §4.5 and §4.12, as an operator
//! meets them.
#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use serde_json::{Value, json};
use support::stub_broker::{Script, StubBroker};
use support::{Answer, Daemon, Home, wait_until, wait_until_within};

fn send_to(daemon: &Daemon, to: &str, id: &str, message: &str) -> Answer {
    let body = json!({"to": to, "message": message, "client_message_id": id});
    daemon.http.post("/v1/send", &body)
}

fn send(daemon: &Daemon, id: &str) -> Answer {
    send_to(daemon, "#ops", id, "first")
}

fn row(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/outbox/{id}")).expect(200)
}

fn wait_for(daemon: &Daemon, id: &str, status: &str) {
    wait_until(&format!("{id} to be {status}"), || {
        row(daemon, id)["status"] == status
    });
}

fn metric(daemon: &Daemon, name: &str) -> f64 {
    let text = daemon.http.get("/v1/metrics").body;
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}

fn refuse(code: &'static str) -> Script {
    Script::Refuse { code }
}

/// A home on a broker of the test's own.
fn on_stub() -> (StubBroker, Home, Daemon) {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    (broker, home, daemon)
}

/// A home whose broker is never there.
fn on_nothing(more: &str) -> (Home, Daemon) {
    let home = Home::new();
    home.config(&format!("[broker]\nurl = \"ws://127.0.0.1:1/\"\n{more}"));
    let daemon = home.up();
    (home, daemon)
}

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
        let (broker, _home, daemon) = on_stub();
        broker.script(Script::Duplicate { history_available });
        send(&daemon, "a").expect(202);
        wait_for(&daemon, "a", "done");
        let pruned = metric(&daemon, "heddle_daemon_dedupe_history_pruned_total");
        let counted = if history_available { 0.0 } else { 1.0 };
        assert!((pruned - counted).abs() < 0.5, "counted {pruned} times");
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
    wait_until("the lost ack", || broker.send_count() == 1);
    broker.script(Script::Commit);
    wait_for(&daemon, "a", "done");
    let shown = row(&daemon, "a");
    assert_eq!(shown["broker_message_id"], "01HZX000000000000000000001");
    assert_eq!(shown["attempts_log"][0]["outcome"], "no_answer");
    assert!(metric(&daemon, "heddle_daemon_duplicates_total") >= 1.0);
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

// --- requeue (v10 §4.6.3, C5, C19) ------------------------------------------------------------

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

#[test]
fn c5_a_dead_row_that_the_broker_holds_is_not_sent_twice() {
    let (broker, home, daemon) = on_stub();
    // Committed under this id before; then the broker says no for another reason.
    send(&daemon, "a").expect(202);
    wait_for(&daemon, "a", "done");
    broker.script(Script::CommitAndHangUp);
    send(&daemon, "b").expect(202);
    wait_until("the lost ack", || broker.send_count() >= 2);
    broker.script(refuse("not_a_member"));
    wait_for(&daemon, "b", "dead");
    let ran = home.cli(&[
        "daemon", "outbox", "requeue", "--id", "b", "--auto", "--json",
    ]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr.contains("the broker has this message"),
        "{ran:?}"
    );
    assert!(ran.json()["broker_message_id"].is_string());
    let rows = daemon.http.get("/v1/outbox").expect(200);
    assert_eq!(rows["rows"].as_array().unwrap().len(), 2, "{rows}");
}

// --- prune (C33) ------------------------------------------------------------------------------

#[test]
fn c33_ob_10_prune_gives_payloads_back_and_every_id_answers_as_before() {
    let (broker, home, daemon) = on_stub();
    send(&daemon, "done").expect(202);
    wait_for(&daemon, "done", "done");
    broker.script(refuse("unknown_recipient"));
    for id in ["dead", "aborted"] {
        send(&daemon, id).expect(202);
        wait_for(&daemon, id, "dead");
    }
    broker.script(Script::Hold);
    home.cli(&[
        "daemon",
        "outbox",
        "requeue",
        "--id",
        "aborted",
        "--new-client-id",
        "prune",
    ])
    .ok();
    wait_for(&daemon, "prune", "inflight");
    let ids = ["done", "dead", "aborted", "prune"];
    let answers = || -> Vec<(u16, Value)> {
        let both = |id: &&str| ["first", "second"].map(|m| send_to(&daemon, "#ops", id, m));
        let all = ids.iter().flat_map(both);
        all.map(|answer| (answer.status, answer.json())).collect()
    };
    let before = answers();

    let young = home
        .cli(&["daemon", "outbox", "prune", "--confirm", "--json"])
        .ok()
        .json();
    assert_eq!(young["rows"], 0, "nothing is 30 days old");
    let args = ["daemon", "outbox", "prune", "--older-than", "0s", "--json"];
    let would = home.cli(&args).ok().json();
    assert_eq!(
        (&would["rows"], &would["confirmed"]),
        (&json!(3), &json!(false))
    );
    assert_eq!(row(&daemon, "done")["pruned"], false);
    let words = home
        .cli(&["daemon", "outbox", "prune", "--older-than", "0s"])
        .ok()
        .stdout;
    assert!(
        words.contains("would give back") && words.contains("--confirm"),
        "{words}"
    );

    let some = home
        .cli(&[
            "daemon",
            "outbox",
            "prune",
            "--older-than",
            "0s",
            "--status",
            "done",
            "--confirm",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(some["rows"], 1);
    let all = home
        .cli(&[
            "daemon",
            "outbox",
            "prune",
            "--older-than",
            "0s",
            "--confirm",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(all["rows"], 2);
    for id in ["done", "dead", "aborted"] {
        assert_eq!(row(&daemon, id)["pruned"], true, "{id}");
    }
    assert_eq!(
        row(&daemon, "prune")["pruned"],
        false,
        "it still needs its payload"
    );
    assert_eq!(answers(), before);

    let ran = home.cli(&["daemon", "outbox", "requeue", "--id", "dead", "--auto"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("gave up its payload") && ran.stderr.contains("next:"));
    assert_eq!(row(&daemon, "dead")["status"], "dead");
    for bad in ["pending", "lost"] {
        let ran = home.cli(&["daemon", "outbox", "prune", "--status", bad, "--confirm"]);
        assert_eq!(ran.code, 2, "{ran:?}");
    }
}

// --- the disk budget (DESIGN §6, C47) ---------------------------------------------------------

#[test]
fn c47_a_full_budget_says_so_refuses_new_ids_only_and_recovers_by_draining() {
    let broker = StubBroker::start();
    broker.script(refuse("storage_unavailable"));
    let home = Home::new();
    home.config(&format!(
        "{}[outbox]\ndisk_budget_mb = 1\n",
        broker.config()
    ));
    let daemon = home.up();
    let mut stream = std::os::unix::net::UnixStream::connect(daemon.http.socket()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
        .write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut events = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(events.any(|line| line.contains("hello")));

    let large = "x".repeat(60_000);
    let mut sent = 0;
    wait_until("507", || {
        let answer = send_to(&daemon, "#ops", &format!("m{sent}"), &large);
        if answer.status == 507 {
            let problem = answer.json();
            assert_eq!(problem["code"], "insufficient_storage");
            assert!(
                problem["next"].as_str().unwrap().contains("prune"),
                "{problem}"
            );
            return true;
        }
        answer.expect(202);
        sent += 1;
        false
    });
    assert!(events.any(|line| line == "event: outbox_pressure_high"));
    let data = events.next().unwrap();
    assert!(data.contains("\"limit_bytes\":1048576"), "{data}");
    daemon.wait_log("outbox_pressure_high");
    assert!(metric(&daemon, "heddle_outbox_pressure_high_total") >= 1.0);
    let status = daemon.http.get("/v1/status").expect(200);
    let degraded = status["degraded"].to_string();
    assert!(
        degraded.contains("refused") || degraded.contains("only what comes in"),
        "{degraded}"
    );
    // Known ids are answered, and the refused one is not consumed.
    assert_eq!(send_to(&daemon, "#ops", "m0", &large).status, 202);
    assert_eq!(send_to(&daemon, "#ops", "m0", "other").status, 409);
    assert_eq!(daemon.http.get(&format!("/v1/outbox/m{sent}")).status, 404);

    // The broker takes messages again: what is delivered gives its space back, without a restart.
    broker.script(Script::Commit);
    let patience = Duration::from_secs(60);
    wait_until_within(patience, "room", || {
        send_to(&daemon, "#ops", &format!("m{sent}"), &large).status == 202
    });
    wait_until_within(patience, "all is well", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["degraded"].as_array().unwrap().is_empty()
    });
    // Which rows gave their payloads back depends on the order of their retries; the ids stay known.
    let is_pruned = |id: &String| row(&daemon, id)["pruned"] == true;
    let mut ids = (0..sent).map(|n| format!("m{n}"));
    let pruned = ids.find(is_pruned).unwrap();
    assert_eq!(row(&daemon, &pruned)["status"], "done");
    let again = send_to(&daemon, "#ops", &pruned, &large).expect(200);
    assert_eq!(again["duplicate"], true);
}

#[test]
fn a_budget_of_nothing_is_refused_in_words() {
    let home = Home::new();
    home.config("[outbox]\ndisk_budget_mb = 0\n");
    let ran = home.cli(&["up"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("disk_budget_mb"), "{ran:?}");
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

// --- several meshes ---------------------------------------------------------------------------

#[test]
fn one_mesh_whose_broker_is_away_delays_no_other() {
    let broker = StubBroker::start();
    let home = Home::new();
    let away = "[[mesh]]\nname = \"away\"\nurl = \"ws://127.0.0.1:1/\"\n";
    home.config(&format!("{}{away}", broker.mesh_config("work")));
    let daemon = home.up();
    for mesh in ["away", "home", "work"] {
        home.cli(&["--mesh", mesh, "send", "@tester", "m", "--id", mesh])
            .ok();
    }
    wait_for(&daemon, "home", "done");
    wait_for(&daemon, "work", "done");
    let waiting = row(&daemon, "away");
    assert_eq!(
        (&waiting["status"], &waiting["mesh"]),
        (&json!("pending"), &json!("away"))
    );
    assert_eq!(broker.sent_ids(), ["work"]);
    let listed = home
        .cli(&["--mesh", "work", "daemon", "outbox", "list", "--json"])
        .ok()
        .json();
    assert_eq!(listed["rows"].as_array().unwrap().len(), 1);
    let status = home.cli(&["status", "--json"]).ok().json();
    let meshes: Vec<(&str, bool)> = status["meshes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| {
            (
                m["mesh"].as_str().unwrap(),
                m["connected"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(meshes, [("home", true), ("work", true), ("away", false)]);
    // HEDDLE_MESH selects too.
    let ran = home
        .command(&["send", "@tester", "m", "--id", "by-env"])
        .env("HEDDLE_MESH", "work")
        .output()
        .unwrap();
    assert!(ran.status.success());
    wait_for(&daemon, "by-env", "done");
    assert_eq!(broker.sent_ids(), ["work", "by-env"]);
}

#[test]
fn a_mesh_elsewhere_has_a_member_of_its_own_that_survives_and_a_token() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&format!(
        "{}token_file = \"work.token\"\n",
        broker.mesh_config("work")
    ));
    std::fs::write(home.path().join("work.token"), "secret-1\n").unwrap();
    for _ in 0..2 {
        let daemon = home.up();
        wait_until("the mesh", || {
            daemon.http.get("/v1/status").expect(200)["connected"] == true
        });
        assert!(!daemon.log().contains("secret-1"));
    }
    let members = broker.members();
    assert_eq!(members.len(), 2);
    assert_eq!(members[0], members[1], "the member did not survive");
    assert_eq!(
        broker.authorizations(),
        ["Bearer secret-1", "Bearer secret-1"]
    );
    std::fs::remove_file(home.path().join("work.token")).unwrap();
    let daemon = home.up();
    let status = daemon.http.get("/v1/status").expect(200);
    assert!(
        status["meshes"][1]["last_error"]
            .as_str()
            .unwrap()
            .contains("token_file"),
        "{status}"
    );
}

#[test]
fn daemon_up_runs_without_a_broker_of_its_own() {
    let home = Home::new();
    let ran = home.cli(&["daemon", "up"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("[[mesh]]") && ran.stderr.contains("heddle up"),
        "{ran:?}"
    );

    let broker = StubBroker::start();
    home.config(&broker.mesh_config("work"));
    let ready = home
        .cli(&["daemon", "up", "--detach", "--json"])
        .ok()
        .json();
    assert_eq!(ready["mesh"], "work");
    assert!(!home.path().join("broker.db").exists());
    let status = home.cli(&["daemon", "status", "--json"]).ok().json();
    assert_eq!(status["meshes"].as_array().unwrap().len(), 1);
    home.cli(&["send", "#ops", "m", "--id", "a", "--wait"]).ok();
    assert_eq!(broker.sent_ids(), ["a"]);
    let again = home.cli(&["daemon", "up", "--detach"]);
    assert_eq!(again.code, 3, "{again:?}");
    home.cli(&["daemon", "down"]).ok();
    assert_eq!(
        home.cli(&["daemon", "status", "--json"]).ok().json()["running"],
        false
    );
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

#[test]
fn a_full_inbox_does_not_use_up_the_budget_of_the_outbox() {
    let home = Home::new();
    home.config("[outbox]\ndisk_budget_mb = 1\n");
    let daemon = home.up();
    let large = "x".repeat(30_000);
    // Three times the budget goes through and stays in the inbox of the same store.
    for n in 0..100 {
        wait_until_within(Duration::from_secs(60), "room", || {
            send_to(&daemon, "@tester", &format!("m{n}"), &large).status == 202
        });
    }
    wait_until_within(Duration::from_secs(60), "all is well", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["degraded"].as_array().unwrap().is_empty() && status["outbox"]["done"] == 100
    });
    let size = std::fs::metadata(home.path().join("data.db")).map_or(0, |file| file.len());
    let log = std::fs::metadata(home.path().join("data.db-wal")).map_or(0, |file| file.len());
    assert!(
        size + log > 2 << 20,
        "the inbox was to hold more than the budget: {size} + {log}"
    );
    send_to(&daemon, "@tester", "after", "small").expect(202);
}
