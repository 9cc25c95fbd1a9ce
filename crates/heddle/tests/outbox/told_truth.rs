//! What `status` and `explain` say of a full budget, of mail elsewhere and of messages that were given up, over the real
//! binary: it is true, and the command that it names does something about it.

use crate::support;

use serde_json::{Value, json};
use support::outbox::{row, send_to, wait_for};
use support::{Daemon, Home, wait_until};

fn status(daemon: &Daemon) -> Value {
    daemon.http.get("/v1/status").expect(200)
}

#[test]
fn c47_a_mesh_whose_broker_is_away_does_not_use_up_the_budget_of_another() {
    let home = Home::new();
    home.config(
        "[outbox]\ndisk_budget_mb = 1\n[[mesh]]\nname = \"away\"\nurl = \"ws://127.0.0.1:1/\"\n",
    );
    let daemon = home.up();
    let large = "x".repeat(60_000);
    let to_away = |id: &str| {
        let body =
            json!({"to": "@tester", "message": large, "client_message_id": id, "mesh": "away"});
        daemon.http.post("/v1/send", &body)
    };
    let mut sent = 0;
    let problem = loop {
        let answer = to_away(&format!("away{sent}"));
        if answer.status == 507 {
            break answer.json();
        }
        answer.expect(202);
        sent += 1;
    };
    let next = problem["next"].as_str().unwrap();
    assert!(!next.contains("prune"), "{problem}");
    assert!(next.contains("disk_budget_mb"), "{problem}");
    for n in 0..3 {
        send_to(&daemon, "@tester", &format!("home{n}"), &large).expect(202);
        wait_for(&daemon, &format!("home{n}"), "done");
    }
    // Until what was just sent in the other mesh is not counted as waiting any more. Between two looks a message may be
    // counted twice, so that the next one is refused a little early: it has room then.
    wait_until("the word", || {
        if to_away(&format!("away{sent}")).status == 202 {
            sent += 1;
        }
        let degraded = status(&daemon)["degraded"].to_string();
        degraded.contains("new sends to mesh away are refused")
    });
    // A quarter of the budget is kept for the other mesh.
    assert!((11..15).contains(&sent), "{sent}");
    let told = status(&daemon);
    let degraded = told["degraded"].to_string();
    assert!(degraded.contains("disk_budget_mb"), "{told}");
    assert!(
        !degraded.contains("the disk has") && !degraded.contains("prune"),
        "{told}"
    );
    assert_eq!(told["disk"]["by"], "budget");
    assert_eq!(told["disk"]["can_prune"], false);
    assert_eq!(told["next"], "heddle daemon outbox list");
    // Known ids are answered as ever.
    to_away("away0").expect(202);
}

#[test]
fn c47_requeues_of_a_mesh_whose_broker_is_away_leave_the_others_their_part() {
    let home = Home::new();
    home.config(
        "[outbox]\ndisk_budget_mb = 1\n[[mesh]]\nname = \"away\"\nurl = \"ws://127.0.0.1:1/\"\n",
    );
    let daemon = home.up();
    let large = "x".repeat(20_000);
    let to_away = |id: &str| {
        let body =
            json!({"to": "@tester", "message": large, "client_message_id": id, "mesh": "away"});
        daemon.http.post("/v1/send", &body)
    };
    let mut sent = 0;
    wait_until("507", || {
        sent += 1;
        to_away(&format!("away{sent}")).status == 507
    });
    let mut again = 0;
    for number in 1..sent {
        let path = format!("/v1/outbox/away{number}/requeue?mesh=away");
        let body = json!({"new_client_id": format!("again{number}"), "force": true});
        let answer = daemon.http.post(&path, &body);
        assert!([200, 507].contains(&answer.status), "{answer:?}");
        again += usize::from(answer.status == 200);
    }
    // The last twentieth of the budget is theirs: two or three of these. The rest of it is kept.
    assert!((1..=4).contains(&again), "{again} of {sent}");
    for n in 0..4 {
        send_to(&daemon, "@tester", &format!("home{n}"), &large).expect(202);
    }
}

