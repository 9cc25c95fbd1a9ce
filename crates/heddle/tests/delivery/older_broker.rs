//! An older broker.db is put back, over the real binary: what it has lost is noticed, sent again under its own ids, and
//! told; work that may have been done is not done twice.
#![allow(
    clippy::too_many_lines,
    reason = "what happens to one home is told in one place"
)]

use crate::support;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use support::outbox::{row, wait_for};
use support::{Daemon, Home, wait_until, wait_until_within};

/// A home that lost its broker comes back to it within a minute.
const PATIENCE: Duration = Duration::from_secs(90);

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn status(daemon: &Daemon) -> Value {
    daemon.http.get("/v1/status").expect(200)
}

fn explain(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/explain/{id}")).expect(200)
}

fn ids(daemon: &Daemon, mesh: &str, agent: &str) -> Vec<String> {
    let target = format!("/v1/inbox?all=true&limit=100&mesh={mesh}&agent={agent}");
    let page = daemon.http.get(&target).expect(200);
    let items = page["items"].as_array().unwrap().iter();
    let mut ids: Vec<String> = items
        .map(|item| item["client_message_id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

/// The file of the broker of a stopped home: a clean stop leaves no log beside it.
struct Copy {
    broker: PathBuf,
    bytes: Vec<u8>,
}

impl Copy {
    fn of(home: &Home) -> Self {
        let broker = home.path().join("broker.db");
        let bytes = std::fs::read(&broker).unwrap();
        Self { broker, bytes }
    }

    fn put_back(&self) {
        for end in ["-wal", "-shm"] {
            let beside = format!("{}{end}", self.broker.display());
            let _ = std::fs::remove_file(beside);
        }
        std::fs::write(&self.broker, &self.bytes).unwrap();
    }
}

#[test]
fn lf_16_messages_that_an_older_broker_file_has_lost_are_sent_again_and_land_once() {
    let home = home_of("alice");
    let daemon = home.up();
    home.cli_as("one", &["agent", "register", "one"]).ok();
    home.cli(&[
        "send",
        "@one",
        "before",
        "--id",
        "before",
        "--wait=delivered",
    ])
    .ok();
    daemon.stop();
    let copy = Copy::of(&home);
    let daemon = home.up();
    // A topic, a subscription and an agent of the time since; a message for each, and work that nobody took.
    home.cli_as("two", &["topic", "subscribe", "#new"]).ok();
    for (to, id) in [("@one", "dm"), ("@two", "to-two"), ("#new", "post")] {
        home.cli(&["send", to, id, "--id", id, "--wait=delivered"])
            .ok();
    }
    home.cli(&["queue", "push", "builds", "job", "--id", "job"])
        .ok();
    wait_for(&daemon, "job", "done");
    let place = row(&daemon, "job")["history_id"].clone();
    daemon.stop();
    copy.put_back();

    let daemon = home.up();
    for id in ["dm", "to-two", "post", "job"] {
        wait_until(id, || explain(&daemon, id)["lost"]["state"] == "sent");
        let story = explain(&daemon, id);
        assert_eq!(story["outbox"]["status"], "done", "{story}");
        assert!(story["broker"]["first_seen_at"].is_string(), "{story}");
    }
    assert_ne!(row(&daemon, "job")["history_id"], place, "a new epoch");
    wait_until("everything, once", || {
        ids(&daemon, "home", "one") == ["before", "dm"]
            && ids(&daemon, "home", "two") == ["post", "to-two"]
    });
    let taken = home.cli_as("one", &["queue", "take", "builds", "--json"]);
    let taken = taken.ok().json();
    assert_eq!(taken["items"][0]["client_message_id"], "job", "{taken}");
    // It is told, and nobody has to do anything: all is well again without a restart.
    wait_until("all is well", || status(&daemon)["verdict"] == "ok");
    let told = status(&daemon);
    assert_eq!(told["degraded"], json!([]), "{told}");
    let notes = told["notes"].to_string();
    assert!(notes.contains("earlier copy of itself"), "{told}");
    assert!(
        notes.contains("4 were sent again under their ids"),
        "{told}"
    );
    let words = home.cli(&["status"]).ok().stdout;
    assert!(
        words.contains("4 were sent again under their ids"),
        "{words}"
    );
    let logged = home.cli(&["logs", "--level", "info"]).ok().stdout;
    assert!(
        logged.contains("what the broker had lost was sent again"),
        "{logged}"
    );
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    let words = home.cli(&["explain", "dm"]).ok().stdout;
    assert!(words.contains("sent again under its id"), "{words}");
    // A retry is known again, and the next start has nothing to tell.
    home.cli(&["send", "@one", "dm", "--id", "dm"]).ok();
    daemon.stop();
    let daemon = home.up();
    wait_until("the connection", || status(&daemon)["connected"] == true);
    assert_eq!(status(&daemon)["degraded"], json!([]));
    assert_eq!(home.cli(&["doctor"]).code, 0);
    assert_eq!(ids(&daemon, "home", "one"), ["before", "dm"]);
}

/// The older file does not know what its recipients have said since, whether it has the message or gets it again.
#[test]
fn lf_16_what_was_shown_and_acknowledged_is_told_to_the_older_broker_again() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (alice_up, bob_up) = (alice.up(), bob.up());
    let link = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    bob.cli_told(&["mesh", "join", "-"], link["link"].as_str().unwrap())
        .ok();
    let send = |id: &str| {
        let args = ["send", "@bob", id, "--id", id, "--wait=delivered"];
        wait_until_within(PATIENCE, "bob", || alice.cli(&args).code == 0);
    };
    send("before");
    alice_up.stop();
    let copy = Copy::of(&alice);
    let alice_up = alice.up();
    send("after");
    send("unread");
    let acked = |daemon: &Daemon, id: &str| {
        let story = explain(daemon, id);
        story["deliveries"][0]["acked_at"].clone()
    };
    let target = "/v1/inbox?all=true&mesh=alice-home&agent=bob";
    let items = bob_up.http.get(target).expect(200)["items"].clone();
    let of = |id: &str| {
        let mut items = items.as_array().unwrap().iter();
        let item = items.find(|item| item["client_message_id"] == id);
        item.unwrap()["id"].clone()
    };
    let body = json!({"ids": [of("before"), of("after")], "agent": "bob"});
    bob_up.http.post("/v1/inbox/ack", &body).expect(200);
    for id in ["before", "after"] {
        wait_until("the receipt", || acked(&alice_up, id).is_string());
    }
    alice_up.stop();
    copy.put_back();
    let alice_up = alice.up();
    wait_until("what was lost", || {
        let is_sent = |id| explain(&alice_up, id)["lost"]["state"] == "sent";
        is_sent("after") && is_sent("unread")
    });
    for id in ["before", "after"] {
        let again = format!("the receipt of {id}, again");
        wait_until_within(PATIENCE, &again, || acked(&alice_up, id).is_string());
    }
    assert_eq!(acked(&alice_up, "unread"), Value::Null);
    assert_eq!(
        ids(&bob_up, "alice-home", "bob"),
        ["after", "before", "unread"]
    );
}

#[test]
fn lf_16_work_that_may_have_been_done_is_held_and_told_and_a_person_decides() {
    let home = home_of("alice");
    let daemon = home.up();
    home.cli(&[
        "send",
        "@alice",
        "before",
        "--id",
        "before",
        "--wait=delivered",
    ])
    .ok();
    let file = home.path().parent().unwrap().join("copy.db");
    let file = file.to_str().unwrap();
    home.cli(&["doctor", "--backup", file]).ok();
    for id in ["done", "lost"] {
        home.cli(&["queue", "push", "builds", id, "--id", id]).ok();
        wait_for(&daemon, id, "done");
        let taken = home.cli_as("one", &["queue", "take", "builds", "--json"]);
        let taken = taken.ok().json()["items"][0].clone();
        assert_eq!(taken["client_message_id"], id, "{taken}");
    }
    daemon.stop();
    home.cli(&["daemon", "restore", file, "--only", "broker"])
        .ok();

    let daemon = home.up();
    for id in ["done", "lost"] {
        wait_until(id, || explain(&daemon, id)["lost"]["state"] == "held");
    }
    let told = status(&daemon);
    let degraded = told["degraded"].to_string();
    assert!(
        degraded.contains("2 are work of queues that may have been done"),
        "{told}"
    );
    assert_eq!(told["verdict"], "degraded");
    assert_eq!(told["next"], "heddle doctor");
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let words = doctor.stdout + &doctor.stderr;
    assert!(words.contains("heddle doctor --retry ID"), "{words}");
    assert!(
        words.contains("lost (message to queue:builds in home)"),
        "{words}"
    );
    let words = home.cli(&["explain", "lost"]).ok().stdout;
    assert!(words.starts_with("lost is lost at its broker"), "{words}");
    assert!(words.contains("heddle doctor --retry lost"), "{words}");
    let count = |daemon: &Daemon| {
        let list = daemon.http.get("/v1/queue/list").expect(200);
        let queues = list["queues"].as_array().unwrap();
        queues
            .iter()
            .map(|one| one["ready"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(count(&daemon), 0, "nothing was sent by itself");

    // What the broker has lost is not committed, whoever asks and however.
    let push = |more: &[&str]| {
        let base = ["queue", "push", "builds", "lost", "--id", "lost"];
        home.cli(&[&base[..], more].concat())
    };
    let again = push(&["--json"]).ok().json();
    assert_eq!(again["duplicate"], true, "{again}");
    assert_eq!(again["durability"], "local", "{again}");
    assert_eq!(again["lost"]["state"], "held", "{again}");
    assert!(
        again["history_id"].is_null() && again["broker_message_id"].is_null(),
        "{again}"
    );
    let next = again["next"].as_str().unwrap();
    assert!(next.contains("heddle doctor --retry lost"), "{again}");
    let words = push(&[]).ok().stdout;
    assert!(
        words.contains("its broker has lost it: it is held"),
        "{words}"
    );
    assert!(words.contains("heddle doctor --retry lost"), "{words}");
    let waited = home.cli(&[
        "send",
        "queue:builds",
        "lost",
        "--id",
        "lost",
        "--wait=committed",
        "--timeout",
        "30",
    ]);
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(
        waited
            .stderr
            .contains("lost is not committed: its broker has lost it"),
        "{waited:?}"
    );
    assert!(
        waited.stderr.contains("heddle doctor --retry lost"),
        "{waited:?}"
    );
    let story = explain(&daemon, "lost");
    assert!(story["broker"].is_null(), "{story}");
    assert!(
        !story["receipts"].to_string().contains("committed"),
        "{story}"
    );

    home.cli(&["doctor", "--drop", "done"]).ok();
    let words = home.cli(&["explain", "done"]).ok().stdout;
    assert!(
        words.starts_with("done was dropped by the operator at 20"),
        "{words}"
    );
    let story = explain(&daemon, "done");
    assert!(
        story["broker"].is_null() && story["lost"]["state"] == "given_up",
        "{story}"
    );
    let again = home.cli(&["queue", "push", "builds", "done", "--id", "done", "--json"]);
    let again = again.ok().json();
    assert_eq!(again["durability"], "local", "{again}");
    assert_eq!(again["lost"]["state"], "given_up", "{again}");
    home.cli(&["doctor", "--retry", "lost"]).ok();
    wait_until("the work", || {
        explain(&daemon, "lost")["lost"]["state"] == "sent"
    });
    assert_eq!(count(&daemon), 1);
    let again = push(&["--json"]).ok().json();
    assert_eq!(again["durability"], "committed", "{again}");
    assert!(again["lost"].is_null(), "{again}");
    wait_until("all is well", || status(&daemon)["verdict"] == "ok");
    assert_eq!(home.cli(&["doctor", "--retry", "done"]).code, 4);
    daemon.stop();
    let daemon = home.up();
    wait_until("the connection", || status(&daemon)["connected"] == true);
    assert_eq!(status(&daemon)["degraded"], json!([]));
    assert_eq!(explain(&daemon, "done")["lost"]["state"], "given_up");
}

#[test]
fn lf_16_a_guest_who_had_not_received_it_gets_what_the_older_broker_has_lost() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (alice_up, bob_up) = (alice.up(), bob.up());
    let link = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    bob.cli_told(&["mesh", "join", "-"], link["link"].as_str().unwrap())
        .ok();
    bob.cli(&[
        "--mesh",
        "alice-home",
        "send",
        "@alice",
        "x",
        "--id",
        "in",
        "--wait=delivered",
    ])
    .ok();
    alice_up.stop();
    let copy = Copy::of(&alice);
    let alice_up = alice.up();
    // One that bob has received, one that waits for him at the broker, and one of his own.
    wait_until("bob", || {
        alice
            .cli(&[
                "send",
                "@bob",
                "x",
                "--id",
                "received",
                "--wait=delivered",
                "--timeout",
                "20",
            ])
            .code
            == 0
    });
    bob.cli(&[
        "--mesh",
        "alice-home",
        "send",
        "@alice",
        "x",
        "--id",
        "own",
        "--wait=delivered",
    ])
    .ok();
    bob_up.stop();
    alice.cli(&["send", "@bob", "x", "--id", "waiting"]).ok();
    wait_for(&alice_up, "waiting", "done");
    alice_up.stop();
    copy.put_back();

    let alice_up = alice.up();
    let bob_up = bob.up();
    wait_until("what had waited", || {
        ids(&bob_up, "alice-home", "bob") == ["received", "waiting"]
    });
    wait_until("his own", || {
        explain(&bob_up, "own")["lost"]["state"] == "sent"
    });
    assert_eq!(ids(&alice_up, "home", "alice"), ["in", "own"]);
    wait_until("all is well", || status(&bob_up)["verdict"] == "ok");
    let told = status(&bob_up)["notes"].to_string();
    assert!(
        told.contains("the broker of mesh alice-home is an earlier copy"),
        "{told}"
    );
}

/// Nobody has a copy: the broker begins anew, and what it had comes from the homes.
#[test]
fn lf_16_a_broker_whose_file_was_deleted_gets_its_messages_again_and_nobody_gets_one_twice() {
    const MESSAGES: usize = 40;
    let home = home_of("alice");
    let daemon = home.up();
    home.cli_as("one", &["agent", "register", "one"]).ok();
    let mut expected: Vec<String> = (0..MESSAGES).map(|n| format!("m-{n:02}")).collect();
    for id in &expected {
        let body = json!({"to": "@one", "message": id, "client_message_id": id});
        daemon.http.post("/v1/send", &body).expect(202);
    }
    wait_until("the messages", || ids(&daemon, "home", "one") == expected);
    daemon.stop();
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(home.path().join(format!("broker.db{end}")));
    }
    let daemon = home.up();
    let says = format!("{MESSAGES} were sent again under their ids");
    wait_until("all of them", || {
        status(&daemon)["notes"].to_string().contains(&says)
    });
    daemon.wait_log(&format!("count={MESSAGES}"));
    assert_eq!(status(&daemon)["verdict"], "ok");
    for id in ["m-00", "m-39"] {
        let story = explain(&daemon, id);
        assert_eq!(story["lost"]["state"], "sent", "{story}");
        assert!(story["broker"]["first_seen_at"].is_string(), "{story}");
    }
    home.cli(&["send", "@one", "x", "--id", "new", "--wait=delivered"])
        .ok();
    expected.push("new".to_owned());
    assert_eq!(ids(&daemon, "home", "one"), expected);
    daemon.stop();
    let daemon = home.up();
    wait_until("the connection", || status(&daemon)["connected"] == true);
    assert!(status(&daemon)["notes"].is_null(), "it is over");
}
