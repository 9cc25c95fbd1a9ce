//! `heddle effect run` killed at every point of its way: the side effect is there at most once, and the next
//! call tells the truth.

use crate::support;

use std::process::Stdio;

use serde_json::{Value, json};
use support::effect_proxy::Moment::{After, Before};
use support::effect_proxy::{kill_at, said};
use support::effect_side::Side;
use support::wait_until;

#[test]
fn killed_before_the_registration_it_is_as_if_it_had_never_been() {
    let side = Side::new();
    let _daemon = side.home.up();
    kill_at(&side.home, Before, "/v1/effect/register", &side.args(&[]));
    assert_eq!(side.lines(), 0);
    assert_eq!(side.home.cli(&["effect", "status", "k"]).code, 4);
    let second = side.run(&[]).ok();
    assert_eq!((said(&second).as_str(), side.lines()), ("closed", 1));
    assert_eq!(second.json()["duplicate"], false);
}

#[test]
fn killed_after_the_registration_the_next_one_runs_it_once() {
    let side = Side::new();
    let _daemon = side.home.up();
    kill_at(&side.home, After, "/v1/effect/register", &side.args(&[]));
    assert_eq!(side.lines(), 0);
    let second = side.run(&[]).ok();
    assert_eq!((said(&second).as_str(), side.lines()), ("closed", 1));
    assert_eq!(second.json()["duplicate"], false, "this call ran it");
    let third = side.run(&[]).ok();
    assert_eq!(third.json()["duplicate"], true);
    assert_eq!(third.json()["code"], "REPLAY_DUPLICATE");
    assert_eq!(
        (third.json()["stdout"].as_str(), side.lines()),
        (Some("deployed\n"), 1)
    );
}

#[test]
fn killed_after_it_took_the_run_nobody_runs_it_without_a_persons_word() {
    let side = Side::new();
    let _daemon = side.home.up();
    kill_at(&side.home, After, "/v1/effect/start", &side.args(&[]));
    let second = side.run(&[]);
    assert_eq!((second.code, said(&second).as_str()), (3, "unknown"));
    assert_eq!(side.lines(), 0);
    let agent = side.home.cli_as("planner", &side.args(&["--resolve"]));
    assert_eq!((agent.code, side.lines()), (6, 0), "{agent:?}");
    let resolved = side.run(&["--resolve"]).ok();
    assert_eq!((said(&resolved).as_str(), side.lines()), ("closed", 1));
}

#[test]
fn killed_during_the_command_it_is_running_and_then_unknown() {
    let mut side = Side::new();
    let _daemon = side.home.up();
    let go = side.lose_the_runner();
    // The command outlives its runner, and is not overtaken.
    let second = side.run(&["--wait", "0s"]);
    assert_eq!((second.code, said(&second).as_str()), (3, "running"));
    assert_eq!(side.run(&["--resolve"]).code, 3, "not while it runs");
    side.let_it_end(&go);
    let third = side.run(&[]);
    assert_eq!((third.code, said(&third).as_str()), (3, "unknown"));
    assert_eq!(side.lines(), 1);
    // Whoever looks is told the command; a verdict says nothing about how it ended, and is not one of a run that is on.
    let told = side.home.cli(&["effect", "status", "k"]).ok();
    assert!(
        told.stdout.contains("heddle effect run --key k"),
        "{told:?}"
    );
    assert!(told.stdout.contains("--resolve=done"), "{told:?}");
    assert!(!told.stdout.contains("--force"), "{told:?}");
    let verdict = side.home.cli(&["effect", "verify", "k", "--pass"]);
    assert_eq!(verdict.code, 3, "{verdict:?}");
    assert!(
        verdict.stderr.contains("nobody knows how it ended"),
        "{verdict:?}"
    );
    assert!(verdict.stderr.contains("--resolve=done"), "{verdict:?}");
    // A person's word about another effect is a slip: it is refused, and records nothing.
    for word in ["--resolve=again", "--resolve=done", "--resolve=failed"] {
        let mut slip = side.args(&[word]);
        slip[8] = "staging";
        let refused = side.home.cli(&slip);
        assert_eq!(refused.code, 3, "{refused:?}");
        assert_eq!(side.status(), "unknown", "{word}");
        assert_eq!((side.run(&[]).code, side.lines()), (3, 1));
    }
    let done = side.run(&["--resolve=done"]).ok();
    assert_eq!((said(&done).as_str(), side.lines()), ("closed", 1));
}

