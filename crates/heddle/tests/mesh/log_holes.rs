//! A broker whose file has lost ops in the middle of its log: it mends the log when somebody reads it, the homes that made the
//! ops send them again, and all print the same bytes. What only others have is told until its maker is back.

use crate::support;
use crate::sync::{Team, clock, converge, dump, remember, set, value};

use std::path::Path;

use rusqlite::{Connection, params};
use serde_json::json;
use support::{Daemon, Home, wait_until};

/// The tables that an op stands in.
const LOG: &str = "log_row";
const MESSAGE: &str = "message";
const HISTORY: &str = "message_history";
const IDS: &str = "client_message_dedupe";

/// Deletes the middle third of the log's ops from these tables; how many ops that were.
fn lose(data: &Path, tables: &[&str]) -> usize {
    let connection = Connection::open(data.join("broker.db")).unwrap();
    let mut statement = connection
        .prepare("SELECT epoch, seq, broker_message_id FROM log_row ORDER BY epoch, seq")
        .unwrap();
    let rows: Vec<(i64, i64, Vec<u8>)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let third = rows.len() / 3;
    for (epoch, seq, id) in &rows[third..2 * third] {
        for table in tables {
            let deleted = if *table == MESSAGE {
                connection.execute("DELETE FROM message WHERE broker_message_id = ?1", [id])
            } else {
                let sql = format!("DELETE FROM {table} WHERE epoch = ?1 AND seq = ?2");
                connection.execute(&sql, params![epoch, seq])
            };
            assert_eq!(deleted.unwrap(), 1, "{table}");
        }
    }
    third
}

/// What both have made, of every kind, in turns.
fn write_some(a: &Daemon, b: &Daemon, ann: &Home) {
    for number in 0..8 {
        set(a, &format!("a{number}"), &json!(number));
        remember(b, &format!("b{number}"), &json!(number));
    }
    ann.cli(&["--mesh", "team", "task", "add", "of ann"]).ok();
    ann.cli(&["--mesh", "team", "state", "delete", "a7"]).ok();
    set(b, "last", &json!(1));
}

fn stop_broker(team: &mut Team) {
    assert_eq!(team.broker.take().unwrap().terminate(), 0);
}

fn is_well(home: &Home) -> bool {
    let status = home.cli(&["status", "--json"]).json();
    status["degraded"] == json!([])
}

fn heals(tables: &[&str]) {
    let mut team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    write_some(&a, &b, &ann);
    let before = converge(&[(&ann, &a), (&bob, &b)]);
    stop_broker(&mut team);
    let lost = lose(&team.data, tables);
    assert!(lost >= 5, "{lost}");
    team.mend();
    // Whoever was not there before finds the hole, and gets all of it.
    let eve = team.member("eve");
    let e = eve.up();
    let after = converge(&[(&eve, &e), (&ann, &a), (&bob, &b)]);
    assert_eq!(after, before, "{tables:?}");
    assert_eq!(clock(&e)["sync"]["needs_resync"], false);
    wait_until("all is well", || {
        [&ann, &bob, &eve].into_iter().all(is_well)
    });
    // It is mended once: nobody who reads it later finds anything.
    let zoe = team.member("zoe");
    let z = zoe.up();
    assert_eq!(converge(&[(&zoe, &z), (&ann, &a)]), before);
    assert_eq!(clock(&z)["sync"]["broker_epoch"], 2, "{tables:?}");
    let broker = team.broker.as_ref().unwrap();
    assert_eq!(broker.logged("the log had lost ops").len(), 1);
}

#[test]
fn lf_15_a_log_that_lost_its_rows_is_mended_from_what_the_broker_still_has() {
    heals(&[LOG]);
}

#[test]
fn lf_15_ops_that_the_broker_lost_are_sent_again_by_those_who_made_them() {
    heals(&[MESSAGE]);
}

#[test]
fn lf_15_a_log_that_lost_every_trace_of_its_ops_is_whole_again() {
    heals(&[LOG, MESSAGE, HISTORY, IDS]);
}