#[test]
fn unread_mail_of_another_mesh_is_found_by_the_command_that_status_names() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["mesh", "create", "team"]).ok();
    home.cli(&[
        "--mesh",
        "team",
        "send",
        "@tester",
        "x",
        "--id",
        "m",
        "--wait=delivered",
    ])
    .ok();
    let told = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(told["verdict"], "ok", "{told}");
    assert_eq!(told["next"], "heddle agent list --mesh team");
    assert_eq!(status(&daemon)["next"], "heddle agent list --mesh team");
    let listed = home
        .cli(&["agent", "list", "--mesh", "team", "--json"])
        .ok()
        .json();
    let unread = listed["agents"].as_array().unwrap().iter();
    assert_eq!(
        unread
            .map(|one| one["unread"].as_u64().unwrap())
            .sum::<u64>(),
        1
    );
    // Whoever means that mesh anyway needs no word for it; whoever means another does.
    let by_env = home
        .command(&["status", "--json"])
        .env("HEDDLE_MESH", "team")
        .output()
        .unwrap();
    let by_env: Value = serde_json::from_slice(&by_env.stdout).unwrap();
    assert_eq!(by_env["next"], "heddle agent list");
    let by_word = home
        .cli(&["--mesh", "home", "status", "--json"])
        .ok()
        .json();
    assert_eq!(by_word["next"], "heddle agent list --mesh team");
    home.cli(&["send", "@tester", "x", "--id", "own", "--wait=delivered"])
        .ok();
    let told = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(told["next"], "heddle agent list");
}

/// A row that died of age while its broker was away, which had committed it (the ack was lost).
fn given_up(home: &Home, id: &str) {
    let connection = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let trigger: String = connection
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = 'outbox_moves'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    connection
        .execute_batch(&format!(
            "DROP TRIGGER outbox_moves;
             UPDATE outbox SET status = 'dead', last_error = 'max_age_outcome_unknown: not confirmed',
                 delivered_at = NULL, broker_message_id = NULL, history_epoch = NULL, history_seq = NULL
             WHERE client_message_id = '{id}';
             {trigger};"
        ))
        .unwrap();
}

#[test]
fn dr_05_a_message_that_was_given_up_and_had_arrived_is_done_when_its_broker_is_back() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&[
        "send",
        "@tester",
        "x",
        "--id",
        "arrived",
        "--wait=delivered",
    ])
    .ok();
    daemon.stop();
    given_up(&home, "arrived");
    let daemon = home.up();
    wait_for(&daemon, "arrived", "done");
    let story = home.cli(&["explain", "arrived"]).ok().stdout;
    assert!(story.starts_with("arrived is delivered"), "{story}");
    assert!(!story.contains("dead"), "{story}");
    assert!(row(&daemon, "arrived")["history_id"].is_string());
    assert_eq!(status(&daemon)["outbox"]["dead"], 0);
}

#[test]
fn c32_of_a_message_that_was_given_up_and_never_arrived_that_is_known_afterwards() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["send", "@tester", "x", "--id", "absent", "--wait=delivered"])
        .ok();
    daemon.stop();
    given_up(&home, "absent");
    let broker = rusqlite::Connection::open(home.path().join("broker.db")).unwrap();
    broker
        .execute_batch("DELETE FROM client_message_dedupe")
        .unwrap();
    drop(broker);
    let daemon = home.up();
    wait_until("the look", || {
        row(&daemon, "absent")["outcome"] == "not_delivered"
    });
    let dead = row(&daemon, "absent");
    assert_eq!(dead["status"], "dead");
    let why = dead["last_error"].as_str().unwrap();
    assert!(why.contains("the broker does not have it"), "{why}");
}
