//! How a command ended is known as long as anybody knew it: its daemon gone, its broker gone, its runner gone, its
//! lock given away.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::json;
use support::effect_pair::{MESH, pair, run};
use support::effect_proxy::Moment::Before;
use support::effect_proxy::{kill_at, said};
use support::{Home, Ran, wait_until};

const AUTO: &str = "[[rule]]\noperation = \"*\"\napproval = \"auto\"\n";

/// A command that appends a line to a file, waits for another one, and ends with this code.
struct Held {
    side: PathBuf,
    go: PathBuf,
    script: String,
}

impl Held {
    fn new(home: &Home, exit_code: i32) -> Self {
        let file = |name: &str| home.path().with_file_name(name);
        let (side, go) = (file("side"), file("go"));
        let script = format!(
            "echo x >> {}; while [ ! -e {} ]; do sleep 0.02; done; echo out; echo err >&2; exit {exit_code}",
            side.display(),
            go.display()
        );
        Self { side, go, script }
    }

    fn begin(&self, home: &Home, args: &[&str]) -> Child {
        let mut command = home.command(args);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = piped.spawn().unwrap();
        wait_until("the side effect", || self.lines() == 1);
        child
    }

    fn lines(&self) -> usize {
        std::fs::read_to_string(&self.side).map_or(0, |text| text.lines().count())
    }

    fn end(&self, child: Child) -> Ran {
        std::fs::write(&self.go, "").unwrap();
        Ran::from(child.wait_with_output().unwrap())
    }
}

/// What stands of `k`: status, exit code, what it printed.
fn told(ran: &Ran) -> (String, Option<i64>, String) {
    let view = ran.json();
    let printed = view["stdout"].as_str().unwrap_or_default().to_owned();
    (said(ran), view["exit_code"].as_i64(), printed)
}

fn status(home: &Home) -> Ran {
    home.cli(&["effect", "status", "k", "--json"])
}

fn expected(status: &str, code: i64) -> (String, Option<i64>, String) {
    (status.to_owned(), Some(code), "out\n".to_owned())
}

#[test]
fn the_end_of_a_command_outlives_a_daemon_that_is_gone_and_nobodys_word_replaces_it() {
    let home = Home::new();
    let daemon = home.up();
    let held = Held::new(&home, 7);
    let args = run("k", &[], &held.script);
    let child = held.begin(&home, &args);
    daemon.kill();
    let ran = held.end(child);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(told(&ran), expected("not_told", 7));
    assert!(!ran.stderr.contains("--resolve"), "{ran:?}");
    let _daemon = home.up();
    // Nobody has looked at it since: it has ended all the same, and not well.
    let word = home.cli(&run("k", &["--resolve=done"], &held.script));
    assert_ne!(word.code, 0, "{word:?}");
    assert_eq!(told(&status(&home)), expected("finished", 7));
    let again = home.cli(&args);
    assert_eq!(again.code, 1, "{again:?}");
    assert_eq!(told(&again), expected("verify_failed", 7));
    assert_eq!(again.json()["duplicate"], true);
    assert_eq!(held.lines(), 1);
}

#[test]
fn a_daemon_that_comes_back_takes_the_end_by_itself() {
    let home = Home::new();
    let daemon = home.up();
    let held = Held::new(&home, 0);
    let args = run("k", &["--verify-later"], &held.script);
    let child = held.begin(&home, &args);
    daemon.kill();
    held.end(child);
    let daemon = home.up();
    wait_until("the end to be taken", || {
        let metrics = daemon.http.get("/v1/metrics").body;
        metrics.contains("heddle_effect_runs_total{outcome=\"finished\"} 1")
    });
    assert_eq!(told(&status(&home)), expected("finished", 0));
    assert_eq!(held.lines(), 1);
    let folder = std::fs::read_dir(home.path().join("effects")).unwrap();
    let left = folder.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        Path::new(&name)
            .extension()
            .is_some_and(|end| end != "lock")
    });
    assert_eq!(left.count(), 0, "what was told is not kept twice");
}

