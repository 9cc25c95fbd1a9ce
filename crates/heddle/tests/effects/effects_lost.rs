//! An answer of the broker that decides is lost on its way, after it has committed: nobody is told that nothing was
//! recorded, the status is asked before anything is asked for again (C14), and the command runs once.

use crate::support;

use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::cut_proxy::CutProxy;
use support::ledger::status;
use support::{Daemon, Home, Ran, wait_until_within};

/// A home waits up to a minute before it tries a connection again that failed more than once.
const SOON: Duration = Duration::from_secs(90);

/// A home that reaches its team's broker through a proxy.
struct Team {
    home: Home,
    daemon: Daemon,
    proxy: CutProxy,
    _broker: BrokerProcess,
}

impl Team {
    fn start(policy: &str) -> Self {
        let house = Home::new();
        let home = Home::new();
        let data = home.path().parent().unwrap().join("broker");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("effects.toml"), policy).unwrap();
        let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &[]);
        let proxy = CutProxy::start(broker.listen());
        home.config(&format!(
            "[[mesh]]\nname = \"team\"\nmember = \"ann\"\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
            proxy.listen,
            broker.data.join("broker_token"),
        ));
        let daemon = home.up();
        let team = Self {
            home,
            daemon,
            proxy,
            _broker: broker,
        };
        team.wait_connected();
        team
    }

    fn wait_connected(&self) {
        wait_until_within(SOON, "the team's broker", || {
            let status = status(&self.daemon);
            let mut meshes = status["meshes"].as_array().unwrap().iter();
            meshes.any(|mesh| mesh["mesh"] == "team" && mesh["connected"] == true)
        });
    }

    fn cli(&self, args: &[&str]) -> Ran {
        self.home.cli(&[&["--mesh", "team"], args].concat())
    }

    fn run(&self, key: &str) -> Ran {
        let script = format!("echo x >> {}; echo migrated", self.side().display());
        self.cli(&[
            "effect", "run", "--json", "--key", key, "--op", "migrate", "--target", "prod", "--",
            "/bin/sh", "-c", &script,
        ])
    }

    fn side(&self) -> std::path::PathBuf {
        self.home.path().with_file_name("side")
    }

    fn lines(&self) -> usize {
        std::fs::read_to_string(self.side()).map_or(0, |text| text.lines().count())
    }

    fn state(&self, key: &str) -> Value {
        let mut told = Value::Null;
        wait_until_within(SOON, "the status", || {
            let ran = self.cli(&["effect", "status", key, "--json"]);
            if ran.code == 5 {
                return false;
            }
            told = ran.json();
            true
        });
        told
    }
}

/// Whatever is said, it is not that nothing was recorded.
#[track_caller]
fn is_unknown(ran: &Ran) {
    assert_eq!(ran.code, 5, "{ran:?}");
    let (said, next) = (ran.json(), &ran.stderr);
    assert_eq!(said["outcome"], "unknown", "{ran:?}");
    for untrue in [
        "nothing of it is kept",
        "Nothing was recorded",
        "did nothing",
    ] {
        assert!(!next.contains(untrue), "{untrue}: {ran:?}");
        assert!(!ran.stdout.contains(untrue), "{untrue}: {ran:?}");
    }
}

#[test]
fn c14_a_registration_whose_answer_was_lost_is_found_by_its_key_and_run_once() {
    let team = Team::start("");
    team.proxy.lose("register");
    let before = team.proxy.verbs().len();
    let mut ran = team.run("k");
    let verbs = team.proxy.verbs()[before..].to_vec();
    // The connection comes back within the time that the run stays with it, or it says that nobody knows.
    if ran.code == 0 {
        let registers = verbs.iter().filter(|verb| *verb == "register").count();
        assert_eq!(
            registers, 1,
            "what is committed is not asked for again: {verbs:?}"
        );
        let at = |wanted: &str| verbs.iter().position(|verb| verb == wanted);
        assert!(at("register") < at("status"), "{verbs:?}");
        assert!(at("status") < at("start"), "{verbs:?}");
    }
    wait_until_within(SOON, "the run", || {
        if ran.code != 0 {
            is_unknown(&ran);
            ran = team.run("k");
        }
        ran.code == 0
    });
    assert_eq!(team.proxy.cuts(), 1);
    let said = ran.json();
    assert_eq!(
        (&said["status"], &said["stdout"], team.lines()),
        (&json!("closed"), &json!("migrated\n"), 1),
        "{ran:?}"
    );
}

