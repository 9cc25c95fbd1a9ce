//! What is printed to go on with can be run as it is: with the mesh, agent and home that the caller named.

use crate::support;

use serde_json::json;
use support::broker_process::{BrokerProcess, RawLink};
use support::ledger::{connected, status};
use support::outbox::on_nothing;
use support::{Home, Ran, wait_until};

/// The commands in a text: behind a label, or in backticks.
fn commands(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let lines = text
        .lines()
        .filter_map(|line| line.split_once("heddle ").filter(|_| !line.contains('`')))
        .map(|(_, words)| words);
    let quoted = quoted.filter_map(|words| words.strip_prefix("heddle "));
    lines.chain(quoted).map(str::to_owned).collect()
}

fn run(home: &Home, command: &str) -> Ran {
    let words: Vec<&str> = command.split(' ').collect();
    home.cli(&words)
}

#[test]
fn hints_name_the_mesh_and_the_agent_that_the_caller_named() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &["--mesh", "work"]);
    home.config(&format!(
        "[[mesh]]\nname = \"work\"\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
        broker.listen(),
        data.join("broker_token"),
    ));
    let daemon = home.up();
    connected(&daemon);
    let scope = ["--mesh", "work", "--agent", "coder"];
    let with = |words: &[&str]| home.cli(&[words, &scope].concat());
    with(&["agent", "register", "coder"]).ok();
    // A claim: the command that says that it is done is the claimant's, in that mesh.
    let task = with(&["task", "add", "work", "--json"]).ok().json();
    let id = task["task"]["id"].as_str().unwrap();
    let claimed = with(&["task", "claim", id]).ok();
    let done = commands(&claimed.stdout).pop().unwrap();
    assert!(
        done.contains("--agent coder") && done.contains("--mesh work"),
        "{done}"
    );
    run(&home, &done).ok();
    // A stale fence: the next take is of that mesh and agent.
    with(&["queue", "push", "builds", "x"]).ok();
    let taken = with(&["queue", "take", "builds", "--wait", "10s", "--json"])
        .ok()
        .json();
    let id = taken["items"][0]["id"].as_str().unwrap();
    let stale = with(&["queue", "ack", "builds", id, "--fence", "99"]);
    assert_eq!(stale.code, 3, "{stale:?}");
    let take = commands(&stale.stderr).pop().unwrap();
    assert!(take.starts_with("queue take builds"), "{take}");
    assert!(
        take.contains("--agent coder") && take.contains("--mesh work"),
        "{take}"
    );
    run(&home, &take).ok();
    // A refusal of the daemon's own.
    let refused = with(&["task", "claim", "01a1e336-f466-7a0c-8535-d978bb8e4638"]);
    let list = commands(&refused.stderr).pop().unwrap();
    assert!(list.contains("--mesh work"), "{list}");
    run(&home, &list).ok();
}

#[test]
fn hints_name_the_home_that_the_caller_named() {
    let home = Home::new();
    let folder = home.path().parent().unwrap().join("other");
    let folder = folder.to_str().unwrap();
    let status = home.cli(&["status", "--home", folder]).ok();
    assert!(
        status
            .stdout
            .contains(&format!("next: heddle up --home {folder}")),
        "{status:?}"
    );
    let refused = home.cli(&["peers", "--home", folder]);
    assert!(
        refused
            .stderr
            .contains(&format!("`heddle up --home {folder}`")),
        "{refused:?}"
    );
}

