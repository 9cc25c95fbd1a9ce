//! The `pre-send` hook over the real binary: it may say no, it fails closed, and it changes nothing.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use support::{Answer, Daemon, Home, wait_until};

const POLICY: &str = "[hook.pre-send]\nenabled = true\n";

struct Guarded {
    home: Home,
}

impl Guarded {
    /// `OUT` in the script is a file of its own.
    fn new(policy: &str, script: &str) -> Self {
        let guarded = Self { home: Home::new() };
        let hooks = guarded.home.path().join("hooks");
        std::fs::create_dir_all(&hooks).unwrap();
        let program = hooks.join("pre-send");
        let script = script.replace("OUT", guarded.out().to_str().unwrap());
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let policy_file = guarded.home.path().join("hooks.toml");
        std::fs::write(&policy_file, policy).unwrap();
        for (path, mode) in [(&program, 0o700), (&hooks, 0o700), (&policy_file, 0o600)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        guarded
    }

    fn out(&self) -> PathBuf {
        self.home.path().join("asked")
    }

    fn asked(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.out()).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn send(daemon: &Daemon, id: &str, message: &str) -> Answer {
    let body = json!({"to": "@tester", "message": message, "client_message_id": id});
    daemon.http.post("/v1/send", &body)
}

/// Refuses what names a secret, and keeps what it was asked.
const NO_SECRETS: &str = "event=$(cat); printf '%s\\n' \"$event\" >> OUT
case \"$event\" in *secret*) echo 'no secrets, please'; exit 1;; esac";

#[test]
fn a_refused_message_is_not_accepted_and_its_id_stays_free() {
    let guarded = Guarded::new(POLICY, NO_SECRETS);
    let daemon = guarded.home.up();
    let problem = send(&daemon, "a", "my secret").expect(403);
    assert_eq!(problem["code"], "refused_by_hook");
    assert_eq!(problem["reason"], "no secrets, please");
    assert_eq!(problem["retry"], "same_id");
    daemon.http.get("/v1/outbox/a").expect(404);
    send(&daemon, "a", "nothing to hide").expect(202);
    wait_until("the message", || {
        let page = daemon.http.get("/v1/inbox?agent=tester").expect(200);
        page["items"].as_array().unwrap().len() == 1
    });
    let ran = guarded.home.cli(&["send", "@tester", "another secret"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("no secrets, please"), "{ran:?}");
}

#[test]
fn c47_a_known_id_is_answered_from_its_row_and_nobody_is_asked_again() {
    let guarded = Guarded::new(POLICY, NO_SECRETS);
    let daemon = guarded.home.up();
    send(&daemon, "a", "fine").expect(202);
    wait_until("done", || {
        daemon.http.get("/v1/outbox/a").expect(200)["status"] == "done"
    });
    assert_eq!(send(&daemon, "a", "fine").expect(200)["duplicate"], true);
    // Another request under the id is a conflict, also where the hook would have said no.
    let conflict = send(&daemon, "a", "a secret").expect(409);
    assert_eq!(conflict["conflict"], "outbox_done_fingerprint_mismatch");
    assert_eq!(guarded.asked().len(), 1);
}

#[test]
fn every_door_is_guarded_and_the_hook_sees_the_whole_request() {
    let guarded = Guarded::new(POLICY, NO_SECRETS);
    let daemon = guarded.home.up();
    let subscribe = json!({"topic": "ops"});
    daemon
        .http
        .post("/v1/topic/subscribe", &subscribe)
        .expect(200);
    let body = json!({"to": "@tester", "message": "m", "priority": "now", "meta": {"k": 1},
        "reply_to_id": "r", "mentions": ["@tester"], "client_message_id": "a", "agent": "planner"});
    daemon.http.post("/v1/send", &body).expect(202);
    let post = json!({"topic": "ops", "message": "a secret"});
    daemon.http.post("/v1/topic/post", &post).expect(403);
    let push = json!({"queue": "q", "message": "a secret"});
    daemon.http.post("/v1/queue/push", &push).expect(403);
    let asked = guarded.asked();
    assert_eq!(asked.len(), 3);
    for (field, value) in [
        ("event", json!("send")),
        ("hook", json!("pre-send")),
        ("mesh", json!("home")),
        ("agent", json!("planner")),
        ("client_message_id", json!("a")),
        ("to", json!("@tester")),
        ("body", json!("m")),
        ("priority", json!("now")),
        ("meta", json!({"k": 1})),
        ("mentions", json!(["@tester"])),
        ("reply_to_id", json!("r")),
    ] {
        assert_eq!(asked[0][field], value, "{field}");
    }
    assert_eq!(asked[1]["to"], "#ops");
    assert_eq!(asked[2]["to"], "queue:q");
    assert_eq!(asked[2]["client_message_id"], Value::Null);
}

#[test]
fn a_guard_that_gives_no_answer_lets_nothing_pass() {
    let hangs = format!("{POLICY}timeout_seconds = 1\n");
    let guarded = Guarded::new(&hangs, "exec sleep 100");
    let daemon = guarded.home.up();
    let problem = send(&daemon, "a", "m").expect(503);
    assert_eq!(problem["code"], "hook_unavailable");
    assert_eq!(problem["retry"], "same_id");
    daemon.http.get("/v1/outbox/a").expect(404);
    drop(daemon);
    // A file that others can write is not run, and not passed by either.
    let guarded = Guarded::new(POLICY, "exit 0");
    let program = guarded.home.path().join("hooks/pre-send");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o777)).unwrap();
    let daemon = guarded.home.up();
    assert_eq!(
        send(&daemon, "a", "m").expect(503)["code"],
        "hook_unavailable"
    );
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    send(&daemon, "a", "m").expect(202);
}

#[test]
fn its_token_sends_nothing_and_its_runs_are_audited() {
    let guarded = Guarded::new(POLICY, "echo \"$HEDDLE_HOOK_TOKEN\" > OUT; exec sleep 1");
    let daemon = guarded.home.up();
    let answer = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&daemon, "a", "m"));
        let mut token = String::new();
        wait_until("the token", || {
            token = std::fs::read_to_string(guarded.out()).unwrap_or_default();
            token.ends_with('\n')
        });
        let bearer = format!("Bearer {}", token.trim());
        let body = json!({"to": "@tester", "message": "x"}).to_string();
        let headers = [("authorization", bearer.as_str())];
        let own = daemon.http.post_with("/v1/send", &headers, &body);
        assert_eq!(own.expect(403)["code"], "forbidden_scope");
        sending.join().unwrap()
    });
    answer.expect(202);
    let audit = guarded.home.path().join("logs/hooks.jsonl");
    let line = std::fs::read_to_string(audit).unwrap();
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&line["hook"], &line["outcome"]),
        (&json!("pre-send"), &json!("ok"))
    );
}

#[test]
fn without_a_policy_or_in_ci_nobody_is_asked_and_the_example_of_the_document_works() {
    let guarded = Guarded::new("[hook.pre-send]\nenabled = false\n", "exit 1");
    let daemon = guarded.home.up();
    send(&daemon, "a", "m").expect(202);
    drop(daemon);
    let document = include_str!("../../../../docs/HOOKS.md");
    let example = document.split("```sh\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let guarded = Guarded::new(POLICY, example);
    let daemon = guarded.home.up();
    send(&daemon, "a", "hello").expect(202);
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----";
    let problem = send(&daemon, "b", key).expect(403);
    assert_eq!(problem["reason"], "this looks like a private key");
}