#[test]
fn a_person_says_how_it_ended_and_that_is_what_stands() {
    let home = Home::new();
    let _daemon = home.up();
    let held = Held::new(&home, 0);
    let mut child = held.begin(&home, &run("k", &[], &held.script));
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::write(&held.go, "").unwrap();
    wait_until("its end", || said(&status(&home)) == "unknown");
    let agent = run("k", &["--resolve=failed", "--exit-code", "9"], "true");
    assert_eq!(home.cli_as("planner", &agent).code, 6);
    let good = home.cli(&run("k", &["--resolve=failed", "--exit-code", "0"], "true"));
    assert_eq!(good.code, 2, "a failure has no good exit code: {good:?}");
    let word = home.cli(&agent);
    assert_eq!(word.code, 1, "{word:?}");
    let view = status(&home).json();
    assert_eq!(
        (view["status"].as_str(), view["exit_code"].as_i64()),
        (Some("verify_failed"), Some(9))
    );
    let words = home.cli(&["effect", "status", "k"]).stdout;
    assert!(words.contains("a person says that it failed"), "{words}");
    let again = home.cli(&run("k", &[], "true"));
    assert_eq!((again.code, said(&again).as_str()), (1, "verify_failed"));
    assert_eq!(held.lines(), 1);
}

#[test]
fn a_command_that_ran_while_its_broker_went_is_told_as_it_ended() {
    let mut pair = pair(AUTO);
    let held = Held::new(&pair.bob, 7);
    let args = [&["--mesh", MESH], run("k", &[], &held.script).as_slice()].concat();
    let child = held.begin(&pair.bob, &args);
    pair.up.0.take().unwrap().kill();
    wait_until("bob to notice", || {
        pair.bob(&["effect", "status", "k", "--json"]).code == 5
    });
    let ran = held.end(child);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(told(&ran), expected("waiting_for_broker", 7));
    assert_eq!(ran.json()["stderr"], "err\n");
    pair.up.0 = Some(pair.alice.up());
    let at_alice = || pair.alice.cli(&["effect", "status", "k", "--json"]);
    // The verdict was given where it ran, and is told with the end.
    wait_until("the end to be told", || {
        said(&at_alice()) == "verify_failed"
    });
    assert_eq!(told(&at_alice()), expected("verify_failed", 7));
    assert_eq!(held.lines(), 1);
}

#[test]
fn a_command_that_gave_its_lock_away_still_runs_and_is_not_run_twice() {
    let home = Home::new();
    let _daemon = home.up();
    let mut held = Held::new(&home, 0);
    // As everything does that makes a daemon of itself: whatever it has inherited is closed.
    let close = "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd>&-\" 2>/dev/null; done; ";
    held.script = format!("{close}{}", held.script);
    let mut child = held.begin(&home, &run("k", &[], &held.script));
    child.kill().unwrap();
    child.wait().unwrap();
    let second = home.cli(&run("k", &["--wait", "0s"], &held.script));
    assert_eq!((second.code, said(&second).as_str()), (3, "running"));
    let word = home.cli(&run("k", &["--resolve"], &held.script));
    assert_eq!(word.code, 3, "not while it runs: {word:?}");
    assert_eq!(held.lines(), 1);
    std::fs::write(&held.go, "").unwrap();
    wait_until("its end", || said(&status(&home)) == "unknown");
    home.cli(&run("k", &["--resolve=done"], "true")).ok();
    assert_eq!(held.lines(), 1);
}

