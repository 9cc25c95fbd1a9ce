//! A byte that a disk has changed in one cell of data.db: no text any more, or no name. SQLite finds nothing wrong with it.
//! The doctor names the row, `up` and `status` name the repair, the repair mends it and loses no id, and where the daemon
//! runs, every list goes on and shows the one row as damaged.

use crate::support;

use serde_json::{Value, json};
use support::{Daemon, Home, wait_until};

/// A home with a message, an agent and a task, stopped in order.
fn stopped() -> Home {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "bob"]).ok();
    home.cli(&["task", "add", "write the parser"]).ok();
    home.cli(&["task", "add", "read the parser"]).ok();
    send(&daemon, "@bob", "m1");
    send(&daemon, "@bob", "m2");
    wait_until("the messages", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 2 && status["inbox"]["items"] == 2
    });
    daemon.stop();
    home
}

fn send(daemon: &Daemon, to: &str, id: &str) {
    let body = json!({"to": to, "message": "hello", "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn change(home: &Home, sql: &str) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    // The guards of the tables are no guard against a disk.
    let triggers = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_schema WHERE type = 'trigger'
        AND tbl_name = 'outbox'";
    let drop: String = raw.query_row(triggers, [], |row| row.get(0)).unwrap();
    let saved = "SELECT group_concat(sql, ';') FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'outbox'";
    let make: String = raw.query_row(saved, [], |row| row.get(0)).unwrap();
    raw.execute_batch(&format!(
        "PRAGMA ignore_check_constraints = ON;{drop};{sql};{make}"
    ))
    .unwrap();
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Damaged as no text and as no name.
const BAD: [&str; 2] = ["CAST(x'68ff6f' AS TEXT)", "'ho me!'"];

#[test]
fn lf_38_a_damaged_cell_that_a_start_reads_is_named_and_mended() {
    // Each of them keeps a start from going on: no text, no name, no number.
    for (table, column, bad) in [
        ("mesh", "name", BAD[0]),
        ("mesh", "name", BAD[1]),
        ("mesh", "member_name", BAD[0]),
        ("mesh", "broker_url", BAD[0]),
        ("mesh", "kind", BAD[0]),
        ("mesh", "log_seq", "-5"),
        ("agent", "agent", BAD[0]),
        ("agent", "agent", BAD[1]),
        ("outbox_sender", "agent", BAD[0]),
        ("roster", "document", BAD[0]),
        ("store_state", "only_row", "7"),
        ("mesh_window", "max_age_hours", "-5"),
    ] {
        let home = stopped();
        change(
            &home,
            &format!("UPDATE OR IGNORE {table} SET {column} = {bad}"),
        );
        let status = home.cli(&["status", "--json"]).ok().json();
        assert_eq!(status["next"], "heddle doctor --repair", "{status}");
        let words = format!("column {column}: ");
        let says = text(&status["degraded"][0]);
        assert!(says.contains(table) && says.contains(&words), "{says}");
        let up = home.try_up().err().expect("it must not start");
        assert!(up.stderr.contains(&words), "{up:?}");
        assert!(up.stderr.contains("heddle doctor --repair"), "{up:?}");
        let doctor = home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        assert!(doctor.stdout.contains(&words), "{doctor:?}");
        assert!(
            doctor.stdout.contains("heddle doctor --repair"),
            "{doctor:?}"
        );
        home.cli(&["doctor", "--repair"]).ok();
        works(&home, &format!("{table}.{column} = {bad}"));
    }
}

/// Everything is there: the mesh under its name, the agents, the mail, and the ids stay used.
#[track_caller]
fn works(home: &Home, after: &str) {
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 0, "{after}: {doctor:?}");
    let daemon = home.up();
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["meshes"][0]["mesh"], "home", "{after}: {status}");
    assert_eq!(status["meshes"][0]["member"], "tester", "{after}: {status}");
    assert_eq!(status["outbox"]["done"], 2, "{after}: {status}");
    let agents = daemon.http.get("/v1/agent/list").expect(200).to_string();
    assert!(agents.contains("bob"), "{after}: {agents}");
    let inbox = daemon.http.get("/v1/inbox?agent=bob&all=true").expect(200);
    assert_eq!(
        inbox["items"].as_array().unwrap().len(),
        2,
        "{after}: {inbox}"
    );
    let again = json!({"to": "@bob", "message": "hello", "client_message_id": "m1"});
    let again = daemon.http.post("/v1/send", &again).expect(200);
    assert_eq!(again["duplicate"], true, "{after}: {again}");
    daemon.stop();
}

#[test]
fn lf_38_one_damaged_row_of_the_outbox_is_shown_as_damaged_and_every_list_goes_on() {
    for (column, bad) in [
        ("to_address", BAD[0]),
        ("priority", BAD[0]),
        ("priority", BAD[1]),
        ("mentions", BAD[0]),
        ("kind", BAD[1]),
        ("client_message_id", BAD[0]),
        ("agent", BAD[0]),
        ("last_error", BAD[0]),
    ] {
        let home = stopped();
        change(
            &home,
            &format!("UPDATE outbox SET {column} = {bad} WHERE client_message_id = 'm1'"),
        );
        let daemon = home.up();
        let page = daemon.http.get("/v1/outbox").expect(200);
        let rows = page["rows"].as_array().unwrap().clone();
        let (hurt, whole): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| !row["damaged"].is_null());
        assert_eq!(hurt.len(), 1, "{column}: {page}");
        assert!(
            whole.iter().any(|row| row["client_message_id"] == "m2"),
            "{page}"
        );
        assert!(text(&hurt[0]["damaged"]).contains(column), "{page}");
        let id = text(&hurt[0]["id"]);
        let list = home.cli(&["daemon", "outbox", "list"]).ok().stdout;
        assert!(list.contains(&id) && list.contains("(damaged)"), "{list}");
        assert!(
            list.contains("m2") && list.contains("heddle doctor --repair"),
            "{list}"
        );
        let inspect = home.cli(&["daemon", "outbox", "inspect", &id]).ok().stdout;
        assert!(inspect.contains("damaged"), "{inspect}");
        let export = home.cli(&["advanced", "export"]).ok().stdout;
        assert!(
            export.contains(&id) && export.contains("\"m2\""),
            "{export}"
        );
        home.cli(&["inbox", "--agent", "bob"]).ok();
        wait_until("the status to tell it", || {
            let status = daemon.http.get("/v1/status").expect(200);
            status["degraded"].to_string().contains(column)
        });
        let doctor = home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        assert!(doctor.stdout.contains(&id), "{doctor:?}");
        daemon.stop();
        let repaired = home.cli(&["doctor", "--repair", "--json"]).ok().json();
        assert_eq!(repaired["lost"], false, "{repaired}");
        let mended = repaired["mended"].to_string();
        assert!(
            mended.contains(&id) && mended.contains(column),
            "{repaired}"
        );
        let daemon = home.up();
        let page = daemon.http.get("/v1/outbox").expect(200);
        assert!(!page.to_string().contains("\"damaged\""), "{page}");
        let row = daemon.http.get(&format!("/v1/outbox/{id}")).expect(200);
        // What its frozen envelope says is what it says again.
        assert_eq!(
            (&row["to"], &row["priority"]),
            (&json!("@bob"), &json!("next")),
            "{row}"
        );
        home.cli(&["doctor"]).ok();
        daemon.stop();
    }
}

