//! What may be tried again: commands that never started, calls repeated under their id, compensations whose
//! runner died, and pages that are asked whether all is well.

use crate::support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use support::effect_proxy::Moment::{After, Before};
use support::effect_proxy::{kill_at, said};
use support::{Daemon, Home, Ran};

fn run<'a>(key: &'a str, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec![
        "effect", "run", "--json", "--key", key, "--op", "deploy", "--target", "prod",
    ];
    args.extend(options);
    args.push("--");
    args.extend(command);
    args
}

fn status(home: &Home, key: &str) -> Ran {
    home.cli(&["effect", "status", key, "--json"])
}

#[test]
fn a_mistyped_command_does_not_use_up_its_key() {
    let home = Home::new();
    let _daemon = home.up();
    let plain = home.path().with_file_name("plain");
    std::fs::write(&plain, "not a program").unwrap();
    let folder = home.path();
    for word in [
        "heddle-no-such-command",
        "/no/such/file",
        plain.to_str().unwrap(),
        folder.to_str().unwrap(),
    ] {
        let refused = home.cli(&run("k", &[], &[word]));
        assert_eq!(
            (refused.code, said(&refused).as_str()),
            (2, "not_started"),
            "{word}"
        );
        assert_eq!(status(&home, "k").code, 4, "nothing is registered");
    }
    let words = home.cli(&[
        "effect",
        "run",
        "--key",
        "k",
        "--op",
        "deploy",
        "--target",
        "prod",
        "--",
        "/no/such/file",
    ]);
    assert!(
        words.stderr.contains("nothing ran") && words.stderr.contains("Correct the command"),
        "{words:?}"
    );
    let done = home.cli(&run("k", &[], &["/bin/echo", "done"])).ok();
    assert_eq!(done.json()["stdout"], "done\n");
    // Whoever comes later gets the result, also where the command is not there.
    let later = home.cli(&run("k", &[], &["/no/such/file"])).ok();
    assert_eq!(
        (later.json()["duplicate"].as_bool(), said(&later).as_str()),
        (Some(true), "closed")
    );
}

