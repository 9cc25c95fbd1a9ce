//! Slips of a person or a program: what is refused says what is wrong in plain words, and names a step that leads out.

use crate::support;

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::{Home, Ran};

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A start that is refused, in the foreground and in the background, with the same words.
#[track_caller]
fn not_up(home: &Home, says: &[&str]) {
    let front = home.try_up().err().expect("it must not start");
    let back = home.cli(&["up", "--detach"]);
    if back.code == 0 {
        home.cli(&["down"]).ok();
    }
    for ran in [front, back] {
        assert!(ran.code != 0, "{ran:?}");
        for words in says {
            assert!(ran.stderr.contains(words), "without {words:?}: {ran:?}");
        }
    }
}

#[test]
fn a_home_that_is_a_file_or_a_link_to_nothing_is_called_that() {
    let home = Home::new();
    std::fs::write(home.path(), "a letter").unwrap();
    not_up(&home, &["is a file, and a folder must lie there", "--home"]);
    assert_eq!(support::text_of(&home.path()), "a letter");
    std::fs::remove_file(home.path()).unwrap();
    symlink("nowhere", home.path()).unwrap();
    not_up(
        &home,
        &["symbolic link to nowhere, where nothing is", "--home"],
    );
    let inside = home.path().parent().unwrap().join("letter");
    std::fs::write(&inside, "a letter").unwrap();
    let below = inside.join("home");
    let ran = home.cli(&["--home", below.to_str().unwrap(), "up"]);
    assert!(ran.stderr.contains("letter is a file"), "{ran:?}");
}

#[test]
fn a_home_with_too_long_a_path_is_told_to_take_a_shorter_one() {
    let home = Home::new();
    for (name, says) in [("x".repeat(120), "95 bytes"), ("y".repeat(300), "too long")] {
        let long = home.path().join(name);
        for verb in ["up", "--detach"] {
            let mut args = vec!["--home", long.to_str().unwrap(), "up"];
            args.extend(Some(verb).filter(|verb| *verb != "up"));
            let ran = home.cli(&args);
            assert_eq!(ran.code, 1, "{ran:?}");
            assert!(ran.stderr.contains(says), "{ran:?}");
            let next = ran.stderr.split("next: ").nth(1).unwrap_or_default();
            assert!(next.contains("shorter"), "{ran:?}");
            assert!(!next.contains("can be written"), "{ran:?}");
        }
    }
}

#[test]
fn a_port_that_another_program_has_is_named_with_its_setting() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    home.config(&format!("[daemon]\nhttp_port = {port}\n"));
    let says = [
        "http_port",
        "config.toml",
        "another program",
        &port.to_string(),
    ];
    not_up(&home, &says);
    let ran = home.cli(&["up"]);
    assert_eq!(ran.code, 1);
    let next = ran.stderr.split("next: ").nth(1).unwrap();
    assert!(
        next.contains("http_port") && !next.contains("heddle logs"),
        "{ran:?}"
    );
    drop(taken);
    home.up().stop();
}