/// A process by its number, and by when it began: as nobody else can be called.
fn alive(pid: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let behind = stat.rsplit_once(')')?.1.trim().to_owned();
    let fields: Vec<&str> = behind.split(' ').collect();
    (!matches!(fields[0], "Z" | "X")).then(|| fields[19].to_owned())
}

/// Whatever kills a runner, and whenever: as long as its command lives nobody is told that it is unknown, and nobody is
/// let run it again. Commands that print after it, that give its lock away, and that become another program, many at once.
#[test]
fn a_command_that_lives_is_never_called_unknown() {
    let home = support::Home::new();
    let daemon = home.up();
    let close = "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd>&-\" 2>/dev/null; done";
    let file = |nth: usize, name: &str| home.path().with_file_name(format!("{name}{nth}"));
    let script = |nth: usize| {
        let note = format!(
            "echo $$ > {0}.new; mv {0}.new {0}",
            file(nth, "pid").display()
        );
        match nth % 4 {
            0 => format!("{note}; sleep 0.4"),
            1 => format!("{note}; {close}; sleep 0.4"),
            2 => format!("{note}; sleep 0.1; echo late; sleep 0.3"),
            _ => format!("{close}; {note}; exec /bin/sh -c 'exec sleep 0.4'"),
        }
    };
    let (mut lived, mut lost) = (0, 0);
    for nth in 0..24 {
        let (key, script) = (format!("k{nth}"), script(nth));
        let mut runner = home.command(&support::effect_pair::run(&key, &[], &script));
        let mut runner = runner.spawn().unwrap();
        let pid = || std::fs::read_to_string(file(nth, "pid")).ok();
        wait_until("the command", || pid().is_some());
        runner.kill().unwrap();
        let pid = pid().unwrap().trim().to_owned();
        wait_until("its end", || {
            let before = alive(&pid);
            let path = format!("/v1/effect/status?key={key}");
            let told = daemon.http.get(&path).expect(200);
            if before.is_some() && before == alive(&pid) {
                lived += 1;
                assert_eq!(told["status"], "running", "{script}: {told}");
                return false;
            }
            told["status"] == "unknown"
        });
        lost += 1;
        runner.wait().unwrap();
    }
    assert_eq!(lost, 24);
    assert!(lived > 100, "{lived}");
}

#[test]
fn a_word_over_http_names_the_effect_that_it_is_about() {
    let mut side = Side::new();
    let daemon = side.home.up();
    let go = side.lose_the_runner();
    side.let_it_end(&go);
    let word = |more: serde_json::Value| {
        let mut body = json!({"key": "k", "again": true});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        daemon.http.post("/v1/effect/resolve", &body)
    };
    for unnamed in [
        json!({}),
        json!({"op": "deploy"}),
        json!({"target": "prod"}),
    ] {
        let refused = word(unnamed).expect(400);
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("op and target"), "{refused}");
    }
    let hash = "0".repeat(64);
    for (slip, differs) in [
        (json!({"op": "publish", "target": "prod"}), "operation"),
        (json!({"op": "deploy", "target": "staging"}), "target"),
        (
            json!({"op": "deploy", "target": "prod", "artifact_hash": hash}),
            "artifact",
        ),
        (json!({"op": "deploy", "target": "prod", "run": "r"}), "run"),
    ] {
        let refused = word(slip).expect(409);
        assert_eq!(refused["code"], "REPLAY_BINDING_MISMATCH", "{refused}");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("its {differs} is")), "{refused}");
        assert_eq!(side.status(), "unknown", "{refused}");
    }
    let given = word(json!({"op": "deploy", "target": "prod"})).expect(200);
    assert_eq!((&given["status"], side.lines()), (&json!("registered"), 1));
}

