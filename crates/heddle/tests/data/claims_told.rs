//! What a claim that is said again tells: who holds the task now, and not what was true once.

use crate::support;

use serde_json::json;
use support::mcp::McpClient;
use support::stub_broker::{Script, StubBroker};
use support::{Home, Ran, wait_until};

fn add(home: &Home, title: &str) -> String {
    let added = home.cli(&["task", "add", title, "--json"]).ok().json();
    added["task"]["id"].as_str().unwrap().to_owned()
}

/// The task goes to the planner once the coder's lease is over.
fn taken_over(home: &Home, task: &str) -> u64 {
    let first = ["task", "claim", task, "--id", "L1", "--lease", "1s"];
    home.cli_as("coder", &first).ok();
    let mut taken: Option<Ran> = None;
    wait_until("the lease to run out", || {
        let ran = home.cli_as("planner", &["task", "claim", task, "--id", "L2", "--json"]);
        let is_over = ran.code == 0;
        taken = Some(ran);
        is_over
    });
    taken.unwrap().json()["fence"].as_u64().unwrap()
}

#[test]
fn a_repeated_claim_whose_lease_was_lost_says_who_holds_it_now() {
    let home = Home::new();
    let daemon = home.up();
    let task = add(&home, "slow");
    let fence = taken_over(&home, &task);
    let again = ["task", "claim", &task, "--id", "L1", "--lease", "1s"];
    let told = home.cli_as("coder", &again);
    assert_eq!(told.code, 3, "{told:?}");
    let words = told.stdout.clone() + &told.stderr;
    assert!(words.contains("@tester/planner holds it until"), "{words}");
    assert!(!words.contains("yours until"), "{words}");
    assert!(!words.contains("task done"), "{words}");
    let mut json = again.to_vec();
    json.push("--json");
    let problem = home.cli_as("coder", &json).json();
    assert_eq!(problem["code"], "task_claimed", "{problem}");
    assert_eq!(problem["fence"], fence, "{problem}");
    // The door answers as it did first, for whoever lost that answer.
    let body = json!({"id": task, "agent": "coder", "lease_seconds": 1, "client_message_id": "L1"});
    let first = daemon.http.post("/v1/task/claim", &body).expect(200);
    assert_eq!(first["duplicate"], true, "{first}");
    home.cli_as("planner", &["task", "done", &task]).ok();
    let told = home.cli_as("coder", &json);
    assert_eq!(told.code, 3, "{told:?}");
    assert_eq!(told.json()["code"], "task_finished");
    // Nor is it to be claimed anew: what to do instead is said, and nothing about waiting for it.
    for verb in ["claim", "release", "done", "cancel"] {
        let refused = home.cli_as("coder", &["task", verb, &task]);
        assert_eq!(refused.code, 3, "{refused:?}");
        let words = refused.stderr;
        let other = match verb {
            "claim" => "`heddle task ready`".to_owned(),
            _ => format!("`heddle task show {task}` shows how it ended"),
        };
        assert!(words.contains(&other), "{words}");
        for wrong in ["task claim", "try again", "holds it"] {
            assert!(!words.contains(wrong), "{words}");
        }
    }
    // A claim that holds is told as ever.
    let other = add(&home, "held");
    for already in ["", "already "] {
        let ran = home.cli_as("coder", &["task", "claim", &other, "--id", "L3"]);
        let words = ran.ok().stdout;
        assert!(
            words.starts_with(&format!("{already}claimed {other}")),
            "{words}"
        );
    }
}

#[test]
fn a_warning_of_a_lost_lease_names_the_holder_and_its_command_can_be_run() {
    let home = Home::new();
    let _daemon = home.up();
    let task = add(&home, "slow");
    taken_over(&home, &task);
    let told = home.cli_as("coder", &["--mesh", "home", "task", "list"]);
    let words = told.ok().stderr;
    assert!(words.contains("@tester/planner holds it now"), "{words}");
    assert!(!words.contains("Claim it again"), "{words}");
    assert!(words.contains("`heddle task ready --mesh home`"), "{words}");
}

#[test]
fn two_sessions_of_one_agent_notice_each_other_and_tools_are_named_to_them() {
    let home = Home::new();
    let daemon = home.up();
    let task = add(&home, "only once");
    let folder = home.path().parent().unwrap().join("here");
    std::fs::create_dir_all(&folder).unwrap();
    let mut one = McpClient::start(&home, "ada", &folder, &[]);
    let mut two = McpClient::start(&home, "ada", &folder, &[]);
    let first = one.call("claim_task", json!({"task": task})).answer;
    assert_eq!(first["data"]["already_yours"], json!(null), "{first}");
    let second = two.call("claim_task", json!({"task": task})).answer;
    assert_eq!(second["data"]["already_yours"], true, "{second}");
    assert_eq!(second["data"]["fence"], first["data"]["fence"]);
    assert_eq!(second["warnings"][0]["type"], "already_yours", "{second}");
    let mut bob = McpClient::start(&home, "bob", &folder, &[]);
    let refused = bob.call("claim_task", json!({"task": task})).answer;
    assert_eq!(refused["code"], "task_claimed", "{refused}");
    let next = refused["next"].as_str().unwrap();
    assert!(
        next.contains("list_tasks") && !next.contains("heddle task"),
        "{next}"
    );

    // A claim that was lost is no claim, whatever its first answer was.
    let lost = add(&home, "lost");
    let ask = json!({"task": lost, "lease_seconds": 1, "id": "L1"});
    bob.data("claim_task", ask.clone());
    wait_until("the lease to run out", || {
        home.cli_as("planner", &["task", "claim", &lost]).code == 0
    });
    let again = bob.call("claim_task", ask);
    assert!(again.is_error, "{again:?}");
    assert_eq!(again.answer["holder"], "@tester/planner", "{again:?}");
    daemon.stop();
}

