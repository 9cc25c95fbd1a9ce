//! A disk that is full, for real: the home lies on a small tmpfs of its own.

use crate::support;

use std::time::Duration;

use serde_json::json;
use support::broker_process::{BrokerProcess, RawLink};
use support::ledger::{connected, inbox, no_orphans, outbox, register, status};
use support::small_disk::SmallDisk;
use support::{Answer, Daemon, Home, wait_until_within};

const DISK_MB: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(40);

fn send(daemon: &Daemon, id: &str, text: &str) -> Answer {
    let body = json!({"to": "@reader", "message": text, "client_message_id": id});
    daemon.http.post("/v1/send", &body)
}

/// Sends new ids into the full disk until one is refused; what was answered with 202 until then.
fn send_until_refused(daemon: &Daemon, name: &str, text: &str) -> Vec<String> {
    let mut accepted = Vec::new();
    wait_until_within(PATIENCE, "a refusal", || {
        let id = format!("{name}-{}", accepted.len());
        let answer = send(daemon, &id, text);
        if answer.status == 202 {
            accepted.push(id);
            return false;
        }
        let problem = answer.expect(507);
        assert_eq!(problem["code"], "insufficient_storage", "{problem}");
        assert_eq!(problem["retry"], "same_id", "{problem}");
        assert!(!problem["next"].as_str().unwrap().is_empty(), "{problem}");
        true
    });
    accepted
}

#[track_caller]
fn holds(daemon: &Daemon, accepted: &[String]) {
    let rows = outbox(daemon);
    let lost: Vec<_> = accepted
        .iter()
        .filter(|id| !rows.contains_key(*id))
        .collect();
    assert!(
        lost.is_empty(),
        "acknowledged and not on the disk: {lost:?}"
    );
}

#[test]
fn ob_02_c47_a_full_disk_takes_nothing_that_it_cannot_keep_says_so_and_recovers_by_itself() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), DISK_MB);
    let daemon = home.up();
    let pid = daemon.child.id();
    register(&daemon, "reader");
    let text = "x".repeat(3000);
    let mut accepted = Vec::new();
    for number in 0..20 {
        let id = format!("before-{number}");
        send(&daemon, &id, &text).expect(202);
        accepted.push(id);
    }
    wait_until_within(PATIENCE, "the first ones", || {
        inbox(&daemon, "reader").len() == accepted.len()
    });

    disk.fill();
    accepted.extend(send_until_refused(&daemon, "full", &text));
    let degraded = || status(&daemon)["degraded"].to_string();
    wait_until_within(PATIENCE, "the words", || {
        degraded().contains("new sends are refused") || degraded().contains("only what comes in")
    });
    let words = home.cli(&["status"]);
    assert!(words.stdout.contains("degraded"), "{words:?}");
    assert!(words.stdout.contains("the disk has 0 MB left"), "{words:?}");
    // What is known is answered from the table, whatever the disk (C47).
    assert_eq!(
        send(&daemon, "before-0", &text).expect(200)["duplicate"],
        true
    );
    assert_eq!(send(&daemon, "before-0", "other").status, 409);
    assert_eq!(send(&daemon, "never-seen", &text).status, 507);
    assert_eq!(daemon.http.get("/v1/outbox/never-seen").status, 404);

    // Space again: no restart, no hand.
    disk.free();
    wait_until_within(PATIENCE, "room", || {
        send(&daemon, "never-seen", &text).status == 202
    });
    accepted.push("never-seen".to_owned());
    wait_until_within(PATIENCE, "everything", || {
        inbox(&daemon, "reader").len() == accepted.len()
    });
    wait_until_within(PATIENCE, "all is well", || degraded() == "[]");
    assert_eq!(status(&daemon)["pid"], pid);
    assert!(inbox(&daemon, "reader").values().all(|times| *times == 1));
    wait_until_within(PATIENCE, "every row", || {
        outbox(&daemon).values().all(|states| *states == ["done"])
    });
}