#[test]
fn what_cannot_be_executed_after_all_gives_its_run_back() {
    let home = Home::new();
    let daemon = home.up();
    // Begins like a program; the kernel alone finds out that it is none.
    let script = home.path().with_file_name("script");
    std::fs::write(&script, b"\x7fELF\x09\x09\x09\x09").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let failed = home.cli(&run("k", &[], &[script]));
    assert_eq!(
        (failed.code, said(&failed).as_str()),
        (1, "not_started"),
        "{failed:?}"
    );
    let view = status(&home, "k").ok().json();
    assert_eq!(
        (view["status"].as_str(), view["state"].as_str()),
        (Some("registered"), Some("S2"))
    );
    assert!(view["not_started"].as_str().unwrap().contains(script));
    let steps: Vec<&str> = view["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["step"].as_str().unwrap())
        .collect();
    assert_eq!(steps, ["started", "not_started"]);
    // A mistyped one again: the registration stands, and so does the approval.
    assert_eq!(home.cli(&run("k", &[], &["/no/such/file"])).code, 2);
    // It is still whose it was.
    let better = run("k", &[], &["/bin/echo", "done"]);
    let stranger = run("k", &["--wait", "0s"], &["/bin/echo", "done"]);
    assert_eq!(home.cli_as("worker", &stranger).code, 6);
    let done = home.cli(&better).ok();
    assert_eq!(
        (said(&done).as_str(), done.json()["stdout"].as_str()),
        ("closed", Some("done\n"))
    );
    let metrics = daemon.http.get("/v1/metrics");
    let text = metrics.body;
    for line in [
        "heddle_effect_runs_total{outcome=\"not_started\"} 1",
        "heddle_effect_runs_total{outcome=\"started\"} 2",
        "heddle_effect_registrations_total{code=\"REGISTERED\"} 1",
        "heddle_effect_verdicts_total{outcome=\"passed\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

fn keyed(daemon: &Daemon, verb: &str, id: &str, body: &Value) -> support::Answer {
    let path = format!("/v1/effect/{verb}");
    let headers = [("idempotency-key", id)];
    daemon.http.post_with(&path, &headers, &body.to_string())
}

#[test]
fn every_call_that_changes_something_takes_an_idempotency_key() {
    let home = Home::new();
    let daemon = home.up();
    let asks =
        |key: &str| json!({"key": key, "op": "deploy", "target": "prod", "agent": "planner"});
    let first = keyed(&daemon, "request", "r1", &asks("k")).expect(200);
    assert_eq!(first["duplicate"], false);
    let again = keyed(&daemon, "request", "r1", &asks("k")).expect(200);
    assert_eq!(
        (&again["duplicate"], &again["request_id"]),
        (&json!(true), &first["request_id"])
    );
    let other = keyed(&daemon, "request", "r1", &asks("other")).expect(409);
    assert_eq!(other["code"], "idempotency_key_reused");
    // Another verb under the id is another request, and so is one of the same verb with other words.
    let other = keyed(&daemon, "register", "r1", &asks("k")).expect(409);
    assert_eq!(other["code"], "idempotency_key_reused");
    let approve = json!({"request_id": first["request_id"]});
    let granted = keyed(&daemon, "approve", "a1", &approve).expect(200);
    assert!(granted["nonce"].is_string());
    let twice = keyed(&daemon, "approve", "a1", &approve).expect(200);
    assert_eq!(
        (&twice["nonce"], &twice["duplicate"]),
        (&Value::Null, &json!(true))
    );
    assert_eq!(twice["expires_at"], granted["expires_at"]);
    let mut register = asks("k");
    register["nonce"] = granted["nonce"].clone();
    let registered = keyed(&daemon, "register", "g1", &register).expect(200);
    assert_eq!(registered["duplicate"], false);
    let again = keyed(&daemon, "register", "g1", &register).expect(200);
    assert_eq!(
        (&again["duplicate"], &again["registration"]),
        (&json!(true), &registered["registration"])
    );
    // The rest of its life, each step twice under one id.
    let steps = [
        (
            "start",
            json!({"key": "k", "attempt_id": "a", "agent": "planner"}),
        ),
        (
            "finish",
            json!({"key": "k", "attempt_id": "a", "exit_code": 1, "agent": "planner"}),
        ),
        (
            "verify",
            json!({"key": "k", "passed": false, "agent": "planner"}),
        ),
        ("compensate", json!({"key": "k"})),
    ];
    for (verb, body) in &steps {
        let (first, second) = (
            keyed(&daemon, verb, verb, body),
            keyed(&daemon, verb, verb, body),
        );
        assert_eq!(first.expect(200)["duplicate"], false, "{verb}");
        assert_eq!(second.expect(200)["duplicate"], true, "{verb}");
    }
    let view = status(&home, "k").ok().json();
    assert_eq!(view["steps"].as_array().unwrap().len(), 4);
    let long = keyed(&daemon, "request", &"x".repeat(3000), &asks("z"));
    assert!((400..500).contains(&long.status));
}

/// To a failed verification.
fn failed(home: &Home) {
    let ran = home.cli(&run("k", &["--verify", "false"], &["/bin/true"]));
    assert_eq!(said(&ran), "verify_failed");
}

#[test]
fn a_compensation_whose_runner_died_needs_a_persons_word() {
    let home = Home::new();
    let _daemon = home.up();
    failed(&home);
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    let make_up = [
        "effect",
        "compensate",
        "k",
        "--json",
        "--",
        "/bin/sh",
        "-c",
        &script,
    ];
    let lines = || std::fs::read_to_string(&side).map_or(0, |text| text.lines().count());
    assert_eq!(
        home.cli(&["effect", "compensate", "k", "--json", "--", "/no/such"])
            .code,
        2
    );
    kill_at(&home, After, "/v1/effect/compensate", &make_up);
    assert_eq!(lines(), 0);
    let view = status(&home, "k").ok();
    assert_eq!(said(&view), "compensation_unknown");
    let second = home.cli(&make_up);
    assert_eq!((second.code, lines()), (3, 0), "{second:?}");
    let failed = home.cli(&["effect", "compensate", "k", "--resolve=failed"]);
    assert_eq!(
        failed.code, 2,
        "then it is simply not made up for: {failed:?}"
    );
    let by_agent = home.cli_as(
        "planner",
        &[
            "effect",
            "compensate",
            "k",
            "--resolve",
            "--json",
            "--",
            "true",
        ],
    );
    assert_eq!(by_agent.code, 6);
    let mut again = make_up.to_vec();
    again.insert(3, "--resolve=again");
    let done = home.cli(&again).ok();
    assert_eq!((said(&done).as_str(), lines()), ("compensated", 1));
    assert_eq!(home.cli(&make_up).ok().json()["duplicate"], true);
    assert_eq!(lines(), 1);
}

#[test]
fn the_end_of_a_compensation_is_known_though_its_runner_died() {
    for (code, stands) in [(0, "compensated"), (7, "compensation_failed")] {
        let home = Home::new();
        let _daemon = home.up();
        failed(&home);
        let script = format!("echo undone; exit {code}");
        let mut make_up = vec!["effect", "compensate", "k", "--json", "--"];
        make_up.extend(["/bin/sh", "-c", &script]);
        kill_at(&home, Before, "/v1/effect/compensated", &make_up);
        let view = status(&home, "k").ok();
        assert_eq!(said(&view), stands);
        let made_up = &view.json()["compensation"];
        assert_eq!(
            (made_up["exit_code"].as_i64(), made_up["stdout"].as_str()),
            (Some(code), Some("undone\n"))
        );
    }
}

#[test]
fn what_made_up_for_an_effect_is_shown_to_a_person() {
    let home = Home::new();
    let _daemon = home.up();
    failed(&home);
    let made_up = home.cli(&["effect", "compensate", "k", "--", "/bin/echo", "undone"]);
    assert!(made_up.ok().stdout.contains("printed:\nundone"));
}

#[test]
fn a_compensation_that_is_said_to_have_happened_is_not_run_again() {
    let home = Home::new();
    let _daemon = home.up();
    failed(&home);
    let make_up = ["effect", "compensate", "k", "--json", "--", "/bin/true"];
    kill_at(&home, After, "/v1/effect/compensate", &make_up);
    assert_eq!(said(&status(&home, "k").ok()), "compensation_unknown");
    let said_done = home
        .cli(&["effect", "compensate", "k", "--resolve=done", "--json"])
        .ok();
    assert_eq!(said(&said_done), "compensated");
    assert_eq!(home.cli(&make_up).ok().json()["duplicate"], true);
}

/// A page that answers each question with the next of these.
fn page(answers: Vec<&'static str>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let _ = write!(&stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
        }
    });
    url
}

