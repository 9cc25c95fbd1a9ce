//! What a home lets its peers send it, over the binary: a block at one's own door, which the sender does not notice.

use crate::support;

use serde_json::{Value, json};
use support::{Daemon, Home, wait_until};

const MESH: &str = "alice-home";
const DROPPED: &str = "heddle_broker_messages_dropped_by_grant_total";

fn home_of(name: &str) -> (Home, Daemon) {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    let up = home.up();
    (home, up)
}

fn join(host: &Home, name: &str) -> (Home, Daemon) {
    let link = host.cli(&["mesh", "invite", "--json"]).ok().json();
    let (home, up) = home_of(name);
    let link = link["link"].as_str().unwrap();
    home.cli(&["mesh", "join", link, "--as", MESH]).ok();
    home.cli(&["--mesh", MESH, "agent", "register", "coder"])
        .ok();
    (home, up)
}

/// Sends, and waits until the broker has committed it.
#[track_caller]
fn commit(home: &Home, mesh: &str, to: &str, body: &str) {
    wait_until(&format!("{to} to be known"), || {
        let args = ["--mesh", mesh, "send", to, body, "--id", body];
        home.cli(&args).code == 0
    });
    wait_until(&format!("{body} to be committed"), || {
        let args = ["--mesh", mesh, "explain", body, "--json"];
        let story = home.cli(&args).json();
        story["outbox"]["status"] == "done"
    });
}

fn bodies(home: &Home, mesh: &str, agent: &str) -> Vec<String> {
    let args = ["inbox", "--json", "--mesh", mesh, "--agent", agent];
    let page = home.cli(&args).ok().json();
    let items = page["items"].as_array().unwrap().clone();
    let body = |item: &Value| item["body"].as_str().unwrap().to_owned();
    items.iter().map(body).collect()
}

fn dropped(broker: &Daemon) -> u64 {
    let text = broker.http.get("/v1/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(DROPPED));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

#[test]
fn what_a_blocked_peer_sends_is_committed_and_reaches_everybody_but_the_home_that_blocks_it() {
    let (alice, alice_up) = home_of("alice");
    alice.cli(&["agent", "register", "planner"]).ok();
    let (bob, _bob_up) = join(&alice, "bob");
    let (carol, _carol_up) = join(&alice, "carol");
    for (home, mesh, agent) in [(&alice, "home", "planner"), (&carol, MESH, "coder")] {
        let args = [
            "--mesh",
            mesh,
            "topic",
            "subscribe",
            "ops",
            "--agent",
            agent,
        ];
        home.cli(&args).ok();
    }
    commit(&bob, MESH, "@alice/planner", "before");
    wait_until("the first message", || {
        bodies(&alice, "home", "planner") == ["before"]
    });

    let blocked = alice.cli(&["block", "@bob", "--json"]).ok().json();
    assert_eq!(
        (
            &blocked["peer"],
            &blocked["blocked"],
            &blocked["changed"],
            &blocked["capabilities"]
        ),
        (&json!("bob"), &json!(true), &json!(true), &json!([])),
    );
    assert_eq!(
        alice.cli(&["block", "bob", "--json"]).ok().json()["changed"],
        false
    );
    let shown = alice.cli(&["grant"]).ok().stdout;
    assert!(
        shown.contains("@bob") && shown.contains("nothing"),
        "{shown}"
    );
    commit(&bob, MESH, "@alice/planner", "to-alice");
    commit(&bob, MESH, "#ops", "to-all");
    wait_until("carol's copy", || {
        bodies(&carol, MESH, "coder") == ["to-all"]
    });
    assert_eq!(dropped(&alice_up), 2, "a direct message and a post");

    // One of them is given back; what was withheld stays so. Bob's messages come in their order, so the last
    // one tells that none is on its way.
    let granted = alice.cli(&["grant", "bob", "topic", "--json"]).ok().json();
    assert_eq!(granted["capabilities"], json!(["topic"]));
    commit(&bob, MESH, "@alice/planner", "to-alice-again");
    commit(&bob, MESH, "#ops", "to-all-again");
    wait_until("what is granted", || {
        bodies(&alice, "home", "planner").contains(&"to-all-again".to_owned())
    });
    let mut all = bodies(&alice, "home", "planner");
    all.sort();
    assert_eq!(all, ["before", "to-all-again"]);
    assert_eq!(dropped(&alice_up), 3);

    // A block outlives the broker.
    drop(alice_up);
    let alice_up = alice.up();
    let list = alice_up.http.get("/v1/peers/grants?mesh=home").expect(200);
    assert_eq!(list["grants"][0]["capabilities"], json!(["topic"]));
    let lifted = alice.cli(&["grant", "bob"]).ok().stdout;
    assert!(lifted.contains("dm, topic"), "{lifted}");
    commit(&bob, MESH, "@alice/planner", "after");
    wait_until("bob to be heard", || {
        bodies(&alice, "home", "planner").contains(&"after".to_owned())
    });
    assert_eq!(bodies(&alice, "home", "planner").len(), 3);
}

#[test]
fn a_topic_whose_only_followers_block_the_sender_is_told_as_one_without_followers() {
    let (alice, _alice_up) = home_of("alice");
    alice.cli(&["agent", "register", "planner"]).ok();
    let (bob, _bob_up) = join(&alice, "bob");
    let args = ["topic", "subscribe", "ops", "--agent", "planner"];
    alice.cli(&args).ok();
    alice.cli(&["topic", "create", "void"]).ok();
    alice.cli(&["block", "bob"]).ok();
    let told = ["ops", "void"].map(|topic| {
        let to = format!("#{topic}");
        commit(&bob, MESH, &to, topic);
        let args = ["--mesh", MESH, "send", &to, topic, "--id", topic];
        let waits = ["--wait=delivered", "--timeout", "20"];
        let ran = bob.cli(&[&args[..], &waits].concat());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains("nobody receives #"), "{ran:?}");
        assert!(!ran.stderr.contains("topic list"), "{ran:?}");
        let story = bob.cli(&["--mesh", MESH, "explain", topic]).ok();
        let story = story.stdout.lines().next().unwrap_or_default().to_owned();
        (ran.stderr + &story).replace(topic, "TOPIC")
    });
    assert_eq!(told[0], told[1]);
}

#[test]
fn every_refusal_of_a_grant_says_what_to_do() {
    let (alice, _alice_up) = home_of("alice");
    let (bob, _bob_up) = join(&alice, "bob");
    let refused = |home: &Home, verb: &[&str], code: i32, words: &str| {
        let ran = home.cli(verb);
        assert_eq!(ran.code, code, "{verb:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{verb:?}: {ran:?}");
    };
    refused(&alice, &["block", "nobody"], 4, "bob");
    refused(&alice, &["block", "@bob/coder"], 4, "without the agent");
    refused(&alice, &["block", "alice"], 2, "heddle peers");
    refused(&alice, &["grant", "bob", "everything"], 2, "topic");
    // An owner's word is not everybody's, and a home needs none for its own door.
    refused(
        &bob,
        &["--mesh", MESH, "mesh", "block", "alice"],
        6,
        "heddle block NAME",
    );
    let revoked = ["--mesh", MESH, "revoke", "alice", "dm", "--json"];
    let revoked = bob.cli(&revoked).ok().json();
    assert_eq!(revoked["capabilities"], json!(["topic"]));
}
