//! The doctor and the meshes of a home: those that it has made and those that it has joined are served, and no alarm;
//! what nothing serves any more is told, with a next step that can be taken.

use crate::support;

use serde_json::{Value, json};
use support::{Home, wait_until};

fn meshes(home: &Home) -> Value {
    let view = home.cli(&["doctor", "--json"]).json();
    let findings = view["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["check"] == "meshes");
    found.unwrap_or(&Value::Null).clone()
}

#[track_caller]
fn is_well(home: &Home) {
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    assert_eq!(meshes(home)["ok"], true, "{}", meshes(home));
}

#[test]
fn a_mesh_that_was_made_here_is_no_alarm_whether_a_daemon_runs_or_not() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["mesh", "create", "m2"]).ok();
    home.cli(&["--mesh", "m2", "state", "set", "k", "1"]).ok();
    is_well(&home);
    daemon.stop();
    is_well(&home);
    let daemon = home.up();
    is_well(&home);
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["degraded"], json!([]), "{status}");
    let export = home.cli(&["advanced", "export"]).ok();
    assert!(export.stdout.contains("\"m2\""), "{export:?}");
    assert_eq!(export.stderr, "", "{export:?}");
    daemon.stop();
}

#[test]
fn a_mesh_that_was_joined_is_no_alarm_until_nothing_names_it_any_more() {
    let (alice, bob) = (Home::new(), Home::new());
    alice.config("[daemon]\nmember = \"alice\"\n");
    bob.config("[daemon]\nmember = \"bob\"\n");
    let (alice_up, bob_up) = (alice.up(), bob.up());
    alice.cli(&["mesh", "create", "work"]).ok();
    let invite = ["--mesh", "work", "mesh", "invite", "--json"];
    let invited = alice.cli(&invite).ok().json();
    let link = invited["link"].as_str().unwrap();
    bob.cli(&["mesh", "join", link]).ok();
    wait_until("bob to be there", || {
        let info = bob.cli(&["--mesh", "work", "mesh", "info", "--json"]);
        info.json()["connected"] == true
    });
    // It is shared now, and alice's own broker hosts it still.
    is_well(&alice);
    is_well(&bob);
    bob_up.stop();
    is_well(&bob);
    alice_up.stop();
    is_well(&alice);
    bob.config("[daemon]\nmember = \"bob\"\n");
    let told = meshes(&bob);
    assert_eq!(told["ok"], false, "{told}");
    let words = format!("{} {}", told["says"], told["next"]);
    assert!(words.contains("work") && words.contains("mesh join"));
}

#[test]
fn a_mesh_that_was_made_here_is_told_where_another_broker_is_set() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["mesh", "create", "m2"]).ok();
    daemon.stop();
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let told = meshes(&home);
    assert_eq!(told["ok"], false, "{told}");
    let next = told["next"].as_str().unwrap();
    assert!(next.contains("[broker]"), "{told}");
    assert!(!next.contains("[[mesh]]"), "{told}");
    // By the daemon as well, which does not serve it.
    home.cli(&["daemon", "up", "--detach"]).ok();
    let running = meshes(&home);
    let status = home.cli(&["status", "--json"]).ok().json();
    home.cli(&["down"]).ok();
    assert_eq!(running["ok"], false, "{running}");
    assert!(running["next"].as_str().unwrap().contains("[broker]"));
    let degraded = status["degraded"].to_string();
    assert!(degraded.contains("m2"), "{status}");
    assert!(!degraded.contains("does not name it"), "{status}");
}
