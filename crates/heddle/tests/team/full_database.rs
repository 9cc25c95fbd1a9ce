//! L-10, BR-09 and L-23 at a team broker: the disk under its database is full, or somebody holds its tables. It says that it is
//! not ready and why, refuses nothing for good, and is back by itself.

use crate::support;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::effect_pair::home_of;
use support::ledger::status;
use support::servers::Postgres;
use support::small_disk::SmallDisk;
use support::{Daemon, Home, wait_until, wait_until_within};

use super::team_members::is_connected;

const PATIENCE: Duration = Duration::from_secs(60);

/// A database whose tables lie on a disk of their own; the log of the server does not.
fn on_a_small_disk(server: &Postgres) -> (SmallDisk, String) {
    let folder: PathBuf = server.folder().join("small");
    let disk = SmallDisk::over(&folder, 48);
    let owned = Command::new("chown").arg("postgres:").arg(&folder).status();
    assert!(owned.unwrap().success());
    let place = folder.display();
    server.sql(&format!("CREATE TABLESPACE small LOCATION '{place}'"));
    server.sql("CREATE DATABASE small TABLESPACE small");
    server.sql("CREATE ROLE team LOGIN");
    server.sql("GRANT CREATE ON DATABASE small TO team");
    let url = server.url().replace("/postgres", "/small");
    (disk, url.replace("heddle@", "team@"))
}

fn alice_at(broker: &BrokerProcess) -> (Home, Daemon) {
    let home = home_of("alice");
    let member = "[daemon]\nmember = \"alice\"\n";
    home.config(&format!("{member}{}", broker.config()));
    let up = home.up();
    wait_until("the broker", || is_connected(&home, "home"));
    (home, up)
}

fn waits_for(broker: &BrokerProcess, what: &str) -> bool {
    let (code, page) = broker.page("/readyz", None);
    code == 503 && page.contains(&format!("[\"{what}\"]"))
}

fn is_ready(broker: &BrokerProcess) -> bool {
    broker.page("/readyz", None).0 == 200
}

fn post(daemon: &Daemon, id: &str) {
    // A page of a table has no room for it.
    let body =
        json!({"to": "@alice/alice", "message": "x".repeat(200_000), "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn has(home: &Home, id: &str) -> bool {
    let page = home
        .cli(&["inbox", "--all", "--json", "--agent", "alice"])
        .json();
    let items = page["items"].as_array().unwrap().clone();
    items.iter().any(|item| item["client_message_id"] == id)
}

#[test]
fn l_10_br_09_a_full_disk_of_the_database_is_not_ready_kills_nothing_and_ends_by_itself() {
    let (house, server) = (Home::new(), Postgres::start());
    let (disk, url) = on_a_small_disk(&server);
    let data = house.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &["--database", &url]);
    let (home, alice) = alice_at(&broker);
    post(&alice, "before");
    wait_until("the first", || has(&home, "before"));
    assert!(is_ready(&broker));

    disk.fill();
    for n in 0..4 {
        post(&alice, &format!("full-{n}"));
    }
    wait_until_within(PATIENCE, "not ready", || waits_for(&broker, "disk"));
    let full = "heddle_broker_accept_total{verdict=\"insufficient_storage\"}";
    assert!(broker.metric(full) > 0);
    assert!(!broker.logged("53100").is_empty(), "the log says why");
    // For as long as it is so, and though nobody sends any more.
    drop(alice);
    for _ in 0..8 {
        assert!(waits_for(&broker, "disk"));
        assert_eq!(broker.page("/healthz", None).0, 200);
        std::thread::sleep(Duration::from_millis(250));
    }
    disk.free();
    wait_until("ready by itself", || is_ready(&broker));

    let alice = home.up();
    for n in 0..4 {
        let id = format!("full-{n}");
        wait_until_within(PATIENCE, &id, || has(&home, &id));
    }
    let told = status(&alice);
    assert_eq!(
        (&told["outbox"]["dead"], &told["outbox"]["done"]),
        (&json!(0), &json!(5)),
        "{told}"
    );
    // A second time, without the right to temporary tables; and an accept is what finds out that it is over.
    server.sql("REVOKE TEMPORARY ON DATABASE small FROM PUBLIC");
    disk.fill();
    post(&alice, "again");
    wait_until_within(PATIENCE, "not ready", || waits_for(&broker, "disk"));
    assert!(waits_for(&broker, "disk"), "and not by turns");
    disk.free();
    wait_until_within(PATIENCE, "again", || has(&home, "again"));
    assert!(is_ready(&broker));
    let check = ["--json", "broker", "orphan-check", "--database", &url];
    assert_eq!(house.cli(&check).ok().json()["orphans"], json!([]));
    assert_eq!(status(&alice)["outbox"]["dead"], 0);
}

#[test]
fn l_23_tables_that_somebody_holds_are_not_ready_until_they_are_let_go() {
    let (house, database) = (Home::new(), Postgres::start());
    let url = database.url();
    let data = house.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &["--database", &url]);
    let (home, alice) = alice_at(&broker);
    std::thread::scope(|scope| {
        let held = "BEGIN; LOCK TABLE mesh.message IN SHARE MODE; SELECT pg_sleep(60); COMMIT";
        scope.spawn(|| database.try_sql(held));
        wait_until("the lock", || {
            let locks = "SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock' AND relation = 'mesh.message'::regclass";
            database.sql(locks) == ["1"]
        });
        post(&alice, "held");
        wait_until_within(PATIENCE, "not ready", || waits_for(&broker, "lock"));
        database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    });
    wait_until_within(PATIENCE, "ready", || is_ready(&broker));
    wait_until_within(PATIENCE, "held", || has(&home, "held"));
    assert_eq!(status(&alice)["outbox"]["dead"], 0);
}