#[test]
fn the_outbox_says_what_a_row_waits_for_while_the_broker_is_away() {
    let (home, daemon) = on_nothing("");
    let body = json!({"to": "@tester", "message": "x", "client_message_id": "w"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("a reason", || {
        let page = daemon.http.get("/v1/outbox?status=pending").expect(200);
        let why = page["rows"][0]["waits_for"].as_str().unwrap_or_default();
        why.starts_with("no connection to the broker: ")
    });
    for args in [
        &["daemon", "outbox", "list"][..],
        &["daemon", "outbox", "inspect", "w"],
        &["explain", "w"],
    ] {
        let ran = home.cli(args).ok();
        assert!(
            ran.stdout.contains("no connection to the broker"),
            "{ran:?}"
        );
    }
}

#[test]
fn a_home_that_cannot_start_is_sent_to_the_doctor_by_up_and_by_status() {
    let home = Home::new();
    home.up().stop();
    let data = home.path().join("data.db");
    let whole = std::fs::read(&data).unwrap();
    let mut damaged = whole.clone();
    damaged[..4096].fill(0x55);
    for broken in [Some(damaged), Some(Vec::new()), None] {
        match &broken {
            Some(bytes) => std::fs::write(&data, bytes).unwrap(),
            None => std::fs::remove_file(&data).unwrap(),
        }
        let Err(ran) = home.try_up() else {
            panic!("it started");
        };
        // Where the file is gone, the doctor could only say what `up` says itself.
        let way_out = match &broken {
            Some(bytes) if !bytes.is_empty() => "next: `heddle doctor`",
            _ => "`heddle daemon restore FILE`",
        };
        assert!(ran.stderr.contains(way_out), "{ran:?}");
        let status = home.cli(&["status"]).ok();
        assert!(status.stdout.contains("next: heddle doctor"), "{status:?}");
        assert!(status.stdout.contains("data.db is"), "{status:?}");
        let status = home.cli(&["status", "--json"]).ok().json();
        assert_eq!(status["next"], "heddle doctor");
        assert_eq!(home.cli(&["doctor"]).code, 1);
    }
    std::fs::write(&data, whole).unwrap();
    assert!(
        home.cli(&["status"])
            .ok()
            .stdout
            .contains("next: heddle up")
    );
}

#[test]
fn a_reply_to_nothing_that_is_known_is_sent_with_a_warning() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["send", "@tester", "question", "--id", "q-1"])
        .ok();
    wait_until("the question", || {
        home.cli(&["inbox"]).ok().stdout.contains("question")
    });
    let known = home
        .cli(&["send", "@tester", "answer", "--reply-to", "q-1"])
        .ok();
    assert_eq!(known.stderr, "", "{known:?}");
    let strange = [
        "send",
        "@tester",
        "answer",
        "--reply-to",
        "q-2",
        "--id",
        "r",
    ];
    let ran = home.cli(&strange).ok();
    assert!(
        ran.stderr
            .contains("warning: no message here has the id q-2"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("queued for @tester"), "{ran:?}");
    // The same again changes nothing, and says it once.
    assert_eq!(home.cli(&strange).ok().stderr, "");
    let place = ["send", "@tester", "answer", "--reply-to", "1", "--json"];
    let answer = home.cli(&place).ok().json();
    let next = answer["warnings"][0]["next"].as_str().unwrap();
    assert!(next.contains("has the id q-1"), "{answer}");
    assert_eq!(answer["durability"], "local");
    let refused = daemon.http.get("/v1/inbox/known?id=q-1&agent=nobody");
    assert_eq!(refused.expect(404)["code"], "unknown_agent");
}

#[test]
fn a_reply_to_work_that_was_taken_is_a_reply_to_something_known_also_after_a_restart() {
    let home = Home::new();
    let broker = BrokerProcess::start(
        &home,
        &home.path().parent().unwrap().join("broker"),
        "127.0.0.1:0",
        &[],
    );
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    home.cli(&["queue", "push", "build", "own work", "--id", "own"])
        .ok();
    // Work that another member gave: this home has sent nothing under that id, and has no such mail.
    let mesh = status(&daemon)["meshes"][0]["mesh_id"].clone();
    let mut giver = RawLink::enter(
        &broker,
        mesh.as_str().unwrap(),
        "01HZX000000000000000000009",
    );
    assert_eq!(giver.next_of("welcome")["type"], "welcome");
    let envelope = json!({
        "v": 1, "kind": "message", "priority": "now", "body": "theirs",
        "destination": {"kind": "queue", "ref": "build"},
    });
    let item = json!({"agent": "one", "client_message_id": "w-1", "envelope": envelope});
    giver.say(&json!({"type": "send", "batch": 1, "items": [item]}));
    let verdicts = giver.next_of("verdicts");
    assert_eq!(verdicts["items"][0]["verdict"], "created", "{verdicts}");

    let taken = home.cli(&["queue", "take", "build", "--json"]).ok().json();
    assert_eq!(taken["items"][0]["client_message_id"], "w-1", "{taken}");
    // Who gave it stands in the roster, which comes by itself.
    wait_until("the giver to be known", || {
        daemon.http.get("/v1/inbox/known?id=w-1").expect(200)["known"] == true
    });
    let answer = |id: &str, to: &str| {
        home.cli(&["send", "@tester", "done", "--reply-to", to, "--id", id])
            .ok()
            .stderr
    };
    assert_eq!(answer("a-1", "w-1"), "");
    assert!(answer("a-2", "w-2").contains("no message here has the id w-2"));
    daemon.stop();
    let _daemon = home.up();
    assert_eq!(answer("a-3", "w-1"), "");
}
