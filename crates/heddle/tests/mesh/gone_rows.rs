//! Rows that a disk has lost as a whole in a home that has others: a change that was never sent is told and goes out, and what the
//! log has of the rest comes back when a person asks for it.

use crate::support;
use crate::sync::{Team, converge, remember, set, value};

use rusqlite::Connection;
use serde_json::json;
use support::{Home, wait_until};

/// No guard of the tables is asked.
fn lose(home: &Home, sql: &str) {
    let raw = Connection::open(home.path().join("data.db")).unwrap();
    let guard = "SELECT sql FROM sqlite_schema WHERE name = 'outbox_stays'";
    let guard: String = raw.query_row(guard, [], |row| row.get(0)).unwrap();
    raw.execute_batch("DROP TRIGGER outbox_stays").unwrap();
    assert_eq!(raw.execute(sql, []).unwrap(), 1, "{sql}");
    raw.execute_batch(&guard).unwrap();
}

/// All was called well, one change more counted as done, and the homes differed for good.
#[test]
fn lf_12_a_change_whose_row_of_the_outbox_is_lost_is_told_by_every_door_and_sent_by_a_repair() {
    let mut team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    set(&a, "before", &json!(0));
    converge(&[(&ann, &a), (&bob, &b)]);
    assert_eq!(team.broker.take().unwrap().terminate(), 0);
    set(&a, "y1", &json!(1));
    set(&a, "y2", &json!(2));
    a.stop();
    lose(
        &ann,
        "DELETE FROM outbox WHERE CAST(payload AS TEXT) LIKE '%y1%'",
    );
    team.mend();
    let a = ann.up();
    let looked = ann.cli(&["doctor"]);
    assert_eq!(looked.code, 1, "{looked:?}");
    assert!(
        looked.stdout.contains("never sent to the others"),
        "{looked:?}"
    );
    assert!(looked.stdout.contains("state \"y1\""), "{looked:?}");
    let told = || {
        ann.cli(&["status"])
            .stdout
            .contains("never sent to the others")
    };
    wait_until("the status to tell of it", told);
    // The one of before and the one that goes out: what is gone is not done.
    wait_until("the status to count what is there", || {
        ann.cli(&["status", "--json"]).json()["outbox"]["done"] == 2
    });
    a.stop();
    let mended = ann.cli(&["doctor", "--repair"]).ok().stdout;
    assert!(mended.contains("go out now: state \"y1\""), "{mended}");
    let a = ann.up();
    converge(&[(&ann, &a), (&bob, &b)]);
    assert_eq!(value(&b, "y1"), Some(json!(1)));
    a.stop();
    ann.cli(&["doctor"]).ok();
}

/// No verb read the log again for them, and explain called them overwritten.
#[test]
fn lf_39_rows_that_are_gone_come_back_from_the_log_when_a_person_asks() {
    let team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    set(&a, "own", &json!(1));
    set(&b, "theirs", &json!(2));
    remember(&b, "note", &json!(3));
    ann.cli(&["--mesh", "team", "task", "add", "of ann", "--id", "t-1"])
        .ok();
    let before = converge(&[(&ann, &a), (&bob, &b)]);
    a.stop();
    for sql in [
        "DELETE FROM state_kv WHERE key = 'own'",
        "DELETE FROM state_kv WHERE key = 'theirs'",
        "DELETE FROM memory WHERE key = 'note'",
        "DELETE FROM tasks",
        "DELETE FROM task_op",
    ] {
        lose(&ann, sql);
    }
    let a = ann.up();
    let looked = ann.cli(&["doctor"]);
    assert_eq!(looked.code, 1, "{looked:?}");
    for words in ["rows are gone: ", "state \"own\"", "task "] {
        assert!(looked.stdout.contains(words), "{looked:?}");
    }
    let told = ann.cli(&["--mesh", "team", "explain", "t-1"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stdout.contains("--resume-sync team"), "{told:?}");
    let said = ann.cli(&["doctor", "--resume-sync", "team"]).ok().stdout;
    assert!(
        said.contains("what is missing here of it comes back"),
        "{said}"
    );
    let after = converge(&[(&ann, &a), (&bob, &b)]);
    assert_eq!(after, before);
    ann.cli(&["--mesh", "team", "explain", "t-1"]).ok();
    let told = || ann.cli(&["status"]).stdout.contains("gone from data.db");
    wait_until("the status to be well", || !told());
    a.stop();
    ann.cli(&["doctor"]).ok();
}