#[test]
fn a_send_under_a_known_id_is_a_duplicate_while_it_waits() {
    let home = Home::new();
    // A broker that takes it and does not answer: it waits.
    let broker = StubBroker::start();
    home.config(&broker.config());
    let daemon = home.up();
    broker.script(Script::Hold);
    let body = json!({"to": "#ops", "message": "hi", "client_message_id": "z1"});
    let first = daemon.http.post("/v1/send", &body).expect(202);
    assert_eq!(first.get("duplicate"), None, "{first}");
    let again = daemon.http.post("/v1/send", &body).expect(202);
    assert_eq!(again["duplicate"], true, "{again}");
    assert!(again["status"].is_string(), "{again}");
}

/// The coder loses a task that it holds: there is one warning for it.
fn lose(home: &Home) -> String {
    let task = add(home, "held a moment ago");
    home.cli_as("coder", &["task", "claim", &task]).ok();
    home.cli_as("planner", &["task", "cancel", &task]).ok();
    task
}

#[test]
fn lf_24_what_was_lost_is_told_with_the_very_next_call_whatever_becomes_of_it() {
    let home = Home::new();
    let daemon = home.up();
    let finished = lose(&home);
    home.cli_as("coder", &["task", "list"]).ok();
    let unknown = "00000000-0000-7000-8000-000000000000";
    let calls: [&[&str]; 15] = [
        &["forget", "nothing"],
        &["state", "delete", "nothing"],
        &["task", "claim", &finished],
        &["task", "done", &finished],
        &["task", "release", &finished],
        &["task", "cancel", unknown],
        &["file", "delete", "nothing"],
        &["vector", "delete", "nothing"],
        &["recall", "nothing"],
        &["state", "get", "nothing"],
        &["task", "show", unknown],
        &["file", "list"],
        &["vector", "list"],
        &["vector", "search", "anything"],
        &["peers"],
    ];
    for call in calls {
        for json in [false, true] {
            let lost = lose(&home);
            let mut words = call.to_vec();
            words.extend(json.then_some("--json"));
            let ran = home.cli_as("coder", &words);
            if json {
                let told = ran.json()["warnings"][0]["task_id"].clone();
                assert_eq!(told, lost.as_str(), "{call:?}: {ran:?}");
            } else {
                let told = "warning: \"held a moment ago\", which you held, was cancelled";
                assert!(ran.stderr.contains(told), "{call:?}: {ran:?}");
            }
            let rest = daemon.http.get("/v1/warnings?agent=coder").expect(200);
            assert_eq!(rest["warnings"], json!([]), "{call:?} tells it once");
        }
    }
    // Refused before the store was asked at all.
    lose(&home);
    let body = json!({"path": "a.txt", "from": "/nowhere/at/all", "agent": "coder"});
    let refused = daemon.http.post("/v1/file/share", &body);
    assert!(refused.status >= 400, "{refused:?}");
    let told = &refused.json()["warnings"][0];
    assert_eq!(told["type"], "task_cancelled", "{refused:?}");
}

#[test]
fn a_repeated_claim_that_has_ended_tells_what_else_was_lost() {
    let home = Home::new();
    let _daemon = home.up();
    let (one, other) = (add(&home, "one"), add(&home, "other"));
    for (task, id) in [(&one, "L1"), (&other, "L2")] {
        home.cli_as("coder", &["task", "claim", task, "--id", id])
            .ok();
    }
    for task in [&one, &other] {
        home.cli_as("planner", &["task", "cancel", task]).ok();
    }
    let again = home.cli_as("coder", &["task", "claim", &one, "--id", "L1"]);
    assert_eq!(again.code, 3, "{again:?}");
    assert!(
        again.stderr.contains("\"other\", which you held"),
        "{again:?}"
    );
    let words = again.stderr.matches("warning: ").count();
    assert_eq!(words, 2, "{again:?}");
    // An agent that has tools is told the same.
    let folder = home.path().parent().unwrap().join("there");
    std::fs::create_dir_all(&folder).unwrap();
    let mut eve = McpClient::start(&home, "eve", &folder, &[]);
    let lost: Vec<String> = ["three", "four"].map(|title| add(&home, title)).into();
    for (number, task) in lost.iter().enumerate() {
        let ask = json!({"task": task, "id": format!("M{number}")});
        eve.data("claim_task", ask);
    }
    for task in &lost {
        home.cli_as("planner", &["task", "cancel", task]).ok();
    }
    let again = eve.call("claim_task", json!({"task": lost[0], "id": "M0"}));
    assert!(again.is_error, "{again:?}");
    let told = again.answer["warnings"].as_array().unwrap();
    let ids: Vec<_> = told.iter().map(|one| one["task_id"].clone()).collect();
    assert!(ids.contains(&json!(lost[1])), "{again:?}");
}
