//! What lies in the place of a home's database and is none, or is another one, or has a header that cannot be right: `up`,
//! `status` and `doctor` say the same of it, touch nothing, and name a step that helps.

use crate::support;

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use support::{Home, wait_until};

/// A home that was stopped in order, with a message and work in its files, and a backup of it.
fn stopped() -> (Home, String) {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"to": "@tester", "message": "hello", "client_message_id": "m"});
    daemon.http.post("/v1/send", &body).expect(202);
    let work = json!({"queue": "jobs", "message": "work", "client_message_id": "w"});
    daemon.http.post("/v1/queue/push", &work).expect(202);
    wait_until("the messages", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 2 && status["inbox"]["items"] == 1
    });
    daemon.stop();
    let backup = home.path().parent().unwrap().join("backup");
    let backup = backup.to_str().unwrap().to_owned();
    home.cli(&["doctor", "--backup", &backup]).ok();
    (home, backup)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn finding(home: &Home, check: &str) -> Value {
    let doctor = home.cli(&["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let view = doctor.json();
    let findings = view["findings"].as_array().unwrap().clone();
    let found = findings.into_iter().find(|one| one["check"] == check);
    found.unwrap_or_default()
}

/// All three verbs refuse it with these words, and the doctor names these steps, as `up` does.
#[track_caller]
fn refused(home: &Home, file: &str, words: &str, steps: &[&str]) {
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["next"], "heddle doctor", "{status}");
    assert!(text(&status["degraded"][0]).contains(words), "{status}");
    let check = finding(home, file);
    assert_eq!(check["ok"], false, "{check}");
    assert!(text(&check["says"]).contains(words), "{check}");
    for step in steps {
        assert!(
            text(&check["next"]).contains(step),
            "no {step:?} in {check}"
        );
    }
    let up = home.try_up().err().expect("it must not start");
    assert_eq!(up.code, 1, "{up:?}");
    assert!(up.stderr.contains(words), "{up:?}");
    let is_helped = steps.iter().all(|step| up.stderr.contains(step));
    assert!(is_helped || up.stderr.contains("heddle doctor"), "{up:?}");
    assert!(!up.stderr.contains("full disk"), "{up:?}");
}

/// It goes on with everything that it had.
#[track_caller]
fn works(home: &Home) {
    let daemon = home.up();
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["outbox"]["done"], 2, "{status}");
    assert_eq!(status["inbox"]["items"], 1, "{status}");
    let take = json!({"queue": "jobs"});
    wait_until("the work", || {
        let taken = daemon.http.post("/v1/queue/take", &take).expect(200);
        taken["items"][0]["body"] == "work"
    });
    daemon.stop();
}

fn change(path: &Path, at: usize, to: impl Fn(u8) -> u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] = to(bytes[at]);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn lf_39_a_link_in_the_place_of_a_database_is_called_one_and_the_step_that_is_named_helps() {
    for file in ["data.db", "broker.db"] {
        let (home, _) = stopped();
        let (path, real) = (home.path().join(file), home.path().join("real"));
        std::fs::rename(&path, &real).unwrap();
        symlink(&real, &path).unwrap();
        let step = format!("rm {0} && mv {1} {0}", path.display(), real.display());
        refused(&home, file, "it is a symbolic link to", &[&step]);
        let repair = home.cli(&["doctor", "--repair"]);
        assert_eq!(repair.code, 1, "{repair:?}");
        assert!(path.is_symlink() && real.is_file());
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&real, &path).unwrap();
        works(&home);
    }
}

#[test]
fn lf_39_a_link_to_nothing_is_no_missing_file_and_a_backup_takes_its_place() {
    for (file, only) in [("data.db", None), ("broker.db", Some("broker"))] {
        let (home, backup) = stopped();
        let path = home.path().join(file);
        std::fs::remove_file(&path).unwrap();
        symlink("nowhere.db", &path).unwrap();
        refused(
            &home,
            file,
            "where nothing is",
            &["heddle daemon restore FILE"],
        );
        std::fs::remove_file(&path).unwrap();
        let mut restore = vec!["daemon", "restore", backup.as_str()];
        restore.extend(only.iter().flat_map(|only| ["--only", only]));
        home.cli(&restore).ok();
        works(&home);
    }
}