#[test]
fn while_nobody_can_be_asked_the_outcome_is_unknown_and_the_same_call_goes_on() {
    let team = Team::start("");
    team.proxy.lose_and_shut("register");
    let ran = team.run("k");
    is_unknown(&ran);
    assert_eq!(ran.json()["status"], "unanswered", "{ran:?}");
    for part in [
        "`heddle effect status k --mesh team`",
        "the same call again",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    assert_eq!((team.proxy.cuts(), team.lines()), (1, 0));
    team.proxy.open();
    team.wait_connected();
    // The broker had it all the time.
    assert_eq!(team.state("k")["status"], "registered");
    let again = team.run("k").ok();
    assert_eq!(
        (&again.json()["status"], team.lines()),
        (&json!("closed"), 1)
    );
}

#[test]
fn other_callers_are_told_the_same() {
    let team = Team::start("");
    team.proxy.lose_and_shut("register");
    let body = json!({"key": "k", "op": "migrate", "target": "prod", "mesh": "team"});
    let told = team.daemon.http.post("/v1/effect/register", &body).json();
    assert_eq!(
        (&told["code"], &told["outcome"]),
        (&json!("not_connected"), &json!("unknown")),
        "{told}"
    );
    let next = told["next"].as_str().unwrap();
    assert!(next.contains("`heddle effect status k`"), "{told}");
    assert!(next.contains("may have been recorded"), "{told}");
    // What was never sent is told as before.
    let other = json!({"key": "other", "op": "migrate", "target": "prod", "mesh": "team"});
    wait_until_within(SOON, "the connection to be gone", || {
        let told = team.daemon.http.post("/v1/effect/register", &other).json();
        assert_eq!(told["code"], "not_connected", "{told}");
        told.get("asked").is_none()
    });
    let told = team.daemon.http.post("/v1/effect/register", &other).json();
    assert_eq!(told.get("outcome"), None, "{told}");
    assert!(
        told["next"]
            .as_str()
            .unwrap()
            .contains("nothing of it is kept")
    );
    team.proxy.open();
    team.wait_connected();
    assert_eq!(team.state("k")["status"], "registered");
    assert_eq!(team.cli(&["effect", "status", "other"]).code, 4);
}

#[test]
fn a_persons_word_whose_answer_was_lost_is_not_told_as_unsaid() {
    let team = Team::start("[[rule]]\noperation = \"*\"\napproval = \"always\"\n");
    for (verb, stands) in [("approve", "approved"), ("deny", "denied")] {
        let asked = team.cli(&[
            "effect", "request", "--json", "--key", verb, "--op", "migrate", "--target", "prod",
        ]);
        let id = asked.ok().json()["request_id"].as_str().unwrap().to_owned();
        team.proxy.lose_and_shut(verb);
        let said = team.cli(&["effect", verb, &id, "--json"]);
        is_unknown(&said);
        assert!(said.stderr.contains("may have been recorded"), "{said:?}");
        team.proxy.open();
        team.wait_connected();
        assert_eq!(team.state(verb)["status"], stands);
    }
}

#[test]
fn a_start_whose_answer_was_lost_runs_nothing_twice() {
    let team = Team::start("");
    team.proxy.lose("start");
    let mut ran = team.run("k");
    wait_until_within(SOON, "the run", || {
        if ran.code != 0 {
            assert_eq!(ran.code, 5, "{ran:?}");
            ran = team.run("k");
        }
        ran.code == 0
    });
    assert_eq!(
        (team.proxy.cuts(), team.lines(), &ran.json()["status"]),
        (1, 1, &json!("closed")),
        "{ran:?}"
    );
}
