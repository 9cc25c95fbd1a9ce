//! The verbs of work queues: what they print can be run, and hostile arguments are refused in words.

use crate::support;

use serde_json::json;
use support::queue::{LONG, QUEUE, committed, push, settle, take_one};
use support::{Home, wait_until};

#[test]
fn the_verbs_show_how_to_go_on_and_what_they_print_can_be_run() {
    let home = Home::new();
    let _daemon = home.up();
    let ran = home.cli(&["queue", "list"]).ok();
    assert!(ran.stdout.contains("no queues yet"), "{ran:?}");
    let ran = home.cli(&["queue", "take", QUEUE]).ok();
    assert!(ran.stdout.contains("there is no queue:builds"), "{ran:?}");
    let ran = home.cli(&[
        "queue",
        "push",
        "queue:builds",
        "build\u{1b}[31m it",
        "--id",
        "a",
        "--priority",
        "now",
        "--meta",
        "{\"n\":1}",
        "--reply-to",
        "q",
    ]);
    assert_eq!(
        ran.ok().stdout,
        "queued for queue:builds, safe on disk (a)\n"
    );
    let take = [
        "queue", "take", QUEUE, "--lease", "1s", "--wait", "10s", "--agent", "one",
    ];
    let ran = home.cli(&take).ok();
    assert!(
        ran.stdout.contains("[NOW]  re q") && ran.stdout.contains("build\\u{1b}[31m it"),
        "{ran:?}"
    );
    let old: Vec<String> = printed(&ran.stdout, "done:");
    // Taken over by the same agent, the old fence is worth nothing.
    let ran = home.cli(&take).ok();
    assert!(ran.stdout.contains("delivery 2"), "{ran:?}");
    let stale = home.cli(&words(&old));
    assert_eq!((stale.code, stale.stdout.as_str()), (3, ""), "{stale:?}");
    assert!(
        stale.stderr.contains("next: Stop working on it"),
        "{stale:?}"
    );
    let mut with_json = words(&old);
    with_json.push("--json");
    let stale = home.cli(&with_json);
    assert_eq!(stale.json()["items"][0]["verdict"], "stale_fence");
    let back = home.cli(&words(&printed(&ran.stdout, "give back:"))).ok();
    assert!(back.stdout.contains("waits again"), "{back:?}");
    let ran = home.cli(&["queue", "take", QUEUE, "--agent", "one"]).ok();
    let ack = printed(&ran.stdout, "done:");
    for _ in 0..2 {
        let done = home.cli(&words(&ack)).ok();
        assert!(done.stdout.contains("is done"), "{done:?}");
    }
    let ran = home.cli(&["queue", "take", QUEUE]).ok();
    assert_eq!(ran.stdout, "nothing waits in queue:builds\n");
    let ran = home.cli(&["queue", "take", QUEUE, "--json"]).ok();
    assert_eq!(ran.json(), json!({"items": [], "exists": true}));
    let ran = home.cli(&["queue", "ack", QUEUE, "1.99", "--fence", "1"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    let ran = home.cli(&["queue", "list", "--json"]).ok();
    assert_eq!(
        ran.json()["queues"],
        json!([{"queue": QUEUE, "mesh": "home", "ready": 0, "leased": 0}])
    );
}

/// The command that stands behind a label, without its own name.
fn printed(text: &str, label: &str) -> Vec<String> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(label));
    let words = line.unwrap_or_else(|| panic!("{text}")).split_whitespace();
    words.skip(1).map(str::to_owned).collect()
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

#[test]
fn hostile_arguments_are_usage_errors() {
    let home = Home::new();
    let _daemon = home.up();
    for args in [
        &["take", QUEUE, "--max", "0"][..],
        &["take", QUEUE, "--max", "101"],
        &["take", QUEUE, "--max", "-1"],
        &["take", QUEUE, "--lease", "0s"],
        &["take", QUEUE, "--lease", "25h"],
        &["take", QUEUE, "--wait", "31s"],
        &["take", QUEUE, "--wait", "soon"],
        &["take", "a\nb"],
        &["take", "a\u{1b}b"],
        &["push", "a b", "text"],
        &["push", QUEUE, "text", "--meta", "[1]"],
        &["push", QUEUE, "text", "--priority", "soon"],
        &["ack", QUEUE, "1.1"],
        &["ack", QUEUE, "1.1", "--fence", "one"],
        &["ack", QUEUE, "one", "--fence", "1"],
        &["release", QUEUE, "1.1", "--fence", "18446744073709551615"],
    ] {
        let ran = home.cli(&[&["queue"], args].concat());
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(
            !ran.stderr.is_empty() && !ran.stderr.contains('\u{1b}'),
            "{ran:?}"
        );
    }
}

#[test]
fn the_list_counts_what_is_ready_and_what_is_leased() {
    let home = Home::new();
    let daemon = home.up();
    for id in ["a", "b", "c"] {
        push(&daemon, id, "next");
    }
    committed(&daemon, 3);
    let item = take_one(&daemon, "one", LONG);
    let counts = || {
        let list = daemon.http.get("/v1/queue/list").expect(200);
        let queue = &list["queues"][0];
        (
            queue["ready"].as_u64().unwrap(),
            queue["leased"].as_u64().unwrap(),
        )
    };
    assert_eq!(counts(), (2, 1));
    let shown = home.cli(&["queue", "list"]).ok().stdout;
    let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["queue:builds", "home", "2", "1"], "{shown}");
    for name in ["builds", "queue:builds"] {
        assert_eq!(home.cli(&["queue", "list", name]).ok().stdout, shown);
    }
    let ran = home.cli(&["queue", "list", "nothing"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("heddle queue list"), "{ran:?}");
    assert_eq!(settle(&daemon, "ack", "one", &item), "acked");
    assert_eq!(counts(), (2, 0));
    // A lease that ran out holds nothing.
    take_one(&daemon, "one", 5);
    assert_eq!(counts(), (1, 1));
    support::wait_until("the end of the lease", || counts() == (2, 0));
}

#[test]
fn work_that_nobody_took_has_no_lease_to_settle_and_that_is_what_is_said() {
    let home = Home::new();
    let _daemon = home.up();
    let push = ["queue", "push", QUEUE, "never taken", "--id", "b"];
    home.cli(&push).ok();
    let place = || {
        let told = home.cli(&["explain", "b", "--json"]).ok().json();
        told["broker"]["history_id"].as_str().map(str::to_owned)
    };
    wait_until("its place", || place().is_some());
    let place = place().unwrap();
    let ran = home.cli(&["queue", "ack", QUEUE, &place, "--fence", "1"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("nobody has taken it yet"), "{ran:?}");
}

#[test]
fn explain_tells_who_took_work_and_when_until_when_under_which_number_and_when_it_was_done() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["queue", "push", QUEUE, "build", "--id", "job"])
        .ok();
    support::outbox::wait_for(&daemon, "job", "done");
    let words = || home.cli(&["explain", "job"]).ok().stdout;
    assert!(words().contains("nobody has taken it yet"), "{}", words());
    // Two seconds, without a unit.
    let taken = home.cli_as("one", &["queue", "take", QUEUE, "--lease", "2", "--json"]);
    assert_eq!(taken.ok().json()["items"][0]["client_message_id"], "job");
    let story = daemon.http.get("/v1/explain/job").expect(200);
    let state = &story["broker"]["queue"];
    let at = |name: &str| {
        state[name]
            .as_str()
            .unwrap_or_else(|| panic!("{state}"))
            .to_owned()
    };
    assert!(at("lease_until") > at("taken_at"), "{state}");
    let told = words();
    assert!(told.contains("with @tester/one until 20"), "{told}");
    assert!(
        told.contains(&format!(
            "taken at {}, fence {}, handed out once",
            at("taken_at"),
            state["fence"]
        )),
        "{told}"
    );
    wait_until("the end of the lease", || {
        words().contains("waits; handed out once")
    });
    let taken = home.cli_as("two", &["queue", "take", QUEUE, "--lease", "5m", "--json"]);
    let item = taken.ok().json()["items"][0].clone();
    let (id, fence) = (item["id"].as_str().unwrap(), item["fence"].to_string());
    home.cli_as("two", &["queue", "ack", QUEUE, id, "--fence", &fence])
        .ok();
    let story = daemon.http.get("/v1/explain/job").expect(200);
    let state = &story["broker"]["queue"];
    let at = |name: &str| {
        state[name]
            .as_str()
            .unwrap_or_else(|| panic!("{state}"))
            .to_owned()
    };
    let expected = format!(
        "done by @tester/two at {}, taken at {}, fence {fence}, handed out 2 times",
        at("acked_at"),
        at("taken_at")
    );
    assert!(words().contains(&expected), "{}", words());
    let ran = home.cli_as("two", &["queue", "take", QUEUE, "--lease", "soon"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("45 or 45s for seconds, 90m, 12h"),
        "{ran:?}"
    );
}
