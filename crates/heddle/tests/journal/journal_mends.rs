//! `heddle journal` where something was lost, turned off or turned on again: what a person is told, and that
//! nothing newer is written over.

use crate::support;

use std::path::Path;

use serde_json::{Value, json};
use support::Ran;
use support::repository::Repository;

fn show(repository: &Repository, id: &str) -> Ran {
    repository.run(&["journal", "show", "plan", id, "--json"])
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_lost_tail_is_told_by_verify_doctor_and_show_and_no_file_goes_back() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository.append("a", &json!({"n": 1}));
    let before = std::fs::read(repository.segment()).unwrap();
    repository.append("a", &json!({"n": 2}));
    std::fs::write(repository.segment(), before).unwrap();
    std::fs::remove_file(repository.at(".heddle/events/revisions.idx")).unwrap();
    let file = repository.at(".heddle/entities/plan/a.json");
    let newest = std::fs::read(&file).unwrap();
    for verb in [
        &["journal", "verify", "--json"][..],
        &["doctor", "--verify-journal", "--json"][..],
    ] {
        let told = repository.run(verb);
        assert_eq!(told.code, 1, "{told:?}");
        assert_eq!(told.json()["counters"]["seq_gaps"], 1, "{told:?}");
        assert_eq!(std::fs::read(&file).unwrap(), newest, "a read wrote");
    }
    let shown = show(&repository, "a").ok().json();
    assert!(shown["note"].as_str().unwrap().contains("lost"), "{shown}");
    // The way on: a word, then the files as the journal has them, with the newer one kept.
    let accepted = ["journal", "verify", "--accept-gaps", "the disk was bad"];
    assert_eq!(repository.run(&accepted).code, 1);
    assert_eq!(std::fs::read(&file).unwrap(), newest);
    let rebuilt = repository.json(&["journal", "rebuild"]);
    assert_eq!(rebuilt["kept_aside"].as_array().map(Vec::len), Some(1));
    repository.run(&["journal", "verify"]).ok();
    // What only the lost record knew is no "not found".
    let before = std::fs::read(repository.segment()).unwrap();
    repository.append("late", &json!({"n": 1}));
    std::fs::write(repository.segment(), before).unwrap();
    std::fs::remove_file(repository.at(".heddle/events/revisions.idx")).unwrap();
    let told = show(&repository, "late");
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("lost"), "{told:?}");
}

#[test]
fn damage_that_was_parked_can_be_acknowledged_and_the_store_is_green_again() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    for n in 1..=4 {
        repository.append("a", &json!({"n": n}));
        repository.append("b", &json!({"n": n}));
    }
    for seq in [1, 4, 7] {
        let text = std::fs::read_to_string(repository.segment()).unwrap();
        let from = format!("\"seq\":{seq},");
        let to = format!("\"sEq\":{seq},");
        std::fs::write(repository.segment(), text.replace(&from, &to)).unwrap();
    }
    assert_eq!(repository.run(&["journal", "verify"]).code, 1);
    repository.run(&["doctor", "quarantine"]).ok();
    let told = repository.run(&["journal", "verify"]);
    assert_eq!(told.code, 1, "{told:?}");
    let accepted = ["journal", "verify", "--accept-gaps", "parked"];
    let told = repository.run(&accepted);
    if told.code != 0 {
        assert!(told.stderr.contains("heddle journal rebuild"), "{told:?}");
        repository.run(&["journal", "rebuild"]).ok();
    }
    repository.run(&["journal", "verify"]).ok();
    repository.run(&["doctor", "--verify-journal"]).ok();
}