#[test]
fn a_word_without_a_command_is_not_told_as_done_before() {
    let mut side = Side::new();
    let _daemon = side.home.up();
    let go = side.lose_the_runner();
    side.let_it_end(&go);
    let word = [
        "effect",
        "run",
        "--key",
        "k",
        "--op",
        "deploy",
        "--target",
        "prod",
        "--resolve=again",
    ];
    let told = side.home.cli(&word);
    assert!(!told.stderr.contains("done before"), "{told:?}");
    assert_eq!((side.status().as_str(), side.lines()), ("registered", 1));
}

#[test]
fn killed_after_the_command_its_end_is_known_and_it_is_not_run_again() {
    for (command, code, status) in [("true", 0, "closed"), ("exit 7", 7, "verify_failed")] {
        let mut side = Side::new();
        side.command = format!("{}; {command}", side.command);
        let _daemon = side.home.up();
        kill_at(&side.home, Before, "/v1/effect/finish", &side.args(&[]));
        assert_eq!(side.lines(), 1);
        let second = side.run(&[]);
        let answer = second.json();
        assert_eq!(said(&second), status, "{second:?}");
        assert_eq!(
            (answer["exit_code"].as_i64(), answer["stdout"].as_str()),
            (Some(code), Some("deployed\n"))
        );
        assert_eq!(answer["duplicate"], true);
        assert_eq!(side.lines(), 1);
    }
}

#[test]
fn killed_before_the_verdict_the_next_one_only_verifies() {
    let side = Side::new();
    let _daemon = side.home.up();
    for (moment, path) in [(Before, "/v1/effect/verify"), (After, "/v1/effect/verify")] {
        kill_at(&side.home, moment, path, &side.args(&["--verify", "true"]));
        assert_eq!(side.lines(), 1);
        if moment == Before {
            assert_eq!(side.status(), "finished");
        }
    }
    let second = side.run(&[]).ok();
    assert_eq!((said(&second).as_str(), side.lines()), ("closed", 1));
    assert_eq!(second.json()["stdout"], "deployed\n");
    assert_eq!(second.json()["duplicate"], true);
}

#[test]
fn who_only_verified_and_could_not_tell_has_run_nothing() {
    let side = Side::new();
    let daemon = side.home.up();
    let begun = side.home.path().with_file_name("begun");
    // The first verifier takes its time, the second one takes the daemon with it.
    let verify = format!(
        "if mkdir {}; then sleep 3; else kill -9 {}; sleep 0.2; fi",
        begun.display(),
        daemon.child.id()
    );
    let args = side.args(&["--verify", &verify]);
    let mut first = side.home.command(&args).spawn().unwrap();
    wait_until("the first verifier", || begun.exists());
    // It waits for the verdict of the first, who dies of giving it.
    let mut second = side.home.command(&args);
    let second = second.stdout(Stdio::piped()).stderr(Stdio::piped());
    let second = second.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    first.kill().unwrap();
    first.wait().unwrap();
    let second = second.wait_with_output().unwrap();
    assert!(!second.status.success(), "{second:?}");
    let answer: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(answer["verdict"], true, "it did verify: {answer}");
    assert_eq!(answer["duplicate"], true, "{answer}");
    assert_eq!(answer["stdout"], "deployed\n", "{answer}");
    assert_eq!(side.lines(), 1);
}

#[test]
fn the_daemon_killed_after_the_effect_remembers_it() {
    let side = Side::new();
    let daemon = side.home.up();
    side.run(&[]).ok();
    daemon.kill();
    let _daemon = side.home.up();
    let second = side.run(&[]).ok();
    assert_eq!(
        (second.json()["duplicate"].as_bool(), side.lines()),
        (Some(true), 1)
    );
}

#[test]
fn people_who_resolve_at_the_same_time_have_it_run_again_once() {
    let mut side = Side::new();
    let _daemon = side.home.up();
    let go = side.lose_the_runner();
    side.let_it_end(&go);
    let people: Vec<_> = (0..6)
        .map(|_| {
            let args = side.args(&["--resolve"]);
            side.home.command(&args).spawn().unwrap()
        })
        .collect();
    for mut person in people {
        person.wait().unwrap();
    }
    assert_eq!(side.lines(), 2, "the one that was killed, and one more");
}
