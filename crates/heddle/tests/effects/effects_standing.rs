//! What a key stands for when several have asked, when rows are gone, and when a call came for what was not begun.

use crate::support;

use serde_json::json;
use support::Home;
use support::effect_file::change;
use support::effect_pair::{request, run};
use support::effect_side::Side;

/// Nothing else says that it has happened: what is gone must not free the key.
#[test]
fn rg_01_what_has_lost_its_rows_or_their_key_does_not_run_again() {
    for sql in [
        "UPDATE effect_step SET logical_request_key = 'q' WHERE logical_request_key = 'k'",
        "UPDATE effect_step SET mesh_id = zeroblob(16) WHERE logical_request_key = 'k'",
        "DELETE FROM effect_step WHERE logical_request_key = 'k'",
    ] {
        let mut side = Side::new();
        let daemon = side.home.up();
        let go = side.lose_the_runner();
        side.let_it_end(&go);
        side.home.cli(&run("later", &[], "true")).ok();
        daemon.stop();
        change(&side.home, sql);
        let doctor = side.home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        assert!(doctor.stdout.contains("k: 1 of the rows"), "{doctor:?}");
        let daemon = side.home.up();
        let again = side.run(&[]);
        assert_eq!((again.code, side.lines()), (1, 1), "{again:?}");
        assert_eq!(again.json()["changed"], true, "{again:?}");
        let surface = side.home.cli(&["effect", "surface-check"]);
        assert_eq!(surface.code, 1, "{surface:?}");
        assert!(surface.stderr.contains("k: 1 of the rows"), "{surface:?}");
        // The others go on.
        let later = side.home.cli(&run("later", &[], "true")).ok();
        assert_eq!(later.json()["duplicate"], true);
        side.home.cli(&run("new", &[], "true")).ok();
        daemon.stop();
    }
}

/// One row less, and the last one at that, makes no earlier copy of the file: its key stops, and no other one.
#[test]
fn rg_01_the_newest_row_that_is_gone_stops_its_key_and_no_other() {
    for sql in [
        "DELETE FROM effect_step WHERE logical_request_key = 'k' AND step = 'verified'",
        "DELETE FROM effect_consume WHERE logical_request_key = 'k'",
        "DELETE FROM effect_decision WHERE envelope_id IN (SELECT envelope_id FROM effect_envelope WHERE logical_request_key = 'k')",
    ] {
        let home = Home::new();
        let daemon = home.up();
        let side = home.path().with_file_name("side");
        let script = format!("echo x >> {}", side.display());
        home.cli(&run("first", &[], "true")).ok();
        home.cli(&run("k", &[], &script)).ok();
        daemon.stop();
        change(&home, sql);
        let doctor = home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        assert!(!doctor.stdout.contains("earlier copy"), "{doctor:?}");
        let daemon = home.up();
        let again = home.cli(&run("k", &[], &script));
        assert_eq!(again.code, 1, "{again:?}");
        assert_eq!(again.json()["changed"], true, "{again:?}");
        assert!(!again.stderr.contains("earlier copy"), "{again:?}");
        assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
        let first = home.cli(&run("first", &[], "true")).ok();
        assert_eq!(first.json()["duplicate"], true);
        home.cli(&run("new", &[], "true")).ok();
        // Also after the marks were written anew.
        daemon.stop();
        let _daemon = home.up();
        home.cli(&run("newer", &[], "true")).ok();
        assert_eq!(home.cli(&run("k", &[], &script)).code, 1);
    }
}

#[test]
fn a_good_approval_stands_before_a_denial_and_every_open_request_is_shown() {
    let home = Home::new();
    let _daemon = home.up();
    let ask = |agent: &str| {
        let asked = home.cli_as(agent, &request("k")).ok().json();
        asked["request_id"].as_str().unwrap().to_owned()
    };
    let status = || home.cli(&["effect", "status", "k", "--json"]).json();
    let words = || home.cli(&["effect", "status", "k"]).stdout;
    let list = || home.cli(&["effect", "list"]).ok().stdout;
    let (a, b) = (ask("planner"), ask("coder"));
    // Both wait: both are named, and both can be approved.
    let told = status();
    assert_eq!(told["status"], "awaiting_approval");
    let open = told["requests"].as_array().unwrap();
    assert_eq!(
        (&open[0]["request_id"], &open[0]["requested_by"]),
        (&json!(a), &json!("planner"))
    );
    assert_eq!(open[1]["request_id"], json!(b));
    for id in [&a, &b] {
        let approve = format!("heddle effect approve {id}");
        assert!(words().contains(&approve), "{}", words());
        assert!(list().contains(id.as_str()), "{}", list());
    }
    let granted = home.cli(&["effect", "approve", &a, "--json"]).ok().json();
    let nonce = granted["nonce"].as_str().unwrap();
    home.cli(&["effect", "deny", &b]).ok();
    let told = status();
    assert_eq!(
        (&told["status"], &told["request_id"], &told["requested_by"]),
        (&json!("approved"), &json!(a), &json!("planner"))
    );
    assert!(told.get("requests").is_none(), "one is live: {told}");
    assert!(words().contains("heddle effect run"), "{}", words());
    assert!(list().contains("approved"), "{}", list());
    let ran = home.cli_as("planner", &run("k", &["--nonce", nonce], "echo RAN"));
    assert_eq!(ran.ok().json()["status"], "closed");
}

