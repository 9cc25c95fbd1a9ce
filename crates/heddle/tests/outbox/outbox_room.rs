//! The room that an outbox takes, over the real binary: prune (C33) and the disk budget (DESIGN §6, C47).
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use serde_json::{Value, json};
use support::outbox::{metric, on_stub, refuse, row, send, send_to, wait_for};
use support::stub_broker::{Script, StubBroker};
use support::{Home, wait_until, wait_until_within};

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

#[test]
fn c33_dead_rows_are_retired_when_an_operator_says_so_and_their_ids_stay_taken() {
    let (broker, home, daemon) = on_stub();
    send(&daemon, "done").expect(202);
    wait_for(&daemon, "done", "done");
    broker.script(refuse("unknown_recipient"));
    for id in ["one", "two"] {
        send(&daemon, id).expect(202);
        wait_for(&daemon, id, "dead");
    }
    let status = || daemon.http.get("/v1/status").expect(200);
    assert_eq!(status()["next"], "heddle daemon outbox --failed");
    let prune = ["daemon", "outbox", "prune", "--older-than", "0s"];
    // One of them has given its payload back before.
    let first = json!({"status": ["dead"], "older_than_seconds": 0, "confirm": true});
    assert_eq!(
        daemon.http.post("/v1/outbox/prune", &first).expect(200)["rows"],
        2
    );
    let retire = |more: &[&str]| home.cli(&[&prune[..], &["--retire"], more].concat());
    for wrong in [&[][..], &["--status", "done"], &["--status", "dead,done"]] {
        assert_eq!(retire(wrong).code, 2, "{wrong:?}");
    }
    let would = retire(&["--status", "dead"]).ok().stdout;
    assert!(would.contains("would retire 2 dead rows"), "{would}");
    assert_eq!(status()["outbox"]["dead"], 2);
    retire(&["--status", "dead", "--confirm"]).ok();
    let told = status();
    assert_eq!(
        (&told["outbox"]["dead"], &told["outbox"]["aborted"]),
        (&json!(0), &json!(2))
    );
    assert_eq!(told["verdict"], "ok", "{told}");
    for (message, end) in [("first", "match"), ("second", "mismatch")] {
        let problem = send_to(&daemon, "#ops", "one", message).expect(409);
        assert_eq!(
            problem["conflict"],
            format!("outbox_aborted_fingerprint_{end}")
        );
    }
    assert_eq!(row(&daemon, "one")["aborted_by"], "operator");
    assert_eq!(row(&daemon, "done")["status"], "done");
    let ran = home.cli(&["daemon", "outbox", "requeue", "--id", "one", "--auto"]);
    assert_eq!(ran.code, 3, "{ran:?}");
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
            // Nothing is dead, so a prune would give nothing back.
            let next = problem["next"].as_str().unwrap();
            assert!(
                next.contains("disk_budget_mb") && !next.contains("prune"),
                "{problem}"
            );
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("that its budget allows"), "{problem}");
            return true;
        }
        answer.expect(202);
        sent += 1;
        false
    });
    assert!(events.any(|line| line == "event: outbox_pressure_high"));
    let data = events.next().unwrap();
    assert!(data.contains("\"limit_bytes\":1048576"), "{data}");
    // Each step is told: 80 %, then 95 % or more, where sends are refused.
    let is_refusing = |line: &str| {
        line.contains("\"level\":\"refusing\"") || line.contains("\"level\":\"inbound_only\"")
    };
    assert!(data.contains("\"level\":\"high\""), "{data}");
    assert!(events.any(|line| line == "event: outbox_pressure_high"));
    let data = events.next().unwrap();
    assert!(is_refusing(&data), "{data}");
    daemon.wait_log("outbox_pressure_high");
    assert!(metric(&daemon, "heddle_outbox_pressure_high_total") >= 1.0);
    let status = daemon.http.get("/v1/status").expect(200);
    let degraded = status["degraded"].to_string();
    assert!(
        degraded.contains("refused") || degraded.contains("only what comes in"),
        "{degraded}"
    );
    assert!(
        degraded.contains("budget")
            && !degraded.contains("prune")
            && !degraded.contains("free some"),
        "{degraded}"
    );
    assert_eq!(status["next"], "heddle daemon outbox list", "{status}");
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
    // And so is the way back, down to the last step.
    assert!(events.any(|line| line == "event: outbox_pressure_eased"));
    assert!(events.any(|line| line.contains("\"level\":\"fine\"")));
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

