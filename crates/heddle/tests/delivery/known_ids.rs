//! What every layer knows of an id is told, whoever asks: in the recipient's home, after an older store was put back, and
//! for rows that were never tried. Every command that is printed works as it is printed.

use crate::support;

use serde_json::{Value, json};
use support::outbox::{row, send_to};
use support::pasted::{commands, pasted};
use support::queue::{QUEUE, committed, push, take_with};
use support::{Daemon, Home, wait_until};

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn explain(daemon: &Daemon, id: &str) -> Value {
    daemon.http.get(&format!("/v1/explain/{id}")).expect(200)
}

fn joined() -> (Home, Home, Daemon, Daemon) {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (alice_up, bob_up) = (alice.up(), bob.up());
    let link = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    bob.cli_told(&["mesh", "join", "-"], link["link"].as_str().unwrap())
        .ok();
    (alice, bob, alice_up, bob_up)
}

#[test]
fn b4_a_recipients_home_tells_what_came_and_that_it_did_not_send_it() {
    let (alice, bob, _alice_up, bob_up) = joined();
    wait_until("bob", || {
        let send = ["send", "@bob", "secret text", "--id", "x1"];
        alice.cli(&send).code == 0
    });
    alice
        .cli(&[
            "send",
            "@bob",
            "secret text",
            "--id",
            "x1",
            "--wait=delivered",
        ])
        .ok();
    let story = explain(&bob_up, "x1");
    assert_eq!(story["kind"], "message", "{story}");
    assert_eq!(story["outbox"], Value::Null, "{story}");
    assert_eq!(story["layers"]["outbox"]["rows"], "absent", "{story}");
    assert_eq!(story["layers"]["broker"]["rows"], "not_asked", "{story}");
    assert_eq!(story["layers"]["inbox"]["rows"], "present", "{story}");
    assert_eq!(story["inbox"][0]["from"], "@alice/alice", "{story}");
    assert_eq!(story["inbox"][0]["agent"], "bob", "{story}");
    assert_eq!(story["inbox"][0]["shown_at"], Value::Null, "{story}");
    assert_eq!(story["mesh"], "alice-home", "{story}");
    // Its place is known from the delivery; the text is the inbox's to show.
    let place = story["broker"]["history_id"].as_str().unwrap().to_owned();
    assert!(!story.to_string().contains("secret text"), "{story}");
    assert_eq!(explain(&bob_up, &place)["id"], "x1");
    bob.cli(&["inbox", "--mesh", "alice-home", "--ack"]).ok();
    let story = explain(&bob_up, "x1");
    assert!(story["inbox"][0]["acked_at"].is_string(), "{story}");
    let levels: Vec<&str> = story["receipts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["level"].as_str().unwrap())
        .collect();
    assert_eq!(levels, ["delivered", "shown", "acked"], "{story}");
    let words = bob.cli(&["explain", "x1"]).ok().stdout;
    assert!(
        words.contains("x1 came from @alice/alice: acked at @bob"),
        "{words}"
    );
    assert!(words.contains("not a send of this home"), "{words}");
    assert_eq!(bob.cli(&["explain", "x2"]).code, 4);
    assert_eq!(
        bob.cli(&["explain", "x1", "--agent", "other"]).code,
        4,
        "not in that mailbox"
    );
}

#[test]
fn b4_a_recipient_in_the_senders_home_gets_its_own_side_and_the_way_to_the_other() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "ann"]).ok();
    home.cli(&[
        "send",
        "@ann",
        "x",
        "--id",
        "d1",
        "--agent",
        "bob",
        "--wait=delivered",
    ])
    .ok();
    let words = home.cli_as("ann", &["explain", "d1"]).ok().stdout;
    assert!(words.contains("delivered at @ann"), "{words}");
    let commands = commands(&words);
    assert_eq!(commands.len(), 1, "{words}");
    let told = pasted(&home, &commands[0]).ok().stdout;
    assert!(told.starts_with("d1 is delivered"), "{told}");
    // Work that was taken lies in no mailbox: the taker is told so.
    push(&daemon, "w1", "next");
    committed(&daemon, 2);
    take_with(&daemon, "ann", &json!({}));
    let story = daemon.http.get("/v1/explain/w1?agent=ann").expect(200);
    assert_eq!(story["layers"]["inbox"]["rows"], "past", "{story}");
    assert_eq!(story["broker"]["queue"]["status"], "leased", "{story}");
    assert!(
        story["broker"]["destination"]
            .as_str()
            .unwrap()
            .contains(QUEUE),
        "{story}"
    );
}

