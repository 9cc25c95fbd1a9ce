//! The whole story of an effect: explained, in the repository's journal, and told to agents.

use crate::support;

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use support::effect_pair::{MESH, pair};
use support::mcp::McpClient;
use support::{Home, Ran};

fn folder(home: &Home, name: &str) -> PathBuf {
    let folder = home.path().parent().unwrap().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A verb, run inside this folder.
fn inside(home: &Home, folder: &PathBuf, agent: &str, args: &[&str]) -> Ran {
    let mut command: Command = home.command(args);
    command.current_dir(folder).env("HEDDLE_AGENT", agent);
    Ran::from(command.output().unwrap())
}

const EFFECT: [&str; 6] = ["--key", "mig-1", "--op", "migrate", "--target", "prod"];

fn verb<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["effect", name, "--json"], &EFFECT[..], more].concat()
}

/// Asked, refused twice, approved, run, failed, made up for.
fn live(home: &Home, there: &PathBuf) -> (String, String) {
    let asked = inside(home, there, "planner", &verb("request", &[]))
        .ok()
        .json();
    let id = asked["request_id"].as_str().unwrap().to_owned();
    let early = inside(home, there, "planner", &verb("run", &["--", "/bin/true"]));
    assert_eq!(early.code, 6);
    let own = inside(
        home,
        there,
        "planner",
        &["effect", "approve", &id, "--json"],
    );
    assert_eq!(own.code, 6);
    let granted = inside(home, there, "tester", &["effect", "approve", &id, "--json"])
        .ok()
        .json();
    let nonce = granted["nonce"].as_str().unwrap().to_owned();
    let more = [
        "--nonce",
        &nonce,
        "--verify",
        "false",
        "--",
        "/bin/echo",
        "hi",
    ];
    let ran = inside(home, there, "planner", &verb("run", &more));
    assert_eq!(ran.json()["status"], "verify_failed");
    inside(
        home,
        there,
        "tester",
        &["effect", "compensate", "mig-1", "--json", "--", "true"],
    )
    .ok();
    (id, nonce)
}

