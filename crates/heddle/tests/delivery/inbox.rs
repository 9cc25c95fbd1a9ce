//! The inbox over the real binary: search, sessions, receipts.

use crate::support;

use serde_json::json;
use support::inbox::{encoded, items, send, texts};
use support::pushing_broker::{OnReceipts, PushingBroker};
use support::{Daemon, Home, wait_until};

// --- search --------------------------------------------------------------------------------------

#[test]
fn a_search_finds_what_has_just_arrived_and_pages_through_all_of_it() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..20 {
        send(
            &daemon,
            &format!("s{n}"),
            &format!("the deploy number {n} failed"),
        );
        // At once: nothing may have to wait for the index.
        wait_until("the message", || items(&daemon, "/v1/inbox").len() == n + 1);
        let found = texts(
            &daemon,
            &format!("/v1/inbox/search?q={}", encoded(&format!("deploy {n}"))),
        );
        assert_eq!(found, [format!("the deploy number {n} failed")]);
    }
    let page = daemon
        .http
        .get("/v1/inbox/search?q=failed&limit=7")
        .expect(200);
    let mut cursor = page["cursor"].as_str().unwrap().to_owned();
    let mut found = page["items"].as_array().unwrap().len();
    loop {
        let page = daemon.http.get(&format!(
            "/v1/inbox/search?q=failed&limit=7&cursor={cursor}"
        ));
        let page = page.expect(200);
        found += page["items"].as_array().unwrap().len();
        match page["cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!(found, 20);
}

#[test]
fn no_search_however_hostile_breaks_anything() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "a", "deploy");
    wait_until("the message", || items(&daemon, "/v1/inbox").len() == 1);
    let long = "x".repeat(10_000);
    for hostile in [
        "\"",
        "\"\"\"",
        "AND",
        "deploy AND",
        "NEAR(",
        "body:",
        "* *",
        "a\0b",
        "\u{1b}[31m",
        "^",
        "-deploy",
        "(",
        "';--",
        "",
        "👩‍👩‍👧",
        &long,
        &"\"a ".repeat(300),
    ] {
        let answer = daemon
            .http
            .get(&format!("/v1/inbox/search?q={}", encoded(hostile)));
        assert!(
            matches!(answer.status, 200 | 400),
            "{hostile:?}: {answer:?}"
        );
        if answer.status == 400 {
            let problem = answer.json();
            assert_eq!(problem["code"], "invalid_request");
            assert!(
                problem["detail"].as_str().unwrap().contains("search"),
                "{problem}"
            );
        }
    }
    for bad in [
        "q=a&cursor=x",
        "q=a&limit=0",
        "q=a&wat=1",
        "q=a&since=never",
        "q=%ff",
    ] {
        let answer = daemon.http.get(&format!("/v1/inbox/search?{bad}"));
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
}

