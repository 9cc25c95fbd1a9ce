//! Roles and blocks over the binary: who may, what a blocked home notices, how it comes back.

use crate::support;

use serde_json::Value;
use support::{Daemon, Home, wait_until};

const MESH: &str = "alice-home";

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn join(host: &Home, name: &str) -> (Home, Daemon) {
    let link = host.cli(&["mesh", "invite", "--json"]).ok().json();
    let home = home_of(name);
    let up = home.up();
    home.cli(&["mesh", "join", link["link"].as_str().unwrap(), "--as", MESH])
        .ok();
    home.cli(&["--mesh", MESH, "agent", "register", "coder"])
        .ok();
    (home, up)
}

fn is_connected(home: &Home, mesh: &str) -> bool {
    let list = home.cli(&["mesh", "list", "--json"]).json();
    let meshes = list["meshes"].as_array().unwrap().clone();
    let mut found = meshes.iter().filter(|one| one["mesh"] == mesh);
    found.any(|one| one["connected"] == true)
}

fn member(home: &Home, name: &str) -> Value {
    let info = home.cli(&["mesh", "info", "--json"]).ok().json();
    let members = info["members"].as_array().unwrap().clone();
    members.into_iter().find(|m| m["member"] == name).unwrap()
}

fn count(home: &Home, mesh: &str, agent: &str, body: &str) -> usize {
    let args = ["inbox", "--json", "--mesh", mesh, "--agent", agent];
    let page = home.cli(&args).ok().json();
    let items = page["items"].as_array().unwrap().clone();
    items.iter().filter(|item| item["body"] == body).count()
}

#[track_caller]
fn send(home: &Home, mesh: &str, to: &str, body: &str) {
    wait_until(&format!("{to} to be known"), || {
        let args = ["send", to, body, "--id", body, "--mesh", mesh];
        home.cli(&args).code == 0
    });
}

#[test]
fn t_30_a_blocked_home_is_cut_its_mail_waits_and_a_grant_brings_it_back_with_everything() {
    let alice = home_of("alice");
    let _alice_up = alice.up();
    alice.cli(&["agent", "register", "planner"]).ok();
    let (bob, bob_up) = join(&alice, "bob");
    send(&bob, MESH, "@alice/planner", "before");
    wait_until("the message", || {
        count(&alice, "home", "planner", "before") == 1
    });

    let blocked = alice.cli(&["mesh", "block", "@bob", "--json"]).ok().json();
    assert_eq!(
        (&blocked["blocked"], &blocked["changed"]),
        (&true.into(), &true.into())
    );
    let again = alice.cli(&["mesh", "block", "bob", "--json"]).ok().json();
    assert_eq!(again["changed"], false);
    wait_until("bob to be cut", || !is_connected(&bob, MESH));
    let entry = member(&alice, "bob");
    assert!(entry["blocked_at"].is_string() && entry["revoked_at"].is_null());
    let shown = alice.cli(&["mesh", "info"]).ok().stdout;
    assert!(shown.contains("blocked 2"), "{shown}");
    wait_until("bob to hear why", || {
        let status = bob.cli(&["status", "--json"]).json();
        status["degraded"]
            .to_string()
            .contains("blocked in the mesh")
    });
    // What bob says waits in its own outbox; what alice says waits for it at the broker.
    send(&bob, MESH, "@alice/planner", "meanwhile");
    alice.cli(&["send", "@bob/coder", "for-later"]).ok();
    // Neither a restart nor another invitation opens the door.
    bob_up.kill();
    let bob_up = bob.up();
    bob_up.wait_log("member_blocked");
    assert!(!is_connected(&bob, MESH));
    assert_eq!(count(&alice, "home", "planner", "meanwhile"), 0);

    let granted = ["mesh", "grant", "bob", "member", "--json"];
    let granted = alice.cli(&granted).ok().json();
    assert_eq!(
        (&granted["role"], &granted["changed"]),
        (&"member".into(), &true.into())
    );
    wait_until("bob to be back", || is_connected(&bob, MESH));
    wait_until("what waited", || {
        count(&alice, "home", "planner", "meanwhile") == 1
            && count(&bob, MESH, "coder", "for-later") == 1
    });
    assert_eq!(count(&alice, "home", "planner", "before"), 1);
}

fn refused(home: &Home, verb: &[&str], code: i32, words: &str) {
    let ran = home.cli(verb);
    assert_eq!(ran.code, code, "{verb:?}: {ran:?}");
    assert!(ran.stderr.contains(words), "{verb:?}: {ran:?}");
}

#[test]
fn roles_are_granted_by_owners_and_every_refusal_says_what_to_do() {
    let alice = home_of("alice");
    let alice_up = alice.up();
    let (bob, _bob_up) = join(&alice, "bob");
    let (_carol, _carol_up) = join(&alice, "carol");
    for verb in [
        &["mesh", "block", "carol", "--mesh", MESH][..],
        &["mesh", "grant", "bob", "owner", "--mesh", MESH],
        &["mesh", "invite", "--mesh", MESH],
    ] {
        refused(&bob, verb, 6, "Ask an owner");
    }
    refused(&alice, &["mesh", "block", "nobody"], 4, "heddle mesh info");
    refused(&alice, &["mesh", "grant", "bob", "king"], 2, "owner");
    refused(
        &alice,
        &["mesh", "block", "alice"],
        6,
        "heddle mesh grant NAME member",
    );
    refused(
        &alice,
        &["mesh", "grant", "alice", "member"],
        3,
        "heddle mesh grant NAME owner",
    );

    alice.cli(&["mesh", "grant", "bob", "owner"]).ok();
    // Now bob may: it invites, blocks, and is not blocked itself.
    let link = bob
        .cli(&["mesh", "invite", "--mesh", MESH, "--json"])
        .ok()
        .json();
    let dave = home_of("dave");
    let _dave_up = dave.up();
    dave.cli(&["mesh", "join", link["link"].as_str().unwrap()])
        .ok();
    bob.cli(&["mesh", "block", "carol", "--mesh", MESH]).ok();
    assert!(member(&alice, "carol")["blocked_at"].is_string());
    refused(
        &alice,
        &["mesh", "block", "bob"],
        6,
        "heddle mesh grant NAME member",
    );
    refused(
        &alice,
        &["mesh", "revoke", "bob"],
        6,
        "heddle mesh grant NAME member",
    );
    alice.cli(&["mesh", "grant", "bob", "member"]).ok();
    alice.cli(&["mesh", "revoke", "bob"]).ok();
    refused(
        &alice,
        &["mesh", "grant", "bob", "member"],
        6,
        "new invitation",
    );
    // A role is kept over a restart of the home that hosts the mesh.
    assert_eq!(member(&alice, "dave")["role"], "member");
    alice.cli(&["mesh", "grant", "dave", "owner"]).ok();
    alice_up.stop();
    let _alice_up = alice.up();
    assert_eq!(member(&alice, "dave")["role"], "owner");
    assert!(member(&alice, "carol")["blocked_at"].is_string());
}