#[test]
fn what_a_command_leaves_behind_holds_nobody_up() {
    let home = Home::new();
    let _daemon = home.up();
    let stop = home.path().with_file_name("stop");
    // A server that was deployed lives on, with everything that it inherited.
    // Until it is told to stop, or this test and its folder are gone.
    let script = format!(
        "(while [ -d {} ] && [ ! -e {} ]; do sleep 0.02; done) >/dev/null 2>&1 </dev/null & exit 3",
        home.path().display(),
        stop.display()
    );
    let ran = home.cli(&run("k", &[], &script));
    assert_eq!((ran.code, said(&ran).as_str()), (1, "verify_failed"));
    let made_up = home.cli(&["effect", "compensate", "k", "--json", "--", "true"]);
    std::fs::write(&stop, "").unwrap();
    assert_eq!(said(&made_up.ok()), "compensated");
}

/// The same where the runner was killed: what it left behind has the lock, and is neither the command nor its runner.
#[test]
fn what_a_command_leaves_behind_holds_nobody_up_though_its_runner_was_killed() {
    let home = Home::new();
    let _daemon = home.up();
    let file = |name: &str| home.path().with_file_name(name);
    let server = format!(
        "(while [ -d {} ] && [ ! -e {} ]; do sleep 0.02; done) >/dev/null 2>&1 </dev/null &",
        home.path().display(),
        file("stop").display()
    );
    // How it ended is known: it is told, verified and made up for.
    let script = format!("{server} exit 3");
    kill_at(&home, Before, "/v1/effect/finish", &run("k", &[], &script));
    let view = status(&home).json();
    assert_eq!(
        (&view["status"], &view["exit_code"]),
        (&json!("finished"), &json!(3))
    );
    let again = home.cli(&run("k", &["--wait", "5s"], &script));
    assert_eq!(
        (again.code, said(&again).as_str()),
        (1, "verify_failed"),
        "{again:?}"
    );
    let made_up = home.cli(&["effect", "compensate", "k", "--json", "--", "true"]);
    assert_eq!(said(&made_up.ok()), "compensated");
    // How it ended is not known: a person is told what holds it up, and has the last word.
    let (begun, go) = (file("begun"), file("go"));
    let script = format!(
        "{server} touch {}; while [ ! -e {} ]; do sleep 0.02; done",
        begun.display(),
        go.display()
    );
    let mut runner = home.command(&run("k2", &[], &script)).spawn().unwrap();
    wait_until("the command", || {
        begun.exists() && !noted(&home, "run").is_empty()
    });
    runner.kill().unwrap();
    runner.wait().unwrap();
    let word = |more: &[&str]| {
        let options = [&["--resolve=done", "--wait", "5s"], more].concat();
        home.cli(&run("k2", &options, &script))
    };
    let lives = word(&["--force"]);
    assert_eq!(
        lives.code, 3,
        "not while the command itself runs: {lives:?}"
    );
    assert!(lives.stderr.contains("still running"), "{lives:?}");
    std::fs::write(&go, "").unwrap();
    wait_until("the command to end", || {
        word(&[]).stderr.contains("has started still runs")
    });
    assert_eq!(
        said(&home.cli(&["effect", "status", "k2", "--json"])),
        "running"
    );
    assert!(word(&[]).stderr.contains("--force"));
    let done = word(&["--force"]).ok();
    assert_eq!(said(&done), "closed", "{done:?}");
    std::fs::write(file("stop"), "").unwrap();
}

/// The notes of this kind beside the locks of runs.
fn noted(home: &Home, kind: &str) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(home.path().join("effects")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|ending| ending == kind))
        .collect()
}