#[test]
fn lf_38_one_damaged_row_of_a_mailbox_or_of_the_tasks_takes_no_list_away() {
    for (table, column, which) in [
        ("inbox", "sender_name", "client_message_id = 'm1'"),
        ("inbox", "client_message_id", "client_message_id = 'm1'"),
        ("inbox", "priority", "client_message_id = 'm1'"),
        ("tasks", "title", "title = 'write the parser'"),
        ("tasks", "created_by", "title = 'write the parser'"),
    ] {
        let home = stopped();
        change(
            &home,
            &format!("UPDATE {table} SET {column} = {} WHERE {which}", BAD[0]),
        );
        let daemon = home.up();
        // The rest is there, and the code says where a row is left out; a damaged message is shown as one.
        let export = home.cli(&["advanced", "export"]);
        let code = i32::from(table != "inbox");
        assert_eq!(export.code, code, "{table}.{column}: {export:?}");
        assert!(
            export.stdout.contains("\"m2\""),
            "{table}.{column}: {export:?}"
        );
        if table == "inbox" {
            let inbox = home.cli(&["inbox", "--agent", "bob", "--all"]).ok().stdout;
            assert!(inbox.contains("(damaged"), "{column}: {inbox}");
            assert_eq!(inbox.matches("hello").count(), 1, "{column}: {inbox}");
        } else {
            let list = home.cli(&["task", "list"]).ok();
            assert!(list.stdout.contains("read the parser"), "{list:?}");
            assert!(list.stderr.contains("left out"), "{list:?}");
        }
        let doctor = home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{table}.{column}: {doctor:?}");
        daemon.stop();
        home.cli(&["doctor", "--repair"]).ok();
        home.cli(&["doctor"]).ok();
        let daemon = home.up();
        let tasks = home.cli(&["task", "list"]).ok().stdout;
        assert!(tasks.contains("write the parser"), "{tasks}");
        wait_until("the mail, all of it", || {
            let inbox = daemon.http.get("/v1/inbox?agent=bob&all=true").expect(200);
            inbox["items"].to_string().matches("hello").count() == 2
        });
        daemon.stop();
    }
}

