//! A migration that fails when a home starts: taken back whole, said with what to do, and nothing is lost.
#![cfg(test)]

mod support;

use rusqlite::Connection;
use serde_json::json;
use support::Home;

fn version(connection: &Connection) -> u32 {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap()
}

#[test]
fn lf_35_a_migration_that_fails_is_taken_back_whole_and_the_way_on_is_said() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "value": "kept"});
    daemon.http.post("/v1/state/set", &body).expect(200);
    daemon.stop();
    let data = home.path().join("data.db");
    let raw = Connection::open(&data).unwrap();
    let newest = version(&raw);
    // As an older version would have left it, with a table in the way of the last step.
    raw.execute("DELETE FROM _migrations WHERE version = ?1", [newest])
        .unwrap();
    raw.pragma_update(None, "user_version", newest - 1).unwrap();
    drop(raw);

    let failed = home.try_up().err().expect("the start must fail");
    assert_ne!(failed.code, 0);
    let said = format!("{}{}", failed.stdout, failed.stderr);
    assert!(said.contains(&format!("migration {newest}")), "{said}");
    assert!(said.contains("as it was before"), "{said}");
    assert!(
        said.contains("heddle doctor --rollback-migration"),
        "{said}"
    );
    let raw = Connection::open(&data).unwrap();
    assert_eq!(version(&raw), newest - 1, "the step is not there in part");
    let kept: String = raw
        .query_row("SELECT value FROM state_kv WHERE key = 'k'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(kept, "\"kept\"");
    drop(raw);

    let number = newest.to_string();
    let args = ["doctor", "--rollback-migration", &number, "--json"];
    let told = home.cli(&args).ok().json();
    assert_eq!(told["rolled_back"], json!(true));
    assert_eq!(told["version"], json!(newest - 1));
    // One that much builds on is not undone, and the answer says what to do instead.
    let refused = home.cli(&["doctor", "--rollback-migration", "1"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(
        refused.stderr.contains("heddle daemon restore"),
        "{refused:?}"
    );
    assert_eq!(
        home.cli(&["doctor", "--rollback-migration", "9999"]).code,
        4
    );
    assert_eq!(home.cli(&["doctor", "--rollback-migration", "x"]).code, 2);

    // What was in the way is gone: the next start goes on, with everything that was there.
    let raw = Connection::open(&data).unwrap();
    raw.execute(
        "INSERT INTO _migrations (version, name) VALUES (?1, 'mended')",
        [newest],
    )
    .unwrap();
    raw.pragma_update(None, "user_version", newest).unwrap();
    drop(raw);
    let daemon = home.up();
    let state = daemon.http.get("/v1/state/get?key=k").expect(200);
    assert_eq!(state["value"], "kept");
}

/// The step is out of the file and what was written stays; the same Heddle takes it again and goes on.
#[test]
fn lf_35_the_newest_step_is_undone_in_place_with_the_daemon_down_and_taken_again_by_a_start() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "value": "kept"});
    daemon.http.post("/v1/state/set", &body).expect(200);
    let data = home.path().join("data.db");
    let newest = version(&Connection::open(&data).unwrap());
    let number = newest.to_string();
    let undo = ["doctor", "--rollback-migration", &number, "--json"];
    let held = home.cli(&undo);
    assert_eq!(held.code, 3, "a daemon has the file: {held:?}");
    assert_eq!(version(&Connection::open(&data).unwrap()), newest);
    daemon.stop();
    let told = home.cli(&undo);
    if told.code == 6 {
        // The newest step of all has no way back in place: then it says which way there is.
        assert!(told.stderr.contains("heddle daemon restore"), "{told:?}");
        return;
    }
    let told = told.ok().json();
    assert_eq!(
        (&told["rolled_back"], &told["undone"], &told["version"]),
        (&json!(true), &json!(true), &json!(newest - 1))
    );
    let raw = Connection::open(&data).unwrap();
    assert_eq!(version(&raw), newest - 1);
    let noted: u32 = raw
        .query_row("SELECT max(version) FROM _migrations", [], |row| row.get(0))
        .unwrap();
    assert_eq!(noted, newest - 1);
    drop(raw);
    // Again: there is nothing of it any more.
    let told = home.cli(&undo).ok().json();
    assert_eq!(told["version"], json!(newest - 1));
    assert!(told["undone"].is_null());
    home.cli(&["doctor"]).ok();
    let daemon = home.up();
    let state = daemon.http.get("/v1/state/get?key=k").expect(200);
    assert_eq!(state["value"], "kept");
    drop(daemon);
    assert_eq!(version(&Connection::open(&data).unwrap()), newest);
}
