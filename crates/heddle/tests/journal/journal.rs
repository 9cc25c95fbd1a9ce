//! `heddle journal` over the real binary: words, JSON, exit codes, no daemon.
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use serde_json::{Value, json};
use support::Ran;
use support::repository::Repository;

#[test]
fn a_journal_is_begun_written_shown_and_verified() {
    let repository = Repository::new();
    let none = repository.journal(&["show", "plan", "pln_1"]);
    assert_eq!(none.code, 4, "{none:?}");
    assert!(none.stderr.contains("heddle journal init"), "{none:?}");
    let begun = repository.journal_json(&["init"]);
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
    let answer = repository.journal_json(&create);
    assert_eq!(
        (&answer["seq"], &answer["entity_rev"]),
        (&json!(1), &json!(1))
    );
    assert!(answer["writer"].as_str().unwrap().starts_with("w_") && answer["batch"].is_string());
    let inside = repository.path().join("src/deep");
    std::fs::create_dir_all(&inside).unwrap();
    let shown = repository
        .journal_in(&inside, &["show", "plan", "pln_1", "--json"])
        .ok()
        .json();
    let expected = json!({"item_type": "plan", "item_id": "pln_1", "entity_rev": 1, "payload": {"title": "x"}, "stale": false});
    assert_eq!(shown, expected);
    assert_eq!(repository.journal_json(&["init"])["entities"], 1);
    assert_eq!(
        repository.journal_json(&[
            "append", "--type", "plan", "--id", "pln_1", "--action", "delete"
        ])["entity_rev"],
        2
    );
    assert_eq!(repository.journal(&["show", "plan", "pln_1"]).code, 4);
    let report = repository.journal_json(&["verify"]);
    assert_eq!(
        (&report["ok"], &report["records"], &report["entities"]),
        (&json!(true), &json!(2), &json!(0))
    );
    let log = repository.journal(&["log", "--json"]).ok();
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
        .journal(&["log", "--since", "1", "--limit", "5"])
        .ok()
        .stdout;
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains("delete") && text.contains("pln_1"), "{text}");
}

#[test]
fn payloads_come_from_arguments_files_and_standard_input_and_bad_ones_write_nothing() {
    let repository = Repository::new();
    repository.journal_json(&["init"]);
    std::fs::write(
        repository.path().join("p.json"),
        r#"{"title":"from a file"}"#,
    )
    .unwrap();
    repository.journal_json(&[
        "append",
        "--type",
        "plan",
        "--id",
        "a",
        "--action",
        "update",
        "--payload",
        "@p.json",
    ]);
    assert_eq!(
        repository.journal_json(&["show", "plan", "a"])["payload"]["title"],
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
        let refused = repository.journal(&[
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
        assert_eq!(repository.journal(bad).code, 2, "{bad:?}");
    }
    let absent = repository.journal(&[
        "append", "--type", "plan", "--id", "nobody", "--action", "delete",
    ]);
    assert_eq!(absent.code, 4);
    assert_eq!(repository.journal_json(&["verify"])["records"], 1);
    let large = format!(r#"{{"summary":"{}"}}"#, "y".repeat(90_000));
    repository.journal_json(&[
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
    let shown = repository.journal_json(&["show", "handoff", "h"]);
    assert_eq!(shown["payload"]["summary"].as_str().unwrap().len(), 90_000);
}

#[test]
fn drift_is_exit_1_with_the_entity_and_checkpoints_and_gc_answer() {
    let repository = Repository::new();
    repository.journal_json(&["init"]);
    repository.append("a", &json!({"n":1}));
    assert_eq!(repository.journal_json(&["checkpoint"])["head_seq"], 1);
    assert_eq!(repository.journal_json(&["gc"])["floor_seq"], Value::Null);
    repository.append("a", &json!({"n":2}));
    repository.journal_json(&["checkpoint"]);
    assert_eq!(repository.journal_json(&["gc"])["floor_seq"], 1);
    std::fs::write(
        repository.path().join(".heddle/entities/plan/a.json"),
        r#"{"n":7}"#,
    )
    .unwrap();
    let drift = repository.journal(&["verify", "--json"]);
    assert_eq!(drift.code, 1, "{drift:?}");
    let report = drift.json();
    assert_eq!(
        (&report["ok"], &report["divergent"][0]["item_id"]),
        (&json!(false), &json!("a"))
    );
    let words = repository.journal(&["verify"]);
    assert!(
        words.stderr.contains("plan a: its projection differs"),
        "{words:?}"
    );
}

#[test]
fn a_line_break_in_a_summary_forges_no_line_of_the_log() {
    let repository = Repository::new();
    repository.journal_json(&["init"]);
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
    repository.journal_json(&hostile);
    let text = repository.journal(&["log"]).ok().stdout;
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains('\u{1b}'));
}
