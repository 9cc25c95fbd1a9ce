//! `heddle journal` over the real binary: words, JSON, exit codes, no daemon.
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use std::path::Path;

use serde_json::{Value, json};
use support::{Home, Ran};

struct Repository {
    home: Home,
    folder: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self {
            home: Home::new(),
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(repository.path().join(".git")).unwrap();
        repository
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_in(self.path(), args)
    }

    fn run_in(&self, folder: &Path, args: &[&str]) -> Ran {
        let words: Vec<&str> = ["journal"].iter().chain(args).copied().collect();
        let output = self
            .home
            .command(&words)
            .current_dir(folder)
            .output()
            .unwrap();
        Ran::from(output)
    }

    fn json(&self, args: &[&str]) -> Value {
        let words: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
        self.run(&words).ok().json()
    }

    fn append(&self, id: &str, payload: &str) -> Value {
        self.json(&[
            "append",
            "--type",
            "plan",
            "--id",
            id,
            "--action",
            "update",
            "--payload",
            payload,
        ])
    }
}

#[test]
fn a_journal_is_begun_written_shown_and_verified() {
    let repository = Repository::new();
    let none = repository.run(&["show", "plan", "pln_1"]);
    assert_eq!(none.code, 4, "{none:?}");
    assert!(none.stderr.contains("heddle journal init"), "{none:?}");
    let begun = repository.json(&["init"]);
    assert_eq!(
        (&begun["mode"], &begun["entities"]),
        (&json!("primary"), &json!(0))
    );
    let create = [
        "append",
        "--type",
        "plan",
        "--id",
        "pln_1",
        "--action",
        "create",
        "--payload",
        r#"{"title":"x"}"#,
        "--summary",
        "begun",
    ];
    let answer = repository.json(&create);
    assert_eq!(
        (&answer["seq"], &answer["entity_rev"]),
        (&json!(1), &json!(1))
    );
    assert!(answer["writer"].as_str().unwrap().starts_with("w_") && answer["batch"].is_string());
    let inside = repository.path().join("src/deep");
    std::fs::create_dir_all(&inside).unwrap();
    let shown = repository
        .run_in(&inside, &["show", "plan", "pln_1", "--json"])
        .ok()
        .json();
    let expected = json!({"item_type": "plan", "item_id": "pln_1", "entity_rev": 1, "payload": {"title": "x"}, "stale": false});
    assert_eq!(shown, expected);
    assert_eq!(repository.json(&["init"])["entities"], 1);
    assert_eq!(
        repository.json(&[
            "append", "--type", "plan", "--id", "pln_1", "--action", "delete"
        ])["entity_rev"],
        2
    );
    assert_eq!(repository.run(&["show", "plan", "pln_1"]).code, 4);
    let report = repository.json(&["verify"]);
    assert_eq!(
        (&report["ok"], &report["records"], &report["entities"]),
        (&json!(true), &json!(2), &json!(0))
    );
    let log = repository.run(&["log", "--json"]).ok();
    let seqs: Vec<u64> = log
        .stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["seq"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(seqs, [1, 2]);
    let text = repository
        .run(&["log", "--since", "1", "--limit", "5"])
        .ok()
        .stdout;
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains("delete") && text.contains("pln_1"), "{text}");
}

