//! Joining that does not go through, members that a broker has lost, and homes that it does not let in.

use crate::support;

use serde_json::Value;
use support::{Daemon, Home, Ran, text_of, wait_until};

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn invite(home: &Home) -> String {
    let args = ["mesh", "invite", "--uses", "5", "--json"];
    let answer = home.cli(&args).ok().json();
    answer["link"].as_str().unwrap().to_owned()
}

fn join(home: &Home, link: &str) -> Ran {
    join_as(home, link, &[])
}

fn join_as(home: &Home, link: &str, more: &[&str]) -> Ran {
    home.cli_told(&[&["mesh", "join", "-", "--json"], more].concat(), link)
}

fn config(home: &Home) -> String {
    text_of(&home.path().join("config.toml"))
}

fn is_connected(home: &Home, mesh: &str) -> bool {
    let list = home.cli(&["mesh", "list", "--json"]).json();
    let meshes = list["meshes"].as_array().unwrap();
    let found = meshes.iter().find(|one| one["mesh"] == mesh);
    found.is_some_and(|one| one["connected"] == true)
}

fn finding(home: &Home, check: &str) -> Value {
    let view = home.cli(&["doctor", "--json"]).json();
    let findings = view["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["check"] == check);
    found.unwrap_or(&Value::Null).clone()
}

/// Alice hosts, Bob has joined.
fn pair() -> (Home, Home, Daemon, Daemon) {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let up = (alice.up(), bob.up());
    join(&bob, &invite(&alice)).ok();
    (alice, bob, up.0, up.1)
}

fn without(home: &Home, name: &str) {
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(home.path().join(format!("{name}{end}")));
    }
}

