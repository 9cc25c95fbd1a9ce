//! What `heddle journal` tells a person where something is not as it was: what happened, and the command that goes on.

use crate::support;

use serde_json::json;
use support::Ran;
use support::repository::Repository;

const META: &str = ".heddle/events/meta.json";

fn begun() -> Repository {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository
}

#[track_caller]
fn says(told: &Ran, words: &[&str]) {
    for word in words {
        assert!(told.stderr.contains(word), "{word}: {told:?}");
    }
}

#[test]
fn a_damaged_journal_json_is_no_dead_end() {
    let repository = begun();
    repository.append("a", &json!({"n": 1}));
    repository.write(".heddle/journal.json", "");
    let asks: [&[&str]; 4] = [
        &["journal", "verify"],
        &["journal", "init"],
        &["journal", "migrate"],
        &["doctor", "--verify-journal"],
    ];
    for ask in asks {
        let told = repository.run(ask);
        assert_eq!(told.code, 1, "{ask:?}: {told:?}");
        says(&told, &["journal.json.damaged", "heddle journal init"]);
    }
    // As it was said.
    let file = repository.at(".heddle/journal.json");
    std::fs::rename(&file, repository.at(".heddle/journal.json.damaged")).unwrap();
    repository.run(&["journal", "init"]).ok();
    repository.run(&["journal", "verify"]).ok();
    let shown = repository.json(&["journal", "show", "plan", "a"]);
    assert_eq!(shown["entity_rev"], 1);
}