#[test]
fn b4_after_an_older_store_was_put_back_the_broker_is_asked_for_the_id() {
    let (alice, _bob, alice_up, _bob_up) = joined();
    alice.cli(&["agent", "register", "planner"]).ok();
    alice_up.stop();
    let data = alice.path().join("data.db");
    let older = std::fs::read(&data).unwrap();
    let alice_up = alice.up();
    wait_until("bob", || {
        let send = [
            "send",
            "@bob",
            "x",
            "--id",
            "x1",
            "--agent",
            "planner",
            "--wait=delivered",
        ];
        alice.cli(&send).code == 0
    });
    assert_eq!(explain(&alice_up, "x1")["outbox"]["status"], "done");
    alice_up.stop();
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", data.display()));
    }
    std::fs::write(&data, older).unwrap();
    let alice_up = alice.up();
    wait_until("the connection", || {
        alice_up.http.get("/v1/status").expect(200)["connected"] == true
    });
    let story = explain(&alice_up, "x1");
    assert_eq!(story["layers"]["outbox"]["rows"], "absent", "{story}");
    assert_eq!(story["layers"]["broker"]["rows"], "present", "{story}");
    assert_eq!(story["layers"]["inbox"]["rows"], "absent", "{story}");
    assert_eq!(story["deliveries"][0]["recipient"], "@bob/bob", "{story}");
    assert!(
        story["deliveries"][0]["delivered_at"].is_string(),
        "{story}"
    );
    let words = alice.cli(&["explain", "x1"]).ok().stdout;
    assert!(words.contains("from @planner of this home"), "{words}");
    assert!(words.contains("this home has no row of it"), "{words}");
    assert_eq!(alice.cli(&["explain", "x1", "--agent", "alice"]).code, 4);
}

#[test]
fn b6_rows_that_were_never_tried_have_the_pause_of_their_mesh_as_the_reason() {
    let home = Home::new();
    home.config("[broker]\nrate_limit = 1\nrate_window_seconds = 86400\n");
    let daemon = home.up();
    home.cli(&["send", "@tester", "x", "--id", "first", "--wait"])
        .ok();
    send_to(&daemon, "@tester", "second", "x").expect(202);
    wait_until("the refusal", || {
        row(&daemon, "second")["last_error"].is_string()
    });
    send_to(&daemon, "@tester", "third", "x").expect(202);
    let third = row(&daemon, "third");
    assert_eq!(
        (&third["attempts"], &third["last_error"]),
        (&json!(0), &Value::Null),
        "{third}"
    );
    let waits = third["waits_for"].as_str().unwrap_or_default();
    assert!(
        waits.contains("the rate window of the mesh, until about 20"),
        "{third}"
    );
    assert!(waits.contains("rate_limited"), "{third}");
    let story = explain(&daemon, "third");
    assert_eq!(story["limiter"]["decision"], "waiting", "{story}");
    assert!(story["limiter"]["until"].is_string(), "{story}");
    let second = explain(&daemon, "second");
    assert_eq!(second["limiter"]["decision"], "refused", "{second}");
    assert!(second["limiter"]["until"].is_string(), "{second}");
    let list = home.cli(&["daemon", "outbox", "list"]).ok().stdout;
    let line = list.lines().find(|line| line.starts_with("third")).unwrap();
    assert!(
        line.contains("the rate window of the mesh, until about 20"),
        "{list}"
    );
    // Who waits is told why, and that nothing is lost.
    let ran = home.cli(&[
        "send",
        "@tester",
        "x",
        "--id",
        "fourth",
        "--wait",
        "--timeout",
        "1",
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr
            .contains("it waits for the rate window of the mesh, until about 20"),
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("safe on disk and goes on by itself"),
        "{ran:?}"
    );
    for command in commands(&ran.stderr) {
        pasted(&home, &command).ok();
    }
}
