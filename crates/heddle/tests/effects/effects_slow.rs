//! A broker that is connected and slow is not one that is away: whoever asks it about an effect asks again, and gets the
//! result that is stored.

use crate::support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::broker_process::BrokerProcess;
use support::ledger::status;
use support::{Home, Ran, wait_until};

struct Team {
    home: Home,
    _daemon: support::Daemon,
    broker: BrokerProcess,
}

impl Team {
    fn start() -> Self {
        let house = Home::new();
        let home = Home::new();
        let data = home.path().parent().unwrap().join("broker");
        let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &[]);
        home.config(&format!(
            "[[mesh]]\nname = \"team\"\nmember = \"ann\"\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
            broker.listen(),
            broker.data.join("broker_token"),
        ));
        let daemon = home.up();
        wait_until("the team's broker", || {
            let status = status(&daemon);
            let mut meshes = status["meshes"].as_array().unwrap().iter();
            meshes.any(|mesh| mesh["mesh"] == "team" && mesh["connected"] == true)
        });
        Self {
            home,
            _daemon: daemon,
            broker,
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.broker.child)
    }

    fn run(&self, key: &str, script: &str) -> Child {
        let words = ["--mesh", "team", "effect", "run", "--json", "--key", key];
        let mut args = words.to_vec();
        args.extend(["--op", "migrate", "--target", "prod"]);
        args.extend(["--", "/bin/sh", "-c", script]);
        let mut command = self.home.command(&args);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        piped.spawn().unwrap()
    }
}

/// Reads what it says until it says that it asks again, or ends.
fn asks_again(child: &mut Child) -> BufReader<std::process::ChildStderr> {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while stderr.read_line(&mut line).unwrap() > 0 {
        if line.contains("asking again") {
            break;
        }
        line.clear();
    }
    stderr
}

fn ended(mut child: Child, mut stderr: BufReader<std::process::ChildStderr>) -> Ran {
    let (mut out, mut err) = (String::new(), String::new());
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut out).unwrap();
    stderr.read_to_string(&mut err).unwrap();
    Ran {
        code: child.wait().unwrap().code().unwrap_or(-1),
        stdout: out,
        stderr: err,
    }
}

#[test]
fn who_comes_second_gets_the_winners_result_from_a_broker_that_is_slow() {
    let team = Team::start();
    let side = team.home.path().with_file_name("side");
    let script = format!("echo x >> {}; echo migrated", side.display());
    let first = team.run("k", &script).wait_with_output().unwrap();
    assert!(first.status.success(), "{first:?}");
    kill_process(team.pid(), Signal::STOP).unwrap();
    // A waiter asks for what is there, another one for what nobody has registered yet.
    let mut second = [team.run("k", &script), team.run("fresh", "echo new")];
    let said = second.each_mut().map(asks_again);
    kill_process(team.pid(), Signal::CONT).unwrap();
    let [known, fresh] = second;
    let [of_known, of_fresh] = said;
    let known = ended(known, of_known).ok().json();
    assert_eq!(known["stdout"], "migrated\n");
    assert_eq!(
        (&known["duplicate"], &known["code"]),
        (&true.into(), &"REPLAY_DUPLICATE".into())
    );
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    let fresh = ended(fresh, of_fresh).ok().json();
    assert_eq!(
        (&fresh["stdout"], &fresh["status"]),
        (&"new\n".into(), &"closed".into())
    );
}

#[test]
fn another_effect_under_the_key_is_refused_however_the_answer_came() {
    let team = Team::start();
    let first = team.run("k", "echo migrated").wait_with_output().unwrap();
    assert!(first.status.success(), "{first:?}");
    kill_process(team.pid(), Signal::STOP).unwrap();
    let words = ["--mesh", "team", "effect", "run", "--json", "--key", "k"];
    let mut args = words.to_vec();
    args.extend(["--op", "migrate", "--target", "staging", "--", "true"]);
    let mut command = team.home.command(&args);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut other = piped.spawn().unwrap();
    let said = asks_again(&mut other);
    kill_process(team.pid(), Signal::CONT).unwrap();
    let other = ended(other, said);
    assert_eq!(
        (other.code, &other.json()["code"]),
        (3, &"REPLAY_BINDING_MISMATCH".into()),
        "{other:?}"
    );
}

#[test]
fn an_end_that_a_slow_broker_hears_late_is_a_result_and_nothing_to_wait_for() {
    let team = Team::start();
    let pid = team.pid().as_raw_nonzero();
    // The command itself makes the broker hang: it has the run, and nobody hears how it ended.
    let mut ran = team.run("late", &format!("kill -STOP {pid}; echo done"));
    let said = asks_again(&mut ran);
    kill_process(team.pid(), Signal::CONT).unwrap();
    let ran = ended(ran, said).ok().json();
    assert_eq!(
        (&ran["status"], &ran["stdout"]),
        (&"closed".into(), &"done\n".into())
    );
    assert_eq!(ran["duplicate"], false);
}