#[test]
fn a_second_folder_is_never_passed_over_in_silence() {
    let repository = Repository::new();
    std::fs::create_dir(repository.at(".brainclaw")).unwrap();
    repository.run(&["journal", "migrate"]).ok();
    repository.write("other/plans/p.json", r#"{"title":"of the other"}"#);
    let told = repository.run(&["journal", "migrate", "other"]);
    assert_ne!(told.code, 0, "{told:?}");
    says(&told, &["nothing was taken in", "heddle journal rollback"]);
    repository.run(&["journal", "rollback"]).ok();
    let taken = repository.json(&["journal", "migrate", "other"]);
    assert_eq!(taken["backfilled"], 1, "{taken}");
    // The same once more changes nothing and is no fault.
    repository.run(&["journal", "migrate", "other"]).ok();
}

#[test]
fn who_moves_an_edited_file_aside_says_where_it_is() {
    for ask in [
        &["journal", "show", "plan", "p"][..],
        &["journal", "verify"][..],
        &["reserve"][..],
    ] {
        let repository = begun();
        repository.append("p", &json!({"n": 1}));
        repository.write(".heddle/entities/plan/p.json", r#"{"n":"by hand"}"#);
        std::fs::remove_file(repository.at(META)).unwrap();
        says(&repository.run(ask), &["quarantine/plan.p."]);
        assert!(!repository.run(ask).stderr.contains("quarantine"));
    }
    let repository = begun();
    repository.append("p", &json!({"n": 1}));
    repository.write(".heddle/entities/plan/p.json", r#"{"n":"by hand"}"#);
    std::fs::remove_file(repository.at(META)).unwrap();
    let words = ["journal", "append", "--type", "plan", "--id", "q"];
    let more = ["--action", "create", "--payload", "{}"];
    let told = repository.run(&[&words[..], &more[..]].concat());
    says(&told, &["quarantine/plan.p."]);
}

#[test]
fn a_receipt_that_cannot_be_printed_says_that_it_was_recorded() {
    let repository = begun();
    let words = ["journal", "append", "--type", "plan", "--id", "p"];
    let more = ["--action", "create", "--payload", r#"{"n":1}"#];
    let told = repository.run_on_full(&[&words[..], &more[..]].concat());
    assert_eq!(told.code, 1, "{told:?}");
    says(&told, &["recorded as seq 1", "Do not record it again"]);
    let shown = repository.json(&["journal", "show", "plan", "p"]);
    assert_eq!(shown["entity_rev"], 1);
}

/// Whatever has taken effect says so where there is still somebody to tell.
#[test]
fn an_effect_whose_answer_cannot_be_printed_is_told_on_standard_error() {
    let repository = begun();
    repository.append("p", &json!({"title": "of nobody's concern"}));
    let verbs: [(&[&str], &str); 8] = [
        (&["reserve", "src/**"], "src/** is yours until"),
        (&["release", "src/**"], "src/** is free again"),
        (&["journal", "checkpoint"], "entities up to seq"),
        (&["journal", "gc"], "nothing to move"),
        (&["journal", "rebuild"], "as the journal has them"),
        (&["doctor", "quarantine"], "nothing is damaged"),
        (
            &["doctor", "redact", "--item", "p", "--reason", "asked"],
            "erased: 1 records",
        ),
        (&["journal", "rollback"], "the journal is off"),
    ];
    for (verb, word) in verbs {
        let told = repository.run_on_full(verb);
        assert_eq!(told.code, 1, "{verb:?}: {told:?}");
        says(&told, &["it is done", word, "Do not do it again"]);
    }
    says(
        &repository.run_on_full(&["journal", "migrate"]),
        &["it is done", "the journal is dual"],
    );
}

#[test]
fn a_leftover_that_was_changed_is_named_beside_one_that_was_not() {
    let repository = begun();
    let secret = "the launch code is 4711-8822-9933 and stays among us for ever";
    repository.append("p", &json!({"title": secret}));
    repository.write(".heddle/x/same.txt", secret);
    let changed = repository.write(".heddle/x/changed.txt", secret);
    let ask = ["doctor", "redact", "--item", "plan/p", "--reason", "asked"];
    says(&repository.run(&ask), &["x/same.txt", "x/changed.txt"]);
    std::fs::write(&changed, "edited").unwrap();
    let told = repository.run(&ask);
    assert_eq!(told.code, 1, "{told:?}");
    says(
        &told,
        &["x/same.txt", "x/changed.txt", "were changed since"],
    );
}

#[test]
fn a_second_redaction_names_again_what_the_first_one_found() {
    let repository = begun();
    let secret = "the launch code is 4711-8822-9933 and stays among us for ever";
    repository.append("p", &json!({"title": secret}));
    let copy = repository.write(".heddle/x/copy.txt", secret);
    let ask = ["doctor", "redact", "--item", "plan/p", "--reason", "asked"];
    for _ in 0..3 {
        let told = repository.run(&ask);
        assert_eq!(told.code, 1, "{told:?}");
        says(&told, &["x/copy.txt"]);
        assert!(!told.stdout.contains("was searched"), "{told:?}");
    }
    std::fs::remove_file(copy).unwrap();
    let told = repository.run(&ask).ok();
    assert!(told.stdout.contains("no file was searched"), "{told:?}");
    let log = repository.run(&["journal", "log"]).ok().stdout;
    assert!(
        log.contains("[redacted]") && log.contains("journal  redaction"),
        "{log}"
    );
}

#[test]
fn a_rollback_says_that_keys_are_free_again() {
    let repository = begun();
    let told = repository.run(&["journal", "rollback"]).ok();
    assert!(told.stdout.contains("--idempotency-key"), "{told:?}");
}

#[test]
fn a_delete_that_a_clone_would_undo_says_so() {
    let repository = begun();
    repository.append("p", &json!({"n": 1}));
    repository.append("q", &json!({"n": 1}));
    let delete = |id: &str| {
        let words = ["journal", "append", "--type", "plan", "--id", id];
        repository
            .run(&[&words[..], &["--action", "delete"][..]].concat())
            .ok()
    };
    assert!(!delete("p").stderr.contains("clone"));
    repository.run(&["journal", "checkpoint"]).ok();
    says(&delete("q"), &["clone", "heddle journal checkpoint"]);
}

#[test]
fn a_file_that_no_record_explains_is_named_where_its_entity_is_asked_for() {
    let repository = begun();
    repository.append("p", &json!({"n": 1}));
    repository.write(".heddle/entities/plan/q.json", r#"{"n":1}"#);
    let told = repository.journal(&["show", "plan", "q"]);
    assert_eq!(told.code, 4, "{told:?}");
    says(
        &told,
        &["entities/plan/q.json is there", "heddle journal verify"],
    );
    let none = repository.journal(&["show", "plan", "r"]);
    assert!(!none.stderr.contains("is there"), "{none:?}");
}

/// A later version of a type of one's own: the records are sound, and what is advised mends it.
#[test]
fn documents_of_an_earlier_version_of_a_type_are_told_as_that() {
    let repository = begun();
    let schema = |version: u64| {
        let text = json!({"type": "object", "x-schema-version": version}).to_string();
        repository.write(".heddle/schemas/memo.json", &text);
    };
    let append = |payload: &str| {
        let words = ["journal", "append", "--type", "memo", "--id", "m"];
        let more = ["--action", "update", "--payload", payload];
        repository.run(&[&words[..], &more[..]].concat()).ok()
    };
    schema(1);
    append(r#"{"t":"x"}"#);
    schema(2);
    let told = repository.run(&["journal", "verify"]);
    assert_eq!(told.code, 1, "{told:?}");
    says(
        &told,
        &["no such step", "x-schema-version", "schema_version"],
    );
    for word in ["put back", "contradict"] {
        assert!(!told.stderr.contains(word), "{told:?}");
    }
    schema(1);
    repository.run(&["journal", "verify"]).ok();
    schema(2);
    // Also behind a comparison of everything it is the file that was written, and nobody's edit.
    std::fs::remove_file(repository.at(META)).unwrap();
    repository.run(&["journal", "verify"]);
    let told = append(r#"{"t":"x","schema_version":2}"#);
    assert!(!told.stderr.contains("by hand"), "{told:?}");
    repository.run(&["journal", "verify"]).ok();
}

#[test]
fn a_schema_file_beside_a_type_of_heddles_own_is_told_as_not_used() {
    let repository = begun();
    repository.append("a", &json!({"n": 1}));
    repository.write(".heddle/schemas/plan.json", r#"{"type":"object"}"#);
    let told = repository.run(&["journal", "verify"]).ok();
    says(&told, &["schemas/plan.json", "is not used"]);
    assert!(!told.stderr.contains("is not there"), "{told:?}");
}

#[test]
fn a_payload_has_a_bound_and_nobody_waits_for_a_device_or_a_pipe() {
    let repository = begun();
    let large = repository.write("large", "");
    let most = 64 << 20;
    std::fs::File::options()
        .write(true)
        .open(&large)
        .and_then(|file| file.set_len(most + 1))
        .unwrap();
    let pipe = repository.at("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for (file, word) in [
        ("@large", "67108864"),
        ("@pipe", "no regular file"),
        ("@/dev/zero", "no regular file"),
        ("@none", "No such file"),
    ] {
        let words = ["journal", "append", "--type", "plan", "--id", "a"];
        let more = ["--action", "create", "--payload", file];
        let told = repository.run(&[&words[..], &more[..]].concat());
        assert_eq!(told.code, 2, "{told:?}");
        says(&told, &[word]);
    }
    let told = repository.run(&["journal", "import-slice", "pipe"]);
    assert_eq!(told.code, 2, "{told:?}");
    says(&told, &["no regular file"]);
}

#[test]
fn what_show_prints_is_json_whatever_is_hidden_in_it() {
    let repository = begun();
    let payload = json!({"title": "a\u{202e}b\u{e0041}\u{85}\tc"});
    repository.append("a", &payload);
    let shown = repository.run(&["journal", "show", "plan", "a"]).ok();
    assert!(!shown.stdout.contains('\u{202e}'), "{shown:?}");
    let (_, body) = shown.stdout.split_once('\n').unwrap();
    let read: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(read["title"], payload["title"]);
}

#[test]
fn a_file_whose_delete_is_recorded_is_no_riddle() {
    let repository = begun();
    repository.append("a", &json!({"n": 1}));
    let file = ".heddle/entities/plan/a.json";
    let text = std::fs::read_to_string(repository.at(file)).unwrap();
    let words = ["append", "--type", "plan", "--id", "a"];
    repository
        .journal(&[&words[..], &["--action", "delete"]].concat())
        .ok();
    repository.write(file, &text);
    let told = repository.run(&["journal", "show", "plan", "a"]);
    assert_eq!(told.code, 4, "{told:?}");
    says(&told, &["its delete is recorded"]);
    // One that nobody recorded stays one.
    repository.write(".heddle/entities/plan/b.json", &text);
    let told = repository.run(&["journal", "show", "plan", "b"]);
    says(&told, &["no record of this store explains it"]);
}
