//! The row of a mesh is lost alone, or names another mesh: everything else of the home stands under a mesh that no row names.
//! Nothing is begun over it; the start, the status and the doctor tell it, and a repair puts it back.

use crate::support;

use serde_json::{Value, json};
use support::{Home, wait_until};

fn change(home: &Home, sql: &str) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    raw.execute_batch(&format!("PRAGMA ignore_check_constraints = ON;{sql}"))
        .unwrap();
}

fn one(home: &Home, sql: &str) -> String {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    raw.query_row(sql, [], |row| row.get(0)).unwrap()
}

const HOME_ID: &str = "SELECT hex(mesh_id) || hex(member_id) FROM mesh WHERE name = 'home'";

const LISTED: &str = "SELECT ifnull(group_concat(name || hex(mesh_id)), '') || count(*) FROM mesh";

/// A home with something of everything, stopped in order.
fn stopped() -> Home {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "bob"]).ok();
    home.cli(&["state", "set", "color", "\"green\""]).ok();
    home.cli(&["remember", "seed", "oak"]).ok();
    home.cli(&["task", "add", "write the parser"]).ok();
    let body = json!({"to": "@bob", "message": "hello", "client_message_id": "m1"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("the message", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 1 && status["inbox"]["items"] == 1
    });
    daemon.stop();
    home
}

#[track_caller]
fn is_told(home: &Home, after: &str) {
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(
        status["next"], "heddle doctor --repair",
        "{after}: {status}"
    );
    let says = status["degraded"].to_string();
    let is_named = says.contains("mesh") || says.contains("column agent");
    assert!(is_named, "{after}: {status}");
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{after}: {doctor:?}");
    assert!(
        doctor.stdout.contains("heddle doctor --repair"),
        "{after}: {doctor:?}"
    );
    let before = one(home, LISTED);
    let up = home.try_up().err().expect(after);
    assert!(
        up.stderr.contains("heddle doctor --repair"),
        "{after}: {up:?}"
    );
    // Nothing was begun.
    let behind = one(home, LISTED);
    assert_eq!(before, behind, "{after}");
}

/// Who it was is who it is, and everything stands there.
#[track_caller]
fn works(home: &Home, after: &str) {
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 0, "{after}: {doctor:?}");
    let daemon = home.up();
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["degraded"], json!([]), "{after}: {status}");
    assert_eq!(status["meshes"][0]["mesh"], "home", "{after}: {status}");
    assert_eq!(status["meshes"][0]["member"], "tester", "{after}: {status}");
    let state = home.cli(&["state", "get", "color"]).ok().stdout;
    assert!(state.contains("green"), "{after}: {state}");
    let memory = home.cli(&["recall", "seed"]).ok().stdout;
    assert!(memory.contains("oak"), "{after}: {memory}");
    let tasks = home.cli(&["task", "list"]).ok().stdout;
    assert!(tasks.contains("write the parser"), "{after}: {tasks}");
    let inbox = daemon.http.get("/v1/inbox?agent=bob&all=true").expect(200);
    assert_eq!(inbox["items"].as_array().map(Vec::len), Some(1), "{inbox}");
    let again = json!({"to": "@bob", "message": "hello", "client_message_id": "m1"});
    let again = daemon.http.post("/v1/send", &again).expect(200);
    assert_eq!(again["duplicate"], true, "{after}: {again}");
    daemon.stop();
}

#[test]
fn a_lost_row_of_the_home_mesh_is_told_and_put_back_and_nothing_is_begun_over_it() {
    for (what, sql) in [
        ("lost", "DELETE FROM mesh"),
        (
            "another id",
            "UPDATE mesh SET mesh_id = X'00000000000000000000000000000007'",
        ),
        (
            "an id without anything",
            "UPDATE mesh SET mesh_id = zeroblob(16)",
        ),
        ("another name", "UPDATE mesh SET name = 'hole'"),
        // With another damage beside it.
        (
            "lost beside a cell",
            "DELETE FROM mesh; UPDATE agent SET agent = CAST(x'ff' AS TEXT) WHERE agent = 'bob'",
        ),
        (
            "lost beside all senders",
            "DELETE FROM mesh; DELETE FROM outbox_sender",
        ),
    ] {
        let home = stopped();
        let before = one(&home, HOME_ID);
        change(&home, sql);
        is_told(&home, what);
        let repaired = home.cli(&["doctor", "--repair", "--json"]).ok().json();
        assert_eq!(repaired["repaired"], true, "{what}: {repaired}");
        assert_eq!(one(&home, HOME_ID), before, "{what}: {repaired}");
        works(&home, what);
    }
}

fn info(home: &Home, mesh: &str) -> Value {
    home.cli(&["--mesh", mesh, "mesh", "info", "--json"]).json()
}

#[test]
fn a_lost_row_of_a_joined_mesh_is_told_and_put_back_as_who_it_was() {
    let (alice, bob) = (Home::new(), Home::new());
    alice.config("[daemon]\nmember = \"alice\"\n");
    bob.config("[daemon]\nmember = \"bob\"\n");
    let (alice_up, bob_up) = (alice.up(), bob.up());
    alice.cli(&["mesh", "create", "work"]).ok();
    let invite = ["--mesh", "work", "mesh", "invite", "--json"];
    let invited = alice.cli(&invite).ok().json();
    let link = invited["link"].as_str().unwrap();
    bob.cli(&["mesh", "join", link]).ok();
    wait_until("bob to be there", || {
        info(&bob, "work")["connected"] == true
    });
    alice
        .cli(&["--mesh", "work", "state", "set", "a", "1"])
        .ok();
    bob.cli(&["--mesh", "work", "state", "set", "b", "2"]).ok();
    let has = |home: &Home, key: &str| {
        let got = home.cli(&["--mesh", "work", "state", "get", key]);
        got.code == 0
    };
    wait_until("both to have both", || has(&alice, "b") && has(&bob, "a"));
    bob_up.stop();
    let ids = "SELECT hex(mesh_id) || hex(member_id) || kind FROM mesh WHERE name = 'work'";
    for sql in [
        "DELETE FROM mesh WHERE name = 'work'",
        "UPDATE mesh SET mesh_id = zeroblob(16) WHERE name = 'work'",
        "DELETE FROM mesh",
    ] {
        let before = one(&bob, ids);
        change(&bob, sql);
        is_told(&bob, sql);
        let repaired = bob.cli(&["doctor", "--repair", "--json"]).ok().json();
        assert_eq!(one(&bob, ids), before, "{sql}: {repaired}");
        let doctor = bob.cli(&["doctor"]);
        assert_eq!(doctor.code, 0, "{sql}: {doctor:?}");
        let bob_up = bob.up();
        wait_until("bob to be back", || info(&bob, "work")["connected"] == true);
        wait_until("the same on both sides", || {
            let dump = |home: &Home| {
                home.cli(&["--mesh", "work", "advanced", "dump"])
                    .ok()
                    .stdout
            };
            dump(&alice) == dump(&bob)
        });
        assert!(has(&bob, "a") && has(&bob, "b"), "{sql}");
        bob_up.stop();
    }
    // Alice has made the mesh herself: no setting names it, and nobody else has its name.
    alice_up.stop();
    change(&alice, "DELETE FROM mesh WHERE name = 'work'");
    is_told(&alice, "a mesh of one's own");
}
