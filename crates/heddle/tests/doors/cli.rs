//! The command line as a person and a script meet it: words, JSON, exit codes.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use support::stub_broker::{StubBroker, features};
use support::{Home, wait_until};

#[test]
fn two_agents_talk_by_name_and_by_topic() {
    let home = Home::new();
    let _daemon = home.up();
    home.cli(&["agent", "register", "planner"]).ok();
    home.cli(&["agent", "register", "coder"]).ok();
    home.cli_as("coder", &["topic", "subscribe", "ops"]).ok();
    home.cli_as("planner", &["send", "@coder", "please build", "--wait"])
        .ok();
    home.cli_as("planner", &["send", "#ops", "going live", "--wait"])
        .ok();
    let mut page = json!(null);
    wait_until("both messages", || {
        page = home
            .cli(&["inbox", "--agent", "coder", "--json"])
            .ok()
            .json();
        page["items"].as_array().unwrap().len() == 2
    });
    let items = page["items"].as_array().unwrap();
    assert_eq!(items[0]["body"], "please build");
    assert_eq!(items[0]["from"], "@tester/planner");
    assert!(items[0]["topic"].is_null());
    assert_eq!(items[1]["body"], "going live");
    assert_eq!(items[1]["topic"], "ops");
    assert_eq!(page["stale"], false);
    // A peek does not consume; an ack does.
    let again = home
        .cli(&["inbox", "--agent", "coder", "--json", "--ack"])
        .ok()
        .json();
    let bare = |page: &serde_json::Value| {
        let mut items = page["items"].clone();
        for item in items.as_array_mut().unwrap() {
            // Printing it put it before the agent, and only that has changed.
            item["shown_at"] = json!(null);
        }
        items
    };
    assert_eq!(bare(&again), bare(&page));
    assert!(again["items"][0]["shown_at"].is_string());
    let after = home
        .cli(&["inbox", "--agent", "coder", "--json"])
        .ok()
        .json();
    assert_eq!(after["items"].as_array().unwrap().len(), 0);
    let all = home
        .cli(&["inbox", "--agent", "coder", "--json", "--all"])
        .ok()
        .json();
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    let reply = items[0]["broker_message_id"].as_str().unwrap();
    home.cli_as(
        "coder",
        &["send", "@planner", "done", "--reply-to", reply, "--wait"],
    )
    .ok();
    wait_until("the reply", || {
        let page = home.cli_as("planner", &["inbox", "--json"]).ok().json();
        page["items"][0]["reply_to_id"] == reply
    });
}

#[test]
fn follow_shows_an_arriving_message_within_100_ms() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "coder"]).ok();
    home.cli(&["send", "@coder", "before", "--wait"]).ok();
    let mut child = home
        .command(&["inbox", "--agent", "coder", "--follow", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (lines, arrivals) = std::sync::mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            let item: serde_json::Value = serde_json::from_str(&line).unwrap();
            let _ = lines.send((Instant::now(), item));
        }
    });
    let next = || arrivals.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(next().1["body"], "before");
    std::thread::sleep(Duration::from_millis(300));
    let mut delays = Vec::new();
    for n in 0..10 {
        let sent = Instant::now();
        let body = json!({"to": "@coder", "message": format!("m{n}")});
        daemon.http.post("/v1/send", &body).expect(202);
        let (at, item) = next();
        assert_eq!(item["body"], format!("m{n}"));
        delays.push(at.duration_since(sent));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    delays.sort();
    // The median, because the machine that tests is shared; one slow sync is not our delay.
    assert!(delays[5] < Duration::from_millis(100), "{delays:?}");
}

#[test]
fn ob_16_c17_a_second_up_exits_3_and_names_the_holder() {
    let home = Home::new();
    let daemon = home.up();
    let pid = daemon.child.id().to_string();
    for args in [
        &["up"][..],
        &["up", "--json"],
        &["up", "--detach"],
        &["up", "--detach", "--json"],
    ] {
        let ran = home.cli(args);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains(&pid), "{ran:?}");
        assert!(ran.stderr.contains("next:"), "{ran:?}");
    }
    daemon.http.get("/v1/health").expect(200);
}

