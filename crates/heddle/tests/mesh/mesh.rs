//! Two homes in one mesh: invited, joined, talking, and shut out.

use crate::support;

use serde_json::{Value, json};
use support::{Daemon, Home, Ran, text_of, wait_until};

/// A home whose person has this name.
fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn invite(home: &Home, more: &[&str]) -> String {
    let args = [&["mesh", "invite", "--json"], more].concat();
    let answer = home.cli(&args).ok().json();
    answer["link"].as_str().unwrap().to_owned()
}

/// Over standard input, as a careful person does.
fn join(home: &Home, link: &str, more: &[&str]) -> Ran {
    home.cli_told(&[&["mesh", "join", "-", "--json"], more].concat(), link)
}

fn members(home: &Home) -> Vec<Value> {
    let info = home.cli(&["mesh", "info", "--json"]).ok().json();
    info["members"].as_array().unwrap().clone()
}

fn is_connected(home: &Home, mesh: &str) -> bool {
    let list = home.cli(&["mesh", "list", "--json"]).json();
    let meshes = list["meshes"].as_array().unwrap();
    let found = meshes.iter().find(|one| one["mesh"] == mesh);
    found.is_some_and(|one| one["connected"] == true)
}

fn bodies(home: &Home, mesh: &str, agent: &str) -> Vec<String> {
    let page = home
        .cli(&["inbox", "--json", "--mesh", mesh, "--agent", agent])
        .ok()
        .json();
    let items = page["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["body"].as_str().unwrap().to_owned())
        .collect()
}

#[track_caller]
fn arrives(home: &Home, mesh: &str, agent: &str, body: &str) {
    wait_until(&format!("{body:?} at {agent}"), || {
        bodies(home, mesh, agent).iter().any(|one| one == body)
    });
    let count = bodies(home, mesh, agent)
        .iter()
        .filter(|one| *one == body)
        .count();
    assert_eq!(count, 1, "{body}");
}

/// Sends once the roster knows the recipient: it travels a moment behind.
fn send(home: &Home, mesh: &str, agent: &str, to: &str, body: &str) {
    wait_until(&format!("{to} to be known"), || {
        home.cli(&[
            "send", to, body, "--id", body, "--mesh", mesh, "--agent", agent,
        ])
        .code
            == 0
    });
}

struct Pair {
    alice: Home,
    bob: Home,
    up: Option<(Daemon, Daemon)>,
}

/// Alice hosts, Bob has joined; each has an agent.
fn pair() -> Pair {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let up = (alice.up(), bob.up());
    let joined = join(&bob, &invite(&alice, &[]), &[]).ok().json();
    assert_eq!(joined["mesh"], "alice-home");
    assert_eq!(joined["member"], "bob");
    assert_eq!(joined["connected"], true, "picked up without a restart");
    alice.cli(&["agent", "register", "planner"]).ok();
    bob.cli(&["--mesh", "alice-home", "agent", "register", "coder"])
        .ok();
    Pair {
        alice,
        bob,
        up: Some(up),
    }
}

/// Messages and posts, both ways, each once.
fn talk(pair: &Pair, round: &str) {
    let text = |what: &str| format!("{what}-{round}");
    let Pair { alice, bob, .. } = pair;
    send(alice, "home", "planner", "@bob/coder", &text("down"));
    send(bob, "alice-home", "coder", "@alice/planner", &text("up"));
    arrives(bob, "alice-home", "coder", &text("down"));
    arrives(alice, "home", "planner", &text("up"));
    send(alice, "home", "planner", "#ops", &text("post"));
    send(bob, "alice-home", "coder", "#ops", &text("answer"));
    for (home, mesh, agent) in [(alice, "home", "planner"), (bob, "alice-home", "coder")] {
        arrives(home, mesh, agent, &text("post"));
        arrives(home, mesh, agent, &text("answer"));
    }
}

#[test]
fn two_homes_join_and_talk_both_ways_and_go_on_after_kill_9_of_either() {
    let mut pair = pair();
    for (home, mesh, agent) in [
        (&pair.alice, "home", "planner"),
        (&pair.bob, "alice-home", "coder"),
    ] {
        let args = [
            "topic",
            "subscribe",
            "ops",
            "--mesh",
            mesh,
            "--agent",
            agent,
        ];
        home.cli(&args).ok();
    }
    talk(&pair, "1");
    let (alice, bob) = pair.up.take().unwrap();
    bob.kill();
    send(
        &pair.alice,
        "home",
        "planner",
        "@bob/coder",
        "while bob was dead",
    );
    let bob = pair.bob.up();
    arrives(&pair.bob, "alice-home", "coder", "while bob was dead");
    talk(&pair, "2");
    alice.kill();
    let id = "while alice was dead";
    send(&pair.bob, "alice-home", "coder", "@alice/planner", id);
    // The same port as before: the link in bob's config is still good.
    let alice = pair.alice.up();
    arrives(&pair.alice, "home", "planner", id);
    talk(&pair, "3");
    bob.stop();
    alice.stop();
}

#[test]
fn members_are_listed_with_role_key_and_presence() {
    let pair = pair();
    let listed = members(&pair.alice);
    assert_eq!(listed.len(), 2);
    let of = |name: &str| listed.iter().find(|m| m["member"] == name).unwrap().clone();
    assert_eq!(of("alice")["role"], "owner");
    assert_eq!(of("bob")["role"], "member");
    assert_eq!(of("bob")["online"], true);
    assert_ne!(of("bob")["key_fingerprint"], of("alice")["key_fingerprint"]);
    let at_bob = pair
        .bob
        .cli(&["mesh", "info", "--json", "--mesh", "alice-home"]);
    let at_bob = at_bob.ok().json();
    assert_eq!(at_bob["role"], "member");
    assert_eq!(at_bob["members"].as_array().unwrap().len(), 2);
    // From the file, beside the running daemon.
    let file = pair.alice.cli(&["broker", "members", "--json"]).ok().json();
    let names: Vec<&Value> = file["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["member"])
        .collect();
    assert!(names.contains(&&json!("alice")) && names.contains(&&json!("bob")));
    for words in [
        pair.alice.cli(&["mesh", "info"]).ok().stdout,
        pair.alice.cli(&["broker", "members"]).ok().stdout,
        pair.bob.cli(&["mesh", "list"]).ok().stdout,
    ] {
        assert!(words.contains("bob"), "{words}");
    }
}

#[test]
fn t_71_joining_again_is_a_duplicate_and_takes_no_use() {
    let (alice, bob, carol) = (home_of("alice"), home_of("bob"), home_of("carol"));
    let _up = (alice.up(), bob.up(), carol.up());
    let link = invite(&alice, &["--uses", "2"]);
    let first = join(&bob, &link, &[]).ok().json();
    assert_eq!(first["duplicate"], false);
    let config = text_of(&bob.path().join("config.toml"));
    for _ in 0..2 {
        let again = join(&bob, &link, &["--name", "robert"]).ok().json();
        assert_eq!(again["duplicate"], true);
        assert_eq!(again["member_id"], first["member_id"]);
        assert_eq!(again["member"], "bob");
    }
    assert_eq!(text_of(&bob.path().join("config.toml")), config);
    assert!(config.starts_with("[daemon]\nmember = \"bob\"\n"));
    // The second use is still there.
    join(&carol, &link, &[]).ok();
    assert_eq!(members(&alice).len(), 3);
}

#[test]
fn t_71_a_crash_between_the_enrolment_and_the_config_is_mended_by_joining_again() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let _alice = alice.up();
    let mut bob_up = bob.up();
    let link = invite(&alice, &[]);
    let before = text_of(&bob.path().join("config.toml"));
    let first = join(&bob, &link, &[]).ok().json();
    // What a crash right after the broker's answer leaves: a key, and nothing else.
    bob_up.child.kill().unwrap();
    bob_up.child.wait().unwrap();
    std::fs::write(bob.path().join("config.toml"), before).unwrap();
    for file in ["data.db", "data.db-wal", "data.db-shm"] {
        let _ = std::fs::remove_file(bob.path().join(file));
    }
    for name in ["broker.db", "effects.db"] {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(bob.path().join(format!("{name}{end}")));
        }
    }
    let _ = std::fs::remove_dir_all(bob.path().join("effects"));
    let _bob = bob.up();
    assert!(!is_connected(&bob, "alice-home"));
    // The link is used up for everybody else.
    let again = join(&bob, &link, &[]).ok().json();
    assert_eq!(again["member_id"], first["member_id"]);
    assert_eq!(again["duplicate"], true);
    assert_eq!(again["connected"], true);
    assert_eq!(members(&alice).len(), 2);
}

