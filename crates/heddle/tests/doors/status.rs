//! `heddle status`: one verdict and one command, whatever the daemon does.

use crate::support;

use std::os::unix::net::UnixStream;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use support::small_disk::SmallDisk;
use support::stub_broker::{Script, StubBroker};
use support::{Home, wait_until, wait_until_within};

const FIELDS: [&str; 10] = [
    "running",
    "connected",
    "meshes",
    "outbox",
    "inbox",
    "durability",
    "degraded",
    "version",
    "verdict",
    "next",
];

/// The one `next:` line of the words.
#[track_caller]
fn next_of(words: &str) -> &str {
    let lines: Vec<&str> = words
        .lines()
        .filter_map(|l| l.trim().strip_prefix("next: "))
        .collect();
    assert_eq!(lines.len(), 1, "{words}");
    lines[0]
}

#[track_caller]
fn check(home: &Home, code: i32, verdict: &str, next: &str) {
    let ran = home.cli(&["status", "--json"]);
    assert_eq!(ran.code, code, "{ran:?}");
    let status = ran.json();
    for field in FIELDS {
        assert!(
            status.get(field).is_some(),
            "{field} is missing in {status}"
        );
    }
    assert_eq!(status["verdict"], verdict, "{status}");
    assert_eq!(status["next"], next, "{status}");
    let ran = home.cli(&["status"]);
    let words = if code == 0 { &ran.stdout } else { &ran.stderr };
    let first = words.strip_prefix("error: ").unwrap_or(words);
    assert!(first.starts_with(&format!("{verdict}: ")), "{ran:?}");
    assert_eq!(next_of(words), next);
}

#[test]
fn each_state_has_its_verdict_and_its_command() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    check(&home, 0, "down", "heddle up");
    let daemon = home.up();
    check(&home, 0, "ok", "heddle peers");
    broker.script(Script::Refuse {
        code: "invalid_request",
    });
    let body = json!({"to": "@tester", "message": "m", "client_message_id": "one"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("the dead row", || {
        daemon.http.get("/v1/outbox/one").expect(200)["status"] == "dead"
    });
    check(&home, 0, "degraded", "heddle daemon outbox --failed");
    broker.script(Script::CommitAndHangUp);
    broker.features(json!({}));
    drop(daemon);
    check(&home, 0, "down", "heddle up");
    // Beside other trouble the dead message has its own line.
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let _daemon = home.up();
    check(&home, 0, "degraded", "heddle logs --level warn");
    let words = home.cli(&["status"]).ok().stdout;
    assert!(
        words.contains("1 message is dead") && words.contains("heddle daemon outbox --failed"),
        "{words}"
    );
}

#[test]
fn c29_a_broker_out_of_reach_is_degraded_and_unread_mail_is_not() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["send", "@tester", "m", "--wait"]).ok();
    wait_until("the message", || {
        daemon.http.get("/v1/status").expect(200)["inbox"]["unread"] == 1
    });
    check(&home, 0, "ok", "heddle agent list");
    drop(daemon);
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let _daemon = home.up();
    check(&home, 0, "degraded", "heddle logs --level warn");
}

#[test]
fn l_19_a_stuck_daemon_is_down_in_bounded_time_and_down_gets_rid_of_it() {
    let home = Home::new();
    let daemon = home.up();
    kill_process(Pid::from_child(&daemon.child), Signal::STOP).unwrap();
    check(&home, 5, "down", "heddle down");
    let ran = home.cli(&["status"]);
    assert!(
        ran.stderr.contains(&daemon.child.id().to_string()),
        "{ran:?}"
    );
    // Those that may wait for minutes ask first whether anybody answers at all; without that this test would be ended as hung.
    let copy = home.path().with_extension("copy");
    for args in [
        vec!["doctor"],
        vec!["doctor", "--backup", copy.to_str().unwrap()],
    ] {
        let ran = home.cli(&args);
        assert_eq!(ran.code, 5, "{args:?} {ran:?}");
        assert!(ran.stderr.contains("does not answer"), "{args:?} {ran:?}");
    }
    // It is stopped still: what was named gets rid of it all the same.
    home.cli(&["down"]).ok();
}

