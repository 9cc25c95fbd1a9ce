//! What comes into an inbox over the real binary: duplicates, kills, malformed frames, freshness, damage.

use crate::support;

use serde_json::{Value, json};
use support::inbox::{damage, items, send, texts};
use support::pushing_broker::{PushingBroker, delivery};
use support::sse::SseReader;
use support::{Home, wait_until};

// --- what comes in -------------------------------------------------------------------------------

#[test]
fn in_01_a_message_that_is_pushed_again_and_again_lies_in_the_mailbox_once() {
    let broker = PushingBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    for round in 1..=4 {
        for n in [3, 1, 2] {
            // The same sender's id under new places: a broker that was restored.
            broker.deliver(&format!("{round}.{n}"), &format!("m{n}"), "tester", "once");
        }
    }
    wait_until("the acks", || broker.acks().len() == 12);
    assert_eq!(items(&daemon, "/v1/inbox?all=true").len(), 3);
    daemon.kill();
    let daemon = home.up();
    broker.deliver("5.1", "m1", "tester", "once");
    wait_until("the last ack", || broker.acks().len() == 13);
    assert_eq!(items(&daemon, "/v1/inbox?all=true").len(), 3);
}

#[test]
fn in_02_what_was_acknowledged_to_the_broker_is_there_after_a_kill() {
    let broker = PushingBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let mut daemon = home.up();
    for n in 1..=5 {
        broker.deliver(
            &format!("1.{n}"),
            &format!("m{n}"),
            "tester",
            &format!("{n}"),
        );
        wait_until("the ack", || broker.acks().contains(&format!("1.{n}")));
        daemon.kill();
        daemon = home.up();
        assert_eq!(items(&daemon, "/v1/inbox").len(), n);
        let hello = broker.hellos().pop().unwrap();
        assert_eq!(hello["seen"], format!("1.{n}"));
    }
}

#[test]
fn in_03_every_subscriber_has_every_message_whatever_was_killed_meanwhile() {
    let home = Home::new();
    let mut daemon = home.up();
    let agents = ["tester", "coder", "planner"];
    for agent in agents {
        home.cli_as(agent, &["topic", "subscribe", "ops"]).ok();
    }
    for round in 0..4 {
        for n in 0..10 {
            let id = format!("r{round}-{n}");
            let body = json!({"to": "#ops", "message": id, "client_message_id": id});
            daemon.http.post("/v1/send", &body).expect(202);
        }
        daemon.kill();
        daemon = home.up();
    }
    for agent in agents {
        let target = format!("/v1/inbox?agent={agent}&limit=500");
        wait_until(agent, || items(&daemon, &target).len() == 40);
        let mut bodies = texts(&daemon, &target);
        bodies.sort();
        bodies.dedup();
        assert_eq!(bodies.len(), 40, "{agent}");
    }
}

#[test]
fn in_06_malformed_frames_and_messages_are_counted_and_the_connection_goes_on() {
    let broker = PushingBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    let broken = |change: fn(&mut Value)| {
        let mut frame = delivery("1.7", "bad", "tester", "x");
        change(&mut frame["items"][0]);
        frame.to_string()
    };
    let frames = [
        "not json".to_owned(),
        r#"{"type":"dance"}"#.to_owned(),
        "[".repeat(100_000),
        broken(|item| item["envelope"] = json!({"v": 99})),
        broken(|item| item["envelope"]["meta"] = json!([1])),
        broken(|item| item["envelope"]["body"] = json!(7)),
        broken(|item| item["destination_ref"] = json!(null)),
        // Kept, it would be "seen", and every honest broker would refuse a home that has seen it.
        broken(|item| item["history_id"] = json!("18446744073709551615.18446744073709551615")),
        broken(|item| {
            item["destination_kind"] = json!("topic");
            item["destination_ref"] = json!("no such\nname");
        }),
    ];
    for frame in frames {
        broker.push_text(frame);
    }
    broker.deliver("1.8", "good", "tester", "good");
    wait_until("the good one", || texts(&daemon, "/v1/inbox") == ["good"]);
    assert_eq!(broker.hellos().len(), 1, "one connection all the time");
    let metrics = daemon.http.get("/v1/metrics").body;
    let counted = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    assert_eq!(
        counted("heddle_link_malformed_frames_total "),
        Some(4.0),
        "{metrics}"
    );
    assert_eq!(
        counted("heddle_inbox_malformed_total "),
        Some(5.0),
        "{metrics}"
    );
}

// --- freshness and damage ------------------------------------------------------------------------

