//! A home on a disk of a few megabytes: more goes through it than it holds, and nobody lends a hand.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::ledger::connected;
use support::{Home, wait_until_within};

const DISK_MB: usize = 6;
const PATIENCE: Duration = Duration::from_secs(60);

/// A small file system over a folder; gone when dropped.
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
            "this test mounts a tmpfs and is not allowed to; run it as root, in a container with CAP_SYS_ADMIN"
        );
        Self(folder.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy: a process of a failed test may still have a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn c33_more_goes_through_a_tiny_disk_than_it_holds() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let _disk = SmallDisk::over(&home.path());
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    let topic = json!({"topic": "ops"});
    daemon.http.post("/v1/topic/create", &topic).expect(200);
    // Twice the disk, in messages that fill more than a page.
    let text = "x".repeat(6000);
    let count = 2 * DISK_MB * (1 << 20) / text.len();
    for number in 0..count {
        let body =
            json!({"to": "#ops", "message": text, "client_message_id": format!("m-{number}")});
        // Refused while there is no room: the same id again, as the refusal says.
        wait_until_within(PATIENCE, &format!("room for message {number}"), || {
            let answer = daemon.http.post("/v1/send", &body);
            assert!(matches!(answer.status, 202 | 200 | 507), "{}", answer.body);
            answer.status != 507
        });
    }
    wait_until_within(PATIENCE, "all of them at the broker", || {
        daemon.http.get("/v1/status").expect(200)["outbox"]["done"] == count
    });
}
