//! What is wrong is seen where people look: a policy that cannot be read, a request that cannot be, a store that was
//! lost or is an earlier copy, an artifact that has no end, an effect that is run over HTTP.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::effect_pair::{Pair, pair, request, run};
use support::effect_proxy::said;
use support::ledger::status;
use support::{Home, wait_until, wait_until_within};

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

#[test]
fn a_policy_that_cannot_be_read_is_shown_by_status_and_doctor() {
    let home = Home::new();
    let daemon = home.up();
    assert!(home.cli(&["doctor"]).ok().stdout.contains("effects.toml"));
    let policy = home.path().join("effects.toml");
    // Every rule says which operation it is about, and what it wants.
    for (bad, why) in [
        ("[[rule]]\noperation = \"deploy\"\n", "approval"),
        ("[[rule]]\napproval = \"auto\"\n", "operation"),
    ] {
        std::fs::write(&policy, bad).unwrap();
        let degraded = status(&daemon)["degraded"].to_string();
        assert!(degraded.contains("effects.toml"), "{degraded}");
        assert!(degraded.contains(why), "{degraded}");
        let doctor = home.cli(&["doctor", "--json"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        let found = doctor.json()["findings"].as_array().unwrap().clone();
        let about = found.iter().find(|one| one["check"] == "effects.toml");
        let about = about.expect("a finding");
        assert_eq!(about["ok"], false);
        assert!(text(about, "says").contains(why), "{about}");
    }
    // It allows nothing meanwhile, and says so.
    let refused = home.cli(&run("k", &[], "true"));
    assert_eq!(refused.code, 6);
    assert!(refused.stderr.contains("effects.toml"), "{refused:?}");
    daemon.stop();
    let down = home.cli(&["doctor"]);
    assert_eq!(down.code, 1, "also where no daemon runs");
    assert!(down.stdout.contains("effects.toml"), "{down:?}");
    std::fs::write(&policy, "").unwrap();
    let daemon = home.up();
    let degraded = status(&daemon)["degraded"].to_string();
    assert!(!degraded.contains("effects.toml"), "{degraded}");
}

#[test]
fn a_policy_that_is_a_link_to_nowhere_allows_nothing_and_ends_the_start() {
    let home = Home::new();
    let daemon = home.up();
    let (policy, there) = (
        home.path().join("effects.toml"),
        home.path().with_file_name("policy.toml"),
    );
    std::os::unix::fs::symlink(&there, &policy).unwrap();
    let refused = home.cli(&run("k", &[], "true"));
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("leads to no file"), "{refused:?}");
    let degraded = status(&daemon)["degraded"].to_string();
    assert!(degraded.contains("effects.toml"), "{degraded}");
    daemon.stop();
    let ended = home.try_up().err().expect("no start");
    assert!(ended.stderr.contains("effects.toml"), "{ended:?}");
    std::fs::write(&there, "").unwrap();
    let _daemon = home.up();
    home.cli(&run("k", &[], "true")).ok();
    // A broker of its own starts by the same rule.
    let data = home.path().with_file_name("broker");
    std::fs::create_dir(&data).unwrap();
    let lost = home.path().with_file_name("lost.toml");
    std::os::unix::fs::symlink(lost, data.join("effects.toml")).unwrap();
    let ended = BrokerProcess::try_start(&home, &data, "127.0.0.1:0", &[]);
    let ended = ended.err().expect("no start");
    assert!(ended.stderr.contains("leads to no file"), "{ended:?}");
}

#[test]
fn a_request_that_is_in_conflict_says_so_as_soon_as_that_is_known() {
    let mut pair = pair("");
    let other = |key: &str| {
        let mut args = request(key)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let target = args.iter().position(|word| word == "prod").unwrap();
        args[target] = "staging".to_owned();
        args
    };
    let at = |pair: &Pair, args: Vec<String>| {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        pair.bob(&words)
    };
    pair.alice.cli(&request("taken")).ok();
    pair.up.0.take().unwrap().stop();
    wait_until("bob to notice", || {
        pair.bob(&["effect", "status", "x", "--json"]).code == 5
    });
    // Two that wait here and exclude each other: known at once.
    pair.bob(&request("k")).ok();
    let second = at(&pair, other("k"));
    assert_eq!(
        (second.code, text(&second.json(), "code")),
        (3, "REPLAY_BINDING_MISMATCH"),
        "{second:?}"
    );
    // One that the authority refuses: told as soon as it has answered.
    assert_eq!(said(&at(&pair, other("taken")).ok()), "waiting_for_broker");
    pair.up.0 = Some(pair.alice.up());
    pair.wait_connected();
    wait_until("the refusal", || {
        let view = pair.bob(&["effect", "status", "taken", "--json"]).json();
        text(&view, "waited").contains("REPLAY_BINDING_MISMATCH")
    });
    let words = pair.bob(&["effect", "status", "taken"]);
    assert!(words.stdout.contains("was refused"), "{words:?}");
    assert!(words.stdout.contains("another effect"), "{words:?}");
    // Of the one that was taken nothing of the kind is said.
    wait_until("the other to arrive", || {
        let view = pair.bob(&["effect", "status", "k", "--json"]).json();
        view["status"] == "awaiting_approval" && view["waited"].is_null()
    });
}

#[test]
fn whoever_takes_a_run_over_http_is_told_that_it_runs() {
    let home = Home::new();
    let daemon = home.up();
    let post = |verb: &str, body: Value| {
        let path = format!("/v1/effect/{verb}");
        daemon.http.post(&path, &body).expect(200)
    };
    let body = json!({"key": "k", "op": "deploy", "target": "prod"});
    let registered = post("register", body);
    let attempt = registered["attempt_id"].clone();
    let started = post("start", json!({"key": "k", "attempt_id": attempt}));
    assert_eq!(
        (text(&started, "status"), started["duplicate"].as_bool()),
        ("running", Some(false))
    );
    let body = json!({"key": "k", "attempt_id": attempt, "exit_code": 0, "stdout": "out\n"});
    assert_eq!(text(&post("finish", body), "status"), "finished");
    let closed = post("verify", json!({"key": "k", "passed": true}));
    assert_eq!(text(&closed, "status"), "closed");
}

#[test]
fn a_home_that_had_effects_does_not_begin_anew_without_a_word() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&run("k", &[], "echo done")).ok();
    daemon.stop();
    for name in ["effects.db", "effects.db-wal", "effects.db-shm"] {
        let _ = std::fs::remove_file(home.path().join(name));
    }
    std::fs::remove_dir_all(home.path().join("effects")).unwrap();
    let refused = home.try_up().err().expect("used keys would be free again");
    assert!(refused.stderr.contains("effects.db"), "{refused:?}");
    assert!(refused.stderr.contains("effects-begin-anew"), "{refused:?}");
    let doctor = home.cli(&["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains("effects.db"), "{doctor:?}");
    // A person's word: from here on the old keys can be used again.
    std::fs::write(home.path().join("effects-begin-anew"), "").unwrap();
    let _daemon = home.up();
    assert!(!home.path().join("effects-begin-anew").exists());
    assert_eq!(home.cli(&["effect", "status", "k"]).code, 4);
}

/// The files of a store, under another name or back again.
fn copied(from: &Path, to: &Path) {
    for end in ["", "-wal", "-shm"] {
        let file = |of: &Path| PathBuf::from(format!("{}{end}", of.display()));
        let _ = std::fs::remove_file(file(to));
        if file(from).exists() {
            std::fs::copy(file(from), file(to)).unwrap();
        }
    }
}

#[test]
fn rg_01_an_older_store_is_noticed_and_no_key_runs_again() {
    let home = Home::new();
    let daemon = home.up();
    let (store, copy) = (
        home.path().join("effects.db"),
        home.path().with_file_name("copy.db"),
    );
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    home.cli(&run("first", &[], "true")).ok();
    let asked = ["effect", "request", "--key", "asked", "--op", "deploy"];
    let asked = [&asked[..], &["--target", "prod", "--agent", "zed"]].concat();
    home.cli(&asked).ok();
    daemon.stop();
    copied(&store, &copy);
    let daemon = home.up();
    home.cli(&run("k", &[], &script)).ok();
    daemon.stop();
    copied(&copy, &store);
    // Either of the two that remember is enough.
    for forgotten in [None, Some("effects.mark")] {
        if let Some(name) = forgotten {
            std::fs::remove_file(home.path().join(name)).unwrap();
        }
        let daemon = home.up();
        let again = home.cli(&run("k", &[], &script));
        assert_ne!(again.code, 0, "{again:?}");
        assert!(again.stderr.contains("earlier copy"), "{again:?}");
        assert!(again.stderr.contains("effects-begin-anew"), "{again:?}");
        assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
        let degraded = status(&daemon)["degraded"].to_string();
        assert!(
            degraded.contains("effects.db is an earlier copy"),
            "{degraded}"
        );
        let doctor = home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        assert!(doctor.stdout.contains("earlier copy"), "{doctor:?}");
        // What it knows it tells.
        home.cli(&["effect", "status", "first"]).ok();
        // What came after it, it cannot deny.
        let later = home.cli(&["effect", "status", "k"]);
        assert!(later.stderr.contains("earlier copy"), "{later:?}");
        assert!(!later.stderr.contains("nobody asked"), "{later:?}");
        // Nor does it know whether what was asked for before it has been done since.
        for question in [&["effect", "status", "asked"][..], &["explain", "asked"]] {
            let told = home.cli(question);
            // Not 4: that would say that the key was never used.
            assert_eq!(told.code, 1, "{told:?}");
            assert!(told.stderr.contains("earlier copy"), "{told:?}");
        }
        let surface = home.cli(&["effect", "surface-check"]);
        assert!(surface.stderr.contains("earlier copy"), "{surface:?}");
        assert_ne!(surface.code, 0, "{surface:?}");
        daemon.stop();
        let down = home.cli(&["doctor"]);
        assert!(down.stdout.contains("earlier copy"), "{down:?}");
    }
    // A person's word, once.
    std::fs::write(home.path().join("effects-begin-anew"), "").unwrap();
    let daemon = home.up();
    home.cli(&run("k", &[], &script)).ok();
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\nx\n");
    daemon.stop();
    assert!(!home.path().join("effects-begin-anew").exists());
    let daemon = home.up();
    assert_eq!(
        home.cli(&run("k", &[], &script)).ok().json()["duplicate"],
        true
    );
    let degraded = status(&daemon)["degraded"].to_string();
    assert!(!degraded.contains("effects"), "{degraded}");
}

#[test]
fn a_folder_of_locks_that_was_removed_is_made_again() {
    let home = Home::new();
    let _daemon = home.up();
    for key in ["a", "b"] {
        std::fs::remove_dir_all(home.path().join("effects")).unwrap();
        home.cli(&run(key, &[], "true")).ok();
    }
}

#[test]
fn an_artifact_is_a_file_with_an_end() {
    let home = Home::new();
    let _daemon = home.up();
    let fifo = home.path().with_file_name("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let folder = home.path();
    for path in [
        "/dev/zero",
        "/dev/null",
        fifo.to_str().unwrap(),
        folder.to_str().unwrap(),
    ] {
        let mut args = request("k");
        args.extend(["--artifact", path]);
        let mut child = home
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut code = None;
        wait_until_within(Duration::from_secs(60), path, || {
            code = child.try_wait().unwrap();
            code.is_some()
        });
        let ran = support::Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, 2, "{path}: {ran:?}");
        assert!(ran.stderr.contains("regular file"), "{path}: {ran:?}");
    }
    assert_eq!(home.cli(&["effect", "status", "k"]).code, 4);
}
