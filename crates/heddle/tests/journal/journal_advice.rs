//! Whoever does what `heddle journal verify` says comes to a green store: no advice leads nowhere.

use crate::support;

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

/// The line of this seq counts no more.
fn damage(repository: &Repository, seq: u64) {
    let text = std::fs::read_to_string(repository.segment()).unwrap();
    let to = text.replace(&format!("\"seq\":{seq},"), &format!("\"sEq\":{seq},"));
    assert_ne!(to, text);
    std::fs::write(repository.segment(), to).unwrap();
}

/// The command that an answer names, as a person would type it.
fn named(told: &Ran) -> Vec<String> {
    let next = told.stderr.lines().find(|line| line.contains("next:"));
    let next = next.unwrap_or_else(|| panic!("no next step: {told:?}"));
    let words = |command: &str| command.split(' ').map(str::to_owned).collect();
    if next.contains(".heddle/events/blobs") {
        // Nothing to put back by hand.
        return words("journal rebuild");
    }
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
    let before = std::fs::read(repository.segment()).unwrap();
    repository.append("a", &json!({"n": 9}));
    std::fs::write(repository.segment(), before).unwrap();
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

/// A blob that is lost or damaged, and records that were put back behind a checkpoint.
#[test]
fn the_advice_about_blobs_and_checkpoints_goes_in_no_circle() {
    for is_lost in [true, false] {
        let repository = begun();
        repository.append("big", &json!({"text": "y".repeat(70_000)}));
        repository.journal(&["checkpoint"]).ok();
        let folders = std::fs::read_dir(repository.at(".heddle/events/blobs")).unwrap();
        let folder = folders.map(|entry| entry.unwrap().path()).next().unwrap();
        let mut blobs = std::fs::read_dir(folder).unwrap();
        let blob = blobs.next().unwrap().unwrap().path();
        if is_lost {
            std::fs::remove_file(&blob).unwrap();
        } else {
            let mut bytes = std::fs::read(&blob).unwrap();
            bytes[99] ^= 1;
            std::fs::write(&blob, bytes).unwrap();
        }
        assert_eq!(followed("a blob", &repository), ["journal rebuild"]);
    }
    let repository = begun();
    let segment = repository.segment();
    let whole = std::fs::read(&segment).unwrap();
    damage(&repository, 8);
    followed("a damaged line", &repository);
    repository.append("c", &json!({"n": 1}));
    repository.journal(&["checkpoint"]).ok();
    let mut now = std::fs::read(&segment).unwrap();
    let end = whole.iter().rposition(|b| *b != b'\n').unwrap() + 1;
    now[..end].copy_from_slice(&whole[..end]);
    std::fs::write(&segment, now).unwrap();
    // The checkpoint says what it was written without: whoever comes next takes it in, and nothing is left to mend.
    let done = followed("put back behind a checkpoint", &repository);
    assert_eq!(done, [""; 0]);
    let shown = repository.journal_json(&["show", "plan", "b"]);
    assert_eq!(shown["payload"]["n"], 4);
}

/// A rebuild that cannot give something back does not end as if it had.
#[test]
fn a_rebuild_says_what_no_copy_is_left_of_and_fails() {
    let repository = begun();
    repository.append("big", &json!({"text": "y".repeat(70_000)}));
    std::fs::remove_dir_all(repository.at(".heddle/events/blobs")).unwrap();
    std::fs::remove_file(repository.at(".heddle/entities/plan/big.json")).unwrap();
    for _ in 0..2 {
        let told = repository.journal(&["rebuild", "--json"]);
        assert_eq!(told.code, 1, "{told:?}");
        let answer = told.json();
        assert_eq!(answer["unmended"][0]["item_id"], "big", "{answer}");
        assert_eq!(
            (&answer["entities"], &answer["mended"]),
            (&json!(3), &json!(0))
        );
    }
    let told = repository.journal(&["rebuild"]);
    assert_eq!(told.code, 1, "{told:?}");
    for word in ["plan big", "blob", "--action delete", "from another copy"] {
        assert!(told.stderr.contains(word), "{word}: {told:?}");
    }
    // The way that it names.
    let words = ["append", "--type", "plan", "--id", "big"];
    let gone = [&words[..], &["--action", "delete"]].concat();
    repository.journal(&gone).ok();
    repository.journal(&["rebuild"]).ok();
    repository.journal(&["verify"]).ok();
}

#[test]
fn a_type_whose_schema_is_away_is_told_with_the_file_to_put_back() {
    let repository = begun();
    let schema = r#"{"type":"object","x-class":"memory"}"#;
    let path = repository.write(".heddle/schemas/incident.json", schema);
    let words = ["append", "--type", "incident", "--id", "i"];
    let more = ["--action", "update", "--payload", "{}"];
    repository.journal(&[&words[..], &more[..]].concat()).ok();
    std::fs::remove_file(&path).unwrap();
    let told = repository.journal(&["verify"]);
    assert_eq!(told.code, 1, "{told:?}");
    let told = told.stderr;
    assert!(told.contains(".heddle/schemas/TYPE.json"), "{told}");
    assert!(!told.contains("journal append"), "{told}");
    std::fs::write(&path, schema).unwrap();
    repository.journal(&["verify"]).ok();
}

#[test]
fn the_advice_for_erased_content_that_came_back_erases_it_again() {
    let repository = begun();
    repository.append("s", &json!({"title": "CANARY-7f3a9c-4711"}));
    let with = std::fs::read(repository.segment()).unwrap();
    let redact = ["doctor", "redact", "--item", "plan/s", "--reason", "asked"];
    repository.run(&redact).ok();
    // The bytes of an old copy in the place of the erased ones; the note behind them stays.
    let mut now = std::fs::read(repository.segment()).unwrap();
    let end = with.iter().rposition(|b| *b != b'\n').unwrap() + 1;
    now[..end].copy_from_slice(&with[..end]);
    std::fs::write(repository.segment(), now).unwrap();
    let done = followed("erased content", &repository);
    assert!(done[0].starts_with("doctor redact --seq 9"), "{done:?}");
    let text = std::fs::read_to_string(repository.segment()).unwrap();
    assert!(!text.contains("CANARY"));
}

/// No command of this build mends what a newer one wrote, and none is named.
#[test]
fn records_of_a_newer_heddle_are_told_with_the_way_on_and_with_no_command_that_changes_nothing() {
    let repository = begun();
    let text = std::fs::read_to_string(repository.segment()).unwrap();
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
    std::fs::write(repository.segment(), text.replace(line, newer)).unwrap();
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