#[test]
fn ob_02_what_a_full_disk_acknowledged_is_there_after_a_kill() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), DISK_MB);
    let mut daemon = home.up();
    register(&daemon, "reader");
    let mut accepted = Vec::new();
    // Several times, with sends of several sizes running into the end of the disk.
    for (round, size) in [(0, 10), (1, 900), (2, 20_000), (3, 4)] {
        let text = "y".repeat(size);
        let filling = std::thread::scope(|scope| {
            let filling = scope.spawn(|| disk.fill());
            accepted.extend(send_until_refused(&daemon, &format!("r{round}"), &text));
            filling.join()
        });
        filling.unwrap();
        daemon.kill();
        // A start that has no room may fail, in words; it may not lose or damage anything.
        match home.try_up() {
            Ok(started) => {
                holds(&started, &accepted);
                started.kill();
            }
            Err(ran) => {
                assert_eq!(ran.code, 1, "{ran:?}");
                assert!(ran.stderr.contains("disk is full"), "{ran:?}");
                assert!(ran.stderr.contains("free some space"), "{ran:?}");
            }
        }
        disk.free();
        daemon = home.up();
        holds(&daemon, &accepted);
    }
    wait_until_within(PATIENCE, "everything", || {
        let done = |states: &Vec<String>| *states == ["done"];
        outbox(&daemon).values().all(done)
    });
    wait_until_within(PATIENCE, "the messages", || {
        inbox(&daemon, "reader").len() == outbox(&daemon).len()
    });
    assert!(inbox(&daemon, "reader").values().all(|times| *times == 1));
}

/// A member of the mesh that writes to a topic by itself.
struct Stranger {
    link: RawLink,
    sent: Vec<String>,
}

impl Stranger {
    fn enter(broker: &BrokerProcess, daemon: &Daemon) -> Self {
        let mesh = status(daemon)["meshes"][0]["mesh_id"].clone();
        let mut link = RawLink::enter(broker, mesh.as_str().unwrap(), "01HZX000000000000000000009");
        assert_eq!(link.next_of("welcome")["type"], "welcome");
        Self {
            link,
            sent: Vec::new(),
        }
    }

    fn write(&mut self, text: &str) {
        let id = format!("in-{}", self.sent.len());
        let envelope = json!({
            "v": 1, "kind": "message", "priority": "next", "body": text,
            "destination": {"kind": "topic", "ref": "ops"},
        });
        let item = json!({"agent": "one", "client_message_id": id, "envelope": envelope});
        self.link
            .say(&json!({"type": "send", "batch": self.sent.len(), "items": [item]}));
        let verdicts = self.link.next_of("verdicts");
        assert_eq!(verdicts["items"][0]["verdict"], "created", "{verdicts}");
        self.sent.push(id);
    }
}

#[test]
fn in_02_what_arrives_at_a_full_disk_comes_again_until_there_is_room() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let disk = SmallDisk::over(&home.path(), DISK_MB);
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    register(&daemon, "reader");
    let subscribe = json!({"topic": "ops", "agent": "reader"});
    daemon
        .http
        .post("/v1/topic/subscribe", &subscribe)
        .expect(200);
    let mut stranger = Stranger::enter(&broker, &daemon);

    disk.fill();
    let text = "z".repeat(3000);
    wait_until_within(PATIENCE, "the inbox to be full", || {
        stranger.write(&text);
        daemon.log().contains("the inbox cannot take messages")
    });
    let before = inbox(&daemon, "reader").len();
    assert!(before < stranger.sent.len(), "nothing was refused");
    disk.free();
    wait_until_within(PATIENCE, "every message", || {
        inbox(&daemon, "reader").len() == stranger.sent.len()
    });
    assert!(inbox(&daemon, "reader").values().all(|times| *times == 1));
    drop(daemon);
    assert_eq!(broker.terminate(), 0);
    no_orphans(&home, &data);
}