#[test]
fn detached_up_answers_with_one_object_and_down_stops_it() {
    let home = Home::new();
    assert!(home.cli(&["down"]).ok().stdout.contains("nothing runs"));
    let ready = home.cli(&["up", "--detach", "--json"]).ok().json();
    for key in ["home", "socket", "http", "console", "mesh", "agent", "pid"] {
        assert!(ready.get(key).is_some(), "{key} is missing");
    }
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["running"], true);
    assert_eq!(status["connected"], true);
    assert_eq!(status["durability"], "full");
    assert_eq!(status["degraded"], json!([]));
    assert_eq!(
        status["outbox"],
        json!({"pending": 0, "inflight": 0, "done": 0, "dead": 0, "aborted": 0})
    );
    let start = Instant::now();
    home.cli(&["down", "--json"]).ok();
    assert!(start.elapsed() < Duration::from_secs(10));
    let gone = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(gone["running"], false);
    assert!(gone["outbox"].is_null(), "unknown shown as empty");
    home.cli(&["down"]).ok();
}

#[test]
fn exit_codes_tell_a_script_what_happened() {
    let home = Home::new();
    let code = |args: &[&str]| home.cli(args).code;
    assert_eq!(code(&["send", "@tester", "m"]), 5, "unreachable");
    assert_eq!(code(&["status", "--colour"]), 2, "usage");
    assert_eq!(code(&["--help"]), 0);
    let _daemon = home.up();
    assert_eq!(code(&["send", "@nobody", "m"]), 4, "not found");
    assert_eq!(code(&["send", "nobody", "m"]), 2, "bad address");
    assert_eq!(code(&["send", "@tester", "m", "--meta", "{"]), 2);
    assert_eq!(code(&["send", "@tester", "m", "--id", "one"]), 0);
    assert_eq!(
        code(&["send", "@tester", "m", "--id", "one"]),
        0,
        "a retry is no failure"
    );
    assert_eq!(
        code(&["send", "@tester", "other", "--id", "one"]),
        3,
        "conflict"
    );
    assert_eq!(code(&["inbox", "--agent", "nobody"]), 4);
    assert_eq!(code(&["topic", "create", "o\u{7}ps"]), 2);
    assert_eq!(code(&["send", "@tester", "m", "--mesh", "elsewhere"]), 4);
}

