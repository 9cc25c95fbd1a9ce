//! `heddle journal migrate` from an older store: what is taken in, and that nothing is left out in silence.

use crate::support;

use serde_json::json;
use support::repository::Repository;

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
    let told = repository.journal(&["migrate"]).ok();
    assert!(told.stdout.contains("2 entities"), "{told:?}");
    assert!(told.stdout.contains(".brainclaw/config.json"), "{told:?}");
    assert_eq!(
        repository.journal_json(&["show", "plan", "pln_1"])["entity_rev"],
        1
    );
    // One in which nothing is found is not called migrated.
    let other = Repository::new();
    let path = other.path().join(".brainclaw/things");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("x.json"), "{}").unwrap();
    let refused = other.journal(&["migrate"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("x.json"), "{refused:?}");
}

#[test]
fn candidates_of_the_inbox_are_taken_in_and_what_is_not_is_named() {
    let repository = Repository::new();
    let candidate = r#"{"id":"cnd_1","text":"t","status":"pending"}"#;
    repository.write(".brainclaw/coordination/inbox/cnd_1.json", candidate);
    repository.write(
        ".brainclaw/coordination/inbox/ada/msg_1.json",
        r#"{"id":"msg_1","text":"hello"}"#,
    );
    repository.write(".brainclaw/archive/plans/pln_1.json", "{}");
    let told = repository.journal(&["migrate"]).ok();
    let folders = ["inbox/ada (1 files)", ".brainclaw/archive (1 files)"];
    for word in folders {
        assert!(told.stdout.contains(word), "{word}: {told:?}");
    }
    let shown = repository.journal_json(&["show", "candidate", "cnd_1"]);
    assert_eq!(shown["payload"]["status"], json!("pending"));
    assert_eq!(repository.journal(&["show", "candidate", "msg_1"]).code, 4);
}

#[test]
fn an_older_store_beside_a_journal_that_has_begun_is_not_passed_over_in_silence() {
    let repository = Repository::new();
    repository.journal(&["init"]).ok();
    repository.append("own", &json!({"n": 1}));
    repository.write(".brainclaw/plans/pln_1.json", r#"{"title":"t"}"#);
    let told = repository.journal(&["migrate"]).ok();
    for word in [
        ".brainclaw is here",
        "heddle journal rollback",
        "journal append",
    ] {
        assert!(told.stdout.contains(word), "{word}: {told:?}");
    }
    let told = repository.journal_json(&["migrate"]);
    assert!(told["not_taken"].as_str().unwrap().ends_with(".brainclaw"));
    // As it says; and where it was taken in, nothing is said of it.
    repository.journal(&["rollback"]).ok();
    let folder = repository.path().join(".brainclaw");
    let taken = repository.journal_json(&["migrate", folder.to_str().unwrap()]);
    assert_eq!(taken["entities"], 2, "{taken}");
    let told = repository.journal(&["migrate"]).ok();
    assert!(!told.stdout.contains("is here"), "{told:?}");
}