#[test]
fn the_human_inbox_refuses_nonsense_and_filters_as_the_contract_says() {
    let home = Home::new();
    let daemon = home.up();
    let ran = home.cli(&["inbox", "--limit", "0"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("from 1 to 500"), "{ran:?}");
    home.cli(&["topic", "subscribe", "ops"]).ok();
    home.cli(&["agent", "register", "planner"]).ok();
    home.cli_as(
        "planner",
        &[
            "send",
            "#ops",
            "to all",
            "--priority",
            "now",
            "--wait",
            "--mention",
            "@tester",
            "--meta",
            r#"{"ticket":12}"#,
        ],
    )
    .ok();
    home.cli_as(
        "planner",
        &["send", "@tester", "to one", "--reply-to", "q-1", "--wait"],
    )
    .ok();
    wait_until("both", || items(&daemon, "/v1/inbox").len() == 2);
    let shown = home.cli(&["inbox", "--topic", "ops"]).ok().stdout;
    for part in [
        "[NOW]",
        "mentions @tester/tester",
        r#"meta {"ticket":12}"#,
        "to all",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("to one"), "{shown}");
    let shown = home
        .cli(&["inbox", "--from", "@tester/planner", "--since", "1"])
        .ok()
        .stdout;
    assert!(
        shown.contains("re q-1") && !shown.contains("to all"),
        "{shown}"
    );
    // A day is a time, too.
    let shown = home.cli(&["inbox", "--since", "2020-01-01"]).ok().stdout;
    assert!(shown.contains("to all"), "{shown}");
    let shown = home.cli(&["inbox", "--since", "2999-01-01"]).ok().stdout;
    assert!(!shown.contains("to all"), "{shown}");
    let ran = home.cli(&["inbox", "--since", "yesterday"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("neither a cursor nor a time"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("or a day as 2026-11-16"), "{ran:?}");
    home.cli(&["inbox", "--ack"]).ok();
    assert!(items(&daemon, "/v1/inbox").is_empty());
}

// --- sessions and receipts -----------------------------------------------------------------------

#[test]
fn a_session_that_only_peeked_is_still_given_what_a_sibling_acknowledges() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..2 {
        send(&daemon, &format!("p{n}"), &format!("{n}"));
    }
    wait_until("two", || items(&daemon, "/v1/inbox").len() == 2);
    let read = |session: &str| texts(&daemon, &format!("/v1/inbox?session={session}"));
    assert_eq!(read("peeks"), ["0", "1"]);
    // Another session of the same agent reads both and is done with them.
    let ack = json!({"ids": ["1", "2"]});
    daemon.http.post("/v1/inbox/ack", &ack).expect(200);
    assert_eq!(
        read("peeks"),
        ["0", "1"],
        "its own read was no more than a peek"
    );
    assert_eq!(read("late"), [] as [&str; 0], "all was done before it came");
    // Its own step behind them is what takes them from it.
    let seen = json!({"session": "peeks", "through": "2"});
    daemon.http.post("/v1/inbox/seen", &seen).expect(200);
    assert_eq!(read("peeks"), [] as [&str; 0]);
}

#[test]
fn two_sessions_of_an_agent_each_read_everything_once_also_across_a_kill() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..3 {
        send(&daemon, &format!("a{n}"), &format!("{n}"));
    }
    wait_until("three", || items(&daemon, "/v1/inbox").len() == 3);
    let read = |daemon: &Daemon, session: &str, more: &str| {
        texts(daemon, &format!("/v1/inbox?session={session}{more}"))
    };
    for _ in 0..2 {
        assert_eq!(
            read(&daemon, "one", ""),
            ["0", "1", "2"],
            "a peek consumes nothing"
        );
    }
    assert_eq!(read(&daemon, "one", "&limit=2&advance=true"), ["0", "1"]);
    assert_eq!(read(&daemon, "one", ""), ["2"]);
    assert_eq!(read(&daemon, "two", ""), ["0", "1", "2"]);
    let seen = json!({"session": "two", "through": "1"});
    let moved = daemon.http.post("/v1/inbox/seen", &seen).expect(200);
    assert_eq!(moved["cursor"], "1");
    // The other session's ack is an event for this one, not a reason to hide the message.
    daemon
        .http
        .post("/v1/inbox/ack", &json!({"ids": ["2"]}))
        .expect(200);
    assert_eq!(read(&daemon, "two", ""), ["1", "2"]);
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["inbox"]["unread"], 2, "reading is not acknowledging");
    daemon.kill();
    let daemon = home.up();
    assert_eq!(read(&daemon, "one", ""), ["2"]);
    assert_eq!(read(&daemon, "two", ""), ["1", "2"]);
    assert_eq!(
        read(&daemon, "new", ""),
        ["0", "2"],
        "not what was done before it came"
    );
    for (target, body) in [
        ("/v1/inbox/seen", json!({"session": "a b", "through": "1"})),
        ("/v1/inbox/seen", json!({"session": "one", "through": "x"})),
        ("/v1/inbox/shown", json!({"ids": vec!["1"; 501]})),
    ] {
        assert_eq!(daemon.http.post(target, &body).status, 400, "{body}");
    }
    for bad in [
        "advance=true",
        "session=one&advance=true&topic=ops",
        "session=%00",
    ] {
        assert_eq!(
            daemon.http.get(&format!("/v1/inbox?{bad}")).status,
            400,
            "{bad}"
        );
    }
    let unknown = json!({"session": "one", "through": "1", "agent": "nobody"});
    assert_eq!(daemon.http.post("/v1/inbox/seen", &unknown).status, 404);
}

