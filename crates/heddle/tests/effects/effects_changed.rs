//! A byte of a stored result that a disk has changed is never printed as the result.

use crate::support;

use serde_json::json;
use support::effect_file::change;
use support::effect_pair::{MESH, Pair, pair, run};
use support::effect_proxy::said;
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

/// A command that began, whose daemon is gone when it ends: how it ended lies beside its lock.
fn left_beside_the_lock(home: &Home, script: &str) -> std::path::PathBuf {
    let daemon = home.up();
    let begun = home.path().with_file_name("begun");
    let go = home.path().with_file_name("go");
    let script = format!(
        "{script}; touch {}; while [ ! -e {} ]; do sleep 0.02; done; exit 7",
        begun.display(),
        go.display()
    );
    let mut runner = home.command(&run("k", &[], &script)).spawn().unwrap();
    wait_until("the command", || begun.exists());
    daemon.kill();
    std::fs::write(&go, "").unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(5), "not told");
    let files = std::fs::read_dir(home.path().join("effects")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let end = files.find(|path| path.extension().is_some_and(|it| it == "end"));
    end.expect("the end of the command")
}

/// From its end to its telling it lies in a file: what changes there is no result, and nothing is run again for it.
#[test]
fn the_end_of_a_command_that_was_changed_before_it_was_told_is_unknown() {
    for (from, to) in [
        ("\"exit_code\":7", "\"exit_code\":0"),
        ("payed-4711", "payed-9711"),
    ] {
        let home = Home::new();
        let side = home.path().with_file_name("side");
        let script = format!("echo payed-4711; echo x >> {}", side.display());
        let end = left_beside_the_lock(&home, &script);
        let text = std::fs::read_to_string(&end).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&end, text.replace(from, to)).unwrap();
        let daemon = home.up();
        let told = home.cli(&["effect", "status", "k", "--json"]).ok();
        assert_eq!(said(&told), "unknown", "{told:?}");
        assert!(told.json()["exit_code"].is_null(), "{told:?}");
        assert!(!told.stdout.contains("9711"), "{told:?}");
        // Why, and what helps: where people look.
        let words = home.cli(&["effect", "status", "k"]).ok().stdout;
        for word in [
            "is not as it was written",
            "--resolve=done",
            "--resolve=failed",
        ] {
            assert!(words.contains(word), "{word}: {words}");
        }
        let degraded = daemon.http.get("/v1/status").body;
        assert!(degraded.contains("is not as it was written"), "{degraded}");
        let again = home.cli(&run("k", &[], "true"));
        assert_eq!(
            (again.code, said(&again).as_str()),
            (3, "unknown"),
            "{again:?}"
        );
        assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
        let word = [
            "effect", "run", "--json", "--key", "k", "--op", "deploy", "--target", "prod",
        ];
        let word = [&word[..], &["--resolve=failed", "--exit-code", "7"]].concat();
        assert_eq!(said(&home.cli(&word)), "verify_failed");
        std::fs::remove_file(&end).unwrap();
        daemon.stop();
    }
}

#[test]
fn an_end_that_was_changed_while_it_waited_for_its_broker_is_told_to_nobody() {
    let auto = "[[rule]]\noperation = \"*\"\napproval = \"auto\"\n";
    let Pair { alice, bob, up } = pair(auto);
    let (begun, go) = (
        bob.path().with_file_name("begun"),
        bob.path().with_file_name("go"),
    );
    let script = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.02; done; echo payed-4711; exit 7",
        begun.display(),
        go.display()
    );
    let args = [
        &["--mesh", MESH],
        run("k", &["--verify-later"], &script).as_slice(),
    ]
    .concat();
    let mut runner = bob.command(&args).spawn().unwrap();
    wait_until("the command", || begun.exists());
    up.0.unwrap().kill();
    let at_bob = || bob.cli(&["--mesh", MESH, "effect", "status", "k", "--json"]);
    wait_until("bob to notice", || at_bob().code == 5);
    std::fs::write(&go, "").unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(5), "it waits for alice");
    up.1.stop();
    change(
        &bob,
        "UPDATE effect_waiting SET call = replace(call, '\"exit_code\":7', '\"exit_code\":0')
            WHERE verb = 'finish' AND call LIKE '%\"exit_code\":7%'",
    );
    let doctor = bob.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(
        doctor
            .stdout
            .contains("k: what was kept here for the broker"),
        "{doctor:?}"
    );
    let _bob = bob.up();
    let _alice = alice.up();
    wait_until("bob to say so", || said(&at_bob()) == "unknown");
    let told = at_bob().json();
    assert!(
        told["exit_code"].is_null() && told["stdout"].is_null(),
        "{told}"
    );
    assert!(
        told["waited"].as_str().unwrap().contains("was changed"),
        "{told}"
    );
    let words = bob
        .cli(&["--mesh", MESH, "effect", "status", "k"])
        .ok()
        .stdout;
    assert!(
        words.contains("--resolve=done") && words.contains("was changed"),
        "{words}"
    );
    let there = alice.cli(&["effect", "status", "k", "--json"]).ok().json();
    assert_eq!(there["status"], "running", "nobody has told her: {there}");
    let status = bob.cli(&["status"]).stdout;
    assert!(
        status.contains("k: what was kept here for the broker"),
        "{status}"
    );
}