#[test]
fn l_19_a_full_line_before_the_door_is_not_waited_in_for_ever() {
    let home = Home::new();
    std::fs::create_dir_all(home.path()).unwrap();
    let path = home.path().join("daemon.sock");
    // A door whose line holds one, and that nobody opens.
    let door = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&door, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&door, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let ran = home.cli(&["status"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("does not answer"), "{ran:?}");
}

#[test]
fn a_home_that_is_held_without_a_door_is_starting_or_stopping() {
    let home = Home::new();
    std::fs::create_dir_all(home.path()).unwrap();
    let lock = std::fs::File::create(home.path().join("heddle.lock")).unwrap();
    lock.lock().unwrap();
    check(&home, 0, "down", "heddle status");
    lock.unlock().unwrap();
    check(&home, 0, "down", "heddle up");
}

#[test]
fn a_connected_broker_that_takes_nothing_is_no_well_being() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    broker.script(Script::Refuse {
        code: "storage_unavailable",
    });
    let send = |id: &str| {
        let body = json!({"to": "#ops", "message": "x", "client_message_id": id});
        daemon.http.post("/v1/send", &body).expect(202);
    };
    let degraded = || daemon.http.get("/v1/status").expect(200)["degraded"].to_string();
    assert_eq!(degraded(), "[]");
    send("a");
    wait_until("it is told", || {
        degraded().contains("takes nothing for now")
    });
    assert!(degraded().contains("storage_unavailable"), "{}", degraded());
    let words = home.cli(&["status"]).stdout;
    assert!(words.starts_with("degraded"), "{words}");
    broker.script(Script::Commit);
    send("b");
    wait_until("it is well again", || degraded() == "[]");
}

#[test]
fn half_sent_requests_do_not_lock_out_who_looks_after_the_daemon() {
    use std::io::Write as _;
    let home = Home::new();
    let mut daemon = home.up();
    let half: Vec<UnixStream> = (0..70)
        .map(|_| {
            let mut stream = UnixStream::connect(home.path().join("daemon.sock")).unwrap();
            stream
                .write_all(b"POST /v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"to\"")
                .unwrap();
            stream
        })
        .collect();
    wait_until("all places are taken", || {
        let body = json!({"to": "#ops", "message": "x"});
        daemon.http.post("/v1/send", &body).status == 429
    });
    let ran = home.cli(&["status"]).ok();
    assert!(ran.stdout.contains("heddle"), "{ran:?}");
    daemon.http.get("/v1/health").expect(200);
    daemon
        .http
        .get("/v1/metrics")
        .status
        .eq(&200)
        .then_some(())
        .unwrap();
    drop(half);
    home.cli(&["down"]).ok();
    assert_eq!(daemon.wait(std::time::Duration::from_secs(15)), Some(0));
}

/// A start that failed is not mended by another start.
#[test]
fn a_start_that_failed_has_its_own_next_command() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), 8);
    home.up().stop();
    check(&home, 0, "down", "heddle up");
    let fails = |words: &str| {
        assert_ne!(home.cli(&["up"]).code, 0);
        check(&home, 0, "down", "heddle doctor");
        let said = home.cli(&["status"]).stdout;
        assert!(said.contains(words), "{said}");
        let doctor = home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        let name = words.split(' ').next().unwrap();
        assert!(doctor.stdout.contains(name), "{doctor:?}");
    };
    home.config("[outbox\n");
    fails("config.toml");
    std::fs::remove_file(home.path().join("config.toml")).unwrap();

    let broker = home.path().join("broker.db");
    let whole = std::fs::read(&broker).unwrap();
    let mut damaged = whole.clone();
    damaged[..4096].fill(7);
    std::fs::write(&broker, damaged).unwrap();
    fails("broker.db is damaged");
    std::fs::write(&broker, whole).unwrap();

    disk.fill();
    fails("disk is full");
    disk.free();
    check(&home, 0, "down", "heddle up");
}

#[test]
fn tables_of_the_own_broker_that_somebody_holds_are_no_well_being() {
    let home = Home::new();
    let daemon = home.up();
    wait_until("the connection", || {
        daemon.http.get("/v1/status").expect(200)["connected"] == true
    });
    let held = rusqlite::Connection::open(home.path().join("broker.db")).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let body = json!({"to": "@tester", "message": "x", "client_message_id": "held"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until_within(std::time::Duration::from_secs(90), "it is told", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["degraded"]
            .to_string()
            .contains("takes nothing for now")
    });
    held.execute_batch("ROLLBACK").unwrap();
    wait_until_within(std::time::Duration::from_secs(90), "all is well", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 1 && status["degraded"] == json!([])
    });
}