#[test]
fn c29_without_the_broker_every_list_says_how_old_it_is() {
    let broker = PushingBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    let lists = [
        "/v1/inbox",
        "/v1/inbox/search?q=x",
        "/v1/peers",
        "/v1/topic/list",
    ];
    for list in lists {
        assert_eq!(daemon.http.get(list).expect(200)["stale"], false, "{list}");
    }
    broker.away(true);
    wait_until("the loss", || {
        daemon.http.get("/v1/inbox").expect(200)["stale"] == true
    });
    let lost_at = daemon.http.get("/v1/inbox").expect(200)["as_of"].clone();
    assert!(lost_at.is_string());
    for list in lists {
        let answer = daemon.http.get(list).expect(200);
        assert_eq!(
            (&answer["stale"], &answer["as_of"]),
            (&json!(true), &lost_at),
            "{list}"
        );
    }
    for verb in [
        &["inbox"][..],
        &["peers"],
        &["topic", "list"],
        &["inbox", "--search", "x"],
    ] {
        let shown = home.cli(verb).ok().stdout;
        assert!(
            shown.contains("the broker is out of reach"),
            "{verb:?}: {shown}"
        );
        assert!(
            shown.contains(lost_at.as_str().unwrap()),
            "{verb:?}: {shown}"
        );
        assert!(!shown.contains("no topics yet"), "{shown}");
    }
    // Also after a start that finds no broker at all.
    daemon.kill();
    let daemon = home.up();
    let answer = daemon.http.get("/v1/inbox").expect(200);
    assert_eq!(
        (&answer["stale"], &answer["as_of"]),
        (&json!(true), &lost_at)
    );
}

#[test]
fn dr_16_a_damaged_inbox_is_parked_and_said_and_a_damaged_outbox_stops_the_start() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..5 {
        send(&daemon, &format!("d{n}"), "text");
    }
    wait_until("all", || items(&daemon, "/v1/inbox").len() == 5);
    wait_until("done", || {
        daemon.http.get("/v1/status").expect(200)["outbox"]["done"] == 5
    });
    daemon.kill();
    damage(&home.path(), "inbox");
    let daemon = home.up();
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["outbox"]["done"], 5);
    let notice = status["degraded"][0].as_str().unwrap().to_owned();
    assert!(notice.contains("data.db.parked-"), "{status}");
    assert!(
        home.cli(&["status"])
            .ok()
            .stdout
            .contains("the inbox was damaged")
    );
    // The old ids are still taken, and new messages come in.
    let again = json!({"to": "@tester", "message": "text", "client_message_id": "d0"});
    daemon.http.post("/v1/send", &again).expect(200);
    send(&daemon, "new", "after the damage");
    // And what the broker still holds of the old ones comes back.
    wait_until("the new one and the old ones", || {
        let mut texts = texts(&daemon, "/v1/inbox");
        texts.sort();
        texts == ["after the damage", "text", "text", "text", "text", "text"]
    });
    let parked = notice.split(" lies at ").nth(1).unwrap();
    let parked = parked.split(": move").next().unwrap();
    std::fs::remove_file(parked).unwrap();
    assert_eq!(
        daemon.http.get("/v1/status").expect(200)["degraded"],
        json!([])
    );
    daemon.kill();

    damage(&home.path(), "outbox");
    let before = std::fs::read(home.path().join("data.db")).unwrap();
    let ran = home.try_up().err().expect("it must not start");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("heddle doctor --repair"), "{ran:?}");
    assert_eq!(std::fs::read(home.path().join("data.db")).unwrap(), before);
}

#[test]
fn in_01_what_retention_took_at_a_start_is_not_brought_back_by_its_broker() {
    let broker = PushingBroker::start();
    let home = Home::new();
    home.config(&format!("{}[inbox]\nretention_days = 1\n", broker.config()));
    let daemon = home.up();
    for n in 1..=3 {
        broker.deliver(&format!("1.{n}"), &format!("m{n}"), "tester", "words");
    }
    wait_until("three", || items(&daemon, "/v1/inbox").len() == 3);
    let shown = json!({"ids": ["1", "3"]});
    daemon.http.post("/v1/inbox/shown", &shown).expect(200);
    daemon.kill();
    // A day and a half passes: the home was off, and its runs before it are forgotten.
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    raw.execute_batch(
        "UPDATE inbox SET received_at = received_at - 36 * 3600000;
         UPDATE inbox_state SET prune_cutoff = NULL;",
    )
    .unwrap();
    drop(raw);
    let daemon = home.up();
    wait_until("the retention", || items(&daemon, "/v1/inbox").len() == 1);
    assert_eq!(items(&daemon, "/v1/inbox")[0]["id"], "2", "not shown yet");
    assert_eq!(items(&daemon, "/v1/inbox/search?q=words").len(), 1);
    assert_eq!(
        daemon.http.get("/v1/status").expect(200)["inbox"]["items"],
        1
    );
    let acks = broker.acks().len();
    for n in 1..=3 {
        broker.deliver(&format!("2.{n}"), &format!("m{n}"), "tester", "words");
    }
    wait_until("the acks", || broker.acks().len() == acks + 3);
    assert_eq!(items(&daemon, "/v1/inbox?all=true").len(), 1);
    // A reader who was away for so long is told that it missed something.
    let mut stream = SseReader::open(&daemon.http, "/v1/events", Some("0"));
    assert_eq!(stream.next().unwrap().event, "gap");
    assert_eq!(stream.next().unwrap().id.as_deref(), Some("2"));
}