#[test]
fn errors_say_what_to_do_next() {
    let home = Home::new();
    let _daemon = home.up();
    home.cli(&["agent", "register", "planner"]).ok();
    let ran = home.cli(&["send", "@planer", "m"]);
    assert!(
        ran.stderr.contains("@planer") && ran.stderr.contains("@tester/planner"),
        "{ran:?}"
    );
    let ran = home.cli(&["send", "@planer", "m", "--json"]);
    assert_eq!(ran.json()["code"], "unknown_recipient");
    assert_eq!(ran.json()["candidates"][0], "@tester/planner");
    let ran = home.cli(&["send", "#nowhere", "m"]);
    assert!(
        ran.stderr.contains("heddle topic create nowhere"),
        "{ran:?}"
    );
    let ran = home.cli(&[
        "send",
        "@tester",
        &"x".repeat(100_000),
        "--meta",
        &format!("{{\"k\":\"{}\"}}", "y".repeat(100_000)),
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn the_words_of_the_verbs() {
    let home = Home::new();
    let _daemon = home.up();
    let say = |args: &[&str]| home.cli(args).ok().stdout;
    insta::assert_snapshot!(say(&["agent", "register", "planner"]), @"registered @tester/planner");
    insta::assert_snapshot!(say(&["agent", "register", "planner"]), @"@tester/planner was registered already");
    insta::assert_snapshot!(say(&["topic", "create", "ops"]), @"created #ops");
    insta::assert_snapshot!(say(&["topic", "create", "#ops"]), @"#ops exists already");
    insta::assert_snapshot!(say(&["topic", "subscribe", "ops"]), @"@tester receives #ops");
    insta::assert_snapshot!(say(&["topic", "list"]), @r"
    TOPIC  SUBSCRIBERS
    #ops   @tester/tester
    ");
    insta::assert_snapshot!(say(&["send", "#ops", "hello", "--id", "first", "--wait"]), @"sent to #ops (first)");
    insta::assert_snapshot!(say(&["send", "#ops", "hello", "--id", "first"]), @"already sent to #ops (first)");
    insta::assert_snapshot!(say(&["peers"]), @r"
    ADDRESS          WHERE      STATE
    @tester/planner  this home  online
    @tester/tester   this home  online
    as of now
    ");
    wait_until("the message", || say(&["inbox"]).contains("hello"));
    let inbox = say(&["inbox"]);
    assert!(
        inbox.starts_with("1  @tester/tester → #ops  20") && inbox.ends_with("\n    hello\n"),
        "{inbox}"
    );
    insta::assert_snapshot!(say(&["inbox", "--agent", "planner"]), @"no unread messages");
}

#[test]
fn t_41_a_hostile_body_does_not_drive_the_terminal() {
    let home = Home::new();
    let _daemon = home.up();
    home.cli(&[
        "send",
        "@tester",
        "\u{1b}]0;owned\u{7}\u{202e}txet",
        "--wait",
    ])
    .ok();
    let mut shown = String::new();
    wait_until("the message", || {
        shown = home.cli(&["inbox"]).ok().stdout;
        shown.contains("owned")
    });
    assert!(
        !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']),
        "{shown:?}"
    );
}

#[test]
fn t_33_v6_15_5_dr_09_br_19_a_broker_that_cannot_be_trusted_stops_the_daemon_with_nothing_sent() {
    let scoped = |days: i64| json!({"mode": "retention_scoped", "dedupe_retention_days": days, "request_fingerprint": true});
    let cases = [
        (json!({}), 4010),
        (features(json!({"mode": "permanent"})), 4011),
        (features(scoped(6)), 4012),
    ];
    for (advertised, code) in cases {
        let broker = StubBroker::start();
        broker.features(advertised);
        let home = Home::new();
        home.config(&broker.config());
        // It may say that it is ready before it hears of the refusal; either way it ends non-zero.
        let (ended, words) = match home.try_up() {
            Ok(mut daemon) => {
                let ended = daemon.wait(Duration::from_secs(15)).unwrap();
                daemon.wait_log(&code.to_string());
                (ended, daemon.log())
            }
            Err(ran) => (ran.code, ran.stderr),
        };
        assert_ne!(ended, 0);
        wait_until("the close code", || broker.close_codes() == [code]);
        assert!(words.contains(&code.to_string()), "{words}");
        assert_eq!(broker.send_count(), 0);
    }
}

#[test]
fn dr_09_an_override_beyond_the_brokers_memory_stops_the_daemon() {
    for (hours, runs) in [(30 * 24 - 24, true), (30 * 24 - 23, false)] {
        let broker = StubBroker::start();
        let home = Home::new();
        home.config(&format!(
            "{}\n[outbox]\nmax_age_hours_override = {hours}\n",
            broker.config()
        ));
        match home.try_up() {
            Ok(mut daemon) if runs => {
                daemon.http.get("/v1/health").expect(200);
                daemon.terminate();
                assert_eq!(daemon.wait(Duration::from_secs(12)), Some(0));
            }
            Ok(mut daemon) => {
                assert_eq!(daemon.wait(Duration::from_secs(15)), Some(1));
                daemon.wait_log("outbox_max_age_above_dedupe_window");
            }
            Err(ran) => {
                assert!(!runs, "{ran:?}");
                assert!(
                    ran.stderr.contains("outbox_max_age_above_dedupe_window")
                        && ran.stderr.contains("next: Lower max_age_hours_override"),
                    "{ran:?}"
                );
            }
        }
    }
}

#[test]
fn a_damaged_config_is_refused_in_words() {
    let home = Home::new();
    home.config("[outbox]\nmax_age = 1\n");
    let ran = home.cli(&["up"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("config.toml") && ran.stderr.contains("max_age"),
        "{ran:?}"
    );
}

#[test]
fn a_newer_store_is_refused_and_not_touched() {
    let home = Home::new();
    drop(home.up());
    let path = home.path().join("data.db");
    std::fs::remove_file(home.path().join("data.db-wal")).ok();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(connection);
    let before = std::fs::read(&path).unwrap();
    let ran = home.cli(&["up"]);
    // As a database of a newer Heddle, and a backup of one: refused, not failed.
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("newer"), "{ran:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn usage_errors_are_objects_with_json_and_words_without() {
    let home = Home::new();
    for (args, next) in [
        (
            &["status", "--colour", "--json"][..],
            "heddle status --help",
        ),
        (&["--json", "fly"], "heddle --help"),
        (&["topic", "--json"], "heddle topic --help"),
        (&["send", "--json", "@tester"], "heddle send --help"),
        (&["inbox", "--limit", "0", "--json"], "heddle inbox --help"),
    ] {
        let ran = home.cli(args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert_eq!(ran.stdout.lines().count(), 1, "{ran:?}");
        let problem = ran.json();
        assert_eq!(problem["code"], "usage", "{ran:?}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{ran:?}");
        assert_eq!(problem["next"], format!("Run `{next}`."), "{ran:?}");
        assert!(!ran.stderr.is_empty());
    }
    let plain = home.cli(&["status", "--colour"]);
    assert_eq!((plain.code, plain.stdout.as_str()), (2, ""));
    // What comes behind `--` is text, not an option.
    let text = home.cli(&["send", "@x", "a", "b", "--", "--json"]);
    assert_eq!((text.code, text.stdout.as_str()), (2, ""));
    let help = home.cli(&["--help", "--json"]);
    assert_eq!(help.code, 0);
    assert!(help.stdout.contains("Usage"), "{help:?}");
}

#[test]
fn a_limit_that_no_page_has_is_refused_in_a_sentence() {
    let home = Home::new();
    let daemon = home.up();
    for limit in ["0", "-1", "501", "99999999999999999999999"] {
        let ran = home.cli(&["inbox", "--limit", limit]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("from 1 to 500"), "{ran:?}");
        for list in ["/v1/inbox", "/v1/outbox"] {
            let answer = daemon.http.get(&format!("{list}?limit={limit}"));
            assert_eq!(answer.expect(400)["code"], "invalid_request");
        }
    }
    home.cli(&["inbox", "--limit", "1"]).ok();
    home.cli(&["inbox", "--limit", "500"]).ok();
}

#[test]
fn heddle_agent_names_the_default_agent_of_a_daemon() {
    let home = Home::new();
    let ready = home
        .cli_as("planner", &["up", "--detach", "--json"])
        .ok()
        .json();
    assert_eq!(ready["agent"], "planner");
    // A caller who names nobody speaks for it.
    home.cli(&["send", "@tester", "from the planner", "--wait"])
        .ok();
    wait_until("the message", || {
        let page = home
            .cli(&["inbox", "--agent", "tester", "--json"])
            .ok()
            .json();
        page["items"][0]["from"] == "@tester/planner"
    });
    assert_eq!(
        home.cli(&["status", "--json"]).ok().json()["agent"],
        "planner"
    );
    home.cli(&["down"]).ok();
    let ready = home
        .cli(&["up", "--agent", "@other", "--detach", "--json"])
        .ok()
        .json();
    assert_eq!(ready["agent"], "other");
    home.cli(&["down"]).ok();
    for args in [&["up"][..], &["up", "--detach"]] {
        let ran = home.cli_as("no/name", args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("HEDDLE_AGENT"), "{ran:?}");
    }
}

#[test]
fn a_home_that_cannot_be_is_refused_in_a_sentence() {
    let home = Home::new();
    let file = home.path().with_file_name("file");
    std::fs::write(&file, "in the way").unwrap();
    // A parent that is no folder, one that can hold nothing, one that is read-only.
    for folder in [
        file.join("home").to_str().unwrap(),
        "/proc/heddle/home",
        "/sys/heddle",
    ] {
        for args in [&["up"][..], &["up", "--detach"]] {
            let mut args = args.to_vec();
            args.extend(["--home", folder]);
            let ran = home.cli(&args);
            assert_eq!(ran.code, 1, "{ran:?}");
            assert!(ran.stderr.contains(folder), "{ran:?}");
            assert!(ran.stderr.contains("next: Choose a folder"), "{ran:?}");
        }
    }
}
