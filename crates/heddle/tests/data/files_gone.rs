//! A large file whose bytes are gone from the folder of a mesh that nobody shares: the list does not call it here, and the
//! status names it, until it is shared again.

use crate::support;

use serde_json::Value;
use support::files::{blob_files, noise, share};
use support::{Daemon, Home, wait_until};

fn content(daemon: &Daemon) -> String {
    let page = daemon.http.get("/v1/file/list").expect(200);
    page["items"][0]["content"].as_str().unwrap().to_owned()
}

fn degraded(daemon: &Daemon) -> String {
    let status: Value = daemon.http.get("/v1/status").expect(200);
    status["degraded"].to_string()
}

#[test]
fn lf_27_bytes_that_are_gone_are_not_called_here_and_the_status_names_the_file() {
    let home = Home::new();
    let daemon = home.up();
    let bytes = noise(7, 300_000);
    let shared = share(&daemon, "plans/big", &bytes);
    let get = format!("/v1/file/get?id={}", shared["id"].as_str().unwrap());
    let blob = blob_files(&home).remove(0);
    assert_eq!(
        (content(&daemon).as_str(), degraded(&daemon).as_str()),
        ("blob", "[]")
    );
    std::fs::remove_file(&blob).unwrap();
    daemon.http.get(&get).expect(500);
    assert_eq!(content(&daemon), "gone", "the read has met it");
    assert!(degraded(&daemon).contains("plans/big"));
    let listed = home.cli(&["file", "list"]).ok().stdout;
    assert!(
        listed.contains("gone") && !listed.contains("here"),
        "{listed}"
    );
    assert!(home.cli(&["status"]).stdout.contains("heddle file share"));
    daemon.stop();
    // Nobody reads it: a look behind the start meets it.
    let daemon = home.up();
    wait_until("the look", || degraded(&daemon).contains("plans/big"));
    assert_eq!(content(&daemon), "gone");
    share(&daemon, "again", &bytes);
    assert_eq!(
        (content(&daemon).as_str(), degraded(&daemon).as_str()),
        ("blob", "[]")
    );
    // Of the right length, and not what was shared.
    let mut other = bytes.clone();
    other[9] ^= 1;
    std::fs::write(&blob, &other).unwrap();
    daemon.http.get(&get).expect(500);
    assert_eq!(content(&daemon), "gone");
    assert!(degraded(&daemon).contains("nobody else has them"));
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, &bytes).unwrap();
    assert_eq!(
        (content(&daemon).as_str(), degraded(&daemon).as_str()),
        ("blob", "[]")
    );
    daemon.stop();
}