#[test]
fn who_begins_what_was_registered_is_not_told_as_one_for_whom_nothing_was_run() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "op": "deploy", "target": "prod", "attempt_id": "Z1"});
    daemon.http.post("/v1/effect/register", &body).expect(200);
    let ran = home.cli(&run("k", &[], "echo hi")).ok().json();
    assert_eq!(
        (&ran["status"], &ran["stdout"]),
        (&json!("closed"), &json!("hi\n"))
    );
    let story = home.cli(&["explain", "effect:k"]).ok().stdout;
    assert!(story.contains("started"), "{story}");
    assert!(!story.contains("nothing was run"), "{story}");
    let status = home.cli(&["effect", "status", "k"]).ok().stdout;
    assert!(!status.contains("came again"), "{status}");
    // Who comes now is one.
    home.cli(&run("k", &[], "echo hi")).ok();
    let story = home.cli(&["explain", "effect:k"]).ok().stdout;
    assert!(story.contains("once; answered with what stands"), "{story}");
}

#[test]
fn what_fails_to_make_up_for_it_prints_its_own_words_and_its_exit_code() {
    let home = Home::new();
    let _daemon = home.up();
    let failed = home.cli(&run("k", &[], "echo first; exit 4"));
    assert_eq!(failed.code, 1, "{failed:?}");
    let undo = [
        "effect",
        "compensate",
        "k",
        "--",
        "/bin/sh",
        "-c",
        "echo undo; exit 3",
    ];
    let told = home.cli(&undo);
    assert_eq!((told.code, told.stdout.as_str()), (1, "undo\n"), "{told:?}");
    assert!(told.stderr.contains("failed with exit code 3"), "{told:?}");
    let again = home.cli(&undo);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (1, "undo\n"),
        "{again:?}"
    );
    assert!(again.stderr.contains("nothing was run"), "{again:?}");
}

#[test]
fn a_nonce_that_has_registered_an_effect_is_not_called_anothers() {
    let home = Home::new();
    let _daemon = home.up();
    let asked = home.cli_as("planner", &request("k")).ok().json();
    let id = asked["request_id"].as_str().unwrap();
    let granted = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    let nonce = granted["nonce"].as_str().unwrap();
    let failed = home.cli_as("planner", &run("k", &["--nonce", nonce], "exit 4"));
    assert_eq!(failed.code, 1, "{failed:?}");
    let undo = ["effect", "compensate", "k", "--nonce", nonce, "--", "true"];
    let told = home.cli_as("planner", &undo);
    assert_eq!(told.code, 6, "{told:?}");
    assert!(
        told.stderr.contains("has registered this effect"),
        "{told:?}"
    );
    assert!(told.stderr.contains("--compensation"), "{told:?}");
}

#[test]
fn a_request_that_is_too_old_is_asked_for_again_and_not_granted_once_more() {
    let home = Home::new();
    let daemon = home.up();
    let asked = home.cli_as("planner", &request("k")).ok().json();
    let id = asked["request_id"].as_str().unwrap();
    let granted = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    let nonce = granted["nonce"].as_str().unwrap();
    daemon.stop();
    change(
        &home,
        "UPDATE effect_envelope SET expires_at = requested_at + 1",
    );
    let _daemon = home.up();
    let again = "heddle effect request --key k --op deploy --target prod";
    let words = home.cli(&["effect", "status", "k"]).stdout;
    assert!(words.contains(again), "{words}");
    assert!(words.contains("too old"), "{words}");
    assert!(!words.contains("effect approve"), "{words}");
    let approve = home.cli(&["effect", "approve", id]);
    assert_eq!(approve.code, 6, "{approve:?}");
    assert!(approve.stderr.contains(again), "{approve:?}");
    let ran = home.cli_as("planner", &run("k", &["--nonce", nonce], "true"));
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains(again), "{ran:?}");
}
