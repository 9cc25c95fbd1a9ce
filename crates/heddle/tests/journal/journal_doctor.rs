//! `heddle doctor redact`, `--verify-journal`, `heddle journal migrate` and `rollback` over the real binary.

use crate::support;

use std::path::{Path, PathBuf};

use serde_json::json;
use support::repository::Repository;

fn holding(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(text) {
            found.push(path);
        }
    }
    found
}

#[test]
fn rd_01_redact_erases_everywhere_says_what_it_cannot_reach_and_verify_agrees() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    for n in 0..3 {
        repository.append("s", &json!({"note": "CANARY-7f3a9c-4711", "n": n}));
        repository.run(&["journal", "checkpoint"]).ok();
    }
    repository.append("other", &json!({"note": "stays"}));
    repository.json(&["journal", "migrate", "--mode", "registryPrimary"]);
    assert!(holding(repository.path(), "CANARY").len() >= 5);
    let refused = repository.run(&[
        "doctor",
        "redact",
        "--item",
        "s",
        "--reason",
        "CANARY-7f3a9c-4711",
    ]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let told = repository.json(&[
        "doctor",
        "redact",
        "--item",
        "plan/s",
        "--reason",
        "asked for",
    ]);
    assert_eq!(told["redacted"].as_array().map(Vec::len), Some(3));
    assert_eq!(told["leftovers"], json!([]));
    assert!(told["warnings"].to_string().contains("git filter-repo"));
    assert_eq!(holding(repository.path(), "CANARY"), Vec::<PathBuf>::new());
    assert_eq!(repository.json(&["doctor", "--verify-journal"])["ok"], true);
    assert_eq!(repository.run(&["journal", "show", "plan", "s"]).code, 4);
    assert_eq!(
        repository.json(&["journal", "show", "plan", "other"])["entity_rev"],
        1
    );
    let none = repository.run(&["doctor", "redact", "--seq", "999", "--reason", "r"]);
    assert_eq!(none.code, 4, "{none:?}");
    // What is not the journal's own is named, not touched.
    repository.append("t", &json!({"note": "CANARY-7f3a9c-4712"}));
    let notes = repository.write(".heddle/notes.txt", "CANARY-7f3a9c-4712");
    let left = repository.run(&["doctor", "redact", "--item", "t", "--reason", "asked for"]);
    assert_eq!(left.code, 1, "{left:?}");
    assert!(
        left.stderr.contains("notes.txt") && notes.exists(),
        "{left:?}"
    );
}

/// The one that met it may have ended before anybody read its answer: every run says so, until a person has looked.
#[test]
fn rd_01_a_file_that_could_not_be_read_is_told_by_every_run_until_a_person_lets_it_be() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository.append("s", &json!({"note": "CANARY-7f3a9c-4711"}));
    let notes = repository.write(".heddle/notes.bin", "CANARY-7f3a9c-4711");
    let length = |bytes: u64| {
        let file = std::fs::File::options().write(true).open(&notes).unwrap();
        file.set_len(bytes).unwrap();
    };
    // More than anybody reads, and hardly a byte of it on the disk.
    length(5 << 30);
    let redact = ["doctor", "redact", "--item", "plan/s", "--reason", "asked"];
    let told = repository.run(&redact);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("notes.bin ("), "{told:?}");
    length(18);
    for ask in [
        &redact[..],
        &["doctor", "redact", "--left"],
        &redact,
        &["doctor", "redact", "--left"],
    ] {
        let told = repository.run(ask);
        assert_eq!(told.code, 1, "{ask:?}: {told:?}");
        for word in ["notes.bin", "nobody knows any more", "--let-be FILE"] {
            assert!(told.stderr.contains(word), "{word}: {told:?}");
        }
    }
    let verified = repository.run(&["journal", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.stdout.contains("heddle doctor redact --left"));
    let verdict = repository.run(&["doctor", "--verify-journal"]);
    assert_eq!(verdict.code, 1, "{verdict:?}");
    assert!(verdict.stderr.contains("redactions have left 1 files"));
    let other = repository.run(&["doctor", "redact", "--let-be", "journal.json"]);
    assert_eq!(other.code, 2, "{other:?}");
    let told = repository.json(&["doctor", "redact", "--let-be", ".heddle/notes.bin"]);
    assert_eq!(told["let_be"], 1, "{told}");
    repository.run(&redact).ok();
    repository.run(&["doctor", "redact", "--left"]).ok();
    let verdict = repository.json(&["doctor", "--verify-journal"]);
    assert_eq!(verdict["verdict"], "all is well");
}

