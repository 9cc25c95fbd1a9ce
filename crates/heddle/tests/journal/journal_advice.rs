//! Whoever does what `heddle journal verify` says comes to a green store: no advice leads nowhere.

use crate::support;

use std::path::PathBuf;

use serde_json::json;
use support::Ran;
use support::repository::Repository;

fn begun() -> Repository {
    let repository = Repository::new();
    repository.journal(&["init"]).ok();
    for n in 1..=4 {
        repository.append("a", &json!({"n": n}));
        repository.append("b", &json!({"n": n}));
    }
    repository
}

fn segment(repository: &Repository) -> PathBuf {
    repository.at(".heddle/events/seg-00000000000000000001.jsonl")
}

/// The line of this seq counts no more.
fn damage(repository: &Repository, seq: u64) {
    let text = std::fs::read_to_string(segment(repository)).unwrap();
    let to = text.replace(&format!("\"seq\":{seq},"), &format!("\"sEq\":{seq},"));
    assert_ne!(to, text);
    std::fs::write(segment(repository), to).unwrap();
}

/// The command that an answer names, as a person would type it.
fn named(told: &Ran) -> Vec<String> {
    let next = told.stderr.lines().find(|line| line.contains("next:"));
    let next = next.unwrap_or_else(|| panic!("no next step: {told:?}"));
    let words = |command: &str| command.split(' ').map(str::to_owned).collect();
    if next.contains("`heddle doctor quarantine`") {
        return words("doctor quarantine");
    }
    if next.contains("--accept-gaps") {
        return words("journal verify --accept-gaps lost");
    }
    if next.contains("`heddle doctor redact --seq") {
        let seq = told.stderr.split("is not used: seq ").nth(1).unwrap();
        let seq = seq.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        return words(&format!("doctor redact --seq {seq} --reason again"));
    }
    assert!(next.contains("`heddle journal rebuild`"), "{next}");
    words("journal rebuild")
}

/// Does what is said until nothing is; each step changes what is told.
#[track_caller]
fn followed(what: &str, repository: &Repository) -> Vec<String> {
    let mut done = Vec::new();
    let mut before = String::new();
    for _ in 0..6 {
        let told = repository.journal(&["verify"]);
        let doctor = repository.run(&["doctor", "--verify-journal"]);
        assert_eq!(
            told.code == 0,
            doctor.code == 0,
            "{what}: {told:?} {doctor:?}"
        );
        if told.code == 0 {
            return done;
        }
        assert_ne!(told.stderr, before, "{what}: {done:?} changed nothing");
        assert_eq!(named(&told), named(&doctor), "{what}: {told:?} {doctor:?}");
        before.clone_from(&told.stderr);
        let command = named(&told);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        repository.run(&words);
        done.push(command.join(" "));
    }
    panic!("{what}: not green after {done:?}: {before}");
}

#[test]
fn the_advice_of_verify_leads_to_a_green_store() {
    let repository = begun();
    damage(&repository, 3);
    damage(&repository, 8);
    let done = followed("damaged lines", &repository);
    assert_eq!(done[0], "doctor quarantine");
    // Accepted before anybody parked the lines: then they are what is left to mend.
    let repository = begun();
    damage(&repository, 4);
    repository.journal(&["verify", "--accept-gaps", "early"]);
    let done = followed("damaged lines that were accepted", &repository);
    assert_eq!(done[0], "doctor quarantine");

    let repository = begun();
    let before = std::fs::read(segment(&repository)).unwrap();
    repository.append("a", &json!({"n": 9}));
    std::fs::write(segment(&repository), before).unwrap();
    std::fs::remove_file(repository.at(".heddle/events/revisions.idx")).unwrap();
    followed("a lost end", &repository);

    let repository = begun();
    repository.write(".heddle/entities/plan/a.json", r#"{"n":"by hand"}"#);
    repository.write(".heddle/entities/plan/stranger.json", r#"{"n":1}"#);
    assert_eq!(followed("drift", &repository), ["journal rebuild"]);

    let repository = begun();
    let checkpoint = repository.journal_json(&["checkpoint"]);
    let name = checkpoint["file"].as_str().unwrap();
    let path = repository.at(&format!(".heddle/events/checkpoints/{name}"));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"n\":4", "\"n\":7")).unwrap();
    assert_eq!(followed("a checkpoint", &repository), ["doctor quarantine"]);
}

#[test]
fn the_advice_for_erased_content_that_came_back_erases_it_again() {
    let repository = begun();
    repository.append("s", &json!({"title": "CANARY-7f3a9c-4711"}));
    let with = std::fs::read(segment(&repository)).unwrap();
    let redact = ["doctor", "redact", "--item", "plan/s", "--reason", "asked"];
    repository.run(&redact).ok();
    // The bytes of an old copy in the place of the erased ones; the note behind them stays.
    let mut now = std::fs::read(segment(&repository)).unwrap();
    let end = with.iter().rposition(|b| *b != b'\n').unwrap() + 1;
    now[..end].copy_from_slice(&with[..end]);
    std::fs::write(segment(&repository), now).unwrap();
    let done = followed("erased content", &repository);
    assert!(done[0].starts_with("doctor redact --seq 9"), "{done:?}");
    let text = std::fs::read_to_string(segment(&repository)).unwrap();
    assert!(!text.contains("CANARY"));
}

/// No command of this build mends what a newer one wrote, and none is named.
#[test]
fn records_of_a_newer_heddle_are_told_with_the_way_on_and_with_no_command_that_changes_nothing() {
    let repository = begun();
    let text = std::fs::read_to_string(segment(&repository)).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("\"seq\":4,"))
        .unwrap();
    let (mut record, _) = heddle_journal::record::decode(line.as_bytes()).unwrap();
    record.v = 3;
    let mut newer = Vec::new();
    record.encode_into(&mut newer).unwrap();
    let newer = String::from_utf8(newer).unwrap();
    let newer = newer.trim_matches('\n');
    std::fs::write(segment(&repository), text.replace(line, newer)).unwrap();
    for ask in [
        &["journal", "verify"][..],
        &["doctor", "--verify-journal"][..],
    ] {
        let told = repository.run(ask);
        assert_eq!(told.code, 1, "{told:?}");
        assert!(told.stderr.contains("use the newer heddle"), "{told:?}");
        for word in ["rebuild", "accept-gaps", "quarantine", "seqs are missing"] {
            assert!(!told.stderr.contains(word), "{word}: {told:?}");
        }
    }
    let log = repository.journal(&["log"]).ok();
    assert!(log.stderr.contains("of a newer heddle"), "{log:?}");
    assert!(!log.stderr.contains("lost"), "{log:?}");
}
