//! A disk that is full, for real: the home lies on a small tmpfs of its own.
#![cfg(test)]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use support::ledger::{inbox, outbox, register, status};
use support::{Answer, Daemon, Home, wait_until_within};

const DISK_MB: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(40);

/// A small file system over a home; gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let size = format!("size={DISK_MB}m,mode=0700");
        let ran = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "heddle-test"])
            .arg(folder)
            .output()
            .unwrap();
        assert!(
            ran.status.success(),
            "this test mounts a tmpfs and is not allowed to ({}); run it as root, in a container with CAP_SYS_ADMIN",
            String::from_utf8_lossy(&ran.stderr).trim()
        );
        Self(folder.to_owned())
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes every byte that is left.
    fn fill(&self) {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.ballast())
            .unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![7; size]).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy: a process of a failed test may still have a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

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
    let disk = SmallDisk::over(&home.path());
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
    assert!(outbox(&daemon).values().all(|states| *states == ["done"]));
}

#[test]
fn ob_02_what_a_full_disk_acknowledged_is_there_after_a_kill() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path());
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
                assert!(ran.stderr.contains("next:"), "{ran:?}");
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