#[test]
fn used_up_expired_tampered_and_foreign_links_are_refused_in_clear_words() {
    let (alice, bob, carol) = (home_of("alice"), home_of("bob"), home_of("carol"));
    let _up = (alice.up(), bob.up(), carol.up());
    let link = invite(&alice, &[]);
    let refused = |home: &Home, link: &str, code: &str, words: &str| {
        let ran = join(home, link, &[]);
        let exit = if code == "name_taken" { 3 } else { 6 };
        assert_eq!(ran.code, exit, "{ran:?}");
        let problem = ran.json();
        assert_eq!(problem["code"], code);
        assert!(ran.stderr.contains(words), "{ran:?}");
        assert!(ran.stderr.contains("next: "), "{ran:?}");
        let secret = &link[link.len().saturating_sub(20)..];
        assert!(!format!("{ran:?}").contains(secret), "{ran:?}");
        problem
    };
    let mut tampered = link.clone().into_bytes();
    let last = tampered.len() - 30;
    tampered[last] = if tampered[last] == b'A' { b'B' } else { b'A' };
    let tampered = String::from_utf8(tampered).unwrap();
    refused(&bob, &tampered, "invite_invalid", "changed on the way");
    refused(&bob, "heddle://join/x", "invite_invalid", "not whole");
    refused(
        &bob,
        "https://example.test/",
        "invite_invalid",
        "not an invitation",
    );
    // One's own.
    let own = join(&alice, &link, &[]);
    assert_eq!(own.code, 2, "{own:?}");
    assert!(own.stderr.contains("own mesh"), "{own:?}");
    // A name that is there already, in any case.
    let ran = join(&bob, &link, &["--name", "Alice"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(ran.json()["suggestion"], "Alice-2");
    join(&bob, &link, &[]).ok();
    refused(&carol, &link, "invite_used_up", "has joined");
    let brief = invite(&alice, &["--expires", "1s"]);
    wait_until("the invitation to expire", || {
        join(&carol, &brief, &["--name", "alice"]).json()["code"] == "invite_expired"
    });
    refused(&carol, &brief, "invite_expired", "expired at");
    // Bob is no owner.
    let ran = bob.cli(&["mesh", "invite", "--mesh", "alice-home"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    let ran = bob.cli(&["mesh", "revoke", "alice", "--mesh", "alice-home"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    for bad in [["--uses", "0"], ["--expires", "91d"], ["--expires", "0s"]] {
        let ran = alice.cli(&["mesh", "invite", bad[0], bad[1]]);
        assert_eq!(ran.code, 2, "{ran:?}");
    }
    assert_eq!(members(&alice).len(), 2);
}

#[test]
fn t_30_a_revoked_member_is_cut_at_once_and_cannot_return() {
    let pair = pair();
    let Pair { alice, bob, .. } = &pair;
    let link = invite(alice, &["--uses", "5"]);
    let unknown = alice.cli(&["mesh", "revoke", "nobody"]);
    assert_eq!(unknown.code, 4, "{unknown:?}");
    let owner = alice.cli(&["mesh", "revoke", "alice"]);
    assert_eq!(owner.code, 6, "{owner:?}");
    assert!(
        owner.stderr.contains("This home is that owner"),
        "{owner:?}"
    );
    assert!(!owner.stderr.contains("Ask an owner"), "{owner:?}");
    bob.cli(&["--mesh", "alice-home", "state", "set", "of-bob", "1"])
        .ok();
    let said_by = || alice.cli(&["state", "list", "--json"]).stdout;
    wait_until("what bob wrote to come", || said_by().contains("of-bob"));
    let revoked = alice.cli(&["mesh", "revoke", "@bob", "--json"]).ok().json();
    assert_eq!(revoked["changed"], true);
    // The answer came after the cut was ordered; what remains is one close frame's way.
    wait_until("bob to be cut", || !is_connected(bob, "alice-home"));
    let again = alice.cli(&["mesh", "revoke", "bob", "--json"]).ok().json();
    assert_eq!(again["changed"], false);
    // The connection ends a moment before its reason is told.
    wait_until("bob to be told why", || {
        let status = bob.cli(&["status", "--json"]).json();
        status["degraded"].to_string().contains("shut out")
    });
    // What it wrote is shown under its name.
    assert!(said_by().contains("@bob/"), "{}", said_by());
    // Nothing reaches it, and nobody is there to write to.
    let ran = alice.cli(&["send", "@bob/coder", "hello"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert_eq!(
        pair.up.as_ref().unwrap().1.http.get("/v1/health").status,
        200
    );
    // Neither after a restart nor by another invitation.
    let Pair { alice, bob, up } = pair;
    let (alice_up, bob_up) = up.unwrap();
    bob_up.kill();
    let bob_up = bob.up();
    bob_up.wait_log("member_revoked");
    assert!(!is_connected(&bob, "alice-home"));
    let rejoin = join(&bob, &link, &[]);
    assert!(rejoin.json()["connected"] != true, "{rejoin:?}");
    let listed = members(&alice);
    let entry = listed.iter().find(|m| m["member"] == "bob").unwrap();
    assert!(entry["revoked_at"].is_string());
    assert_eq!(listed.len(), 2);
    drop((alice_up, bob_up));
}

#[test]
fn a_port_that_another_has_taken_is_told_and_taken_back_when_it_is_free() {
    let pair = pair();
    let Pair { alice, bob, up } = pair;
    let (alice_up, _bob_up) = up.unwrap();
    alice_up.stop();
    let port: u16 = text_of(&alice.path().join("broker.port")).parse().unwrap();
    let thief = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let _alice_up = alice.up();
    let status = alice.cli(&["status", "--json"]).json();
    let words = status["degraded"].to_string();
    assert!(words.contains(&format!("port {port}")), "{words}");
    let ran = alice.cli(&["mesh", "invite"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains(&format!("port {port}")), "{ran:?}");
    drop(thief);
    wait_until("the port to be taken back", || {
        alice.cli(&["status", "--json"]).json()["degraded"] == json!([])
    });
    wait_until("bob to be back", || is_connected(&bob, "alice-home"));
    // A home that never invited anybody just takes another one.
    let carol = home_of("carol");
    carol.up().stop();
    let port: u16 = text_of(&carol.path().join("broker.port")).parse().unwrap();
    let _thief = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let _carol_up = carol.up();
    assert_eq!(
        carol.cli(&["status", "--json"]).json()["degraded"],
        json!([])
    );
    assert_ne!(text_of(&carol.path().join("broker.port")), port.to_string());
}