#[test]
fn a_setting_of_the_wrong_size_is_refused_without_the_names_of_our_types() {
    let home = Home::new();
    for (config, says) in [
        (
            "[daemon]\nhttp_port = 99999\n",
            "a whole number from 0 to 65535",
        ),
        (
            "[daemon]\nhttp_port = \"7\"\n",
            "a whole number from 0 to 65535",
        ),
        ("[log]\nfiles = 0\n", "a whole number from 1 to 255"),
        ("[log]\nmax_mb = -1\n", "a whole number from 1 to 65535"),
        (
            "[inbox]\nretention_days = 0\n",
            "a whole number from 1 to 4294967295",
        ),
    ] {
        home.config(config);
        let ran = home.cli(&["up"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(says), "{ran:?}");
        for ours in ["u8", "u16", "u32", "u64", "nonzero"] {
            assert!(!ran.stderr.contains(ours), "{ran:?}");
        }
    }
}

#[test]
fn t_10_a_log_folder_that_is_a_link_is_refused_and_its_target_is_left_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    std::fs::create_dir_all(home.path()).unwrap();
    let target = home.path().parent().unwrap().join("target");
    std::fs::create_dir(&target).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&target, mode).unwrap();
    symlink(&target, home.path().join("logs")).unwrap();
    not_up(&home, &["logs: it is a symbolic link"]);
    let ran = home.cli(&["doctor"]);
    assert!(ran.stdout.contains("logs"), "{ran:?}");
    // A broker keeps its log in the same way.
    let data = home.path();
    let ran = BrokerProcess::try_start(&home, &data, "127.0.0.1:0", &[]);
    let ran = ran.err().expect("it must not start");
    assert!(ran.stderr.contains("symbolic link"), "{ran:?}");
    let mode = std::fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "the target was changed");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_home_without_its_database_is_led_out_by_up_and_by_repair_alike() {
    let home = Home::new();
    home.up().stop();
    std::fs::remove_file(home.path().join("data.db")).unwrap();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(home.path().join(format!("data.db{suffix}")));
    }
    let up = home.cli(&["up"]);
    let repair = home.cli(&["doctor", "--repair"]);
    assert_eq!((up.code, repair.code), (1, 4), "{up:?} {repair:?}");
    for ran in [&up, &repair] {
        let next = ran.stderr.split("next: ").nth(1).unwrap();
        assert!(next.contains("heddle daemon restore FILE"), "{ran:?}");
        assert!(
            next.contains("broker.db") && next.contains("effects.db"),
            "{ran:?}"
        );
        assert!(
            !next.contains("`heddle doctor`") && !next.contains("--repair"),
            "{ran:?}"
        );
    }
    let doctor = home.cli(&["doctor"]).stdout;
    assert!(doctor.contains("Without one, move broker.db"), "{doctor}");
    // The way out is one.
    for file in [
        "broker.db",
        "broker.db-wal",
        "broker.db-shm",
        "effects.db",
        "effects.db-wal",
        "effects.db-shm",
        "effects",
    ] {
        let _ = std::fs::rename(
            home.path().join(file),
            home.path().join(format!("{file}.moved")),
        );
    }
    home.up().stop();
}

fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

/// A terminal that is closed says so more than once: the kernel does, and the shell.
#[test]
fn a_closed_terminal_drains_a_daemon_and_a_broker_and_stops_nothing_half_way() {
    let home = Home::new();
    for verb in ["up", "daemon"] {
        let mut daemon = if verb == "up" {
            home.up()
        } else {
            let broker = home.path().parent().unwrap().join("broker");
            let broker = BrokerProcess::start(&home, &broker, "127.0.0.1:0", &[]);
            let other = Home::new();
            other.config(&broker.config());
            let mut daemon = other
                .try_up_by(other.command(&["daemon", "up", "--json"]))
                .unwrap();
            let pid = Pid::from_child(&daemon.child);
            signal(pid, Signal::HUP);
            assert_eq!(daemon.wait(std::time::Duration::from_secs(15)), Some(0));
            let mut broker = broker;
            let pid = Pid::from_child(&broker.child);
            signal(pid, Signal::HUP);
            signal(pid, Signal::HUP);
            assert_eq!(broker.child.wait().unwrap().code(), Some(0));
            continue;
        };
        let pid = Pid::from_child(&daemon.child);
        signal(pid, Signal::HUP);
        signal(pid, Signal::HUP);
        assert_eq!(daemon.wait(std::time::Duration::from_secs(15)), Some(0));
        let wal = home.path().join("data.db-wal");
        assert!(!wal.exists(), "the store was not closed in order");
    }
}

#[test]
fn a_daemon_under_nohup_outlives_its_terminal() {
    let home = Home::new();
    let verb = home.command(&["up", "--json"]);
    let mut command = Command::new("nohup");
    command
        .arg(verb.get_program())
        .args(verb.get_args())
        .env_clear();
    for (name, value) in verb.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.stdin(std::process::Stdio::null());
    let daemon = home.try_up_by(command).unwrap();
    signal(Pid::from_child(&daemon.child), Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(500));
    daemon.http.get("/v1/health").expect(200);
    daemon.stop();
}

#[test]
fn what_canonicalize_and_fingerprint_refuse_has_a_next_step() {
    let home = Home::new();
    for (verb, input) in [
        ("canonicalize", "{\"a\":1,\"a\":2}"),
        ("canonicalize", "{"),
        ("fingerprint", "{\"to\":\"@a\"}"),
        (
            "fingerprint",
            "{\"to\":\"@a\",\"message\":\"m\",\"priority\":\"loud\"}",
        ),
    ] {
        let ran = home.cli_told(&["advanced", verb], input);
        assert_eq!(ran.code, 2, "{ran:?}");
        let next = ran.stderr.split("\n  next: ").nth(1).unwrap_or_default();
        assert!(next.len() > 10, "{ran:?}");
        let ran = home.cli_told(&["advanced", verb, "--json"], input);
        let told: Value = serde_json::from_str(if ran.stdout.is_empty() {
            &ran.stderr
        } else {
            &ran.stdout
        })
        .unwrap();
        assert!(text(&told["next"]).len() > 10, "{ran:?}");
    }
}

