//! A home is put back from a copy of before its mesh was published: its file says personal, its broker has the others.
//! It says so, with the one command that helps, and then all hold the same bytes.

use crate::support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Home, wait_until, wait_until_within};

const AGREE: Duration = Duration::from_secs(60);
const THERE: &str = "alice-home";
const COMMAND: &str = "heddle mesh publish home";

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn status(home: &Home) -> Value {
    home.cli(&["status", "--json"]).json()
}

fn dump(home: &Home, mesh: &str) -> String {
    home.cli(&["--mesh", mesh, "advanced", "dump"]).stdout
}

#[test]
fn a_home_put_back_from_before_its_mesh_was_published_says_so_and_how_to_share_it_again() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (alice_up, _bob_up) = (alice.up(), bob.up());
    alice.cli(&["state", "set", "before", "1"]).ok();
    assert_eq!(status(&alice)["degraded"], json!([]), "it is personal");
    let copy = alice.path().parent().unwrap().join("copy.db");
    let copy = copy.to_str().unwrap();
    alice.cli(&["doctor", "--backup", copy]).ok();
    let invited = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    let link = invited["link"].as_str().unwrap();
    bob.cli_told(&["mesh", "join", "-"], link).ok();
    wait_until_within(AGREE, "the first agreement", || {
        dump(&bob, THERE).contains("\"before\"")
    });
    alice_up.stop();
    alice.cli(&["daemon", "restore", copy]).ok();

    let _alice_up = alice.up();
    bob.cli(&["--mesh", THERE, "state", "set", "of_bob", "1"])
        .ok();
    alice.cli(&["state", "set", "of_alice", "1"]).ok();
    wait_until("alice to tell it", || {
        status(&alice)["verdict"] == "degraded"
    });
    let told = status(&alice);
    assert_eq!(told["next"], COMMAND, "{told}");
    let said = told["degraded"].to_string();
    assert!(said.contains("personal in data.db"), "{said}");
    let doctor = alice.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains(COMMAND), "{doctor:?}");

    alice.cli(&["mesh", "publish", "home"]).ok();
    wait_until_within(AGREE, "the same bytes again", || {
        let (here, there) = (dump(&alice, "home"), dump(&bob, THERE));
        here == there && here.contains("of_bob") && here.contains("of_alice")
    });
    wait_until("all is well", || {
        [&alice, &bob]
            .iter()
            .all(|home| status(home)["degraded"] == json!([]))
    });
    assert_eq!(alice.cli(&["doctor"]).code, 0);
}

/// Whoever joined has left again, or nobody came: what was published is in the log.
#[test]
fn a_mesh_that_was_published_to_nobody_is_told_as_well() {
    let alice = home_of("alice");
    let up = alice.up();
    let copy = alice.path().parent().unwrap().join("copy.db");
    let copy = copy.to_str().unwrap();
    alice.cli(&["state", "set", "before", "1"]).ok();
    alice.cli(&["doctor", "--backup", copy]).ok();
    alice.cli(&["mesh", "publish"]).ok();
    up.stop();
    alice.cli(&["daemon", "restore", copy]).ok();
    let _up = alice.up();
    wait_until("alice to tell it", || status(&alice)["next"] == COMMAND);
    alice.cli(&["mesh", "publish"]).ok();
    wait_until("all is well", || status(&alice)["degraded"] == json!([]));
}