#[test]
fn br_02_a_broker_with_a_full_disk_kills_no_row_and_recovers_by_itself() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let disk = SmallDisk::over(&data, DISK_MB);
    let mut broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    register(&daemon, "reader");

    disk.fill();
    let text = "w".repeat(3000);
    let mut sent = Vec::new();
    wait_until_within(PATIENCE, "a row that the broker cannot take", || {
        let id = format!("m-{}", sent.len());
        send(&daemon, &id, &text).expect(202);
        sent.push(id);
        let pending = daemon.http.get("/v1/outbox?status=pending").expect(200);
        let mut rows = pending["rows"].as_array().unwrap().iter();
        rows.any(|row| row["attempts"].as_u64() >= Some(1))
    });
    let kept: Vec<String> = outbox(&daemon).into_values().flatten().collect();
    assert_eq!(kept.len(), sent.len());
    assert!(
        kept.iter().all(|status| status != "dead"),
        "a full disk killed a row"
    );
    assert!(
        broker.child.try_wait().unwrap().is_none(),
        "the broker ended"
    );
    let (code, says) = broker.page("/readyz", None);
    assert_eq!(code, 503, "{says}");
    assert!(says.contains(r#""waiting_for":["disk"]"#), "{says}");
    assert_eq!(broker.page("/healthz", None).0, 200, "it lives");
    disk.free();
    assert_eq!(broker.page("/readyz", None).0, 200);
    wait_until_within(PATIENCE, "every message", || {
        inbox(&daemon, "reader").len() == sent.len()
    });
    wait_until_within(PATIENCE, "every row", || {
        outbox(&daemon).values().all(|states| *states == ["done"])
    });
    assert!(inbox(&daemon, "reader").values().all(|times| *times == 1));
    drop(daemon);
    assert_eq!(broker.terminate(), 0);
    no_orphans(&home, &data);
}

#[test]
fn c10_a_share_that_finds_the_disk_full_leaves_nothing_half_written() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), DISK_MB);
    let daemon = home.up();
    let source = home.path().parent().unwrap().join("source");
    std::fs::write(&source, vec![7; (DISK_MB as usize) << 20]).unwrap();
    let body = json!({"path": "big", "from": source, "client_message_id": "k"});
    let blobs = || {
        let folders = std::fs::read_dir(home.path().join("blobs")).unwrap();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        files.count()
    };
    let problem = daemon.http.post("/v1/file/share", &body).expect(507);
    assert_eq!(problem["code"], "insufficient_storage", "{problem}");
    assert_eq!(blobs(), 0, "something is left");
    assert_eq!(
        daemon.http.get("/v1/file/get?path=big").expect(404)["code"],
        "unknown_file"
    );
    // The id was not consumed: with less to share, or more room, it works.
    std::fs::write(&source, vec![7; 1 << 20]).unwrap();
    let shared = daemon.http.post("/v1/file/share", &body).expect(200);
    assert_eq!(
        (&shared["size"], &shared["duplicate"]),
        (&json!(1 << 20), &json!(false))
    );
    // A disk that is full takes nothing, answers what it knows, and gives back what it has.
    disk.fill();
    let other = json!({"path": "other", "from": source, "client_message_id": "l"});
    assert_eq!(daemon.http.post("/v1/file/share", &other).status, 507);
    assert_eq!(
        daemon.http.post("/v1/file/share", &body).expect(200)["duplicate"],
        true
    );
    assert_eq!(
        daemon.http.get("/v1/file/get?path=big").expect(200)["size"],
        1 << 20
    );
    disk.free();
    assert_eq!(blobs(), 1);
}

#[test]
fn a_start_on_a_full_disk_names_the_disk_the_room_and_the_step_however_it_is_started() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), DISK_MB);
    let folder = home.path().canonicalize().unwrap();
    let mount = format!("are free on {}", folder.display());
    let told = |call: &[&str]| {
        let ran = home.cli(call);
        assert_eq!(ran.code, 1, "{call:?}: {ran:?}");
        for words in [
            "full: ",
            " of 16 MB",
            &mount,
            "a start may need 4 MB",
            "free some space on",
            "at least 4 MB",
            "start again",
        ] {
            assert!(ran.stderr.contains(words), "{words}: {call:?}: {ran:?}");
        }
        assert!(!ran.stderr.contains("Choose a folder"), "{call:?}: {ran:?}");
    };
    let calls: [&[&str]; 2] = [&["up"], &["up", "--detach"]];
    // A home that was never started, down to its last byte; and with a little room, which is not enough.
    for spare in [0, 100 << 10] {
        disk.fill();
        disk.give_back(spare);
        for call in calls {
            told(call);
        }
        disk.free();
    }
    home.up().stop();
    disk.fill();
    for call in calls {
        told(call);
    }
    let said = home.cli(&["status"]).stdout;
    assert!(said.contains(&mount), "{said}");
    disk.free();
    home.up().stop();
}

/// The disk is looked at every second; whoever was refused between two looks asks at once what is wrong.
#[test]
fn a_change_that_is_refused_for_space_and_the_status_agree_at_once() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), DISK_MB);
    let daemon = home.up();
    let set = |id: &str| {
        let body = json!({"key": "k", "value": id, "client_message_id": id});
        daemon.http.post("/v1/state/set", &body)
    };
    set("before").expect(200);
    assert_eq!(status(&daemon)["degraded"], json!([]));
    disk.fill();
    let refused = set("full");
    let said = status(&daemon)["degraded"].to_string();
    assert_eq!(refused.expect(507)["code"], "insufficient_storage");
    assert!(said.contains("the disk"), "{said}");
    drop(daemon);
    drop(disk);
}
