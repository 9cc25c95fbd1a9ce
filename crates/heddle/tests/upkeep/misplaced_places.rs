//! A folder, a link or a pipe in any place of a home that a start uses: beside a database, or where the log, the blobs, the
//! settings, the token or the socket lie. `status`, `doctor` and `up` name the same thing and the same step, none of them
//! waits for it or touches it, and after the step everything that was there is there.

use crate::support;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::{Home, Ran, wait_until};

/// Whoever waits for a pipe waits for ever.
const PATIENCE: &str = "20";

fn stopped() -> Home {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"to": "@tester", "message": "hello", "client_message_id": "m"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("the message", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 1 && status["inbox"]["items"] == 1
    });
    daemon.stop();
    home
}

/// Runs a verb, for so long and no longer.
fn bounded(home: &Home, args: &[&str]) -> Ran {
    let verb = home.command(args);
    let mut command = Command::new("timeout");
    command
        .arg(PATIENCE)
        .arg(verb.get_program())
        .args(args)
        .env_clear();
    for (name, value) in verb.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let ran = Ran::from(command.output().unwrap());
    assert_ne!(ran.code, 124, "it did not end: {args:?} {ran:?}");
    ran
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// All of them say the same, and none has taken anything away.
#[track_caller]
fn told(home: &Home, place: &str, words: &str) {
    let path = home.path().join(place);
    let before = path.symlink_metadata().unwrap().file_type();
    let away = format!("mv {0} {0}.moved", path.display());
    let status = bounded(home, &["status", "--json"]).ok().json();
    let says = text(&status["degraded"][0]);
    assert_eq!(status["next"], "heddle doctor", "{place}: {status}");
    assert!(says.contains(words), "{place}: {says}");
    let doctor = bounded(home, &["doctor"]);
    assert_eq!(doctor.code, 1, "{place}: {doctor:?}");
    assert!(doctor.stdout.contains(words), "{place}: {doctor:?}");
    assert!(doctor.stdout.contains(&away), "{place}: {doctor:?}");
    for up in [&["up", "--json"][..], &["up", "--detach"]] {
        let up = bounded(home, up);
        assert_eq!(up.code, 1, "{place}: {up:?}");
        assert!(up.stderr.contains(words), "{place}: {up:?}");
        assert!(up.stderr.contains(&away), "{place}: {up:?}");
        assert!(!up.stderr.contains("full disk"), "{place}: {up:?}");
        // The whole database is never the thing to be put away.
        for database in ["data.db", "broker.db", "effects.db"] {
            let whole = format!("mv {}/{database} ", home.path().display());
            assert!(!up.stderr.contains(&whole), "{place}: {up:?}");
            assert!(!doctor.stdout.contains(&whole), "{place}: {doctor:?}");
        }
    }
    let repair = bounded(home, &["doctor", "--repair"]);
    assert_eq!(repair.code, 1, "{place}: {repair:?}");
    let now = path.symlink_metadata().unwrap().file_type();
    assert_eq!(now, before, "{place} was touched");
}

/// After the step that was named.
#[track_caller]
fn works(home: &Home, place: &str) {
    let path = home.path().join(place);
    std::fs::rename(&path, home.path().join("moved")).unwrap();
    let status = bounded(home, &["status", "--json"]).ok().json();
    assert_eq!(status["next"], "heddle up", "{place}: {status}");
    let daemon = home.up();
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["outbox"]["done"], 1, "{place}: {status}");
    assert_eq!(status["inbox"]["items"], 1, "{place}: {status}");
    daemon.stop();
}

