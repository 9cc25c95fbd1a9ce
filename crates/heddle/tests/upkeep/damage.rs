//! Files that rot while nobody looks: one start notices, heals, or refuses with the right next step.

use crate::support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::outbox::{refuse, row, send_to, wait_for};
use support::stub_broker::{Script, StubBroker};
use support::{Daemon, Home, wait_until};

const PAGE_BYTES: usize = 4096;

fn send(daemon: &Daemon, id: &str, text: &str) {
    let body = json!({"to": "@tester", "message": text, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn unread(daemon: &Daemon) -> u64 {
    let status = daemon.http.get("/v1/status").expect(200);
    status["inbox"]["items"].as_u64().unwrap()
}

/// A home that was closed in order, with messages of about this many bytes in all.
fn filled(large: bool) -> Home {
    let home = Home::new();
    let daemon = home.up();
    let mut count = 0;
    if large {
        let text = "x".repeat(900_000);
        for n in 0..6 {
            send(&daemon, &format!("large{n}"), &text);
        }
        count += 6;
    }
    // Enough for a tree of more than one page.
    let text = "word ".repeat(100);
    for n in 0..120 {
        send(&daemon, &format!("small{n}"), &text);
    }
    count += 120;
    wait_until("all of them", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == count && status["inbox"]["items"] == count
    });
    daemon.stop();
    assert!(!home.path().join("data.db-wal").exists());
    home
}

fn root_of(path: &Path, table: &str) -> usize {
    // Reading only: whoever closes last would move the log into the file.
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let raw = rusqlite::Connection::open_with_flags(path, flags).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: i64 = raw.query_row(sql, [table], |row| row.get(0)).unwrap();
    usize::try_from(page).unwrap()
}

/// Overwrites the beginning of a page.
fn damage(path: &Path, page: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let start = (page - 1) * PAGE_BYTES;
    bytes[start..start + 64].fill(0xff);
    std::fs::write(path, bytes).unwrap();
}

/// A leaf in the middle of a table: neither where it begins nor where it ends.
fn middle_leaf(path: &Path, table: &str) -> usize {
    let bytes = std::fs::read(path).unwrap();
    let mut page = root_of(path, table);
    loop {
        let start = (page - 1) * PAGE_BYTES;
        if !matches!(bytes[start], 2 | 5) {
            return page;
        }
        let number = |at: usize, len: usize| {
            bytes[at..at + len]
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        };
        let cells = number(start + 3, 2);
        let cell = number(start + 12 + 2 * (cells / 2), 2);
        page = number(start + cell, 4);
    }
}

fn assert_parked(daemon: &Daemon) {
    let status = daemon.http.get("/v1/status").expect(200);
    let notice = status["degraded"].to_string();
    assert!(notice.contains("data.db.parked-"), "{status}");
    // The ids are as they were.
    let again = json!({"to": "@tester", "message": "other", "client_message_id": "small7"});
    let conflict = daemon.http.post("/v1/send", &again).expect(409);
    assert_eq!(conflict["conflict"], "outbox_done_fingerprint_mismatch");
    send(daemon, "after", "after the damage");
    wait_until("a new message", || unread(daemon) >= 1);
}

#[test]
fn dr_16_an_inbox_damaged_after_a_clean_stop_is_set_aside_by_the_next_start() {
    for large in [false, true] {
        let home = filled(large);
        let path = home.path().join("data.db");
        damage(&path, root_of(&path, "inbox"));
        assert_parked(&home.up());
    }
}

#[test]
fn dr_16_damage_that_is_met_in_use_ends_the_daemon_in_words_and_one_start_heals_it() {
    let home = filled(true);
    let path = home.path().join("data.db");
    damage(&path, middle_leaf(&path, "inbox"));
    match home.try_up() {
        // Met by the start already: then this very start has healed it.
        Ok(daemon) if daemon.http.get("/v1/status").body.contains("parked-") => {
            assert_parked(&daemon);
        }
        Ok(mut daemon) => {
            // Behind the large ones, which fill a page of their own.
            let met = daemon.http.get("/v1/inbox?agent=tester&limit=500&since=6");
            assert!(met.status >= 500, "{}", met.status);
            assert_eq!(daemon.wait(Duration::from_secs(15)), Some(1));
            daemon.wait_log("data.db is damaged");
            assert_parked(&home.up());
        }
        // Met by the work that a start begins with, behind its look.
        Err(ran) => {
            assert!(ran.stderr.contains("next: Start again"), "{ran:?}");
            assert_parked(&home.up());
        }
    }
}

#[test]
fn dr_16_an_outbox_damaged_after_a_clean_stop_is_refused_with_its_bytes_unchanged() {
    let home = filled(false);
    let path = home.path().join("data.db");
    damage(&path, root_of(&path, "outbox"));
    let before = std::fs::read(&path).unwrap();
    for _ in 0..2 {
        let ran = home.try_up().err().expect("it must not start");
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains("backup"), "{ran:?}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

fn says_what_to_do_with_a_damaged_broker(said: &str) {
    assert!(said.contains("broker.db is damaged"), "{said}");
    assert!(said.contains("put the last backup in its place"), "{said}");
    assert!(!said.contains("try again in a moment"), "{said}");
}

#[test]
fn lf_39_a_damaged_broker_file_is_refused_by_every_start_and_by_the_jobs() {
    let home = filled(false);
    let path = home.path().join("broker.db");
    let whole = std::fs::read(&path).unwrap();
    damage(&path, root_of(&path, "message_history"));
    let before = std::fs::read(&path).unwrap();
    for _ in 0..2 {
        let ran = home.try_up().err().expect("it must not start");
        assert_eq!(ran.code, 1, "{ran:?}");
        says_what_to_do_with_a_damaged_broker(&ran.stderr);
    }
    let ran = home.cli(&["broker", "orphan-check"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    says_what_to_do_with_a_damaged_broker(&ran.stderr);
    // No circle: each names a way out also for whoever has no backup.
    for verb in [&["doctor"][..], &["doctor", "--repair"]] {
        let ran = home.cli(verb);
        assert_eq!(ran.code, 1, "{verb:?}: {ran:?}");
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains("broker.db"), "{verb:?}: {said}");
        assert!(
            said.contains("move broker.db away and start again"),
            "{verb:?}: {said}"
        );
    }
    // Its own broker, in a folder of its own.
    let data: PathBuf = home.path().parent().unwrap().join("broker");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::copy(&path, data.join("broker.db")).unwrap();
    let ran = BrokerProcess::try_start(&home, &data, "127.0.0.1:0", &[]).err();
    says_what_to_do_with_a_damaged_broker(&ran.expect("it must not serve").stderr);
    assert_eq!(std::fs::read(&path).unwrap(), before, "a byte was changed");
    // The first advice: put the backup back.
    std::fs::write(&path, whole).unwrap();
    let daemon = home.up();
    send(&daemon, "after", "text");
    wait_until("the new one", || unread(&daemon) == 121);
    daemon.stop();
    // The last advice: move it away.
    std::fs::remove_file(&path).unwrap();
    let daemon = home.up();
    send(&daemon, "later", "text");
    wait_until("one more", || unread(&daemon) == 122);
}

#[test]
fn lf_38_a_broker_file_damaged_before_a_crash_is_checked_by_the_start_behind_it() {
    let home = filled(true);
    let daemon = home.up();
    send(&daemon, "one", "text");
    wait_until("the message", || unread(&daemon) == 127);
    daemon.kill();
    let path = home.path().join("broker.db");
    assert!(home.path().join("broker.db-wal").exists());
    damage(&path, middle_leaf(&path, "message_history"));
    let ran = home.try_up().err().expect("it must not start");
    says_what_to_do_with_a_damaged_broker(&ran.stderr);
}

#[test]
fn dr_06_a_letter_that_the_disk_has_changed_is_not_sent_and_is_told() {
    let broker = StubBroker::start();
    broker.script(refuse("storage_unavailable"));
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    send_to(&daemon, "#ops", "hurt", "transfer one hundred to alice").expect(202);
    send_to(&daemon, "#ops", "whole", "nothing to see").expect(202);
    daemon.stop();
    let data = home.path().join("data.db");
    let mut bytes = std::fs::read(&data).unwrap();
    let needle = b"transfer one hundred";
    let places: Vec<usize> = (0..bytes.len() - needle.len())
        .filter(|at| bytes[*at..].starts_with(needle))
        .collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 9..at + 12].copy_from_slice(b"two");
    }
    std::fs::write(&data, bytes).unwrap();
    let sent = broker.sends_of("hurt").len();

    broker.script(Script::Commit);
    let daemon = home.up();
    wait_for(&daemon, "whole", "done");
    wait_until("the word", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["degraded"]
            .to_string()
            .contains("1 damaged outbox row")
    });
    let hurt = row(&daemon, "hurt");
    assert_eq!(hurt["status"], "pending", "{hurt}");
    let why = hurt["last_error"].as_str().unwrap();
    assert!(why.contains("is not what was accepted"), "{why}");
    assert_eq!(broker.sends_of("hurt").len(), sent, "it was sent");
    let told = home.cli(&["explain", "hurt"]).ok().stdout;
    assert!(told.contains("waits for  somebody to mend it"), "{told}");
    assert!(told.contains("--patch-payload FILE"), "{told}");
    daemon.wait_log("an outbox row waits until it is mended");

    // Nor does a requeue send it, unless it is told what was meant.
    let requeue = [
        "daemon",
        "outbox",
        "requeue",
        "--id",
        "hurt",
        "--new-client-id",
        "mended",
    ];
    let ran = home.cli(&requeue);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("--patch-payload"), "{ran:?}");
    let patch = home.path().join("patch.json");
    std::fs::write(&patch, r#"{"message": "transfer one hundred to alice"}"#).unwrap();
    let patch = ["--patch-payload", patch.to_str().unwrap()];
    home.cli(&[&requeue[..], &patch[..]].concat()).ok();
    wait_for(&daemon, "mended", "done");
    assert!(broker.sends_of("mended")[0].contains("transfer one hundred to alice"));
}