#[test]
fn ob_11_every_refusal_of_a_requeue_has_the_rows_fingerprint() {
    let home = Home::new();
    home.config("[broker]\nurl = \"ws://127.0.0.1:9/\"\n");
    let daemon = home.up();
    let send = |id: &str, message: &str| {
        let body = json!({"to": "queue:q", "message": message, "client_message_id": id});
        daemon.http.post("/v1/send", &body)
    };
    send("a", "one").expect(202);
    send("b", "two").expect(202);
    let prefix = |id: &str| text(&send(id, "other").expect(409)["daemon_fingerprint_prefix"]);
    let (of_a, of_b) = (prefix("a"), prefix("b"));
    assert_eq!(of_a.len(), 16);
    let requeue = |id: &str, new: &str| {
        let ran = home.cli(&[
            "daemon",
            "outbox",
            "requeue",
            "--id",
            id,
            "--new-client-id",
            new,
            "--force",
            "--json",
        ]);
        let out = if ran.stdout.is_empty() {
            ran.stderr.clone()
        } else {
            ran.stdout.clone()
        };
        (
            ran.code,
            serde_json::from_str::<Value>(&out).unwrap_or_default(),
            ran,
        )
    };
    // An id that is taken belongs to another row.
    let (code, told, ran) = requeue("a", "b");
    assert_eq!(
        (code, &told["daemon_fingerprint_prefix"]),
        (3, &json!(of_b)),
        "{ran:?}"
    );
    let (code, _, ran) = requeue("a", "c");
    assert_eq!(code, 0, "{ran:?}");
    // Aborted now: under another id it is refused.
    let (code, told, ran) = requeue("a", "d");
    assert_eq!(
        (code, &told["daemon_fingerprint_prefix"]),
        (3, &json!(of_a)),
        "{ran:?}"
    );
}

#[test]
fn a_body_in_a_coding_that_is_not_undone_is_refused_on_both_doors() {
    let home = Home::new();
    let daemon = home.up();
    let body =
        |id: &str| json!({"to": "@tester", "message": "m", "client_message_id": id}).to_string();
    for coding in ["gzip", "br", "identity, gzip", "x", "Identity;q=1"] {
        for (target, body) in [
            ("/v1/send", body("no")),
            ("/v1/topic/create", json!({"topic": "t"}).to_string()),
        ] {
            let answer = daemon
                .http
                .post_with(target, &[("content-encoding", coding)], &body);
            let told = answer.expect(415);
            assert_eq!(told["code"], "unsupported_media_type", "{told}");
            assert!(text(&told["detail"]).contains("Content-Encoding"), "{told}");
            assert!(text(&told["next"]).contains("Content-Encoding"), "{told}");
        }
    }
    let port = support::text_of(&home.path().join("http.port"));
    let bearer = format!(
        "Bearer {}",
        support::text_of(&home.path().join("local_token")).trim()
    );
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-encoding", "gzip"),
    ];
    let port = port.trim().parse().unwrap();
    let answer = support::http::tcp(port, "POST", "/v1/send", &headers, &body("no"));
    answer.unwrap().expect(415);
    // Two of them are one list.
    let two = [
        ("content-encoding", "identity"),
        ("content-encoding", "gzip"),
    ];
    daemon
        .http
        .post_with("/v1/send", &two, &body("no"))
        .expect(415);
    for (id, coding) in [("a", "identity"), ("b", "Identity, identity"), ("c", "")] {
        let answer = daemon
            .http
            .post_with("/v1/send", &[("content-encoding", coding)], &body(id));
        answer.expect(202);
    }
    // Nothing was consumed.
    daemon
        .http
        .post_with("/v1/send", &[], &body("no"))
        .expect(202);
}