#[test]
fn a_full_inbox_does_not_use_up_the_budget_of_the_outbox() {
    let home = Home::new();
    home.config("[outbox]\ndisk_budget_mb = 1\n");
    let daemon = home.up();
    let large = "x".repeat(30_000);
    // Three times the budget goes through and stays in the inbox of the same store. Nobody is refused for what is delivered already.
    for n in 0..100 {
        let id = format!("m{n}");
        send_to(&daemon, "@tester", &id, &large).expect(202);
        wait_until_within(Duration::from_secs(60), "it to arrive", || {
            daemon.http.get("/v1/status").expect(200)["outbox"]["done"] == n + 1
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

#[test]
fn a_large_message_finds_the_room_that_delivered_ones_hold_and_a_prune_counts_at_once() {
    let home = Home::new();
    home.config("[outbox]\ndisk_budget_mb = 1\n");
    let daemon = home.up();
    let large = "x".repeat(400_000);
    let done = |count: u64| {
        wait_until_within(Duration::from_secs(60), "it to arrive", || {
            daemon.http.get("/v1/status").expect(200)["outbox"]["done"] == count
        });
    };
    // Two of them are less than 80 % of the budget, and a third does not fit beside them.
    for n in 1..=5 {
        send_to(&daemon, "@tester", &format!("m{n}"), &large).expect(202);
        done(n);
    }
    let prune = [
        "daemon",
        "outbox",
        "prune",
        "--older-than",
        "0s",
        "--confirm",
    ];
    home.cli(&prune).ok();
    wait_until("the room", || {
        metric(&daemon, "heddle_outbox_disk_used_bytes") < 1000.0
    });
    daemon.stop();
    let daemon = home.up();
    for n in 6..=9 {
        wait_until("a connection", || {
            daemon.http.get("/v1/status").expect(200)["meshes"][0]["connected"] == true
        });
        send_to(&daemon, "@tester", &format!("m{n}"), &large).expect(202);
        wait_until_within(Duration::from_secs(60), "it to arrive", || {
            daemon.http.get("/v1/status").expect(200)["outbox"]["done"] == n
        });
    }
}

#[test]
fn c47_a_burst_of_requeues_stays_within_the_budget_as_sends_do() {
    let broker = StubBroker::start();
    broker.script(refuse("storage_unavailable"));
    let home = Home::new();
    let mb = 1 << 20;
    home.config(&format!(
        "{}[outbox]\ndisk_budget_mb = 1\n",
        broker.config()
    ));
    let daemon = home.up();
    let large = "x".repeat(20_000);
    let mut sent = 0;
    wait_until("507", || {
        sent += 1;
        send_to(&daemon, "#ops", &format!("m{sent}"), &large).status == 507
    });
    // What new sends may not use is theirs, and no more than that.
    let mut answers = Vec::new();
    for number in 1..40 {
        let path = format!("/v1/outbox/m{number}/requeue");
        let body = json!({"new_client_id": format!("again-{number}"), "force": true});
        // One that is just on its way to the broker is asked for again.
        wait_until("a row that rests", || {
            let answer = daemon.http.post(&path, &body).status;
            answers.extend((answer != 409).then_some(answer));
            answer != 409
        });
    }
    let refused = answers.iter().filter(|status| **status == 507).count();
    assert!(refused >= 30, "{answers:?}");
    assert!(
        answers.iter().all(|s| *s == 200 || *s == 507),
        "{answers:?}"
    );
    wait_until("a look", || {
        let used = metric(&daemon, "heddle_outbox_disk_used_bytes");
        used > 0.9 * f64::from(mb) && used <= f64::from(mb)
    });
}
