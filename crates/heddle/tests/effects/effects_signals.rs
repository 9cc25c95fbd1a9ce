//! A signal to whoever runs an effect: the command gets its end, and how it ended is kept.

use crate::support;

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;
use support::{Home, Ran, wait_until};

/// Of which two at once would be told as one by the kernel, and one after the other would not.
const ROUNDS: usize = 24;

struct Running {
    home: Home,
    child: Child,
    pid: Pid,
}

/// A command that says when it is there, in a group of its own with its runner.
fn running(home: Home, script: &str) -> Running {
    let ready = home.path().with_file_name("ready");
    let script = format!(
        "{script}; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.05; done",
        ready.display()
    );
    let mut args = support::effect_pair::run("k", &[], &script);
    args.retain(|word| *word != "--json");
    let child = home
        .command(&args)
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    wait_until("the command", || ready.exists());
    Running { home, child, pid }
}

fn ready_of(home: &Home) -> PathBuf {
    home.path().with_file_name("ready")
}

impl Running {
    fn ended(self) -> (Home, Ran) {
        (self.home, Ran::from(self.child.wait_with_output().unwrap()))
    }
}

fn is_kept(home: &Home, ran: &Ran) {
    assert!(ran.stdout.contains("cleaned"), "{ran:?}");
    assert!(ran.stderr.contains("waited for and kept"), "{ran:?}");
    let told = home.cli(&["effect", "status", "k", "--json"]).ok().json();
    assert_eq!(
        (&told["status"], &told["exit_code"], &told["stdout"]),
        (&json!("verify_failed"), &json!(4), &json!("cleaned\n")),
    );
}

#[test]
fn a_term_or_hup_to_the_runner_is_passed_on_and_the_end_is_kept() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        let home = Home::new();
        let _daemon = home.up();
        let it = running(home, &format!("trap 'echo cleaned; exit 4' {name}"));
        kill_process(it.pid, signal).unwrap();
        let (home, ran) = it.ended();
        assert_eq!(ran.code, 1, "{ran:?}");
        is_kept(&home, &ran);
    }
}

#[test]
fn an_interrupt_of_the_group_leaves_the_runner_to_keep_the_end() {
    let home = Home::new();
    let _daemon = home.up();
    let it = running(home, "trap 'echo cleaned; exit 4' INT");
    kill_process_group(it.pid, Signal::INT).unwrap();
    let (home, ran) = it.ended();
    assert_eq!(ran.code, 1, "{ran:?}");
    is_kept(&home, &ran);
}

/// As `timeout` does it, which tells the process and then its group: one word, however far apart the two arrive.
#[test]
fn two_signals_at_once_are_one_word_and_the_end_is_kept() {
    let home = Home::new();
    let _daemon = home.up();
    for round in 0..ROUNDS {
        let (key, ready) = (format!("k{round}"), ready_of(&home));
        let _ = std::fs::remove_file(&ready);
        // It takes its time to end, so that the second one always finds it there.
        let script = format!(
            "trap 'trap \"\" TERM HUP; sleep 0.1; echo cleaned; exit 4' TERM HUP; touch {}; while :; do sleep 0.02; done",
            ready.display()
        );
        let args = support::effect_pair::run(&key, &[], &script);
        let child = home
            .command(&args)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        wait_until("the command", || ready.exists());
        let second = [Signal::TERM, Signal::HUP][round % 2];
        kill_process(pid, Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_micros(400 * (round as u64 % 8)));
        kill_process(pid, second).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, 1, "round {round}: {ran:?}");
        let told = home.cli(&["effect", "status", &key, "--json"]).ok().json();
        assert_eq!(
            (&told["status"], &told["exit_code"], &told["stdout"]),
            (&json!("verify_failed"), &json!(4), &json!("cleaned\n")),
            "round {round}"
        );
    }
}

#[test]
fn a_second_signal_ends_the_runner_and_says_that_nobody_will_know() {
    let home = Home::new();
    let _daemon = home.up();
    let it = running(home, "trap '' TERM");
    let command: i32 = std::fs::read_to_string(ready_of(&it.home))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let mut it = it;
    // Until it has heard both: two that come within a second are one.
    wait_until("the runner to end", || {
        let _ = kill_process(it.pid, Signal::TERM);
        it.child.try_wait().unwrap().is_some()
    });
    let (home, ran) = it.ended();
    assert_eq!(ran.code, 143, "{ran:?}");
    assert!(
        ran.stderr.contains("the outcome will be `unknown`"),
        "{ran:?}"
    );
    let status = || home.cli(&["effect", "status", "k", "--json"]).ok().json();
    assert_eq!(status()["status"], "running", "the command lives");
    kill_process(Pid::from_raw(command).unwrap(), Signal::KILL).unwrap();
    wait_until("nobody to know", || status()["status"] == "unknown");
}

/// What was started to outlive its terminal does so.
#[test]
fn what_was_ignored_before_stays_ignored() {
    let home = Home::new();
    let _daemon = home.up();
    let go = home.path().with_file_name("go");
    let ready = ready_of(&home);
    let script = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.05; done; echo through",
        ready.display(),
        go.display()
    );
    let args = support::effect_pair::run("k", &[], &script);
    let heddle = home.command(&args);
    let mut nohup = std::process::Command::new("/usr/bin/nohup");
    nohup
        .arg(support::BINARY)
        .args(heddle.get_args())
        .env_clear();
    for (name, value) in heddle.get_envs() {
        if let Some(value) = value {
            nohup.env(name, value);
        }
    }
    let child = nohup
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    wait_until("the command", || ready.exists());
    kill_process_group(pid, Signal::HUP).unwrap();
    std::fs::write(&go, "").unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap()).ok();
    assert_eq!(ran.json()["stdout"], "through\n", "{ran:?}");
}
