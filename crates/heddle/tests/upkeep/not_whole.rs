//! Lists that are not whole, where nobody reads words on a terminal: an agent's tools, and a status that nobody has given a hint.

use std::thread;

use serde_json::json;

use crate::support;

use support::mcp::McpClient;
use support::{Home, wait_until};

fn change(home: &Home, sql: &str) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    assert_eq!(raw.execute(sql, []).unwrap(), 1, "{sql}");
}

/// An agent that takes a list for all there is would do a task twice, or decide without a fact.
#[test]
fn an_agents_tools_say_which_rows_a_list_is_without() {
    let home = Home::new();
    let daemon = home.up();
    for key in ["alpha", "beta"] {
        home.cli(&["remember", key, "the text of it"]).ok();
        home.cli(&["state", "set", key, "1"]).ok();
        home.cli(&["task", "add", &format!("do {key}")]).ok();
    }
    daemon.stop();
    change(
        &home,
        "UPDATE memory SET value = '\"another text of it\"' WHERE key = 'alpha'",
    );
    change(&home, "UPDATE state_kv SET value = '2' WHERE key = 'alpha'");
    change(
        &home,
        "UPDATE tasks SET title = 'do alphx' WHERE title = 'do alpha'",
    );
    let _daemon = home.up();
    let folder = tempfile::tempdir().unwrap();
    let mut client = McpClient::start(&home, "agent", folder.path(), &["--tools", "full"]);
    for (tool, arguments, row) in [
        ("recall", json!({"scope": "all"}), "memory \"alpha\""),
        (
            "recall",
            json!({"search": "text", "scope": "all"}),
            "memory \"alpha\"",
        ),
        ("get_state", json!({}), "state \"alpha\""),
        ("list_tasks", json!({}), "task "),
    ] {
        let called = client.call(tool, arguments);
        assert_eq!(called.answer["ok"], true, "{called:?}");
        assert!(
            called.answer["data"].to_string().contains("beta"),
            "{called:?}"
        );
        assert!(
            !called.answer["data"].to_string().contains("left_out"),
            "{called:?}"
        );
        let warnings = called.answer["warnings"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let told = warnings.iter().find(|one| one["type"] == "rows_left_out");
        let told = told.unwrap_or_else(|| panic!("{tool}: {called:?}"));
        assert_eq!(told["count"], 1, "{called:?}");
        assert!(
            told["rows"][0].as_str().unwrap().starts_with(row),
            "{called:?}"
        );
        assert!(
            told["next"].as_str().unwrap().contains("heddle doctor"),
            "{called:?}"
        );
    }
}

/// More rows than a status reads by itself, and nobody asks for the one that was changed.
#[test]
fn lf_39_a_changed_row_far_down_a_table_is_told_by_a_status_that_nobody_gave_a_hint() {
    const CLIENTS: usize = 8;
    const EACH: usize = 300;
    let home = Home::new();
    let daemon = home.up();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let daemon = &daemon;
            scope.spawn(move || {
                for n in 0..EACH {
                    let body = json!({"key": format!("k{client}-{n:04}"), "value": n});
                    daemon.http.post("/v1/state/set", &body).expect(200);
                }
            });
        }
    });
    daemon.stop();
    change(
        &home,
        "UPDATE state_kv SET value = value + 1 WHERE key = 'k7-0299'",
    );
    let daemon = home.up();
    let told = || daemon.http.get("/v1/status").body.contains("k7-0299");
    wait_until("the status to tell of it", told);
    // It stays told, whoever asks how often, and is forgotten when it is mended.
    for _ in 0..20 {
        assert!(told());
    }
    home.cli(&["state", "set", "k7-0299", "1"]).ok();
    wait_until("the status to be well", || !told());
    daemon.stop();
    home.cli(&["doctor"]).ok();
}

