//! The log over the real binary: lines, modes, limits, and no secret anywhere (XC-01).
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use support::http::tcp;
use support::{Daemon, Home, text_of, wait_until};

fn port(ready: &Value) -> u16 {
    let http = ready["http"].as_str().unwrap();
    http.rsplit(':').next().unwrap().parse().unwrap()
}

fn lines(home: &Home) -> Vec<Value> {
    let text = text_of(&home.path().join("logs/daemon.jsonl"));
    let parsed = text.lines().map(|line| serde_json::from_str(line).unwrap());
    parsed.collect()
}

fn stop(mut daemon: Daemon) -> String {
    daemon.terminate();
    assert_eq!(daemon.wait(Duration::from_secs(12)), Some(0));
    daemon.log()
}

/// A request that makes one place in the code say something.
fn provoke(daemon: &Daemon) {
    let answer = tcp(port(&daemon.ready), "GET", "/v1/health?token=x", &[], "");
    assert_eq!(answer.unwrap().status, 400);
}

#[test]
fn the_file_has_json_lines_and_the_terminal_has_words() {
    let home = Home::new();
    let daemon = home.up();
    provoke(&daemon);
    let words = stop(daemon);
    let lines = lines(&home);
    for line in &lines {
        for key in ["at", "level", "target", "message"] {
            assert!(line[key].is_string(), "{key} is missing in {line}");
        }
    }
    let of = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("no {message:?} in {lines:?}"))
    };
    assert_eq!(of("connected")["level"], "info");
    assert_eq!(of("connected")["fields"]["mesh"], "home");
    let warned = "a request carried a token in its URL; refused";
    assert_eq!(of(warned)["level"], "warn");
    assert!(words.contains("WARN  a request carried a token"), "{words}");
    assert!(!words.contains("connected"), "{words}");
    assert!(!words.contains("{\""), "{words}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.path().join("logs")), 0o700);
    assert_eq!(mode(&home.path().join("logs/daemon.jsonl")), 0o600);
}

#[test]
fn logs_shows_the_last_lines_by_level_also_when_nothing_runs() {
    let home = Home::new();
    let ran = home.cli(&["logs"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("there is no log") && ran.stderr.contains("next:"));
    let daemon = home.up();
    for _ in 0..3 {
        provoke(&daemon);
    }
    stop(daemon);
    let all = home.cli(&["logs"]).ok().stdout;
    assert!(
        all.contains("INFO  connected  broker=\"embedded\""),
        "{all}"
    );
    let warnings = home
        .cli(&["logs", "--level", "warn", "-n", "2", "--json"])
        .ok();
    let warnings: Vec<Value> = warnings
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(warnings.len(), 2);
    assert!(warnings.iter().all(|line| line["level"] == "warn"));
    assert_eq!(home.cli(&["logs", "-n", "0"]).ok().stdout, "");
    for bad in ["-1", "many", "99999999999999999999"] {
        let ran = home.cli(&["logs", "-n", bad]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("say how many lines"), "{ran:?}");
    }
}

#[test]
fn logs_follow_shows_what_is_written_and_finds_the_next_file() {
    let home = Home::new();
    let daemon = home.up();
    let follower = home
        .command(&["logs", "--follow", "--json", "--level", "warn"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut follower = Ended(follower);
    let mut follow = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    provoke(&daemon);
    let line: Value = serde_json::from_str(&follow.next().unwrap().unwrap()).unwrap();
    assert_eq!(line["level"], "warn");
    stop(daemon);
    let log = home.path().join("logs/daemon.jsonl");
    std::fs::rename(&log, log.with_extension("jsonl.1")).unwrap();
    let daemon = home.up();
    provoke(&daemon);
    let line: Value = serde_json::from_str(&follow.next().unwrap().unwrap()).unwrap();
    assert_eq!(line["level"], "warn");
}

/// A child that does not outlive its test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_chatty_place_is_cut_short_and_the_count_is_logged() {
    let home = Home::new();
    let daemon = home.up();
    for _ in 0..120 {
        provoke(&daemon);
    }
    let page = daemon.http.get("/v1/metrics").body;
    let suppressed = page
        .lines()
        .find_map(|line| line.strip_prefix("heddle_log_lines_suppressed_total "));
    let suppressed: u64 = suppressed.unwrap().parse().unwrap();
    assert!(suppressed > 0, "{page}");
    stop(daemon);
    let lines = lines(&home);
    let message = "a request carried a token in its URL; refused";
    let written = lines
        .iter()
        .filter(|line| line["message"] == message)
        .count() as u64;
    let told = lines
        .iter()
        .filter_map(|line| line["fields"]["suppressed"].as_u64());
    assert_eq!(written + told.sum::<u64>(), 120);
    assert!(written < 120);
}

#[test]
fn l_27_a_log_folder_that_goes_away_takes_nothing_along() {
    let home = Home::new();
    let daemon = home.up();
    std::fs::remove_dir_all(home.path().join("logs")).unwrap();
    provoke(&daemon);
    let body = json!({"to": "@tester", "message": "m"});
    daemon.http.post("/v1/send", &body).expect(202);
    stop(daemon);
}

#[test]
fn t_10_a_link_in_place_of_the_log_stops_the_start_in_words() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().join("logs")).unwrap();
    let target = home.path().join("precious");
    std::fs::write(&target, "as it was").unwrap();
    std::os::unix::fs::symlink(&target, home.path().join("logs/daemon.jsonl")).unwrap();
    let ran = home.cli(&["up"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr
            .contains("logs/daemon.jsonl: it is a symbolic link")
            && ran.stderr.contains("daemon.jsonl.moved"),
        "{ran:?}"
    );
    assert_eq!(text_of(&target), "as it was");
}

#[test]
fn a_level_that_is_none_is_refused() {
    let home = Home::new();
    let ran = Home::new()
        .command(&["up"])
        .env("HEDDLE_LOG", "loud")
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2));
    home.config("[log]\nlevel = \"loud\"\n");
    let ran = home.cli(&["up"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("config.toml"), "{ran:?}");
}

