//! Values through a pipe, words of every script, numbers that make no sense, and warnings of a send.

use crate::support;

use serde_json::{Value, json};
use support::{Home, wait_until};

const HOSTILE: &str = "a\u{1b}[31mred\u{202e}x\u{7}\r\nb\tc\u{feff}";

#[test]
fn a_value_goes_through_a_pipe_byte_by_byte() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "value": HOSTILE});
    daemon.http.post("/v1/memory/remember", &body).expect(200);
    daemon.http.post("/v1/state/set", &body).expect(200);
    let exactly = format!("{HOSTILE}\n");
    assert_eq!(home.cli(&["recall", "k"]).ok().stdout, exactly);
    assert_eq!(home.cli(&["state", "get", "k"]).ok().stdout, exactly);
    let object = json!({"key": "o", "value": {"text": HOSTILE}});
    daemon.http.post("/v1/state/set", &object).expect(200);
    let shown = home.cli(&["state", "get", "o"]).ok().stdout;
    let read: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(read, object["value"], "{shown:?}");
    // What is for eyes stays safe for them.
    let list = home.cli(&["state", "list"]).ok().stdout;
    assert!(
        !list.contains('\u{1b}') && !list.contains('\u{202e}'),
        "{list:?}"
    );
}

#[test]
fn words_of_scripts_without_spaces_are_found_in_memory_and_in_the_inbox() {
    let home = Home::new();
    let daemon = home.up();
    for (key, value) in [
        ("zh", "我们明天部署新的服务器"),
        ("ja", "データベースの移行は完了しました"),
        ("th", "การปรับใช้ล้มเหลว"),
        ("en", "deploy failed at noon"),
    ] {
        home.cli(&["remember", key, value]).ok();
        let body = json!({"to": "@tester", "message": value, "client_message_id": key});
        daemon.http.post("/v1/send", &body).expect(202);
    }
    wait_until("the messages", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["inbox"]["items"] == 4
    });
    for (query, keys) in [
        ("部署", vec!["zh"]),
        ("移行", vec!["ja"]),
        ("完了 データ", vec!["ja"]),
        ("ล้มเหลว", vec!["th"]),
        ("deploy", vec!["en"]),
        ("部署 移行", vec![]),
        ("100%部署_", vec![]),
        // Half a word of a script with spaces is not a word; `eplo` is not found by accident.
        ("eplo", vec![]),
    ] {
        let page = home
            .cli(&["recall", "--search", query, "--json"])
            .ok()
            .json();
        let found: Vec<&str> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["key"].as_str().unwrap())
            .collect();
        assert_eq!(found, keys, "memory: {query}");
        let page = home
            .cli(&["inbox", "--search", query, "--json"])
            .ok()
            .json();
        let found: Vec<&str> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["client_message_id"].as_str().unwrap())
            .collect();
        assert_eq!(found, keys, "inbox: {query}");
    }
}

#[test]
fn an_empty_search_says_that_nothing_matches_and_not_that_nothing_is_there() {
    let home = Home::new();
    let _daemon = home.up();
    let nothing = home.cli(&["recall"]).ok().stdout;
    assert!(nothing.contains("nothing is remembered"), "{nothing}");
    home.cli(&["remember", "k", "v"]).ok();
    let none = home.cli(&["recall", "--search", "absent"]).ok().stdout;
    assert!(!none.contains("nothing is remembered"), "{none}");
    assert!(
        none.contains("absent") && none.contains("heddle recall"),
        "{none}"
    );
    // Others remember, this agent does not.
    let other = home.cli(&["--agent", "ada", "recall"]).ok().stdout;
    assert!(!other.contains("nothing is remembered here"), "{other}");
    assert!(other.contains("--scope all"), "{other}");
}

#[test]
fn the_file_of_another_owner_is_pointed_at() {
    let home = Home::new();
    let _daemon = home.up();
    let from = home.path().parent().unwrap().join("plan.txt");
    std::fs::write(&from, "the plan").unwrap();
    home.cli(&["agent", "register", "ada"]).ok();
    home.cli(&[
        "--agent",
        "ada",
        "file",
        "share",
        from.to_str().unwrap(),
        "--as",
        "plan.txt",
    ])
    .ok();
    let hidden = home.cli(&["file", "get", "plan.txt"]);
    assert_eq!(hidden.code, 4, "{hidden:?}");
    assert!(
        hidden
            .stderr
            .contains("heddle file get plan.txt --scope @tester/ada"),
        "{hidden:?}"
    );
    let got = home.cli(&["file", "get", "plan.txt", "--scope", "@tester/ada"]);
    assert_eq!(got.ok().stdout, "the plan");
    let absent = home.cli(&["file", "get", "absent.txt"]);
    assert_eq!(absent.code, 4, "{absent:?}");
    assert!(!absent.stderr.contains("--scope @"), "{absent:?}");
}

#[test]
fn numbers_that_make_no_sense_are_refused_with_their_bounds() {
    let home = Home::new();
    let daemon = home.up();
    for verb in [
        &["inbox", "--limit"][..],
        &["task", "list", "--limit"],
        &["daemon", "outbox", "list", "--limit"],
        &["vector", "search", "words", "--limit"],
        &["effect", "list", "--limit"],
        &["effect", "log", "--limit"],
    ] {
        for number in ["0", "-1", "99999999999999999999", "abc"] {
            let args = [verb, &[number]].concat();
            let ran = home.cli(&args);
            assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
            assert!(ran.stderr.contains("1 to "), "{args:?}: {ran:?}");
            assert!(
                !ran.stderr.contains("unexpected argument"),
                "{args:?}: {ran:?}"
            );
        }
    }
    let http = &daemon.http;
    for target in [
        "/v1/memory/recall?limit=0",
        "/v1/inbox?limit=501",
        "/v1/task/list?limit=0",
    ] {
        let problem = http.get(target).expect(400);
        assert!(
            problem["detail"].as_str().unwrap().contains("1 to 500"),
            "{target}: {problem}"
        );
    }
}

#[test]
fn a_send_carries_the_warnings_that_other_verbs_carry() {
    let home = Home::new();
    let _daemon = home.up();
    for agent in ["ada", "bob"] {
        home.cli(&["agent", "register", agent]).ok();
    }
    let lose = |title: &str| {
        let task = home
            .cli(&["--agent", "bob", "task", "add", title, "--json"])
            .ok()
            .json();
        let id = task["task"]["id"].as_str().unwrap().to_owned();
        home.cli(&["--agent", "ada", "task", "claim", &id]).ok();
        home.cli(&["--agent", "bob", "task", "cancel", &id]).ok();
        id
    };
    let id = lose("first");
    let sent = home
        .cli(&["--agent", "ada", "send", "@bob", "hi", "--json"])
        .ok()
        .json();
    assert_eq!(sent["warnings"][0]["type"], "task_cancelled", "{sent}");
    assert_eq!(sent["warnings"][0]["task_id"], id, "{sent}");
    let calm = home
        .cli(&["--agent", "ada", "send", "@bob", "hi", "--json"])
        .ok()
        .json();
    assert!(calm.get("warnings").is_none(), "{calm}");
    lose("second");
    let words = home.cli(&["--agent", "ada", "send", "@bob", "hi"]).ok();
    assert!(
        words.stderr.contains("warning: ") && words.stderr.contains("second"),
        "{words:?}"
    );
}
