//! The orphan check that a broker runs by itself (v10 §4.11, §4.7.3; v6 §4.7): nobody asks, and an operator is told.

use crate::support;

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use support::broker_process::{BrokerProcess, RawLink};
use support::{Home, wait_until, wait_until_within};

const MESH: &str = "01HZX000000000000000000001";
const MEMBER: &str = "01HZX000000000000000000002";
const CHECKS: &str = "heddle_broker_dedupe_orphan_check_total";
const FOUND: &str = "heddle_broker_dedupe_orphan_found";
/// The words that stand beside each orphan in the log.
const ALERT: &str = "an orphan: run `heddle broker orphan-check`";
/// A check comes with every 24th sweep, and a sweep every second here.
const NEXT_CHECK_WITHIN: Duration = Duration::from_secs(120);

fn serve(home: &Home, data: &Path) -> BrokerProcess {
    BrokerProcess::start(home, data, "127.0.0.1:0", &[])
}

fn on_file(data: &Path, sql: &str) {
    let file = rusqlite::Connection::open(data.join("broker.db")).unwrap();
    file.busy_timeout(Duration::from_secs(10)).unwrap();
    file.execute_batch(sql).unwrap();
}

#[test]
fn v10_4_11_br_14_an_orphan_is_found_by_the_schedule_logged_as_an_error_and_shown_by_the_gauge() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    std::fs::create_dir_all(&data).unwrap();
    let often = "[broker]\nupkeep_interval_seconds = 1\n";
    std::fs::write(data.join("config.toml"), often).unwrap();
    let broker = serve(&home, &data);
    let mut link = RawLink::enter(&broker, MESH, MEMBER);
    assert_eq!(link.next_of("welcome")["type"], "welcome");
    let subscribe = json!({"what": "subscribe", "topic": "ops", "agent": "one"});
    link.say(&json!({"type": "request", "request": 1, "body": subscribe}));
    assert_eq!(link.next_of("reply")["result"], "ok");
    for id in ["whole", "broken"] {
        let envelope = json!({
            "v": 1, "kind": "message", "priority": "next", "body": id,
            "destination": {"kind": "topic", "ref": "ops"},
        });
        let item = json!({"agent": "one", "client_message_id": id, "envelope": envelope});
        link.say(&json!({"type": "send", "batch": 1, "items": [item]}));
        assert_eq!(link.next_of("verdicts")["items"][0]["verdict"], "created");
    }
    drop(link);
    assert_eq!(broker.terminate(), 0);

    // The first look after a start: nothing is wrong, and nothing is said.
    let broker = serve(&home, &data);
    wait_until("the first check", || broker.metric(CHECKS) == 1);
    assert_eq!(broker.metric(FOUND), 0);
    assert!(broker.logged("an orphan").is_empty());

    // Half of an accept disappears; the next look of the same process finds it.
    on_file(
        &data,
        "CREATE TABLE aside AS SELECT * FROM message_history WHERE seq = 2;
         DELETE FROM message_history WHERE seq = 2",
    );
    wait_until_within(NEXT_CHECK_WITHIN, "the next check", || {
        broker.metric(CHECKS) == 2
    });
    assert!(broker.metric(FOUND) > 0);
    wait_until("the words", || !broker.logged(ALERT).is_empty());
    let told = broker.logged(ALERT);
    assert!(told.iter().all(|line| line["level"] == "error"), "{told:?}");
    // By hand the operator hears the same rows.
    let folder = data.to_str().unwrap();
    let by_hand = home.cli(&["broker", "orphan-check", "--json", "--data", folder]);
    assert_eq!(by_hand.code, 1, "{by_hand:?}");
    let orphans = by_hand.json()["orphans"].as_array().unwrap().clone();
    assert_eq!(broker.metric(FOUND), orphans.len());
    for orphan in &orphans {
        let row = orphan["row"].as_str().unwrap();
        assert!(
            told.iter().any(|line| line.to_string().contains(row)),
            "{row} is not among {told:?}"
        );
    }

    // Mended, it is not shown for ever.
    on_file(
        &data,
        "INSERT INTO message_history SELECT * FROM aside; DROP TABLE aside",
    );
    wait_until_within(NEXT_CHECK_WITHIN, "the check after that", || {
        broker.metric(CHECKS) == 3
    });
    assert_eq!(broker.metric(FOUND), 0);
    assert_eq!(broker.logged(ALERT).len(), told.len());
}

#[test]
fn an_upkeep_interval_that_makes_no_sense_is_refused_with_its_bounds() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    std::fs::create_dir_all(&data).unwrap();
    for bad in ["0", "86401", "\"often\""] {
        let text = format!("[broker]\nupkeep_interval_seconds = {bad}\n");
        std::fs::write(data.join("config.toml"), text).unwrap();
        let Err(ran) = BrokerProcess::try_start(&home, &data, "127.0.0.1:0", &[]) else {
            panic!("it started with {bad}");
        };
        assert_ne!(ran.code, 0);
        assert!(ran.stderr.contains("upkeep_interval_seconds"), "{ran:?}");
    }
}

/// A home's own broker: its operator looks at `heddle status`, and at nothing else.
#[test]
fn v10_4_11_br_14_status_of_a_home_tells_what_its_broker_found() {
    let home = Home::new();
    home.config("[broker]\nupkeep_interval_seconds = 1\n");
    let daemon = home.up();
    for id in ["first", "second"] {
        let body = json!({"to": "@tester", "message": id, "client_message_id": id});
        daemon.http.post("/v1/send", &body).expect(202);
    }
    wait_until("both are committed", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 2
    });
    daemon.stop();
    on_file(&home.path(), "DELETE FROM message_history WHERE seq = 1");
    let daemon = home.up();
    wait_until("the check", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["orphans"].as_u64().unwrap() > 0
    });
    let told = home.cli(&["status"]);
    assert!(told.stdout.contains("did not fit together"), "{told:?}");
    assert!(
        told.stdout.contains("next: heddle broker orphan-check"),
        "{told:?}"
    );
    let named = home.cli(&["broker", "orphan-check"]);
    assert_eq!(named.code, 1, "{named:?}");
}