#[test]
fn lf_39_a_folder_in_the_place_of_a_database_is_called_one_and_a_backup_takes_its_place() {
    for (file, only) in [("data.db", None), ("broker.db", Some("broker"))] {
        let (home, backup) = stopped();
        let path = home.path().join(file);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let step = format!("mv {0} {0}.moved", path.display());
        refused(
            &home,
            file,
            "it is a folder",
            &[&step, "heddle daemon restore FILE"],
        );
        std::fs::rename(&path, home.path().join("moved")).unwrap();
        let mut restore = vec!["daemon", "restore", backup.as_str()];
        restore.extend(only.iter().flat_map(|only| ["--only", only]));
        home.cli(&restore).ok();
        works(&home);
    }
}

#[test]
fn lf_39_a_database_under_anothers_name_is_told_by_what_it_is_and_nothing_is_written_to_it() {
    let cases = [
        ("data.db", "broker.db", "the history of a broker", None),
        (
            "broker.db",
            "data.db",
            "the store of a home",
            Some("broker"),
        ),
    ];
    for (file, copied, words, only) in cases {
        let (home, backup) = stopped();
        let path = home.path().join(file);
        std::fs::copy(home.path().join(copied), &path).unwrap();
        let before = std::fs::read(&path).unwrap();
        refused(&home, file, words, &["heddle daemon restore FILE"]);
        let repair = home.cli(&["doctor", "--repair"]);
        assert_eq!(repair.code, 1, "{repair:?}");
        assert!(repair.stderr.contains(words), "{repair:?}");
        let compact = home.cli(&["doctor", "--compact"]);
        assert_eq!(compact.code, 1, "{compact:?}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{file} was changed");
        std::fs::rename(&path, home.path().join("moved")).unwrap();
        let mut restore = vec!["daemon", "restore", backup.as_str()];
        restore.extend(only.iter().flat_map(|only| ["--only", only]));
        home.cli(&restore).ok();
        works(&home);
    }
}

#[test]
fn lf_38_a_schema_number_that_a_bit_made_negative_is_a_damaged_header_and_is_mended() {
    for file in ["data.db", "broker.db"] {
        let (home, _) = stopped();
        let path = home.path().join(file);
        change(&path, 60, |byte| byte ^ 0x80);
        let before = std::fs::read(&path).unwrap();
        let steps = ["heddle doctor --repair"];
        refused(&home, file, "its header says schema -", &steps);
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let repaired = home.cli(&["doctor", "--repair", "--json"]).ok().json();
        assert_eq!(repaired["lost"], false, "{repaired}");
        let kept = match file {
            "data.db" => text(&repaired["damaged"]),
            _ => text(&repaired["broker_damaged"]),
        };
        assert_eq!(std::fs::read(kept).unwrap(), before, "{repaired}");
        home.cli(&["doctor"]).ok();
        works(&home);
    }
}

#[test]
fn lf_38_a_wrong_count_of_free_pages_is_no_damaged_inbox_and_costs_no_message() {
    let (home, _) = stopped();
    let path = home.path().join("data.db");
    change(&path, 39, |byte| byte + 7);
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["next"], "heddle up", "{status}");
    let says = text(&status["degraded"][0]);
    assert!(says.contains("every message in it is whole"), "{says}");
    assert!(!says.contains("inbox"), "{says}");
    let check = finding(&home, "data.db");
    let words = format!("{}{}", text(&check["says"]), text(&check["next"]));
    assert!(
        words.contains("`heddle up`") && !words.contains("inbox"),
        "{words}"
    );
    works(&home);
    // Nothing was lost, so nothing is told.
    home.cli(&["doctor"]).ok();
    let daemon = home.up();
    assert_eq!(
        daemon.http.get("/v1/status").expect(200)["degraded"],
        json!([])
    );
    daemon.stop();

    let path = home.path().join("broker.db");
    change(&path, 39, |byte| byte + 7);
    let steps = ["heddle doctor --repair"];
    refused(&home, "broker.db", "reelist", &steps);
    home.cli(&["doctor", "--repair"]).ok();
    works_again(&home);
}

/// Its work is under a lease by now.
fn works_again(home: &Home) {
    home.cli(&["doctor"]).ok();
    let daemon = home.up();
    let queues = daemon.http.get("/v1/queue/list").expect(200);
    assert_eq!(queues["queues"][0]["leased"], 1, "{queues}");
    daemon.stop();
}

#[test]
fn lf_35_compacting_a_file_of_a_newer_heddle_is_refused_as_every_verb_refuses_it() {
    let (home, _) = stopped();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    let compact = home.cli(&["doctor", "--compact"]);
    assert_eq!(compact.code, 6, "{compact:?}");
    assert!(compact.stderr.contains("newer Heddle"), "{compact:?}");
}
