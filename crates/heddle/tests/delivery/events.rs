//! The event stream over the real binary: resumed without a gap, whoever was killed or slow.

use crate::support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use support::pushing_broker::PushingBroker;
use support::sse::{Sse, SseReader};
use support::{Daemon, Home, wait_until};

fn send(daemon: &Daemon, id: &str, text: &str) {
    let body = json!({"to": "@tester", "message": text, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn body(event: &Sse) -> String {
    let item: Value = serde_json::from_str(&event.data).unwrap();
    item["body"].as_str().unwrap().to_owned()
}

#[test]
fn in_05_a_stream_that_resumes_across_kills_has_no_gap() {
    let home = Home::new();
    let mut daemon = home.up();
    let mut last = "0".to_owned();
    let mut seen = Vec::new();
    for round in 0..4 {
        let mut stream = SseReader::open(&daemon.http, "/v1/events", Some(&last));
        for n in 0..6 {
            send(&daemon, &format!("{round}-{n}"), &format!("{round}-{n}"));
        }
        // Some of them are read, then the daemon dies under the stream.
        for _ in 0..3 {
            let event = stream.next_named("message").unwrap();
            last = event.id.clone().unwrap();
            seen.push(body(&event));
        }
        daemon.kill();
        // Whatever was on its way is not counted: the reader resumes behind what it handled.
        daemon = home.up();
    }
    let mut stream = SseReader::open(&daemon.http, "/v1/events", Some(&last));
    while seen.len() < 24 {
        seen.push(body(&stream.next_named("message").unwrap()));
    }
    let distinct: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(distinct.len(), 24, "{seen:?}");
}

#[test]
fn in_05_events_of_the_daemon_have_no_id_and_move_no_place() {
    let broker = PushingBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    let mut stream = SseReader::open(&daemon.http, "/v1/events", None);
    broker.deliver("1.1", "one", "tester", "one");
    let first = stream.next().unwrap();
    assert_eq!(
        (first.event.as_str(), first.id.as_deref()),
        ("message", Some("1"))
    );
    broker.away(true);
    let lost = stream.next().unwrap();
    assert_eq!((lost.event.as_str(), lost.id), ("disconnected", None));
    let data: Value = serde_json::from_str(&lost.data).unwrap();
    assert_eq!(data["mesh"], "home");
    assert!(data["why"].is_string());
    broker.away(false);
    let found = stream.next().unwrap();
    assert_eq!((found.event.as_str(), found.id), ("connected", None));
    broker.deliver("1.2", "two", "tester", "two");
    assert_eq!(stream.next().unwrap().id.as_deref(), Some("2"));
    let mut resumed = SseReader::open(&daemon.http, "/v1/events", first.id.as_deref());
    assert_eq!(body(&resumed.next().unwrap()), "two");
}

#[test]
fn in_05_a_place_of_another_store_does_not_silence_a_stream() {
    let home = Home::new();
    let daemon = home.up();
    let mut stream = SseReader::open(&daemon.http, "/v1/events", Some("999999"));
    send(&daemon, "a", "heard");
    assert_eq!(body(&stream.next_named("message").unwrap()), "heard");
    for bad in ["x", "1.5", ""] {
        let headers = [("last-event-id", bad)];
        let answer = daemon
            .http
            .request("GET", "/v1/events", &headers, "")
            .unwrap();
        assert_eq!(answer.status, 400, "{bad:?}");
    }
    assert_eq!(daemon.http.get("/v1/events?session=s").status, 400);
}

#[test]
fn c16_a_reader_that_does_not_read_loses_no_message_and_holds_up_nobody() {
    let home = Home::new();
    let daemon = home.up();
    let mut slow = SseReader::open(&daemon.http, "/v1/events", None);
    let mut quick = SseReader::open(&daemon.http, "/v1/events", None);
    // Far more than any socket buffers.
    let filler = "x".repeat(20_000);
    for n in 0..400 {
        send(&daemon, &format!("m{n}"), &format!("{n} {filler}"));
    }
    let number = |event: Sse| {
        body(&event)
            .split(' ')
            .next()
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    for n in 0..400 {
        assert_eq!(number(quick.next_named("message").unwrap()), n);
    }
    for n in 0..400 {
        assert_eq!(number(slow.next_named("message").unwrap()), n);
    }
}

#[test]
fn follow_goes_on_when_the_daemon_was_killed_and_comes_back() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "a", "before");
    let mut follow = home
        .command(&["inbox", "--follow", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || {
        let line = lines.next().unwrap().unwrap();
        let item: Value = serde_json::from_str(&line).unwrap();
        item["body"].as_str().unwrap().to_owned()
    };
    assert_eq!(next(), "before");
    daemon.kill();
    let daemon = home.up();
    send(&daemon, "b", "after the kill");
    assert_eq!(next(), "after the kill");
    // A stop in order says goodbye; that must not end the follower either.
    home.cli(&["down"]).ok();
    drop(daemon);
    let daemon = home.up();
    send(&daemon, "c", "after the stop");
    assert_eq!(next(), "after the stop");
    // What it printed was shown.
    wait_until("all shown", || {
        let page = daemon.http.get("/v1/inbox").expect(200);
        let items = page["items"].as_array().unwrap();
        items.len() == 3 && items.iter().all(|item| item["shown_at"].is_string())
    });
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn without_a_mesh_the_stream_has_every_mesh_and_each_event_names_its_own() {
    let elsewhere = PushingBroker::start();
    let home = Home::new();
    home.config(&elsewhere.mesh_config("work"));
    let daemon = home.up();
    let mut every = SseReader::open(&daemon.http, "/v1/events", None);
    let mut mailbox = SseReader::open(&daemon.http, "/v1/events?agent=tester", None);
    let mut own = SseReader::open(&daemon.http, "/v1/events?mesh=home", None);
    elsewhere.deliver("1.1", "theirs", "tester", "theirs");
    for stream in [&mut every, &mut mailbox] {
        let event = stream.next_named("message").unwrap();
        let item: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(
            (&item["mesh"], &item["body"]),
            (&"work".into(), &"theirs".into())
        );
    }
    send(&daemon, "ours", "ours");
    for stream in [&mut every, &mut mailbox, &mut own] {
        let event = stream.next_named("message").unwrap();
        let item: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(
            (&item["mesh"], &item["body"]),
            (&"home".into(), &"ours".into())
        );
    }
    let refused = daemon.http.get("/v1/events?mesh=nowhere").expect(404);
    assert_eq!(refused["code"], "unknown_mesh");
    let refused = daemon.http.get("/v1/events?agent=nobody").expect(404);
    assert_eq!(refused["code"], "unknown_agent");
}
