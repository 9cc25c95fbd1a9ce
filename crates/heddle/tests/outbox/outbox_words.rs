//! The outbox in words: with several senders of one id, for retired and damaged rows, and after a broker has lost some. Every
//! command that is printed is about the row that was asked for.

use crate::support;

use serde_json::{Value, json};
use support::outbox::{on_stub, refuse, send_to, wait_for};
use support::pasted::{commands, pasted};
use support::queue::{committed, push, take_with};
use support::stub_broker::Script;
use support::{Daemon, Home, wait_until};

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn explain(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/explain/{id}")).expect(200)
}

/// A dead row of bob's, one of ann's and one of the default agent's, all under one id.
fn three_dead() -> (support::stub_broker::StubBroker, Home, Daemon) {
    let (broker, home, daemon) = on_stub();
    broker.script(refuse("unknown_recipient"));
    for agent in ["bob", "ann", "tester"] {
        let send = ["send", "#ops", agent, "--id", "d1", "--agent", agent];
        home.cli(&send).ok();
    }
    wait_until("three dead rows", || {
        daemon.http.get("/v1/status").expect(200)["outbox"]["dead"] == 3
    });
    (broker, home, daemon)
}

#[test]
fn c1_c2_c3_with_several_senders_of_one_id_every_printed_command_is_about_the_row_that_was_asked_for()
 {
    let (broker, home, daemon) = three_dead();
    let list = home.cli(&["daemon", "outbox", "list"]).ok().stdout;
    assert!(list.lines().next().unwrap().contains("FROM"), "{list}");
    for agent in ["@bob", "@ann", "@tester"] {
        assert_eq!(
            list.lines().filter(|line| line.contains(agent)).count(),
            1,
            "{list}"
        );
    }
    let next = list
        .lines()
        .find_map(|line| line.strip_prefix("next: "))
        .unwrap();
    let shown = pasted(&home, next).ok().stdout;
    let row_id = next.rsplit(' ').next().unwrap();
    assert!(shown.contains(row_id) && list.contains(row_id), "{shown}");

    let words = home.cli(&["explain", "d1", "--agent", "bob"]).ok().stdout;
    let told = commands(&words);
    assert!(told[0].ends_with("--agent bob"), "{words}");
    broker.script(Script::Commit);
    pasted(&home, &told[0]).ok();
    let rows = daemon.http.get("/v1/outbox?status=aborted").expect(200);
    assert_eq!(rows["rows"].as_array().unwrap().len(), 1, "{rows}");
    assert_eq!(rows["rows"][0]["agent"], "bob", "{rows}");
    // It goes on under another id, and the next command says which, as its sender.
    let words = home.cli(&["explain", "d1", "--agent", "bob"]).ok().stdout;
    assert!(
        words.starts_with("d1 is aborted: requeued by the operator at 20"),
        "{words}"
    );
    let told = commands(&words);
    assert!(
        pasted(&home, &told[0])
            .ok()
            .stdout
            .contains("message    @bob"),
        "{words}"
    );
    // The default agent's own needs no word.
    let words = home.cli(&["explain", "d1"]).ok().stdout;
    assert!(words.contains("requeue --id d1 --auto` sends"), "{words}");
    // By another's environment, too, a row's own id leads to commands about that row.
    let of_ann = daemon.http.get("/v1/outbox/d1?agent=ann").expect(200);
    let words = home
        .cli_as("bob", &["explain", of_ann["id"].as_str().unwrap()])
        .ok()
        .stdout;
    assert!(commands(&words)[0].ends_with("--agent ann"), "{words}");
}

#[test]
fn c2_who_must_say_whose_row_it_is_gets_the_commands_for_it() {
    let (broker, home, daemon) = on_stub();
    broker.script(refuse("unknown_recipient"));
    for agent in ["bob", "ann"] {
        home.cli(&["send", "#ops", agent, "--id", "it's", "--agent", agent])
            .ok();
    }
    wait_until("two dead rows", || {
        daemon.http.get("/v1/status").expect(200)["outbox"]["dead"] == 2
    });
    for verb in [
        &["explain", "it's"][..],
        &["daemon", "outbox", "inspect", "it's"],
    ] {
        let ran = home.cli(verb);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(!ran.stderr.contains('?'), "{ran:?}");
        let told = commands(&ran.stderr);
        assert_eq!(told.len(), 2, "{ran:?}");
        for command in told {
            pasted(&home, &command).ok();
        }
    }
    let ran = home.cli(&["daemon", "outbox", "requeue", "--id", "it's", "--auto"]);
    pasted(&home, &commands(&ran.stderr)[0]).ok();
    let rows = daemon.http.get("/v1/outbox?status=aborted").expect(200);
    assert_eq!(rows["rows"].as_array().unwrap().len(), 1, "{rows}");
}