#[test]
fn lf_38_a_damaged_cell_that_its_broker_begins_with_is_named_by_all_and_a_backup_helps() {
    for (table, column) in [
        ("mesh", "name"),
        ("member_standing", "role"),
        ("member", "name"),
    ] {
        let home = stopped();
        let backup = home.path().parent().unwrap().join("backup");
        let backup = backup.to_str().unwrap();
        home.cli(&["doctor", "--backup", backup]).ok();
        let raw = rusqlite::Connection::open(home.path().join("broker.db")).unwrap();
        let sql = format!(
            "PRAGMA ignore_check_constraints = ON; UPDATE {table} SET {column} = {}",
            BAD[0]
        );
        raw.execute_batch(&sql).unwrap();
        drop(raw);
        let words = format!("{table}, column {column}: ");
        let status = home.cli(&["status", "--json"]).ok().json();
        assert_eq!(status["next"], "heddle doctor", "{status}");
        assert!(text(&status["degraded"][0]).contains(&words), "{status}");
        let doctor = home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        assert!(doctor.stdout.contains(&words), "{doctor:?}");
        assert!(
            doctor.stdout.contains("restore FILE --only broker"),
            "{doctor:?}"
        );
        let up = home.try_up().err().expect("it must not start");
        assert!(up.stderr.contains(&words), "{up:?}");
        home.cli(&["daemon", "restore", backup, "--only", "broker"])
            .ok();
        works(&home, &words);
    }
}