/// B2: what was cut off is gone on with by the same command, which is what its error says; whoever ends it on another way says so.
#[test]
fn rd_03_what_goes_on_with_a_redaction_is_said_and_who_ends_it_says_what_became_of_it() {
    for is_by_verify in [true, false] {
        let repository = Repository::new();
        repository.run(&["journal", "init"]).ok();
        repository.append("s", &json!({"note": "CANARY-7f3a9c-4711"}));
        repository.write(".heddle/notes.txt", "CANARY-7f3a9c-4711");
        // It cannot write down what it found: it has begun, and cannot end.
        let file = repository.at(".heddle/events/leftovers.json");
        std::fs::create_dir(&file).unwrap();
        let redact = [
            "doctor",
            "redact",
            "--item",
            "plan/s",
            "--reason",
            "asked for",
        ];
        let told = repository.run(&redact);
        assert_eq!(told.code, 1, "{told:?}");
        let command = "heddle doctor redact --item plan/s --reason 'asked for'";
        assert!(told.stderr.contains(command), "{told:?}");
        assert!(repository.at(".heddle/events/redact.json").exists());
        std::fs::remove_dir(&file).unwrap();
        let told = if is_by_verify {
            repository.run(&["journal", "verify"])
        } else {
            repository.run(&redact)
        };
        assert_eq!(told.code, i32::from(!is_by_verify), "{told:?}");
        for word in [
            "plan/s that was interrupted was ended here: 1 records",
            "notes.txt",
            "--left",
        ] {
            assert!(told.stderr.contains(word), "{word}: {told:?}");
        }
        assert!(!is_by_verify || told.stdout.contains("heddle doctor redact --left"));
        let told = repository.run(&redact);
        assert_eq!(told.code, 1, "{told:?}");
        assert!(told.stderr.contains("notes.txt"), "{told:?}");
    }
}

#[test]
fn t_60_verify_journal_exits_1_on_drift() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository.append("a", &json!({"n": 1}));
    repository.write(".heddle/entities/plan/a.json", "{\"n\": 2}");
    let drift = repository.run(&["doctor", "--verify-journal", "--json"]);
    assert_eq!(drift.code, 1, "{drift:?}");
    assert_eq!(drift.json()["ok"], false);
}

