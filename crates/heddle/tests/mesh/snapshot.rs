//! A large mesh is published as one snapshot: whoever joins meanwhile sees nothing of it until all of it is
//! at the broker, however often the publisher is killed (LF-34).

use crate::support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Daemon, Home, wait_until_within};

const ROWS: usize = 900;
const SOON: Duration = Duration::from_secs(120);

fn count(daemon: &Daemon, mesh: &str) -> usize {
    let (mut rows, mut cursor) = (0, String::new());
    loop {
        let page = daemon
            .http
            .get(&format!("/v1/state/list?limit=500&mesh={mesh}{cursor}"))
            .expect(200);
        rows += page["items"].as_array().unwrap().len();
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return rows,
        }
    }
}

fn published(daemon: &Daemon) -> Value {
    let body = json!({"wait_seconds": 0});
    daemon.http.post("/v1/mesh/publish", &body).expect(200)
}

/// LF-34. First what the guest sees, then how far the publisher is: never the other way round.
fn look(host: &Daemon, guest: &Daemon, mesh: &str) -> usize {
    let seen = count(guest, mesh);
    let publish = published(host);
    assert!(
        seen == 0 || publish["done"] == json!(true),
        "a guest sees {seen} rows of a snapshot that is not there yet: {publish}"
    );
    seen
}

#[test]
fn lf_34_a_guest_sees_a_large_mesh_wholly_or_not_at_all_however_often_its_owner_dies() {
    let (host, guest) = (Home::new(), Home::new());
    host.config("[daemon]\nmember = \"anna\"\nsnapshot_rows = 100\n");
    guest.config("[daemon]\nmember = \"bert\"\n");
    let mut host_up = host.up();
    let guest_up = guest.up();
    for number in 0..ROWS {
        let body = json!({"key": format!("k{number:05}"), "value": number});
        host_up.http.post("/v1/state/set", &body).expect(200);
    }
    let invited = host.cli(&["mesh", "invite", "--json"]).ok().json();
    let link = invited["link"].as_str().unwrap();
    let joined = guest.cli(&["mesh", "join", link, "--json"]).ok().json();
    let mesh = joined["mesh"].as_str().unwrap();
    for _ in 0..4 {
        look(&host_up, &guest_up, mesh);
        host_up.kill();
        host_up = host.up();
    }
    wait_until_within(SOON, "the guest to have every row", || {
        look(&host_up, &guest_up, mesh) == ROWS
    });
    let dump =
        |home: &Home, mesh: &str| home.cli(&["--mesh", mesh, "advanced", "dump"]).ok().stdout;
    assert_eq!(dump(&host, "home"), dump(&guest, mesh));
    // It was a snapshot, and it was committed once.
    let mut log = String::new();
    for file in std::fs::read_dir(host.path().join("logs")).unwrap() {
        log += &std::fs::read_to_string(file.unwrap().path()).unwrap_or_default();
    }
    let committed = log
        .matches("others see all rows of before from now on")
        .count();
    assert_eq!(committed, 1);
    // Published again, nothing happens.
    assert_eq!(published(&host_up)["fresh"], json!(false));
    host_up
        .http
        .post("/v1/state/set", &json!({"key": "later", "value": 1}))
        .expect(200);
    wait_until_within(SOON, "what came later", || {
        count(&guest_up, mesh) == ROWS + 1
    });
}