/// Whoever asks what became of a damaged task was told that the store holds what cannot be right, or that a younger change
/// took its place; and a step over a lost one was answered as done, and changed nothing.
#[test]
fn a_damaged_task_is_explained_as_damaged_and_what_is_advised_mends_it() {
    let spoil = "UPDATE task_op SET body = CAST(x'7b00' || body AS BLOB)";
    for (sql, is_mended_by_a_step) in [
        (spoil, false),
        ("DELETE FROM task_op", false),
        ("UPDATE tasks SET title = 'do alphx'", true),
    ] {
        let home = Home::new();
        let daemon = home.up();
        home.cli(&["task", "add", "do alpha"]).ok();
        let id = home.cli(&["--json", "task", "list"]).ok().json()["items"][0]["id"].clone();
        let id = id.as_str().unwrap().to_owned();
        daemon.stop();
        change(&home, sql);
        let daemon = home.up();
        let told = home.cli(&["--json", "explain", &id]).ok().json();
        assert_eq!(told["result"], "damaged", "{sql}: {told}");
        let told = home.cli(&["explain", &id]).ok().stdout;
        for words in [&format!("task {id} is damaged"), "`heddle doctor --repair`"] {
            assert!(told.contains(words), "{sql}: {told}");
        }
        assert_eq!(
            told.contains("Its next step"),
            is_mended_by_a_step,
            "{sql}: {told}"
        );
        let claimed = home.cli(&["task", "claim", &id]);
        assert_eq!(claimed.code == 0, is_mended_by_a_step, "{sql}: {claimed:?}");
        daemon.stop();
        if !is_mended_by_a_step {
            for words in [&format!("a step of task {id}"), "doctor --repair"] {
                assert!(claimed.stderr.contains(words), "{sql}: {claimed:?}");
            }
            home.cli(&["doctor", "--repair"]).ok();
            let daemon = home.up();
            home.cli(&["task", "claim", &id]).ok();
            daemon.stop();
        }
        home.cli(&["doctor"]).ok();
        let _daemon = home.up();
        let told = home.cli(&["--json", "explain", &id]).ok().json();
        assert_eq!(told["result"], "stands", "{sql}: {told}");
    }
}

/// Whoever asked was told that a younger change had taken its place, and every check called all well.
#[test]
fn lf_39_a_row_that_is_gone_as_a_whole_is_told_and_explained_as_lost() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["state", "set", "kept", "1", "--id", "kept-1"])
        .ok();
    home.cli(&["state", "set", "k", "1", "--id", "k-1"]).ok();
    home.cli(&["state", "set", "k", "2", "--id", "k-2"]).ok();
    home.cli(&["task", "add", "do alpha", "--id", "t-1"]).ok();
    let task = home.cli(&["--json", "task", "list"]).ok().json()["items"][0]["id"].clone();
    let task = task.as_str().unwrap().to_owned();
    let told = home.cli(&["explain", "k-1"]).ok();
    assert!(
        told.stdout.contains("a younger change has taken its place"),
        "{told:?}"
    );
    assert!(told.stdout.contains("stamp 3"), "it is shown: {told:?}");
    daemon.stop();
    for sql in [
        "DELETE FROM state_kv WHERE key = 'k'",
        "DELETE FROM tasks",
        "DELETE FROM task_op",
    ] {
        change(&home, sql);
    }
    let looked = home.cli(&["doctor"]);
    assert_eq!(looked.code, 1, "{looked:?}");
    let gone = format!("2 rows are gone: state \"k\", task {task}");
    assert!(looked.stdout.contains(&gone), "{looked:?}");
    let daemon = home.up();
    for id in ["k-1", "k-2", "k", "t-1", &task] {
        let told = home.cli(&["explain", id]);
        assert_eq!(told.code, 1, "{id}: {told:?}");
        assert!(
            told.stdout.contains("its row is gone from data.db"),
            "{id}: {told:?}"
        );
        assert!(
            !told.stdout.contains("has taken its place"),
            "{id}: {told:?}"
        );
        let told = home.cli(&["--json", "explain", id]).json();
        assert_eq!(told["result"], "lost", "{id}: {told}");
        assert!(told["next"].as_str().unwrap().contains("new id"), "{told}");
    }
    home.cli(&["explain", "kept-1"]).ok();
    let told = || {
        daemon
            .http
            .get("/v1/status")
            .body
            .contains("rows are gone from data.db")
    };
    wait_until("the status to tell of it", told);
    daemon.stop();
    let mended = home.cli(&["doctor", "--repair"]).ok().stdout;
    assert!(mended.contains("nothing in this home has them"), "{mended}");
    assert!(
        mended.contains(&task) && mended.contains("state \"k\""),
        "{mended}"
    );
    home.cli(&["doctor"]).ok();
    let _daemon = home.up();
    home.cli(&["state", "set", "k", "3"]).ok();
    assert_eq!(home.cli(&["state", "get", "k"]).ok().stdout.trim(), "3");
}
