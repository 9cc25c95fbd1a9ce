//! Files of a home that somebody takes away under a running daemon: nothing is called safe that would be gone with the
//! process, nobody else gets in, and a door that was removed is there again.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::{Daemon, Home, wait_until, wait_until_within};

fn status_of_send(daemon: &Daemon, id: &str) -> Option<u16> {
    let body = json!({"to": "@tester", "message": id, "client_message_id": id});
    let answer = daemon
        .http
        .request("POST", "/v1/send", &[], &body.to_string())?;
    Some(answer.status)
}

fn remove(home: &Home, name: &str) {
    for suffix in ["", "-wal", "-shm"] {
        let path = home.path().join(format!("{name}{suffix}"));
        assert!(path.exists(), "{}", path.display());
        fs::remove_file(path).unwrap();
    }
}

fn ended_by_itself(mut daemon: Daemon) -> String {
    let code = daemon.wait(Duration::from_secs(15));
    assert_eq!(code, Some(1), "{}", daemon.log());
    daemon.log()
}

#[test]
fn ob_01_a_store_that_is_removed_while_it_is_open_answers_no_send_as_safe() {
    let home = Home::new();
    let daemon = home.up();
    assert_eq!(status_of_send(&daemon, "before"), Some(202));
    remove(&home, "data.db");
    // At once, and for as long as it lives: none of these is called safe.
    for n in 0..50 {
        match status_of_send(&daemon, &format!("after-{n}")) {
            Some(status) => assert!(status >= 500, "{status}"),
            None => break,
        }
    }
    let log = ended_by_itself(daemon);
    assert!(log.contains("was removed while it was open"), "{log}");
    let ran = home.cli(&["status"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("down"), "{ran:?}");
}

#[test]
fn ob_01_a_store_whose_log_alone_is_removed_or_that_is_replaced_is_no_store() {
    for what in ["data.db-wal", "data.db-shm", "data.db"] {
        let home = Home::new();
        let daemon = home.up();
        assert_eq!(status_of_send(&daemon, "before"), Some(202));
        let path = home.path().join(what);
        // In one step, as programs that save a file do.
        let (kept, new) = (home.path().join("kept"), home.path().join("new"));
        fs::hard_link(&path, &kept).unwrap();
        fs::copy(&path, &new).unwrap();
        fs::rename(&new, &path).unwrap();
        // The old one has a name still, so whatever goes into it is not lost; and soon nothing goes into it.
        let after = status_of_send(&daemon, "after") == Some(202);
        let log = ended_by_itself(daemon);
        let words = format!("{what} was replaced while it was open");
        assert!(log.contains(&words), "{what}: {log}");
        // Put back, it is as it was: what was acknowledged is there.
        fs::rename(&kept, &path).unwrap();
        let daemon = home.up();
        for id in ["before"].into_iter().chain(after.then_some("after")) {
            let known = json!({"to": "@tester", "message": id, "client_message_id": id});
            wait_until("its delivery", || {
                daemon.http.post("/v1/send", &known).status == 200
            });
        }
        daemon.stop();
    }
}

/// Nobody writes: it is missed all the same.
#[test]
fn a_home_that_is_removed_or_moved_ends_its_idle_daemon() {
    let home = Home::new();
    let daemon = home.up();
    // The daemon may make a file while they are being removed.
    wait_until("an empty place", || {
        fs::remove_dir_all(home.path()).is_ok() || !home.path().exists()
    });
    let log = ended_by_itself(daemon);
    assert!(log.contains("was removed while it was open"), "{log}");
    assert!(!home.path().exists(), "and begins no new one");

    let daemon = home.up();
    assert_eq!(status_of_send(&daemon, "moved"), Some(202));
    let elsewhere = home.path().with_file_name("elsewhere");
    fs::rename(home.path(), &elsewhere).unwrap();
    ended_by_itself(daemon);
    fs::rename(&elsewhere, home.path()).unwrap();
    let daemon = home.up();
    let known = json!({"to": "@tester", "message": "moved", "client_message_id": "moved"});
    wait_until("what was acknowledged", || {
        daemon.http.post("/v1/send", &known).status == 200
    });
}

#[test]
fn a_store_of_the_broker_that_is_removed_while_it_is_open_commits_nothing() {
    let home = Home::new();
    let daemon = home.up();
    assert_eq!(status_of_send(&daemon, "one"), Some(202));
    wait_until("its delivery", || delivered(&daemon) == 1);
    remove(&home, "broker.db");
    // The outbox may take it still; no broker has it.
    let two = status_of_send(&daemon, "two");
    let log = ended_by_itself(daemon);
    let words = "broker.db was removed while it was open";
    assert!(log.contains(words), "{log}");
    let daemon = home.up();
    if two != Some(202) {
        assert_eq!(status_of_send(&daemon, "two"), Some(202));
    }
    wait_until("both, once", || delivered(&daemon) == 2);
}

fn delivered(daemon: &Daemon) -> usize {
    let page = daemon.http.get("/v1/inbox?limit=500").expect(200);
    page["items"].as_array().unwrap().len()
}

#[test]
fn c17_whoever_removes_the_lock_file_lets_no_second_daemon_in() {
    let home = Home::new();
    let mut daemon = home.up();
    let pid = daemon.child.id();
    fs::remove_file(home.path().join("heddle.lock")).unwrap();
    for args in [["up", "--json"], ["up", "--detach"]] {
        let ran = home.cli(&args);
        assert_eq!(ran.code, 3, "{ran:?}");
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains(&format!("process {pid}")), "{said}");
    }
    assert_eq!(status_of_send(&daemon, "one"), Some(202));
    assert!(home.cli(&["status"]).ok().stdout.contains("ok"));
    home.cli(&["down"]).ok();
    assert_eq!(daemon.wait(Duration::from_secs(5)), Some(0));
    home.up().stop();
}

#[test]
fn a_socket_that_was_removed_is_bound_anew() {
    let home = Home::new();
    let daemon = home.up();
    let socket = home.path().join("daemon.sock");
    for _ in 0..2 {
        fs::remove_file(&socket).unwrap();
        wait_until_within(Duration::from_secs(5), "a new socket", || socket.exists());
        wait_until("an answer", || status_of_send(&daemon, "one").is_some());
        assert_eq!(mode(&socket), 0o600);
    }
    // What is not ours is left alone, and the daemon can be stopped all the same.
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "mine").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
    daemon.stop();
    assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
