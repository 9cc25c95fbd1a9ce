//! Providers of embeddings over the real binary: a command, a server, and how both misbehave.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use support::data::under;
use support::embedding_server::{EmbeddingServer, Mood};
use support::vectors::{keys, search, store};
use support::{Daemon, Home, wait_until};

pub(crate) fn script(home: &Home, text: &str) -> PathBuf {
    std::fs::create_dir_all(home.path()).unwrap();
    let path = home.path().join("embed.sh");
    // Renamed into place: a file that is being written cannot be run.
    let draft = home.path().join("draft.sh");
    std::fs::write(&draft, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::rename(&draft, &path).unwrap();
    path
}

fn failed(daemon: &Daemon, why: &str) {
    let body = json!({"key": "k", "content": "text"});
    let problem = under(daemon, "the-id", "/v1/vector/store", &body).expect(502);
    assert_eq!(
        (&problem["code"], &problem["retry"]),
        (&json!("embedding_failed"), &json!("same_id"))
    );
    assert!(
        problem["detail"].as_str().unwrap().contains(why),
        "{why}: {problem}"
    );
}

#[test]
fn a_command_is_bounded_in_every_way_and_its_failures_consume_nothing() {
    let home = Home::new();
    let path = script(&home, "exit 3");
    home.config(&format!(
        "[vectors]\nprovider = 'command'\nmodel = 'sh'\ndim = 2\ncommand = ['{}', 'quiet']\ntimeout_seconds = 1\n",
        path.display()
    ));
    let daemon = home.up();
    failed(&daemon, "exit code 3");
    for (text, why) in [
        ("echo hello", "JSON array"),
        ("echo '[1,\"x\"]'", "JSON array"),
        ("echo '[1,2] [3]'", "JSON array"),
        ("echo '[1,2,3]'", "dim says 2"),
        ("echo '[0,0]'", "zeros"),
        ("echo '[1e999,1]'", "JSON array"),
        ("head -c 3000000 /dev/zero", "bytes"),
        ("kill -9 $$", "signal 9"),
        (
            "echo early >&2; echo 'no such model: x' >&2; exit 4",
            "exit code 4; it said: early / no such model: x",
        ),
        (
            "printf '\\033[31mred\\033[0m\\007\\n' >&2; echo hello",
            "nothing else; it said: red",
        ),
        (
            "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the end >&2; exit 5",
            "/ the end",
        ),
    ] {
        script(&home, text);
        failed(&daemon, why);
    }
    // Its children end with it.
    let pid_file = home.path().join("child.pid");
    script(
        &home,
        &format!("sleep 300 & echo $! > {}; wait", pid_file.display()),
    );
    failed(&daemon, "within 1 s");
    let child = support::text_of(&pid_file);
    wait_until("the child to be gone", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    });
    script(
        &home,
        "test \"$1\" = quiet && wc -c | sed 's/.*/[&, 1]/'; echo run >> runs",
    );
    let body = json!({"key": "k", "content": "text"});
    under(&daemon, "the-id", "/v1/vector/store", &body).expect(200);
    let found = search(&daemon, &json!({"query": "four"}));
    assert_eq!(found[0]["model"], "command:sh:unknown:2:float32");
    assert!(found[0]["distance"].as_f64().unwrap() < 1e-6);
    // A known id is answered without the provider.
    std::fs::remove_file(&path).unwrap();
    let again = under(&daemon, "the-id", "/v1/vector/store", &body).expect(200);
    assert_eq!(again["duplicate"], true);
    failed_to_start(&daemon);
}

fn failed_to_start(daemon: &Daemon) {
    let body = json!({"key": "k", "content": "other"});
    let problem = daemon.http.post("/v1/vector/store", &body).expect(502);
    assert!(
        problem["detail"].as_str().unwrap().contains("started"),
        "{problem}"
    );
    // Offline there is always one.
    let body = json!({"key": "k", "content": "other", "model": "heddle-hash-v1"});
    daemon.http.post("/v1/vector/store", &body).expect(200);
}

