//! The unit and the compose file that we ship: what they start is what the binary knows, and it runs.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use support::servers::{Postgres, Redis};
use support::{Home, text_of};

fn shipped(name: &str) -> String {
    text_of(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../ops")
            .join(name),
    )
}

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    folder.join(name).to_str().unwrap().to_owned()
}

/// The arguments of the unit, as systemd splits them: none of them is quoted.
fn of_the_unit() -> Vec<String> {
    let unit = shipped("heddle-broker.service");
    let lines: Vec<&str> = unit
        .lines()
        .filter_map(|l| l.strip_prefix("ExecStart="))
        .collect();
    let [line] = lines.as_slice() else {
        panic!("one ExecStart");
    };
    assert!(!line.contains(['"', '\'', '%', '$', '\\']), "{line}");
    line.split_whitespace().map(str::to_owned).collect()
}

/// The commands of the compose file that start us. A list in one line is JSON.
fn of_the_compose_file() -> Vec<Vec<String>> {
    let text = shipped("compose.yaml");
    let lists = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("command: "));
    let lists = lists.map(|list| serde_json::from_str::<Vec<String>>(list).expect(list));
    lists.filter(|words| words[0] == "heddle").collect()
}

/// A broker as a file says it, but in places of this test: replaced are a path or an address by another one, never an
/// option.
fn starts(words: &[String], places: &[(&str, &str)], home: &Path) {
    let (database, limiter) = (Postgres::start(), Redis::start());
    let house = Home::new();
    let mut args: Vec<String> = Vec::new();
    for word in &words[1..] {
        let place = places.iter().find(|(from, _)| word == from);
        assert!(
            place.is_some() || !word.contains(['/', ':']),
            "{word} has no place here"
        );
        args.push(place.map_or(word.as_str(), |(_, to)| to).to_owned());
    }
    args.push("--json".to_owned());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut child = house
        .command(&args)
        .env("HEDDLE_HOME", home)
        .env(
            "HEDDLE_BROKER_DATABASE",
            database.url() + "?sslmode=disable",
        )
        .env("HEDDLE_BROKER_LIMITER", limiter.url())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_default();
    assert!(ready.get("listen").is_some(), "{words:?}: {line}");
    // It is the database of the environment that it uses.
    let tables =
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'mesh' AND tablename = 'delivery_queue'";
    assert_eq!(database.sql(tables), ["1"]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "SIGTERM drains");
}

fn folder(of: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = of.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

#[test]
fn what_the_unit_starts_runs_with_its_environment_and_drains_on_sigterm() {
    let scratch = tempfile::tempdir().unwrap();
    let (home, _) = folder(&scratch, "heddle");
    let (_, data) = folder(&scratch, "heddle/broker");
    let (certificate, key) = (fixture("broker.pem"), fixture("broker.key"));
    let places = [
        ("0.0.0.0:7433", "127.0.0.1:0"),
        ("/var/lib/heddle/broker", data.as_str()),
        ("/etc/heddle/tls/cert.pem", certificate.as_str()),
        ("/etc/heddle/tls/key.pem", key.as_str()),
    ];
    starts(&of_the_unit(), &places, &home);
    let unit = shipped("heddle-broker.service");
    // A database that comes up later than the broker: systemd gives up after five quick ends unless it is told not to.
    assert!(unit.contains("\nStartLimitIntervalSec=0\n") && unit.contains("\nRestart=always\n"));
    for named in [
        "HEDDLE_BROKER_DATABASE",
        "HEDDLE_BROKER_LIMITER",
        "HEDDLE_HOME",
    ] {
        assert!(unit.contains(named), "{named}");
    }
}

#[test]
fn what_the_compose_file_starts_runs_with_its_environment() {
    let commands = of_the_compose_file();
    assert!(!commands.is_empty());
    for words in commands {
        let scratch = tempfile::tempdir().unwrap();
        let (home, _) = folder(&scratch, "data/home");
        let (_, data) = folder(&scratch, "data");
        let (_, token) = folder(&scratch, "token/broker_token");
        let (_, admin) = folder(&scratch, "token/admin_token");
        std::fs::create_dir(scratch.path().join("token")).unwrap();
        let places = [
            ("0.0.0.0:7433", "127.0.0.1:0"),
            ("/data", data.as_str()),
            ("/token/broker_token", token.as_str()),
            ("/token/admin_token", admin.as_str()),
        ];
        starts(&words, &places, &home);
    }
}

#[test]
fn every_option_and_variable_that_the_files_name_exists() {
    let house = Home::new();
    let help = house.cli(&["broker", "serve", "--help"]).ok().stdout;
    let mut all = of_the_compose_file();
    all.push(of_the_unit());
    for words in all {
        assert_eq!(&words[1..3], ["broker", "serve"]);
        for option in words.iter().filter(|word| word.starts_with("--")) {
            let is_known = help.split_whitespace().any(|word| word == option);
            assert!(is_known, "{option}: {help}");
        }
    }
    let text = shipped("compose.yaml") + &shipped("heddle-broker.service");
    let names = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    for name in names.filter(|name| name.starts_with("HEDDLE_")) {
        assert!(name == "HEDDLE_HOME" || help.contains(name), "{name}");
    }
}