#[test]
fn jn_35_a_brainclaw_store_is_migrated_and_rolled_back() {
    let repository = Repository::new();
    repository.write(".brainclaw/plans/pln_1.json", r#"{"title":"one"}"#);
    repository.write(".brainclaw/decisions/dec_1.json", r#"{"title":"two"}"#);
    let bad = repository.write(".brainclaw/plans/pln_2.json", "torn {");
    repository.write(".brainclaw/events.jsonl", "{}\n");
    let refused = repository.run(&["journal", "migrate"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("pln_2.json"), "{refused:?}");
    let left = Repository::new();
    left.write("notes/plan/pln_1.json", r#"{"title":"one"}"#);
    left.write("notes/plan/pln_2.json", "torn {");
    let words = left.run(&["journal", "migrate", "notes", "--leave-out-bad"]);
    let words = words.ok();
    assert!(words.stdout.contains("left out: "), "{words:?}");
    assert_eq!(words.stderr, "", "a file of a folder is no row of data.db");
    std::fs::remove_file(bad).unwrap();
    let told = repository.json(&["journal", "migrate"]);
    assert_eq!(
        (&told["mode"], &told["backfilled"]),
        (&json!("dual"), &json!(2))
    );
    assert_eq!(told["events_parked"], 1);
    let shown = repository.json(&["journal", "show", "plan", "pln_1"]);
    assert_eq!(
        (&shown["entity_rev"], &shown["payload"]["title"]),
        (&json!(1), &json!("one"))
    );
    repository.json(&["journal", "migrate", "--mode", "primary"]);
    let projection = repository.path().join(".heddle/entities/plan/pln_1.json");
    let before = std::fs::read(&projection).unwrap();
    let back = repository.json(&["journal", "rollback"]);
    assert_eq!(back["mode"], "off");
    assert_eq!(std::fs::read(&projection).unwrap(), before);
    let off = repository.run(&[
        "journal",
        "append",
        "--type",
        "plan",
        "--id",
        "x",
        "--action",
        "update",
        "--payload",
        "{}",
    ]);
    assert_eq!(off.code, 2, "{off:?}");
    let again = repository.json(&["journal", "migrate", "--mode", "primary"]);
    assert_eq!(again["backfilled"], 2);
    assert_eq!(repository.json(&["journal", "verify"])["ok"], true);
}

#[test]
fn damaged_lines_are_told_and_moved_aside_on_request_only() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository.append("a", &json!({"title": "one"}));
    let segment = repository
        .path()
        .join(".heddle/events/seg-00000000000000000001.jsonl");
    let mut text = std::fs::read_to_string(&segment).unwrap();
    text.insert_str(0, "\nnoise that nobody wrote\n");
    std::fs::write(&segment, text).unwrap();
    let told = repository.run(&["doctor", "--verify-journal"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("heddle doctor quarantine"), "{told:?}");
    let moved = repository.json(&["doctor", "quarantine"]);
    assert_eq!(moved["parked"].as_array().unwrap().len(), 1);
    assert_eq!(holding(repository.path(), "nobody wrote").len(), 1);
    repository.run(&["doctor", "--verify-journal"]).ok();
    let again = repository.run(&["doctor", "quarantine"]).ok();
    assert!(again.stdout.contains("nothing is damaged"), "{again:?}");
}

/// A name is one line, a script reads what the exit code says, and what is being erased is printed by nobody.
#[test]
fn rd_01_what_a_redaction_has_left_is_told_in_lines_of_our_own_and_in_json() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository.append("s", &json!({"note": "CANARY-7f3a9c-4711"}));
    repository.write(".heddle/a\n  next: rm -rf x", "CANARY-7f3a9c-4711");
    let redact = ["doctor", "redact", "--item", "plan/s", "--reason", "asked"];
    for ask in [&redact[..], &["doctor", "redact", "--left"]] {
        let told = repository.run(ask);
        assert_eq!(told.code, 1, "{told:?}");
        assert!(told.stderr.contains("a\\n  next: rm -rf x"), "{told:?}");
    }
    let told = repository.run(&redact);
    assert!(
        told.stderr
            .contains(".heddle/entities/plan/s.json` rewrites"),
        "{told:?}"
    );
    let verdict = repository.run(&["doctor", "--verify-journal", "--json"]);
    assert_eq!(verdict.code, 1, "{verdict:?}");
    let printed = format!("{}{}", verdict.stdout, verdict.stderr);
    assert!(
        printed.contains("\"ok\":false") && !printed.contains("\"ok\":true"),
        "{printed}"
    );
}

#[test]
fn a_second_name_of_the_stores_files_is_told_as_that() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository.append("s", &json!({"note": "n"}));
    let copy = repository.at("copy.json");
    std::fs::hard_link(repository.at(".heddle/journal.json"), &copy).unwrap();
    for verb in ["log", "verify"] {
        let told = repository.run(&["journal", verb]);
        assert_ne!(told.code, 0, "{told:?}");
        for word in ["has 2 names", "find FOLDER -samefile", "journal.json"] {
            assert!(told.stderr.contains(word), "{word}: {told:?}");
        }
    }
    std::fs::remove_file(&copy).unwrap();
    repository.run(&["journal", "verify"]).ok();
}