fn clear(path: &Path) {
    if path.is_dir() {
        std::fs::remove_dir_all(path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn lf_39_what_lies_beside_a_database_is_named_and_the_database_stays_where_it_is() {
    for database in ["data.db", "broker.db", "effects.db"] {
        for suffix in ["-wal", "-shm"] {
            let home = stopped();
            let place = format!("{database}{suffix}");
            let path = home.path().join(&place);
            clear(&path);
            std::fs::create_dir(&path).unwrap();
            told(&home, &place, &place);
            clear(&path);
            pipe(&path);
            told(&home, &place, &place);
            works(&home, &place);
        }
    }
}

#[test]
fn lf_39_a_pipe_in_any_place_of_a_home_is_named_and_nobody_waits_for_it() {
    for place in [
        "heddle.lock",
        "config.toml",
        "hooks.toml",
        "local_token",
        "http.port",
        "daemon.sock",
        "logs",
        "logs/daemon.jsonl",
        "blobs",
        "effects",
    ] {
        let home = stopped();
        let path = home.path().join(place);
        clear(&path);
        pipe(&path);
        told(&home, place, "it is a pipe");
        works(&home, place);
    }
}

#[test]
fn lf_39_a_pipe_that_no_start_needs_holds_nobody_up() {
    for place in [
        "broker.port",
        "restored.json",
        "effects.toml",
        "logs/metrics.jsonl",
    ] {
        let home = stopped();
        let path = home.path().join(place);
        clear(&path);
        pipe(&path);
        bounded(&home, &["status"]).ok();
        bounded(&home, &["doctor"]);
        bounded(&home, &["logs"]).ok();
        bounded(&home, &["up", "--detach"]);
        bounded(&home, &["status"]).ok();
        bounded(&home, &["down"]);
    }
}

#[test]
fn lf_39_a_pipe_in_the_place_of_a_database_holds_nobody_up() {
    for place in ["data.db", "broker.db", "effects.db"] {
        let home = stopped();
        let path = home.path().join(place);
        clear(&path);
        pipe(&path);
        let status = bounded(&home, &["status", "--json"]).ok().json();
        assert!(
            text(&status["degraded"][0]).contains("no regular file"),
            "{status}"
        );
        for verb in [&["doctor"][..], &["up"], &["doctor", "--repair"]] {
            let ran = bounded(&home, verb);
            assert_eq!(ran.code, 1, "{place}: {verb:?} {ran:?}");
        }
        bounded(&home, &["doctor", "--compact"]);
        bounded(&home, &["doctor", "--rollback-migration", "3"]);
        let backup = home.path().parent().unwrap().join("backup");
        bounded(&home, &["doctor", "--backup", backup.to_str().unwrap()]);
    }
}

#[test]
fn lf_39_a_folder_or_a_file_of_the_wrong_kind_is_named_by_all() {
    for place in ["config.toml", "local_token", "daemon.sock"] {
        let home = stopped();
        let path = home.path().join(place);
        clear(&path);
        std::fs::create_dir(&path).unwrap();
        told(&home, place, "it is a folder");
        works(&home, place);
    }
    for place in ["blobs", "logs", "keys"] {
        let home = stopped();
        let path = home.path().join(place);
        let kept = home.path().join("kept");
        std::fs::rename(&path, &kept).unwrap();
        std::fs::write(&path, "x").unwrap();
        told(&home, place, "it is a file");
        clear(&path);
        if place == "keys" {
            std::fs::rename(&kept, &path).unwrap();
            continue;
        }
        std::fs::write(&path, "x").unwrap();
        works(&home, place);
    }
}

#[test]
fn lf_39_a_link_to_the_blobs_is_named_and_its_folder_comes_into_its_place() {
    let home = stopped();
    let (path, real) = (home.path().join("blobs"), home.path().join("real"));
    std::fs::rename(&path, &real).unwrap();
    symlink(&real, &path).unwrap();
    let step = format!("rm {0} && mv {1} {0}", path.display(), real.display());
    let doctor = bounded(&home, &["doctor"]);
    assert!(doctor.stdout.contains(&step), "{doctor:?}");
    let up = bounded(&home, &["up"]);
    assert!(up.stderr.contains(&step), "{up:?}");
    std::fs::remove_file(&path).unwrap();
    std::fs::rename(&real, &path).unwrap();
    home.up().stop();
}