/// A stamp and a step of a task that a disk has changed: publish, status and doctor name them, and a repair mends them.
#[test]
fn lf_33_a_publish_a_status_and_a_repair_name_a_stamp_that_cannot_be_and_a_task_that_is_none() {
    let home = stopped();
    let daemon = home.up();
    for key in ["a", "b"] {
        home.cli(&["state", "set", key, "1"]).ok();
    }
    daemon.stop();
    change(
        &home,
        "UPDATE state_kv SET lamport = lamport | (1 << 62) WHERE key = 'a';
         UPDATE task_op SET body = CAST(replace(CAST(body AS TEXT), 'write', char(27) || 'rite') AS BLOB);
         -- As a Heddle has written them, and no disk.
         UPDATE state_kv SET digest = NULL; UPDATE task_op SET digest = NULL;
         UPDATE store_state SET rows_sealed = 0",
    );
    let daemon = home.up();
    wait_until("the status to tell", || {
        daemon
            .http
            .get("/v1/status")
            .body
            .contains("its stamp is ahead of its mesh's clock")
    });
    let said = home.cli(&["mesh", "publish"]).ok().stdout;
    for wanted in [
        "2 of 4 rows are at its broker",
        "state \"a\"",
        "task \"write the parser\"",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    daemon.stop();
    let said = home.cli(&["doctor"]).stdout;
    assert!(said.contains("state \"a\""), "{said}");
    let said = home.cli(&["doctor", "--repair"]).ok().stdout;
    for wanted in [
        "state \\\"a\\\"",
        "1 tasks lost steps of their history and stand as they stood",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let _daemon = home.up();
    // No log ever heard of it: whatever its row says is all there is of it.
    let listed = home.cli(&["task", "list"]).ok().stdout;
    assert!(listed.contains("write the parser"), "{listed}");
    for key in ["a", "b"] {
        home.cli(&["state", "set", key, "2"]).ok();
    }
}

/// A row of a task that is gone is in no list, so nobody meets it: only a look tells.
#[test]
fn lf_39_a_status_tells_of_a_task_whose_row_or_step_is_lost_and_a_repair_brings_it_back() {
    for lost in [
        "DELETE FROM tasks WHERE title = 'write the parser'",
        "DELETE FROM task_op WHERE instr(body, 'write the parser') > 0",
    ] {
        let home = stopped();
        change(&home, lost);
        let daemon = home.up();
        wait_until("the status to tell", || {
            let status = daemon.http.get("/v1/status").expect(200);
            let degraded = status["degraded"].to_string();
            degraded.contains("data.db holds what cannot be read: task ")
        });
        daemon.stop();
        home.cli(&["doctor", "--repair"]).ok();
        let daemon = home.up();
        let listed = home.cli(&["task", "list"]).ok().stdout;
        assert!(listed.contains("write the parser"), "{lost}: {listed}");
        daemon.stop();
        let said = home.cli(&["doctor"]).ok().stdout;
        assert!(said.contains("nothing needs you"), "{lost}: {said}");
    }
}

/// Its steps are what was written, so that nothing is lost with the row.
#[test]
fn lf_39_a_task_whose_row_is_lost_is_told_by_who_asks_for_it_and_mended_by_its_next_step() {
    let home = stopped();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let id: Vec<u8> = raw
        .query_row(
            "SELECT task_id FROM tasks WHERE title = 'write the parser'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    drop(raw);
    let id = heddle_core::ids::OpId::from_bytes(id.try_into().unwrap()).to_string();
    change(&home, "DELETE FROM tasks WHERE title = 'write the parser'");
    let daemon = home.up();
    let shown = home.cli(&["task", "show", &id]);
    assert_eq!(shown.code, 1, "{}", shown.stderr);
    assert!(
        shown.stderr.contains("is not what was written here"),
        "{}",
        shown.stderr
    );
    assert!(
        shown.stderr.contains("a task is mended by its next step"),
        "{}",
        shown.stderr
    );
    home.cli(&["task", "claim", &id]).ok();
    let listed = home.cli(&["task", "list"]).ok().stdout;
    assert!(listed.contains("write the parser"), "{listed}");
    daemon.stop();
    home.cli(&["doctor"]).ok();
}

/// One bit of the clock: nothing is called safe that no home would take, and the refusal names the way out that the status names.
#[test]
fn lf_06_a_write_under_a_clock_far_ahead_is_refused_with_the_words_of_the_status_and_a_repair_helps()
 {
    let home = stopped();
    change(&home, "UPDATE lamport_clock SET value = value | (1 << 40)");
    let daemon = home.up();
    let refused = home.cli(&["state", "set", "x", "1"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    for words in [
        "the clock of mesh home stands at",
        "nothing that is written there would count",
        "heddle doctor --repair",
    ] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
    assert_eq!(home.cli(&["state", "get", "x"]).code, 4);
    wait_until("the status to tell", || {
        let status = daemon.http.get("/v1/status").body;
        status.contains("nothing that is written there would count")
    });
    daemon.stop();
    let says = home.cli(&["doctor"]);
    assert!(says.stdout.contains("far ahead"), "{says:?}");
    home.cli(&["doctor", "--repair"]).ok();
    assert_eq!(home.cli(&["doctor"]).code, 0);
    let _daemon = home.up();
    home.cli(&["state", "set", "x", "1"]).ok();
}