#[test]
fn lf_15_a_kill_of_broker_and_maker_in_the_middle_of_a_mend_loses_nothing() {
    let mut team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    write_some(&a, &b, &ann);
    let before = converge(&[(&ann, &a), (&bob, &b)]);
    a.kill();
    b.kill();
    stop_broker(&mut team);
    lose(&team.data, &[LOG, MESSAGE]);
    team.mend();
    let eve = team.member("eve");
    let e = eve.up();
    // The log is mended, and those who made what it lost have not heard of it yet.
    wait_until("the new epoch", || clock(&e)["sync"]["broker_epoch"] == 2);
    team.cut();
    e.kill();
    team.mend();
    // Each of them is killed at whatever it does when it has just heard.
    for home in [&ann, &bob] {
        home.up().kill();
        let daemon = home.up();
        wait_until("the new epoch", || {
            clock(&daemon)["sync"]["broker_epoch"] == 2
        });
        daemon.kill();
    }
    team.cut();
    team.mend();
    let (a, b, e) = (ann.up(), bob.up(), eve.up());
    assert_eq!(converge(&[(&eve, &e), (&ann, &a), (&bob, &b)]), before);
    wait_until("all is well", || {
        [&ann, &bob, &eve].into_iter().all(is_well)
    });
}

#[test]
fn lf_15_what_only_others_have_of_a_hole_is_told_until_its_maker_is_back() {
    let mut team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    write_some(&a, &b, &ann);
    let before = converge(&[(&ann, &a), (&bob, &b)]);
    a.stop();
    stop_broker(&mut team);
    lose(&team.data, &[LOG, MESSAGE]);
    team.mend();
    let eve = team.member("eve");
    let e = eve.up();
    wait_until("bob to tell it", || {
        let status = bob.cli(&["status", "--json"]).json();
        status["degraded"]
            .to_string()
            .contains("changes that others made")
    });
    // Nothing that bob holds has changed, and eve has what bob had made.
    assert_eq!(dump(&bob), before);
    wait_until("what bob had made", || dump(&eve).contains("\"b5\""));
    let a = ann.up();
    assert_eq!(converge(&[(&eve, &e), (&ann, &a), (&bob, &b)]), before);
    wait_until("all is well", || {
        [&ann, &bob, &eve].into_iter().all(is_well)
    });
}

/// A home that met the hole at a broker which could not mend it: it went on behind it, and says so.
#[test]
fn lf_15_a_home_with_a_gap_names_one_command_and_gets_what_it_missed() {
    let mut team = Team::new();
    let (ann, eve) = (team.member("ann"), team.member("eve"));
    let (a, e) = (ann.up(), eve.up());
    for number in 0..6 {
        set(&a, &format!("a{number}"), &json!(number));
    }
    let before = converge(&[(&ann, &a), (&eve, &e)]);
    stop_broker(&mut team);
    lose(&team.data, &[LOG, MESSAGE, HISTORY, IDS]);
    e.stop();
    let connection = Connection::open(eve.path().join("data.db")).unwrap();
    connection
        .execute_batch(
            "DELETE FROM op_inbox WHERE seq IN (SELECT seq FROM op_inbox ORDER BY seq LIMIT 2 OFFSET 2);
             DELETE FROM state_kv WHERE key = 'a2' OR key = 'a3';
             UPDATE mesh SET needs_resync = 1 WHERE name = 'team';",
        )
        .unwrap();
    drop(connection);
    let command = "heddle doctor --resume-sync team";
    let look = eve.cli(&["doctor"]);
    assert_eq!(look.code, 1, "{look:?}");
    assert!(look.stdout.contains(command), "{look:?}");
    let e = eve.up();
    assert_eq!(value(&e, "a2"), None);
    wait_until("the gap to be told", || {
        let status = eve.cli(&["status"]);
        status.stdout.contains("has a gap") && status.stdout.contains(command)
    });
    let said = eve.cli(&["doctor", "--resume-sync", "team"]).ok();
    assert!(said.stdout.contains("read from its beginning"), "{said:?}");
    team.mend();
    assert_eq!(converge(&[(&eve, &e), (&ann, &a)]), before);
    assert_eq!(value(&e, "a2"), Some(json!(2)));
    assert_eq!(clock(&e)["sync"]["needs_resync"], false);
    wait_until("all is well", || [&ann, &eve].into_iter().all(is_well));
}