#[test]
fn explain_tells_the_whole_story_of_an_effect_by_any_of_its_ids() {
    let home = Home::new();
    let daemon = home.up();
    let (id, nonce) = live(&home, &folder(&home, "there"));
    let story = home.cli(&["explain", "mig-1", "--json"]).ok().json();
    assert_eq!(
        (&story["kind"], &story["id"]),
        (&json!("effect"), &json!("mig-1"))
    );
    assert_eq!(story["effect"]["status"], "compensated");
    let told: Vec<(String, String)> = story["story"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            (
                event["what"].as_str().unwrap().to_owned(),
                event["by"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    for (what, by) in [
        ("requested", "planner"),
        ("refused register", "planner"),
        ("refused decide", "planner"),
        ("approved", "tester"),
        ("attempt register", "planner"),
        ("registered", "planner"),
        ("started", "planner"),
        ("finished", "planner"),
        ("verified", "planner"),
        ("compensating", "tester"),
        ("compensated", "tester"),
    ] {
        assert!(
            told.contains(&(what.to_owned(), by.to_owned())),
            "{what} by {by}: {told:?}"
        );
    }
    let places = |what: &str| told.iter().position(|one| one.0 == what).unwrap();
    assert!(places("requested") < places("approved") && places("approved") < places("registered"));
    assert!(places("registered") < places("started") && places("started") < places("verified"));
    assert!(!story.to_string().contains(&nonce), "a nonce is shown once");
    let registration = story["effect"]["registration"]["registration_id"]
        .as_str()
        .unwrap();
    let attempt = story["effect"]["attempt_id"].as_str().unwrap();
    for other in [id.as_str(), registration, attempt, "effect:mig-1"] {
        let same = home.cli(&["explain", other, "--json"]).ok().json();
        assert_eq!(same["story"], story["story"], "{other}");
        let path = format!("/v1/explain/{other}");
        assert_eq!(daemon.http.get(&path).expect(200)["story"], story["story"]);
    }
    let words = home.cli(&["explain", "mig-1"]).ok().stdout;
    assert!(
        words.contains("effect mig-1 is compensated (S3)"),
        "{words}"
    );
    assert!(
        words.contains("APPROVAL_NEEDED") && words.contains("approved"),
        "{words}"
    );
    assert_eq!(home.cli(&["explain", "nobody"]).code, 4);
    assert_eq!(home.cli(&["explain", "effect:nobody"]).code, 4);
}

#[test]
fn a_send_under_the_same_id_is_told_first_and_the_effect_by_its_longer_name() {
    let home = Home::new();
    let _daemon = home.up();
    home.cli(&verb("run", &["--", "/bin/true"])).ok();
    home.cli(&["send", "@tester", "hello", "--id", "mig-1"])
        .ok();
    assert_ne!(
        home.cli(&["explain", "mig-1", "--json"]).ok().json()["kind"],
        "effect"
    );
    let effect = home.cli(&["explain", "effect:mig-1", "--json"]).ok().json();
    assert_eq!(effect["kind"], "effect");
}

fn journal(home: &Home, repository: &PathBuf) -> Vec<Value> {
    let log = inside(home, repository, "tester", &["journal", "log", "--json"]).ok();
    let records = log
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    records
        .filter(|record| {
            record["item_id"]
                .as_str()
                .unwrap()
                .ends_with("effect-mig-1")
        })
        .collect()
}

#[test]
fn every_step_of_an_effect_is_in_the_journal_of_its_repository() {
    let home = Home::new();
    let _daemon = home.up();
    let repository = folder(&home, "repository");
    inside(&home, &repository, "tester", &["journal", "init"]).ok();
    let deep = folder(&home, "repository/deep/er");
    live(&home, &deep);
    let all = journal(&home, &repository);
    // What was refused is told beside it, and changes nothing of how it stands.
    let (refused, taken): (Vec<&Value>, Vec<&Value>) = all
        .iter()
        .partition(|record| record["item_id"] == "refused-effect-mig-1");
    let refused: Vec<(&str, &str)> = refused
        .iter()
        .map(|record| {
            let said = |name: &str| record["payload"][name].as_str().unwrap();
            assert_eq!(said("status"), "refused");
            (said("asked"), said("code"))
        })
        .collect();
    for one in [("run", "APPROVAL_NEEDED"), ("approve", "APPROVAL_REFUSED")] {
        assert!(refused.contains(&one), "{one:?}: {refused:?}");
    }
    let steps: Vec<String> = taken
        .iter()
        .map(|record| record["payload"]["status"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        steps,
        [
            "requested",
            "approved",
            "registered",
            "started",
            "finished",
            "verify_failed",
            "compensating",
            "compensated"
        ]
    );
    let verified = inside(
        &home,
        &repository,
        "tester",
        &["journal", "verify", "--json"],
    )
    .ok();
    assert_eq!(verified.json()["ok"], true);
    let words = inside(&home, &repository, "tester", &["journal", "log"]).ok();
    assert!(
        words.stdout.contains("effect mig-1: verify_failed"),
        "{}",
        words.stdout
    );
}

#[test]
fn a_journal_that_cannot_be_written_fails_no_effect_and_is_told() {
    let home = Home::new();
    let _daemon = home.up();
    let repository = folder(&home, "repository");
    inside(&home, &repository, "tester", &["journal", "init"]).ok();
    std::fs::write(repository.join(".heddle/journal.json"), "{").unwrap();
    let ran = inside(
        &home,
        &repository,
        "tester",
        &verb("run", &["--", "/bin/echo", "hi"]),
    )
    .ok();
    assert_eq!(ran.json()["status"], "closed");
    assert!(ran.json()["journal"]["trouble"].is_string(), "{ran:?}");
    assert!(
        ran.stderr
            .contains("the journal of this repository was not written")
    );
    let elsewhere = folder(&home, "elsewhere");
    let without = inside(
        &home,
        &elsewhere,
        "tester",
        &verb("run", &["--", "/bin/echo", "hi"]),
    )
    .ok();
    assert_eq!(without.json()["journal"], Value::Null);
}

#[test]
fn what_an_agent_is_told_to_have_run_can_be_pasted() {
    let pair = pair("");
    let there = folder(&pair.bob, "there");
    let options = ["--tools", "full", "--mesh", MESH, "--agent", "coder"];
    let mut agent = McpClient::start(&pair.bob, "ada", &there, &options);
    let ask = |op: &str| json!({"key": "k", "op": op, "target": "prod"});
    let asked = agent.data("request_effect", ask("deploy"));
    let run = format!("--nonce NONCE --agent coder --mesh {MESH} -- COMMAND`");
    let next = asked["next"].as_str().unwrap();
    assert!(next.contains(&run), "{next}");
    // So can what a refusal names.
    let other = agent.call("request_effect", ask("pay")).answer;
    let next = other["next"].as_str().unwrap();
    for command in next.split('`').skip(1).step_by(2) {
        let is_whole = !command.starts_with("heddle ") || command.contains(" --mesh ");
        assert!(is_whole, "{next}");
    }
}

#[test]
fn agents_ask_for_effects_and_look_before_they_try_again() {
    let home = Home::new();
    let _daemon = home.up();
    let there = folder(&home, "there");
    let mut agent = McpClient::start(&home, "ada", &there, &["--tools", "full"]);
    let ask = |op: &str, id: &str| json!({"key": "mig-1", "op": op, "target": "prod", "id": id});
    let before = agent.data("effect_status", json!({"key": "mig-1"}));
    assert_eq!(
        (&before["state"], &before["status"]),
        (&json!("S0"), &json!("never_requested"))
    );
    let asked = agent.data("request_effect", ask("migrate", "i1"));
    assert_eq!(
        (&asked["status"], &asked["duplicate"]),
        (&json!("awaiting_approval"), &json!(false))
    );
    let again = agent.data("request_effect", ask("migrate", "i1"));
    assert_eq!(
        (&again["request_id"], &again["duplicate"]),
        (&asked["request_id"], &json!(true))
    );
    let reused = agent.call("request_effect", ask("pay", "i1"));
    assert_eq!(reused.answer["code"], "idempotency_key_reused");
    let other = agent.call("request_effect", ask("pay", "i2"));
    assert_eq!(other.answer["code"], "REPLAY_BINDING_MISMATCH");
    assert!(!other.answer["next"].as_str().unwrap().is_empty());
    let waits = agent.data("effect_status", json!({"key": "mig-1"}));
    assert_eq!(waits["status"], "awaiting_approval");
    let id = asked["request_id"].as_str().unwrap();
    let nonce = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    let nonce = nonce["nonce"].as_str().unwrap();
    let ran = home
        .cli(&verb(
            "run",
            &["--nonce", nonce, "--", "/bin/echo", "migrated"],
        ))
        .ok();
    assert_eq!(ran.json()["status"], "closed");
    let done = agent.data("effect_status", json!({"key": "mig-1"}));
    assert_eq!(
        (&done["status"], &done["stdout"]),
        (&json!("closed"), &json!("migrated\n"))
    );
    let core =
        McpClient::start(&home, "bob", &there, &[]).call("effect_status", json!({"key": "k"}));
    assert!(
        core.refused.is_some() || core.is_error,
        "not in the core profile"
    );
}