/// A runner that is killed between the start of its command and its note of it: nobody knows whether what has the lock is
/// the command. Nothing goes on by itself, and a person who has looked is not locked out for ever.
#[test]
fn a_runner_killed_before_it_noted_its_command_leaves_the_word_to_a_person() {
    let home = Home::new();
    let _daemon = home.up();
    let begun = home.path().with_file_name("begun");
    let stop = home.path().with_file_name("stop");
    let script = format!(
        "touch {}; while [ -d {} ] && [ ! -e {} ]; do sleep 0.02; done",
        begun.display(),
        home.path().display(),
        stop.display()
    );
    let mut runner = home.command(&run("k", &[], &script)).spawn().unwrap();
    wait_until("the command", || {
        begun.exists() && !noted(&home, "run").is_empty()
    });
    runner.kill().unwrap();
    runner.wait().unwrap();
    for note in noted(&home, "run") {
        std::fs::remove_file(note).unwrap();
    }
    assert_eq!(said(&status(&home)), "running");
    let word = |more: &[&str]| {
        let options = [&["--resolve=done", "--wait", "1s"], more].concat();
        home.cli(&run("k", &options, &script))
    };
    let asked = word(&[]);
    assert_eq!(asked.code, 3, "{asked:?}");
    for part in ["its runner was killed as it began", "--force"] {
        assert!(asked.stderr.contains(part), "{part}: {asked:?}");
    }
    assert_eq!(said(&status(&home)), "running");
    assert_eq!(said(&word(&["--force"]).ok()), "closed");
    std::fs::write(&stop, "").unwrap();
}

/// A verifier that ends this process the first time, and agrees.
fn deadly(home: &Home, pid: &serde_json::Value) -> String {
    let been = home.path().with_file_name("been");
    format!(
        "[ -e {0} ] || {{ touch {0}; kill -9 {pid}; }}",
        been.display()
    )
}

#[test]
fn a_verdict_that_could_not_be_told_hides_nothing_of_what_ran() {
    let home = Home::new();
    let daemon = home.up();
    let held = Held::new(&home, 0);
    std::fs::write(&held.go, "").unwrap();
    let verify = deadly(&home, &daemon.ready["pid"]);
    let args = run("k", &["--verify", &verify], &held.script);
    let ran = home.cli(&args);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(told(&ran), expected("finished", 0));
    for word in [
        "the command ran and ended with exit code 0",
        "not recorded yet",
        "heddle effect status k",
    ] {
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
    }
    drop(daemon);
    let _daemon = home.up();
    let again = home.cli(&args).ok();
    assert_eq!(told(&again), expected("closed", 0));
    assert_eq!(held.lines(), 1);
}

#[test]
fn a_verdict_that_waits_for_its_broker_hides_nothing_of_what_ran() {
    let mut pair = pair(AUTO);
    let held = Held::new(&pair.bob, 0);
    std::fs::write(&held.go, "").unwrap();
    let alice = pair.up.0.as_ref().unwrap();
    let verify = deadly(&pair.bob, &alice.ready["pid"]);
    let ran = pair.bob(&run("k", &["--verify", &verify], &held.script));
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(told(&ran), expected("waiting_for_broker", 0));
    assert!(ran.stderr.contains("exit code 0"), "{ran:?}");
    drop(pair.up.0.take());
    pair.up.0 = Some(pair.alice.up());
    let at_alice = || pair.alice.cli(&["effect", "status", "k", "--json"]);
    wait_until("the verdict to be told", || said(&at_alice()) == "closed");
    assert_eq!(held.lines(), 1);
}

#[test]
fn an_end_is_handed_in_for_who_ran_it_whoever_looks() {
    let home = Home::new();
    let daemon = home.up();
    std::fs::write(home.path().join("effects.toml"), AUTO).unwrap();
    let held = Held::new(&home, 7);
    let args = run("k", &["--agent", "planner"], &held.script);
    let child = held.begin(&home, &args);
    daemon.kill();
    assert_eq!(told(&held.end(child)), expected("not_told", 7));
    let _daemon = home.up();
    let looked = home.cli_as("worker", &["effect", "status", "k", "--json"]);
    assert_eq!(told(&looked), expected("finished", 7));
}

#[test]
fn an_end_that_cannot_be_read_is_told_by_status() {
    let home = Home::new();
    home.up().stop();
    let end = home.path().join("effects/0123.end");
    std::fs::write(&end, "{\"finish\": ").unwrap();
    let daemon = home.up();
    let degraded = || daemon.http.get("/v1/status").body;
    wait_until("it to be told", || degraded().contains("effects/0123.end"));
    assert!(end.exists(), "it is left where it is");
}
