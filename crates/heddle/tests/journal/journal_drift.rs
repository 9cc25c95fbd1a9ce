//! `heddle journal` in a git clone, beside files that somebody changed, and with records that are gone.

use crate::support;

use std::path::Path;

use serde_json::{Value, json};
use support::{Home, Ran};

fn run(home: &Home, folder: &Path, args: &[&str]) -> Ran {
    let words: Vec<&str> = ["journal"].iter().chain(args).copied().collect();
    let output = home.command(&words).current_dir(folder).output().unwrap();
    Ran::from(output)
}

fn json_of(home: &Home, folder: &Path, args: &[&str]) -> Value {
    let words: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
    run(home, folder, &words).ok().json()
}

fn put(home: &Home, folder: &Path, id: &str, n: u64) -> Value {
    let payload = json!({"n": n}).to_string();
    let words = ["append", "--type", "plan", "--id", id, "--action", "update"];
    json_of(
        home,
        folder,
        &[&words[..], &["--payload", &payload]].concat(),
    )
}

/// A repository with a journal, four plans and a checkpoint.
fn origin(home: &Home) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    json_of(home, folder.path(), &["init"]);
    for n in 0..4 {
        put(home, folder.path(), &format!("p{n}"), n);
    }
    json_of(home, folder.path(), &["checkpoint"]);
    folder
}

/// What git would bring: all but what `.gitignore` names.
fn cloned(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    std::fs::create_dir(to.path().join(".git")).unwrap();
    for inside in [
        ".heddle",
        ".heddle/entities/plan",
        ".heddle/events/checkpoints",
    ] {
        std::fs::create_dir_all(to.path().join(inside)).unwrap();
        for entry in std::fs::read_dir(from.join(inside)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap();
                std::fs::copy(&path, to.path().join(inside).join(name)).unwrap();
            }
        }
    }
    to
}

#[test]
fn a_clone_loses_nothing_and_takes_in_what_its_checkpoint_does_not_know() {
    let home = Home::new();
    let first = origin(&home);
    put(&home, first.path(), "p3", 33);
    let clone = cloned(first.path());
    let path = clone.path();
    let shown = json_of(&home, path, &["show", "plan", "p3"]);
    assert_eq!(
        (&shown["payload"]["n"], &shown["entity_rev"]),
        (&json!(33), &json!(2))
    );
    assert!(shown["note"].as_str().unwrap().contains("first write"));
    assert!(
        !path.join(".heddle/events/meta.json").exists(),
        "a read wrote"
    );
    assert_eq!(put(&home, path, "new", 1)["entity_rev"], 1);
    assert_eq!(json_of(&home, path, &["checkpoint"])["entities"], 5);
    let shown = json_of(&home, path, &["show", "plan", "p3"]);
    assert_eq!(
        (&shown["payload"]["n"], &shown["note"]),
        (&json!(33), &Value::Null)
    );
    assert_eq!(json_of(&home, path, &["verify"])["ok"], true);
    let log = run(&home, path, &["log"]).ok();
    assert!(log.stderr.contains("git brings checkpoints"), "{log:?}");
}

#[test]
fn t_60_drift_is_told_with_a_way_out_and_a_missing_record_in_words() {
    let home = Home::new();
    let folder = origin(&home);
    let path = folder.path();
    std::fs::write(path.join(".heddle/entities/plan/p1.json"), r#"{"n":666}"#).unwrap();
    let shown = run(&home, path, &["show", "plan", "p1"]).ok();
    assert!(
        shown.stdout.contains("\"n\": 1") && shown.stdout.contains("heddle journal rebuild"),
        "{shown:?}"
    );
    let told = run(&home, path, &["verify"]);
    assert!(
        told.code == 1 && told.stderr.contains("heddle journal rebuild"),
        "{told:?}"
    );
    let mended = run(&home, path, &["rebuild"]).ok();
    assert!(mended.stdout.contains("quarantine/plan.p1."), "{mended:?}");
    assert_eq!(json_of(&home, path, &["verify"])["ok"], true);
    let segment = path.join(".heddle/events/seg-00000000000000000001.jsonl");
    let text = std::fs::read_to_string(&segment).unwrap();
    let without: Vec<&str> = text
        .split('\n')
        .filter(|l| !l.contains("\"seq\":2,"))
        .collect();
    std::fs::write(&segment, without.join("\n")).unwrap();
    let told = run(&home, path, &["verify"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("records are missing"), "{told:?}");
    assert!(
        !told
            .stderr
            .lines()
            .any(|line| line.trim() == "warning:" || line.trim() == "next:"),
        "{told:?}"
    );
}
