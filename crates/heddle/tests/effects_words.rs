//! What is said about effects is so: of a word that was not heard, a command that could not be started, a store that a
//! start refuses, a verifier without an end.
#![cfg(test)]

mod support;

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use support::effect_pair::{pair, request, run};
use support::{Home, text_of, wait_until};

#[test]
fn a_word_that_nobody_has_heard_is_not_said_to_be_kept() {
    let mut pair = pair("");
    let asked = pair.bob(&request("k")).ok().json();
    let id = asked["request_id"].as_str().unwrap().to_owned();
    pair.up.0.take().unwrap().stop();
    wait_until("bob to notice", || {
        pair.bob(&["effect", "status", "k"]).code == 5
    });
    // Something waits; the word does not.
    assert_eq!(
        pair.bob(&request("later")).ok().json()["status"],
        "waiting_for_broker"
    );
    for word in ["deny", "approve"] {
        let said = pair.bob(&["effect", word, &id, "--json"]);
        assert_eq!(said.code, 5, "{said:?}");
        assert!(!said.stderr.contains("told by itself"), "{said:?}");
        assert!(said.stderr.contains("Nothing was recorded"), "{said:?}");
        assert_ne!(said.json()["waiting"], json!(["request"]), "{said:?}");
    }
}

#[test]
fn a_script_without_its_interpreter_is_seen_before_its_key_is_used() {
    let home = Home::new();
    let _daemon = home.up();
    let tool = home.path().with_file_name("tool");
    std::fs::write(&tool, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    let args = |command: &[&'static str]| -> Vec<String> {
        let words = ["effect", "run", "--json", "--key", "k", "--op", "deploy"];
        let words = words
            .iter()
            .chain(&["--target", "prod", "--"])
            .chain(command);
        words.map(|word| (*word).to_owned()).collect()
    };
    let ran = |command: &[&'static str]| {
        let mut words = args(command);
        if command.is_empty() {
            words.push(tool.to_str().unwrap().to_owned());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        home.cli(&words)
    };
    let refused = ran(&[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains("/no/such/interpreter"),
        "{refused:?}"
    );
    assert_eq!(refused.json()["registered"], false);
    // The key is free: nobody has asked for it.
    assert_eq!(home.cli(&["effect", "status", "k"]).code, 4);
    // What only the kernel finds out is told as it is: the key stands for this effect, and nothing ran.
    std::fs::write(&tool, [0x7f, b'E', b'L', b'F', 9, 9, 9, 9]).unwrap();
    let late = ran(&[]);
    assert_eq!(late.code, 1, "{late:?}");
    assert_eq!(late.json()["registered"], true);
    assert!(!late.stderr.contains("not used up"), "{late:?}");
    let stands = home.cli(&["effect", "status", "k", "--json"]).ok().json();
    assert_eq!(stands["status"], "registered");
    ran(&["true"]).ok();
}

#[test]
fn rg_17_the_doctor_says_what_a_start_refuses() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&run("k", &[], "true")).ok();
    assert_eq!(home.cli(&["doctor"]).code, 0);
    daemon.stop();
    assert_eq!(home.cli(&["doctor"]).code, 0);
    let tables = rusqlite::Connection::open(home.path().join("effects.db")).unwrap();
    tables
        .execute_batch("DROP TRIGGER effect_step_once")
        .unwrap();
    drop(tables);
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains("effect_step_once"), "{doctor:?}");
    let refused = home.try_up().err().expect("an unfit store");
    assert!(refused.stderr.contains("effect_step_once"), "{refused:?}");
    // A file that is gone while the locks lie there: the start refuses, and so does the doctor.
    for name in ["effects.db", "effects.db-wal", "effects.db-shm", "data.db"] {
        let _ = std::fs::remove_file(home.path().join(name));
    }
    assert_eq!(home.cli(&["doctor"]).code, 1);
}

#[test]
fn a_verifier_without_an_end_is_ended_and_nothing_is_said_to_be_verified() {
    let home = Home::new();
    let _daemon = home.up();
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    let hangs = [
        "--verify",
        "echo looking; sleep 1000",
        "--verify-timeout",
        "1s",
    ];
    for nth in 0..2 {
        let ran = home.cli(&run("k", &hangs, &script));
        assert_eq!(ran.code, 3, "{ran:?}");
        let told = ran.json();
        assert_eq!(
            (&told["status"], &told["verified"], &told["code"]),
            (&json!("finished"), &json!(null), &json!("verify_timeout"))
        );
        assert!(
            told["detail"].as_str().unwrap().contains("looking"),
            "{told}"
        );
        assert_eq!(told["duplicate"], nth > 0, "{told}");
        assert_eq!(text_of(&side), "x\n");
    }
    let later = home.cli(&[
        "effect",
        "verify",
        "k",
        "--command",
        "sleep 1000",
        "--timeout",
        "1s",
    ]);
    assert_eq!(later.code, 1, "{later:?}");
    assert!(later.stderr.contains("Nothing is recorded"), "{later:?}");
    let stands = home.cli(&["effect", "status", "k", "--json"]).ok().json();
    assert_eq!(
        (&stands["status"], &stands["verified"]),
        (&json!("finished"), &json!(null))
    );
    home.cli(&["effect", "verify", "k", "--command", "true"])
        .ok();
}