/// Everything that left the process in one text.
struct Seen(String);

impl Seen {
    fn add(&mut self, what: &str, text: &str) {
        self.0.push_str(&format!("--- {what}\n{text}\n"));
    }

    fn add_files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            self.add(&path.display().to_string(), &text_of(&path));
        }
    }
}

#[test]
fn xc_01_no_secret_in_log_metrics_errors_or_process_arguments() {
    const PASSWORD: &str = "Canary-Passw0rd-7714";
    let home = Home::new();
    // A broker that is not there, whose address holds a password.
    home.config(&format!(
        "[broker]\nurl = \"ws://ada:{PASSWORD}@127.0.0.1:1/\"\n[log]\nlevel = \"trace\"\n"
    ));
    let ready = home
        .command(&["up", "--detach", "--json"])
        .env("HEDDLE_LOG", "trace")
        .output();
    let ready: Value = serde_json::from_slice(&ready.unwrap().stdout).unwrap();
    let token = text_of(&home.path().join("local_token"));
    let mut seen = Seen(String::new());
    let bearer = format!("Bearer {token}");
    let close = format!("Bearer {token}x");
    for (target, headers) in [
        (format!("/v1/health?token={token}"), vec![]),
        (
            format!("/v1/{token}"),
            vec![("authorization", bearer.as_str())],
        ),
        (
            format!("/v1/outbox/{token}"),
            vec![("authorization", bearer.as_str())],
        ),
        (
            format!("/v1/inbox?since={token}"),
            vec![("authorization", bearer.as_str())],
        ),
        (
            "/v1/health".to_owned(),
            vec![("authorization", close.as_str())],
        ),
        ("/v1/health".to_owned(), vec![("cookie", token.as_str())]),
        (
            "/v1/status".to_owned(),
            vec![("authorization", bearer.as_str())],
        ),
        (
            "/v1/metrics".to_owned(),
            vec![("authorization", bearer.as_str())],
        ),
    ] {
        let answer = tcp(port(&ready), "GET", &target, &headers, "").unwrap();
        seen.add("answer", &format!("{}{}", answer.head, answer.body));
    }
    let socket = support::Http::new(&home.path());
    for target in [
        format!("/v1/outbox/{token}"),
        format!("/v1/inbox?agent={token}"),
    ] {
        seen.add("answer on the socket", &socket.get(&target).body);
    }
    let pid = ready["pid"].as_u64().unwrap();
    seen.add(
        "arguments",
        &text_of(Path::new(&format!("/proc/{pid}/cmdline"))).replace('\0', " "),
    );
    seen.add("status", &home.cli(&["status", "--json"]).stdout);
    wait_until("a word about the broker", || {
        home.cli(&["logs"])
            .stdout
            .contains("no connection to the broker")
    });
    seen.add("logs", &home.cli(&["logs", "--json"]).ok().stdout);
    home.cli(&["down"]).ok();
    seen.add_files(&home.path().join("logs"));
    for secret in [token.as_str(), PASSWORD] {
        assert!(!seen.0.contains(secret), "{secret} in\n{}", seen.0);
    }
    // The canary could have been seen: what stands beside it was.
    assert!(seen.0.contains("no connection to the broker"), "{}", seen.0);
    assert!(seen.0.contains("[redacted]@127.0.0.1:1"), "{}", seen.0);
}