#[test]
fn payloads_come_from_arguments_files_and_standard_input_and_bad_ones_write_nothing() {
    let repository = Repository::new();
    repository.json(&["init"]);
    std::fs::write(
        repository.path().join("p.json"),
        r#"{"title":"from a file"}"#,
    )
    .unwrap();
    repository.append("a", "@p.json");
    assert_eq!(
        repository.json(&["show", "plan", "a"])["payload"]["title"],
        "from a file"
    );
    let file = std::fs::File::open(repository.path().join("p.json")).unwrap();
    let words = [
        "journal",
        "append",
        "--type",
        "plan",
        "--id",
        "a",
        "--action",
        "update",
        "--payload",
        "-",
    ];
    let mut piped = repository.home.command(&words);
    let piped = piped
        .current_dir(repository.path())
        .stdin(file)
        .output()
        .unwrap();
    assert!(
        Ran::from(piped).ok().stdout.contains("nothing to record"),
        "the same document again"
    );
    for bad in [
        "{",
        "[]",
        r#"{"a":1,"a":2}"#,
        r#"{"n":9007199254740993}"#,
        "@missing.json",
        r#"{"title":7}"#,
    ] {
        let refused = repository.run(&[
            "append",
            "--type",
            "plan",
            "--id",
            "b",
            "--action",
            "update",
            "--payload",
            bad,
        ]);
        assert_eq!(refused.code, 2, "{bad}: {refused:?}");
    }
    for bad in [
        &[
            "append",
            "--type",
            "plan",
            "--id",
            "../x",
            "--action",
            "update",
            "--payload",
            "{}",
        ][..],
        &[
            "append",
            "--type",
            "nonsense",
            "--id",
            "x",
            "--action",
            "update",
            "--payload",
            "{}",
        ],
        &[
            "append", "--type", "plan", "--id", "x", "--action", "explode",
        ],
        &[
            "append", "--type", "plan", "--id", "x", "--action", "update",
        ],
        &[
            "append",
            "--type",
            "plan",
            "--id",
            "x",
            "--action",
            "checkpoint_ref",
        ],
    ] {
        assert_eq!(repository.run(bad).code, 2, "{bad:?}");
    }
    let absent = repository.run(&[
        "append", "--type", "plan", "--id", "nobody", "--action", "delete",
    ]);
    assert_eq!(absent.code, 4);
    assert_eq!(repository.json(&["verify"])["records"], 1);
    let large = format!(r#"{{"summary":"{}"}}"#, "y".repeat(90_000));
    repository.json(&[
        "append",
        "--type",
        "handoff",
        "--id",
        "h",
        "--action",
        "create",
        "--payload",
        &large,
    ]);
    let shown = repository.json(&["show", "handoff", "h"]);
    assert_eq!(shown["payload"]["summary"].as_str().unwrap().len(), 90_000);
}

#[test]
fn a_reader_sees_each_event_once_and_never_its_own() {
    let repository = Repository::new();
    repository.json(&["init"]);
    repository.append("a", r#"{"n":1}"#);
    let own = [
        "append",
        "--type",
        "plan",
        "--id",
        "b",
        "--action",
        "update",
        "--payload",
        "{}",
        "--reader",
        "me",
    ];
    repository.json(&own);
    let peeked = repository.json(&["events", "--reader", "me", "--peek"]);
    let page = repository.json(&["events", "--reader", "me"]);
    assert_eq!(peeked["events"], page["events"]);
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(
        (
            &page["events"][0]["item_id"],
            &page["gap"],
            &page["last_seq"]
        ),
        (&json!("a"), &json!(false), &json!(2))
    );
    assert_eq!(
        repository.json(&["events", "--reader", "me"])["events"],
        json!([])
    );
    assert_eq!(
        repository.json(&["events", "--reader", "other"])["events"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn drift_is_exit_1_with_the_entity_and_checkpoints_and_gc_answer() {
    let repository = Repository::new();
    repository.json(&["init"]);
    repository.append("a", r#"{"n":1}"#);
    assert_eq!(repository.json(&["checkpoint"])["head_seq"], 1);
    assert_eq!(repository.json(&["gc"])["floor_seq"], Value::Null);
    repository.append("a", r#"{"n":2}"#);
    repository.json(&["checkpoint"]);
    assert_eq!(repository.json(&["gc"])["floor_seq"], 1);
    std::fs::write(
        repository.path().join(".heddle/entities/plan/a.json"),
        r#"{"n":7}"#,
    )
    .unwrap();
    let drift = repository.run(&["verify", "--json"]);
    assert_eq!(drift.code, 1, "{drift:?}");
    let report = drift.json();
    assert_eq!(
        (&report["ok"], &report["divergent"][0]["item_id"]),
        (&json!(false), &json!("a"))
    );
    let words = repository.run(&["verify"]);
    assert!(
        words.stderr.contains("plan a: its projection differs"),
        "{words:?}"
    );
}

#[test]
fn a_line_break_in_a_summary_forges_no_line_of_the_log() {
    let repository = Repository::new();
    repository.json(&["init"]);
    let hostile = [
        "append",
        "--type",
        "plan",
        "--id",
        "a",
        "--action",
        "update",
        "--payload",
        "{}",
        "--summary",
        "x\n  9999  fake\u{1b}[2J",
    ];
    repository.json(&hostile);
    let text = repository.run(&["log"]).ok().stdout;
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn an_idempotency_key_makes_a_second_call_the_first_and_refuses_another_one() {
    let repository = Repository::new();
    repository.json(&["init"]);
    let once = |title: &str, key: &str| {
        let payload = json!({"title": title}).to_string();
        let words = [
            "append",
            "--type",
            "plan",
            "--id",
            "p",
            "--action",
            "create",
            "--payload",
            &payload,
            "--idempotency-key",
            key,
            "--json",
        ];
        repository.run(&words)
    };
    let first = once("one", "k1").ok().json();
    assert_eq!((&first["seq"], first.get("duplicate")), (&json!(1), None));
    repository.append("p", r#"{"title":"another's"}"#);
    let mut again = once("one", "k1").ok().json();
    assert_eq!(again["duplicate"], true);
    again.as_object_mut().unwrap().remove("duplicate");
    assert_eq!(again, first, "the very answer of before");
    let refused = once("two", "k1");
    assert_eq!(refused.code, 3, "{refused:?}");
    let told = &refused.stderr;
    assert!(told.contains("k1") && told.contains("fresh id"), "{told}");
    let shown = repository.json(&["show", "plan", "p"]);
    assert_eq!(
        (&shown["entity_rev"], &shown["payload"]["title"]),
        (&json!(2), &json!("another's"))
    );
    // Several at once, as an agent that lost patience: one record.
    let told: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| once("at once", "k2").ok().json()))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let fresh = told.iter().filter(|told| told.get("duplicate").is_none());
    assert_eq!(fresh.count(), 1, "{told:?}");
    assert!(told.iter().all(|one| one["seq"] == 3), "{told:?}");
    let text = repository.run(&[
        "append",
        "--type",
        "plan",
        "--id",
        "p",
        "--action",
        "create",
        "--payload",
        r#"{"title":"at once"}"#,
        "--idempotency-key",
        "k2",
    ]);
    assert!(text.ok().stdout.contains("nothing was recorded now"));
    assert_eq!(repository.json(&["verify"])["records"], 3);
}

#[test]
fn a_file_that_was_edited_by_hand_is_kept_and_its_place_is_told() {
    let repository = Repository::new();
    repository.json(&["init"]);
    repository.append("p", r#"{"title":"one"}"#);
    let file = repository.path().join(".heddle/entities/plan/p.json");
    std::fs::write(&file, r#"{"title":"hours of work"}"#).unwrap();
    let words = [
        "append",
        "--type",
        "plan",
        "--id",
        "p",
        "--action",
        "update",
        "--payload",
        r#"{"title":"two"}"#,
    ];
    let told = repository.run(&words).ok();
    let at = told.stderr.find(".heddle/events/quarantine/plan.p.");
    let kept = told.stderr[at.unwrap()..].lines().next().unwrap();
    let text = std::fs::read_to_string(repository.path().join(kept)).unwrap();
    assert_eq!(text, r#"{"title":"hours of work"}"#);
    assert!(std::fs::read_to_string(&file).unwrap().contains("two"));
    let quiet = repository.run(&[
        "append",
        "--type",
        "plan",
        "--id",
        "p",
        "--action",
        "update",
        "--payload",
        r#"{"title":"three"}"#,
    ]);
    assert_eq!(quiet.ok().stderr, "");
}

#[test]
fn a_nested_older_store_is_migrated_and_what_is_none_is_named() {
    let repository = Repository::new();
    let old = repository.path().join(".brainclaw");
    for name in [
        "memory/decisions/dec_1",
        "coordination/plans/pln_1",
        "config",
    ] {
        let path = old.join(format!("{name}.json"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, r#"{"title":"t"}"#).unwrap();
    }
    let told = repository.run(&["migrate"]).ok();
    assert!(told.stdout.contains("2 entities"), "{told:?}");
    assert!(told.stdout.contains(".brainclaw/config.json"), "{told:?}");
    assert_eq!(repository.json(&["show", "plan", "pln_1"])["entity_rev"], 1);
    // One in which nothing is found is not called migrated.
    let other = Repository::new();
    let path = other.path().join(".brainclaw/things");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("x.json"), "{}").unwrap();
    let refused = other.run(&["migrate"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("x.json"), "{refused:?}");
}

#[test]
fn a_lost_record_and_a_damaged_checkpoint_are_told_with_a_way_out() {
    let repository = Repository::new();
    repository.json(&["init"]);
    for n in 1..=4 {
        repository.append("p", &json!({"title": "t", "n": n}).to_string());
    }
    let checkpoint = repository.json(&["checkpoint"]);
    repository.append("p", r#"{"title":"t","n":5}"#);
    repository.json(&["checkpoint"]);
    let segment = repository
        .path()
        .join(".heddle/events/seg-00000000000000000001.jsonl");
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replace("\"n\":2", "\"n\":7")).unwrap();
    let page = repository.json(&["events", "--reader", "r", "--peek"]);
    assert_eq!(
        (&page["gap"], &page["missing"]),
        (&json!(true), &json!([[2, 2]]))
    );
    let told = repository.run(&["events", "--reader", "r", "--peek"]).ok();
    assert!(told.stdout.contains("seq 2 is lost"), "{told:?}");
    let log = repository.run(&["log"]).ok();
    assert!(log.stderr.contains("seq 2 is lost"), "{log:?}");
    std::fs::write(&segment, text).unwrap();
    // An older checkpoint is damaged: named, moved aside, and all is well again.
    let file = checkpoint["file"].as_str().unwrap();
    let file = repository
        .path()
        .join(".heddle/events/checkpoints")
        .join(file);
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, whole.replace("\"n\":4", "\"n\":9")).unwrap();
    let told = repository.run(&["verify"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("heddle doctor quarantine"), "{told:?}");
    let doctor = ["doctor", "quarantine"];
    let mut doctor = repository.home.command(&doctor);
    let parked = Ran::from(doctor.current_dir(repository.path()).output().unwrap()).ok();
    assert!(parked.stdout.contains("nothing is lost"), "{parked:?}");
    assert_eq!(repository.json(&["verify"])["ok"], true);
}