#[test]
fn a_server_is_asked_with_the_key_and_believed_only_as_far_as_it_is_checked() {
    const KEY: &str = "sk-very-secret-0001";
    let server = EmbeddingServer::start();
    let home = Home::new();
    home.config(&format!(
        "[vectors]\nprovider = 'openai'\nmodel = 'letters'\nversion = '2'\ndim = 4\nurl = '{}'\nkey_file = 'key'\ntimeout_seconds = 1\n",
        server.url
    ));
    std::fs::write(home.path().join("key"), format!("{KEY}\n")).unwrap();
    let daemon = home.up();
    for (mood, why) in [
        (
            Mood::Says(401, format!("{{\"error\": \"bad key {KEY}\"}}")),
            "401",
        ),
        (Mood::Says(500, String::new()), "500"),
        (Mood::Says(302, String::new()), "302"),
        (Mood::Says(200, "garbage".to_owned()), "OpenAI"),
        (Mood::Says(200, "{\"data\":[]}".to_owned()), "0 embeddings"),
        (
            Mood::Says(200, "{\"data\":[{\"embedding\":[1,2,3]}]}".to_owned()),
            "dim says 4",
        ),
        (
            Mood::Says(200, "{\"data\":[{\"embedding\":[0,0,0,0]}]}".to_owned()),
            "zeros",
        ),
        (
            Mood::Says(
                200,
                format!(
                    "{{\"data\":[{{\"embedding\":[{}1]}}]}}",
                    "1,".repeat(600_000)
                ),
            ),
            "more than",
        ),
        (Mood::BreaksOff, "broke off"),
        (Mood::Hangs, "within 1 s"),
    ] {
        server.is_now(mood);
        failed(&daemon, why);
    }
    server.is_now(Mood::Good);
    for (key, text) in [("a", "aaaa"), ("b", "bbbb"), ("c", "cccc")] {
        store(&daemon, key, text);
    }
    assert_eq!(
        keys(&search(&daemon, &json!({"query": "bbb", "limit": 1}))),
        ["b"]
    );
    let (head, body) = server.asked().pop().unwrap();
    assert!(head.starts_with("POST /v1/embeddings HTTP/1.1"), "{head}");
    assert!(head.contains(&format!("Bearer {KEY}")));
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap()["model"],
        "letters"
    );
    let list = daemon.http.get("/v1/vector/list").expect(200);
    assert_eq!(list["items"][0]["model"], "openai:letters:2:4:float32");
    let log = daemon.log();
    daemon.stop();
    assert!(!log.contains(KEY));
    for file in std::fs::read_dir(home.path().join("logs"))
        .into_iter()
        .flatten()
    {
        assert!(!support::text_of(&file.unwrap().path()).contains(KEY));
    }
}

#[test]
fn a_config_that_cannot_work_is_refused_at_the_start_with_its_reason() {
    for (config, word) in [
        ("provider = 'openai'\nmodel = 'm'", "url"),
        (
            "provider = 'command'\nmodel = 'm'\ncommand = ['embed']",
            "full path",
        ),
        ("provider = 'openai'\nurl = 'http://127.0.0.1:1'", "model"),
    ] {
        let home = Home::new();
        home.config(&format!("[vectors]\n{config}\n"));
        let ran = home.try_up().err().unwrap();
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
}

#[test]
fn re_embedding_that_is_stopped_in_the_middle_says_what_was_moved_and_the_next_run_what_was_there()
{
    let home = Home::new();
    // As many as the file says, and then no more.
    let file = home.path().join("left");
    let path = script(
        &home,
        &format!(
            "n=$(cat {0}); test \"$n\" -gt 0 || exit 3; echo $((n - 1)) > {0}; echo '[1, 2]'",
            file.display()
        ),
    );
    home.config(&format!(
        "[vectors]\nprovider = 'command'\nmodel = 'sh'\ndim = 2\ncommand = ['{}']\n",
        path.display()
    ));
    let daemon = home.up();
    for number in 0..40 {
        let body = json!({"key": format!("k{number:02}"), "content": "text", "embedding": [1, 1, number], "model": "old"});
        daemon.http.post("/v1/vector/store", &body).expect(200);
    }
    let left = |number: u32| std::fs::write(&file, format!("{number}\n")).unwrap();
    left(35);
    let call = ["advanced", "re-embed", "--to", "sh"];
    let stopped = home.cli(&call);
    assert_eq!(stopped.code, 1, "{stopped:?}");
    let list = daemon.http.get("/v1/vector/list?limit=500").expect(200);
    let items = list["items"].as_array().unwrap();
    let of_sh = |item: &&Value| item["model"].as_str().unwrap().starts_with("command:sh");
    // Some of the answers were for the model's identity; more than one step was taken.
    let moved = items.iter().filter(of_sh).count();
    assert!((33..=35).contains(&moved), "{moved}");
    let rest = 40 - moved;
    let figures = format!("{moved} vectors were moved, for good, and {rest} were left");
    for words in ["exit code 3", &figures, "same command again"] {
        assert!(stopped.stderr.contains(words), "{words}: {stopped:?}");
    }
    assert!(!stopped.stderr.contains("nothing was"), "{stopped:?}");
    let told = home.cli(&[&call[..], &["--json"]].concat()).json();
    assert_eq!(
        (&told["code"], &told["moved"]),
        (&json!("embedding_failed"), &Value::Null),
        "{told}"
    );
    left(100);
    let done = home.cli(&call).ok().stdout;
    for words in [
        format!("moved {rest} vectors to command:sh"),
        format!("{moved} of this home's had been there before"),
    ] {
        assert!(done.contains(&words), "{words}: {done}");
    }
    let again = home.cli(&call).ok().stdout;
    assert!(again.contains("nothing to move: 40 vectors"), "{again}");
}