#[test]
fn a_body_that_is_refused_is_told_the_field_and_a_lone_surrogate_is_called_one() {
    let home = Home::new();
    let daemon = home.up();
    for (body, says) in [
        (
            r#"{"to":"@tester","message":1}"#,
            &["message", "integer"][..],
        ),
        (
            r#"{"to":"@tester","message":"m","mentions":["a",7]}"#,
            &["mentions[1]", "integer"],
        ),
        (
            r#"{"to":"@tester","message":"\ud800"}"#,
            &["lone surrogate", "column"],
        ),
        (
            r#"{"to":"@tester","message":"\ud800x"}"#,
            &["lone surrogate"],
        ),
        (
            r#"{"to":"@tester","message":"\udc00"}"#,
            &["lone surrogate"],
        ),
        (
            r#"{"to":"@tester","message":"\ud800\u0041"}"#,
            &["lone surrogate"],
        ),
        (r#"{"to":"@tester"}"#, &["message"]),
        (r#"{"to":"@tester","message":"m","colour":1}"#, &["colour"]),
    ] {
        let told = daemon.http.post_with("/v1/send", &[], body).expect(400);
        let detail = text(&told["detail"]);
        for words in says {
            assert!(detail.contains(words), "{body}: {detail}");
        }
    }
}

#[test]
fn a_parameter_that_is_refused_is_told_in_a_persons_words() {
    let home = Home::new();
    let daemon = home.up();
    for (query, says) in [
        ("foo=1", &["no parameter foo", "limit"][..]),
        ("limit=ten", &["limit", "a whole number", "ten"]),
        ("limit=", &["limit", "a whole number"]),
        ("limit=-1", &["limit", "a whole number"]),
        (
            "limit=99999999999999999999999",
            &["limit", "a whole number"],
        ),
        ("all=maybe", &["all", "true or false", "maybe"]),
        ("limit=1&limit=2", &["limit", "twice"]),
    ] {
        let told = daemon.http.get(&format!("/v1/inbox?{query}")).expect(400);
        let detail = text(&told["detail"]);
        for words in says {
            assert!(detail.contains(words), "{query}: {detail}");
        }
        for ours in ["eserialize", "digit", "field", "string"] {
            assert!(!detail.contains(ours), "{query}: {detail}");
        }
    }
    let told = daemon.http.get("/v1/inbox/known").expect(400);
    assert!(text(&told["detail"]).contains("id"), "{told}");
}

#[test]
fn an_inbox_that_is_empty_for_a_slip_says_so() {
    let home = Home::new();
    let daemon = home.up();
    let ran = home.cli(&["inbox", "--agent", "nobody"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(
        ran.stderr.contains("`heddle agent register nobody`"),
        "{ran:?}"
    );
    daemon
        .http
        .post("/v1/topic/create", &json!({"topic": "real"}))
        .expect(200);
    for (option, value) in [
        ("--topic", "none"),
        ("--from", "@nobody"),
        ("--from", "nobody/at-all"),
    ] {
        let ran = home.cli(&["inbox", option, value]).ok();
        assert!(ran.stdout.contains("no unread messages"), "{ran:?}");
        let name = value.trim_start_matches('@');
        assert!(ran.stdout.contains("there is no "), "{ran:?}");
        assert!(ran.stdout.contains(name), "{ran:?}");
        let page = home.cli(&["inbox", option, value, "--json"]).ok().json();
        assert!(text(&page["note"]).contains(name), "{page}");
    }
    for (option, value) in [
        ("--topic", "real"),
        ("--from", "@tester"),
        ("--from", "@tester/tester"),
    ] {
        let ran: Ran = home.cli(&["inbox", option, value]).ok();
        assert_eq!(ran.stdout, "no unread messages\n", "{ran:?}");
    }
    daemon.stop();
    // Whoever is cut off from the broker knows the roster of before, and guesses nothing.
    home.config("[broker]\nurl = \"ws://127.0.0.1:9/\"\n");
    let _daemon = home.up();
    for (option, value) in [("--topic", "none"), ("--from", "@nobody")] {
        let ran = home.cli(&["inbox", option, value]).ok();
        assert!(!ran.stdout.contains("there is no "), "{ran:?}");
    }
}

#[test]
fn the_end_of_a_lease_is_told_as_one_time() {
    let home = Home::new();
    let daemon = home.up();
    let added = home.cli(&["task", "add", "one", "--json"]).ok().json();
    let id = text(&added["task"]["id"]);
    let claimed = home.cli(&["task", "claim", &id, "--json"]).ok().json();
    let until = text(&claimed["task"]["claim"]["until"]);
    for _ in 0..200 {
        let target = format!("/v1/task/get?id={id}");
        let told = daemon.http.get(&target).expect(200);
        assert_eq!(told["task"]["claim"]["until"], until, "{told}");
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    let refused = home.cli_as("other", &["task", "claim", &id]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains(&until), "{refused:?}");
}
