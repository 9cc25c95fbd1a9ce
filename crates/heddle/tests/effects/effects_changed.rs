//! A byte of a stored result that a disk has changed is never printed as the result.

use crate::support;

use serde_json::json;
use support::effect_pair::run;
use support::{Home, wait_until};

/// In the file itself, as a disk does it: every page stays a page.
fn change_a_byte(home: &Home, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut found = 0;
    for name in ["effects.db", "effects.db-wal"] {
        let path = home.path().join(name);
        let Ok(mut bytes) = std::fs::read(&path) else {
            continue;
        };
        let places: Vec<usize> = bytes
            .windows(from.len())
            .enumerate()
            .filter_map(|(at, part)| (part == from).then_some(at))
            .collect();
        for at in &places {
            bytes[*at..at + to.len()].copy_from_slice(to);
        }
        found += places.len();
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(found > 0, "the result is not in the file");
}

#[test]
fn a_changed_result_is_not_printed_as_true_and_everybody_says_so() {
    let home = Home::new();
    let daemon = home.up();
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}; echo payed-4711-euro", side.display());
    home.cli(&run("k", &[], &script)).ok();
    home.cli(&run("whole", &[], "echo fine")).ok();
    daemon.stop();
    let doctor = home.cli(&["doctor"]).ok();
    assert!(
        doctor.stdout.contains("2 effects are as they were written"),
        "{doctor:?}"
    );
    change_a_byte(&home, b"payed-4711-euro", b"payed-9711-euro");
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(
        doctor
            .stdout
            .contains("k: what is known of its run was changed"),
        "{doctor:?}"
    );
    let daemon = home.up();
    for words in [
        run("k", &[], &script),
        vec!["effect", "status", "k", "--json"],
        vec!["explain", "effect:k", "--json"],
        vec!["explain", "k", "--json"],
    ] {
        let told = home.cli(&words);
        assert_eq!(told.code, 1, "{told:?}");
        assert!(!told.stdout.contains("9711"), "{told:?}");
        assert!(told.stderr.contains("was changed in the store"), "{told:?}");
        assert_eq!(told.json()["changed"], true, "{told:?}");
    }
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    // The others are as they were.
    let whole = home.cli(&run("whole", &[], "echo fine")).ok().json();
    assert_eq!(
        (&whole["stdout"], &whole["duplicate"]),
        (&json!("fine\n"), &json!(true))
    );
    let list = home.cli(&["effect", "list"]).ok();
    assert!(list.stdout.contains("changed"), "{list:?}");
    let surface = home.cli(&["effect", "surface-check", "--json"]);
    assert_eq!(surface.code, 1, "{surface:?}");
    assert_eq!(surface.json()["fit"], true);
    assert_eq!(surface.json()["changed"].as_array().unwrap().len(), 1);
    wait_until("the status to say it", || {
        home.cli(&["status"])
            .stdout
            .contains("k: what is known of its run was changed")
    });
    daemon.stop();
}

/// A person has approved one target; a byte of the request does not move that word to another one.
#[test]
fn rg_19_a_changed_request_is_nobodys_approval() {
    let home = Home::new();
    let daemon = home.up();
    let ask = |target| {
        [
            "effect", "request", "--json", "--key", "k", "--op", "deploy", "--target", target,
        ]
    };
    let asked = home.cli_as("planner", &ask("aaaa")).ok().json();
    let id = asked["request_id"].as_str().unwrap();
    let granted = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    let nonce = granted["nonce"].as_str().unwrap().to_owned();
    daemon.stop();
    change_a_byte(&home, b"kdeployaaaa", b"kdeploybbbb");
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(
        doctor
            .stdout
            .contains("k: what it was asked for was changed")
    );
    let daemon = home.up();
    for target in ["aaaa", "bbbb"] {
        let ran = home.cli_as(
            "planner",
            &[
                "effect", "run", "--json", "--key", "k", "--op", "deploy", "--target", target,
                "--nonce", &nonce, "--", "true",
            ],
        );
        assert_eq!(
            (ran.code, &ran.json()["changed"]),
            (1, &json!(true)),
            "{ran:?}"
        );
    }
    daemon.stop();
}