#[test]
fn a_join_as_somebody_else_is_refused_and_the_home_starts_as_before() {
    let (alice, bob, _alice_up, bob_up) = pair();
    // Bob takes the mesh out of his config, and loses the key that he was known by.
    bob_up.stop();
    bob.config("[daemon]\nmember = \"bob\"\n");
    std::fs::remove_dir_all(bob.path().join("keys")).unwrap();
    let bob_up = bob.up();
    let before = config(&bob);
    let link = invite(&alice);
    let refused = join_as(&bob, &link, &["--name", "bob-2"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("keys/"), "{refused:?}");
    assert!(refused.stderr.contains("next: "), "{refused:?}");
    assert_eq!(config(&bob), before, "a refused join changed the config");
    bob_up.stop();
    // The start works, and no use of the link was taken.
    let _bob_up = bob.up();
    let info = alice.cli(&["mesh", "info", "--json"]).ok().json();
    assert_eq!(info["members"].as_array().unwrap().len(), 2, "{info}");
}

#[test]
fn t_71_a_home_that_left_the_mesh_out_of_its_config_joins_again_as_who_it_was() {
    let (alice, bob, _alice_up, bob_up) = pair();
    let before = config(&bob);
    bob_up.stop();
    bob.config("[daemon]\nmember = \"bob\"\n");
    let _bob_up = bob.up();
    let again = join(&bob, &invite(&alice)).ok().json();
    assert_eq!(again["mesh"], "alice-home");
    assert_eq!(again["duplicate"], true);
    assert_eq!(config(&bob), before);
}

#[test]
fn a_guest_that_was_shut_out_hears_it_from_join_status_and_doctor() {
    let (alice, bob, _alice_up, bob_up) = pair();
    alice.cli(&["mesh", "revoke", "bob"]).ok();
    wait_until("bob to be cut", || !is_connected(&bob, "alice-home"));
    let before = config(&bob);
    let refused = join(&bob, &invite(&alice));
    assert_eq!(refused.code, 6, "{refused:?}");
    assert_eq!(refused.json()["code"], "member_revoked");
    assert_eq!(config(&bob), before);
    let check = finding(&bob, "sync of mesh alice-home");
    assert_eq!(check["ok"], false, "{check}");
    assert!(
        check["says"].as_str().unwrap().contains("shut out"),
        "{check}"
    );
    assert!(
        check["next"].as_str().unwrap().contains("config.toml"),
        "{check}"
    );
    assert_eq!(bob.cli(&["doctor"]).code, 1);
    let status = bob.cli(&["status", "--json"]).json();
    assert_eq!(status["next"], "heddle doctor", "{status}");
    assert!(
        status["degraded"].to_string().contains("shut out"),
        "{status}"
    );
    // A home that was shut out starts all the same.
    bob_up.stop();
    let _bob_up = bob.up();
}

#[test]
fn an_owner_that_lost_broker_db_hears_whom_it_lost_and_they_come_back_as_who_they_were() {
    let (alice, bob, alice_up, _bob_up) = pair();
    bob.cli(&["--mesh", "alice-home", "state", "set", "mine", "1"])
        .ok();
    wait_until("the state of bob", || {
        alice.cli(&["state", "get", "mine"]).code == 0
    });
    let member = bob.cli(&["mesh", "info", "--mesh", "alice-home", "--json"]);
    let member = member.ok().json()["member_id"].clone();
    let old_link = invite(&alice);
    alice_up.stop();
    without(&alice, "broker.db");
    let alice_up = alice.up();
    // The owner.
    let check = finding(&alice, "members of mesh home");
    assert_eq!(check["ok"], false, "{check}");
    assert!(check["says"].as_str().unwrap().contains("bob"), "{check}");
    assert!(
        check["next"]
            .as_str()
            .unwrap()
            .contains("heddle mesh invite"),
        "{check}"
    );
    let status = alice.cli(&["status", "--json"]).json();
    assert!(status["degraded"].to_string().contains("bob"), "{status}");
    assert_eq!(status["next"], "heddle doctor", "{status}");
    // It is not forgotten by the next start.
    alice_up.stop();
    let _alice_up = alice.up();
    assert_eq!(finding(&alice, "members of mesh home")["ok"], false);
    // The guest.
    wait_until("bob to hear of it", || {
        let check = finding(&bob, "sync of mesh alice-home");
        let says = check["says"].as_str().unwrap_or_default().to_owned();
        check["ok"] == false && says.contains("another broker")
    });
    let old = join(&bob, &old_link);
    assert_eq!(old.code, 6, "{old:?}");
    let again = join(&bob, &invite(&alice)).ok().json();
    assert_eq!(again["member_id"], member, "{again}");
    wait_until("bob to be back", || is_connected(&bob, "alice-home"));
    bob.cli(&["--mesh", "alice-home", "state", "set", "mine", "2"])
        .ok();
    wait_until("the state of bob", || {
        alice.cli(&["state", "get", "mine"]).stdout.trim() == "2"
    });
    assert_eq!(finding(&alice, "members of mesh home")["ok"], true);
    // What bob had made before is told as lost until it has come again, and is counted every other second.
    wait_until("all is well", || {
        let status = alice.cli(&["status", "--json"]).json();
        status["degraded"] == serde_json::json!([])
    });
    assert_eq!(bob.cli(&["doctor"]).code, 0);
}

#[test]
fn a_lost_member_who_does_not_come_back_is_forgotten_by_revoking_it() {
    let (alice, _bob, alice_up, _bob_up) = pair();
    alice_up.stop();
    without(&alice, "broker.db");
    let _alice_up = alice.up();
    assert_eq!(finding(&alice, "members of mesh home")["ok"], false);
    alice.cli(&["mesh", "revoke", "bob"]).ok();
    assert_eq!(finding(&alice, "members of mesh home")["ok"], true);
    // One that was revoked in the ordinary way is not missed either.
    let (alice, bob, _up, _bob_up) = pair();
    alice.cli(&["mesh", "revoke", "bob"]).ok();
    wait_until("bob to be cut", || !is_connected(&bob, "alice-home"));
    assert_eq!(finding(&alice, "members of mesh home")["ok"], true);
}