#[test]
fn a_url_verifies_beside_or_instead_of_a_command() {
    let home = Home::new();
    let _daemon = home.up();
    let url = page(vec!["503 Not Yet", "200 OK"]);
    let fine = home
        .cli(&run("a", &["--verify-url", &url], &["/bin/true"]))
        .ok();
    assert!(
        fine.json()["verify_detail"]
            .as_str()
            .unwrap()
            .contains("answered 200")
    );
    let url = page(vec!["500 Down"]);
    let down = [
        "--verify-url",
        &url,
        "--verify-timeout",
        "0s",
        "--verify",
        "true",
    ];
    let bad = home.cli(&run("b", &down, &["/bin/true"]));
    assert_eq!(
        (bad.code, said(&bad).as_str()),
        (1, "verify_failed"),
        "both must agree"
    );
    for wrong in [
        "http://example.org/",
        "ftp://127.0.0.1/",
        "https://me:secret@127.0.0.1/",
    ] {
        let refused = home.cli(&run("c", &["--verify-url", wrong], &["/bin/true"]));
        assert_eq!(refused.code, 2, "{wrong}");
    }
    assert_eq!(status(&home, "c").code, 4, "nothing was registered");
    home.cli(&run("d", &["--verify-later"], &["/bin/true"]))
        .ok();
    let url = page(vec!["204 Fine"]);
    let verified = home
        .cli(&["effect", "verify", "d", "--url", &url, "--json"])
        .ok();
    assert_eq!(said(&verified), "closed");
}