#[test]
fn readers_of_one_session_at_once_are_given_each_message_once() {
    let home = Home::new();
    let daemon = home.up();
    let count = 120;
    for n in 0..count {
        send(&daemon, &format!("m{n}"), &n.to_string());
    }
    wait_until("all of them", || {
        items(&daemon, "/v1/inbox?limit=200").len() == count
    });
    let http = &daemon.http;
    let mut given: Vec<String> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(move || {
                    let mut given = Vec::new();
                    loop {
                        let page = http.get("/v1/inbox?session=one&limit=7&advance=true");
                        let page = page.expect(200);
                        let items = page["items"].as_array().unwrap();
                        given.extend(items.iter().map(|item| item["id"].to_string()));
                        if items.is_empty() {
                            return given;
                        }
                    }
                })
            })
            .collect();
        let readers = readers.into_iter();
        readers.flat_map(|reader| reader.join().unwrap()).collect()
    });
    given.sort();
    let all = given.len();
    given.dedup();
    assert_eq!((all, given.len()), (count, count));
}

#[test]
fn receipts_reach_the_broker_once_they_can_and_never_cost_the_link() {
    let broker = PushingBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    broker.on_receipts(OnReceipts::HangUp);
    for n in 1..=3 {
        broker.deliver(&format!("1.{n}"), &format!("m{n}"), "tester", "hello");
    }
    wait_until("three", || items(&daemon, "/v1/inbox").len() == 3);
    assert!(
        items(&daemon, "/v1/inbox")[0]["shown_at"].is_null(),
        "a raw read shows nothing"
    );
    assert_eq!(broker.reports(), 0);
    home.cli(&["inbox", "--limit", "2"]).ok();
    wait_until("a report that is not answered", || broker.reports() >= 1);
    broker.on_receipts(OnReceipts::Confirm);
    wait_until("it again, answered", || {
        broker.receipts() == ["1.1 shown", "1.2 shown"]
    });
    assert!(items(&daemon, "/v1/inbox")[0]["shown_at"].is_string());
    home.cli(&["inbox", "--limit", "1", "--ack"]).ok();
    wait_until("the ack", || broker.receipts().len() == 3);
    assert_eq!(broker.receipts()[2], "1.1 acked");
    // What nobody could be told of waits for the next connection, also through a kill.
    broker.away(true);
    wait_until("the loss", || {
        daemon.http.get("/v1/inbox").expect(200)["stale"] == true
    });
    daemon
        .http
        .post("/v1/inbox/shown", &json!({"ids": ["3"]}))
        .expect(200);
    daemon.kill();
    broker.away(false);
    let daemon = home.up();
    wait_until("the third", || {
        broker.receipts().contains(&"1.3 shown".to_owned())
    });
    // A broker that keeps no receipts is left alone, and everything else goes on.
    broker.on_receipts(OnReceipts::Refuse);
    daemon
        .http
        .post("/v1/inbox/ack", &json!({"ids": ["2"]}))
        .expect(200);
    let hellos = broker.hellos().len();
    wait_until("the refusal", || broker.reports() >= 5);
    broker.deliver("1.4", "m4", "tester", "still here");
    wait_until("the fourth", || broker.acks().contains(&"1.4".to_owned()));
    assert_eq!(broker.hellos().len(), hellos, "the link was never lost");
}