#[cfg(unix)]
#[test]
fn t_64_a_link_in_the_place_of_an_entity_concerns_that_entity_alone() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository.append("a", &json!({"n": 1}));
    repository.append("b", &json!({"n": 1}));
    let target = repository.at("outside.json");
    write(&target, r#"{"n": 666}"#);
    let file = repository.at(".heddle/entities/plan/a.json");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&target, &file).unwrap();
    assert_eq!(show(&repository, "a").ok().json()["payload"]["n"], 1);
    assert_eq!(show(&repository, "b").ok().json()["payload"]["n"], 1);
    let told = repository.run(&["journal", "verify", "--json"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert_eq!(told.json()["divergent"][0]["item_id"], "a", "{told:?}");
    repository.append("a", &json!({"n": 2}));
    assert_eq!(
        std::fs::read_to_string(&target).unwrap(),
        r#"{"n": 666}"#,
        "written through a link"
    );
    let told = repository.run(&["journal", "rebuild"]);
    told.ok();
    repository.run(&["journal", "verify"]).ok();
}

#[test]
fn a_store_that_was_rolled_back_begins_with_its_own_files_and_never_with_the_older_folder() {
    let repository = Repository::new();
    for id in ["a", "gone"] {
        let path = repository.at(&format!(".brainclaw/plans/{id}.json"));
        write(&path, r#"{"title":"old"}"#);
    }
    let told = repository.json(&["journal", "migrate"]);
    assert_eq!(
        (&told["mode"], &told["backfilled"]),
        (&json!("dual"), &json!(2))
    );
    repository.append("a", &json!({"title": "newer work"}));
    let delete = ["journal", "append", "--type", "plan", "--id", "gone"];
    repository
        .run(&[&delete[..], &["--action", "delete"]].concat())
        .ok();
    repository.run(&["journal", "rollback"]).ok();
    // Off: every verb says so, and the files are shown.
    let shown = show(&repository, "a").ok().json();
    assert_eq!(shown["payload"]["title"], "newer work");
    assert!(
        shown["note"].as_str().unwrap().contains("is off"),
        "{shown}"
    );
    for verb in [&["verify"][..], &["log"][..], &["init"][..]] {
        let told = repository.run(&[&["journal"], verb].concat()).ok();
        let words = format!("{}{}", told.stdout, told.stderr);
        assert!(
            words.contains("off") && words.contains("heddle journal migrate"),
            "{words}"
        );
    }
    for verb in [&["checkpoint"][..], &["gc"][..], &["rebuild"][..]] {
        let told = repository.run(&[&["journal"], verb].concat());
        assert_eq!(told.code, 2, "{told:?}");
        assert!(told.stderr.contains("heddle journal migrate"), "{told:?}");
    }
    let first = ".heddle/events/seg-00000000000000000001.jsonl";
    assert!(!repository.at(first).exists(), "a verb began a journal");
    repository.json(&["journal", "migrate"]);
    assert_eq!(
        show(&repository, "a").ok().json()["payload"]["title"],
        "newer work"
    );
    assert_eq!(show(&repository, "gone").code, 4, "deleted, and back again");
    repository.run(&["journal", "verify"]).ok();
}

#[test]
fn migrate_never_lowers_a_mode_and_takes_the_older_store_in_behind_an_init() {
    let repository = Repository::new();
    write(
        &repository.at(".brainclaw/plans/a.json"),
        r#"{"title":"old"}"#,
    );
    repository.run(&["journal", "init"]).ok();
    let told = repository.json(&["journal", "migrate"]);
    assert_eq!(
        (&told["mode"], &told["backfilled"]),
        (&json!("primary"), &json!(1))
    );
    let lower = repository.run(&["journal", "migrate", "--mode", "dual"]);
    assert_eq!(lower.code, 2, "{lower:?}");
    assert!(lower.stderr.contains("rollback --to dual"), "{lower:?}");
    assert!(!lower.stderr.contains("append --help"), "{lower:?}");
    let again = repository.json(&["journal", "migrate"]);
    assert_eq!(
        (&again["mode"], &again["backfilled"]),
        (&json!("primary"), &json!(0))
    );
    assert_eq!(
        show(&repository, "a").ok().json()["payload"]["title"],
        "old"
    );
}

/// Without `--agent` and `HEDDLE_AGENT` the person writes: the login's name, or the one that the home's config gives.
#[test]
fn who_writes_is_the_person_of_the_home_and_never_a_tool() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    let by = |user: Option<&str>, agent: Option<&str>| {
        let words = [
            "journal",
            "append",
            "--type",
            "session",
            "--action",
            "session_start",
        ];
        let mut command = repository.home.command(&words);
        command.current_dir(repository.path()).env_remove("USER");
        command.envs(user.map(|name| ("USER", name)));
        command.envs(agent.map(|name| ("HEDDLE_AGENT", name)));
        Ran::from(command.output().unwrap()).ok();
        let log = repository.run(&["journal", "log", "--json"]).ok().stdout;
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        last["agent"].as_str().unwrap().to_owned()
    };
    assert_eq!(by(Some("tester"), None), "tester");
    assert_eq!(by(None, None), "me");
    assert_eq!(by(Some("tester"), Some("@planner")), "planner");
    let config = repository.home.path().join("config.toml");
    write(&config, "[daemon]\nmember = \"ann\"\n");
    assert_eq!(by(Some("tester"), None), "ann");
}

#[test]
fn a_lost_record_and_a_damaged_checkpoint_are_told_with_a_way_out() {
    let repository = Repository::new();
    repository.journal_json(&["init"]);
    for n in 1..=4 {
        repository.append("p", &json!({"title": "t", "n": n}));
    }
    let checkpoint = repository.journal_json(&["checkpoint"]);
    repository.append("p", &json!({"title":"t","n":5}));
    repository.journal_json(&["checkpoint"]);
    let segment = repository
        .path()
        .join(".heddle/events/seg-00000000000000000001.jsonl");
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replace("\"n\":2", "\"n\":7")).unwrap();
    let page = repository.journal_json(&["events", "--reader", "r", "--peek"]);
    assert_eq!(
        (&page["gap"], &page["missing"]),
        (&json!(true), &json!([[2, 2]]))
    );
    let told = repository
        .journal(&["events", "--reader", "r", "--peek"])
        .ok();
    assert!(told.stdout.contains("seq 2 is lost"), "{told:?}");
    let log = repository.journal(&["log"]).ok();
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
    let told = repository.journal(&["verify"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("heddle doctor quarantine"), "{told:?}");
    let doctor = ["doctor", "quarantine"];
    let mut doctor = repository.home.command(&doctor);
    let parked = Ran::from(doctor.current_dir(repository.path()).output().unwrap()).ok();
    assert!(parked.stdout.contains("nothing is lost"), "{parked:?}");
    assert_eq!(repository.journal_json(&["verify"])["ok"], true);
}

#[test]
fn a_file_that_was_edited_by_hand_is_kept_and_its_place_is_told() {
    let repository = Repository::new();
    repository.journal_json(&["init"]);
    repository.append("p", &json!({"title":"one"}));
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
    let told = repository.journal(&words).ok();
    let at = told.stderr.find(".heddle/events/quarantine/plan.p.");
    let kept = told.stderr[at.unwrap()..].lines().next().unwrap();
    let text = std::fs::read_to_string(repository.path().join(kept)).unwrap();
    assert_eq!(text, r#"{"title":"hours of work"}"#);
    assert!(std::fs::read_to_string(&file).unwrap().contains("two"));
    let quiet = repository.journal(&[
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
fn t_64_a_link_in_the_place_of_a_folder_is_named_with_what_helps() {
    let repository = Repository::new();
    repository.run(&["journal", "init"]).ok();
    repository.append("a", &json!({"n": 1}));
    let (events, aside) = (repository.at(".heddle/events"), repository.at("aside"));
    std::fs::rename(&events, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &events).unwrap();
    let told = show(&repository, "a");
    assert_eq!(told.code, 1, "{told:?}");
    let next = told.json()["next"].as_str().unwrap().to_owned();
    assert!(
        next.contains("put the folder or the file itself"),
        "{told:?}"
    );
}
