//! Meshes whose brokers are elsewhere, over the real binary: each on its own, with a member and a token of its own.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use serde_json::json;
use support::outbox::{row, wait_for};
use support::stub_broker::StubBroker;
use support::{Home, wait_until};

#[test]
fn one_mesh_whose_broker_is_away_delays_no_other() {
    let broker = StubBroker::start();
    let home = Home::new();
    let away = "[[mesh]]\nname = \"away\"\nurl = \"ws://127.0.0.1:1/\"\n";
    home.config(&format!("{}{away}", broker.mesh_config("work")));
    let daemon = home.up();
    for mesh in ["away", "home", "work"] {
        home.cli(&["--mesh", mesh, "send", "@tester", "m", "--id", mesh])
            .ok();
    }
    wait_for(&daemon, "home", "done");
    wait_for(&daemon, "work", "done");
    let waiting = row(&daemon, "away");
    assert_eq!(
        (&waiting["status"], &waiting["mesh"]),
        (&json!("pending"), &json!("away"))
    );
    assert_eq!(broker.sent_ids(), ["work"]);
    let listed = home
        .cli(&["--mesh", "work", "daemon", "outbox", "list", "--json"])
        .ok()
        .json();
    assert_eq!(listed["rows"].as_array().unwrap().len(), 1);
    let status = home.cli(&["status", "--json"]).ok().json();
    let meshes: Vec<(&str, bool)> = status["meshes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| {
            (
                m["mesh"].as_str().unwrap(),
                m["connected"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(meshes, [("home", true), ("work", true), ("away", false)]);
    // HEDDLE_MESH selects too.
    let ran = home
        .command(&["send", "@tester", "m", "--id", "by-env"])
        .env("HEDDLE_MESH", "work")
        .output()
        .unwrap();
    assert!(ran.status.success());
    wait_for(&daemon, "by-env", "done");
    assert_eq!(broker.sent_ids(), ["work", "by-env"]);
}

#[test]
fn a_mesh_elsewhere_has_a_member_of_its_own_that_survives_and_a_token() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&format!(
        "{}token_file = \"work.token\"\n",
        broker.mesh_config("work")
    ));
    std::fs::write(home.path().join("work.token"), "secret-1\n").unwrap();
    for _ in 0..2 {
        let daemon = home.up();
        wait_until("the mesh", || {
            daemon.http.get("/v1/status").expect(200)["connected"] == true
        });
        assert!(!daemon.log().contains("secret-1"));
    }
    let members = broker.members();
    assert_eq!(members.len(), 2);
    assert_eq!(members[0], members[1], "the member did not survive");
    assert_eq!(
        broker.authorizations(),
        ["Bearer secret-1", "Bearer secret-1"]
    );
    std::fs::remove_file(home.path().join("work.token")).unwrap();
    let daemon = home.up();
    let status = daemon.http.get("/v1/status").expect(200);
    assert!(
        status["meshes"][1]["last_error"]
            .as_str()
            .unwrap()
            .contains("token_file"),
        "{status}"
    );
}

#[test]
fn daemon_up_runs_without_a_broker_of_its_own() {
    let home = Home::new();
    let ran = home.cli(&["daemon", "up"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("[[mesh]]") && ran.stderr.contains("heddle up"),
        "{ran:?}"
    );

    let broker = StubBroker::start();
    home.config(&broker.mesh_config("work"));
    let ready = home
        .cli(&["daemon", "up", "--detach", "--json"])
        .ok()
        .json();
    assert_eq!(ready["mesh"], "work");
    assert!(!home.path().join("broker.db").exists());
    let status = home.cli(&["daemon", "status", "--json"]).ok().json();
    assert_eq!(status["meshes"].as_array().unwrap().len(), 1);
    home.cli(&["send", "#ops", "m", "--id", "a", "--wait"]).ok();
    assert_eq!(broker.sent_ids(), ["a"]);
    let again = home.cli(&["daemon", "up", "--detach"]);
    assert_eq!(again.code, 3, "{again:?}");
    home.cli(&["daemon", "down"]).ok();
    assert_eq!(
        home.cli(&["daemon", "status", "--json"]).ok().json()["running"],
        false
    );
}