#[test]
fn c4_c5_a_retired_row_says_where_it_goes_on_or_that_it_does_not() {
    let (broker, home, daemon) = on_stub();
    broker.script(refuse("unknown_recipient"));
    for id in ["one", "two"] {
        send_to(&daemon, "#ops", id, "x").expect(202);
        wait_for(&daemon, id, "dead");
    }
    let requeue = |id: &str| home.cli(&["daemon", "outbox", "requeue", "--id", id, "--auto"]);
    let again = [
        "daemon",
        "outbox",
        "requeue",
        "--id",
        "one",
        "--new-client-id",
        "next one",
    ];
    home.cli(&again).ok();
    wait_until("it is dead, too", || {
        daemon.http.get("/v1/outbox/next%20one").expect(200)["status"] == "dead"
    });
    let ran = requeue("one");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr
            .contains("It was requeued as next one, which is dead"),
        "{ran:?}"
    );
    broker.script(Script::Commit);
    pasted(&home, &commands(&ran.stderr)[0]).ok();
    let problem = daemon
        .http
        .post("/v1/outbox/one/requeue", &json!({}))
        .expect(409);
    assert_ne!(problem["successor"], "next one", "{problem}");
    assert!(problem["successor"].is_string(), "{problem}");

    let retire = [
        "daemon",
        "outbox",
        "prune",
        "--status",
        "dead",
        "--retire",
        "--older-than",
        "0s",
        "--confirm",
    ];
    home.cli(&retire).ok();
    let words = home.cli(&["explain", "two"]).ok().stdout;
    assert!(
        words.starts_with("two is aborted: retired by the operator at 20"),
        "{words}"
    );
    assert!(
        words.contains("nothing goes on with it; before that: unknown_recipient"),
        "{words}"
    );
    assert!(words.contains("send it anew under a new id"), "{words}");
    let problem = send_to(&daemon, "#ops", "two", "x").expect(409);
    assert_eq!(problem["conflict"], "outbox_aborted_fingerprint_match");
    let next = problem["next"].as_str().unwrap();
    assert!(
        next.starts_with("An operator retired it at 20"),
        "{problem}"
    );
    let ran = requeue("two");
    assert!(ran.stderr.contains("without a successor"), "{ran:?}");
}

#[test]
fn c6_a_damaged_row_that_the_broker_has_is_done_and_nothing_says_that_it_is_not_sent() {
    let (broker, home, daemon) = on_stub();
    let text = "transfer one hundred";
    broker.script(Script::CommitAndHangUp);
    send_to(&daemon, "#ops", "hurt", text).expect(202);
    wait_until("the commit", || !broker.sends_of("hurt").is_empty());
    broker.script(Script::Hold);
    daemon.stop();
    let data = home.path().join("data.db");
    let mut bytes = std::fs::read(&data).unwrap();
    let needle = text.as_bytes();
    let places: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(needle))
        .collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 9..at + 12].copy_from_slice(b"two");
    }
    std::fs::write(&data, bytes).unwrap();
    let sent = broker.sends_of("hurt").len();
    broker.script(Script::Commit);
    let daemon = home.up();
    wait_for(&daemon, "hurt", "done");
    assert_eq!(
        broker.sends_of("hurt").len(),
        sent,
        "its damaged bytes went nowhere"
    );
    let words = home.cli(&["explain", "hurt"]).ok().stdout;
    assert!(!words.contains("not sent"), "{words}");
}

#[test]
fn c6_what_was_dropped_stays_in_the_count_of_what_the_broker_had_lost() {
    let home = home_of("alice");
    let daemon = home.up();
    home.cli(&["send", "@alice", "x", "--id", "before", "--wait=delivered"])
        .ok();
    let file = home.path().parent().unwrap().join("copy.db");
    let file = file.to_str().unwrap();
    home.cli(&["doctor", "--backup", file]).ok();
    for (count, id) in [(2, "w1"), (3, "w2"), (4, "w3")] {
        push(&daemon, id, "next");
        committed(&daemon, count);
        take_with(&daemon, "one", &json!({}));
    }
    daemon.stop();
    home.cli(&["daemon", "restore", file, "--only", "broker"])
        .ok();
    let daemon = home.up();
    wait_until("the loss", || {
        explain(&daemon, "w3")["lost"]["state"] == "held"
    });
    let degraded = || daemon.http.get("/v1/status").expect(200)["degraded"].to_string();
    wait_until("all three", || degraded().contains("had lost 3 messages"));
    home.cli(&["doctor", "--drop", "w1"]).ok();
    let told = degraded();
    assert!(told.contains("had lost 3 messages of this home"), "{told}");
    assert!(
        told.contains("2 are work of queues that may have been done"),
        "{told}"
    );
    assert!(told.contains("1 was dropped by an operator"), "{told}");
}
