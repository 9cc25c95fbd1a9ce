//! Messages that were damaged in data.db, over the real binary: marked, counted, and nobody else's trouble.

use crate::support;

use support::inbox::{items, send};
use support::{Home, wait_until};

fn vandal(home: &Home, sql: &str) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    raw.busy_timeout(std::time::Duration::from_secs(10))
        .unwrap();
    assert!(raw.execute(sql, []).unwrap() > 0, "{sql}");
}

#[test]
fn c30_a_message_whose_body_was_damaged_is_marked_and_counted_and_the_others_are_as_they_were() {
    let home = Home::new();
    let daemon = home.up();
    for id in ["first", "second", "third"] {
        send(&daemon, id, &format!("text of {id}"));
    }
    wait_until("the messages", || items(&daemon, "/v1/inbox").len() == 3);
    let status = || daemon.http.get("/v1/status").expect(200);
    assert_eq!(status()["degraded"], serde_json::json!([]));
    // While it runs: whoever reads it meets it.
    vandal(
        &home,
        "UPDATE inbox SET envelope = x'7b2274' WHERE client_message_id = 'second'",
    );
    let page = items(&daemon, "/v1/inbox");
    let marks: Vec<_> = page
        .iter()
        .map(|item| item.get("damaged").is_some())
        .collect();
    assert_eq!(marks, [false, true, false], "{page:?}");
    assert_eq!(
        (&page[1]["damaged"], &page[1]["body"]),
        (&true.into(), &"".into())
    );
    assert_eq!(page[2]["body"], "text of third");
    let degraded = status()["degraded"].to_string();
    assert!(
        degraded.contains("1 message in the inbox is damaged"),
        "{degraded}"
    );
    assert!(degraded.contains("(id 2)"), "{degraded}");
    let shown = home.cli(&["inbox"]).ok().stdout;
    assert!(
        shown.contains("(damaged: the text of this message"),
        "{shown}"
    );
    assert!(shown.contains("text of first") && shown.contains("text of third"));
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains("! inbox: 1 message"), "{doctor:?}");
    daemon.stop();

    // While nothing runs: the doctor reads the file, and the next start looks by itself.
    vandal(
        &home,
        "UPDATE inbox SET envelope = x'' WHERE client_message_id = 'third'",
    );
    let doctor = home.cli(&["doctor", "--json"]);
    let findings = doctor.json()["findings"].to_string();
    assert!(
        findings.contains("2 messages in the inbox are damaged"),
        "{findings}"
    );
    let daemon = home.up();
    let status = || daemon.http.get("/v1/status").expect(200)["degraded"].to_string();
    wait_until("the look", || status().contains("2 messages in the inbox"));
    // Acknowledged, they are nobody's trouble any more.
    home.cli(&["inbox", "--ack"]).ok();
    assert!(!status().contains("damaged"), "{}", status());
    home.cli(&["doctor"]).ok();
    send(&daemon, "fourth", "text of fourth");
    wait_until("the next message", || {
        let page = items(&daemon, "/v1/inbox");
        page.len() == 1 && page[0]["body"] == "text of fourth"
    });
}

/// Overwrites a page in the middle of a table, with some of its rows.
fn lose_a_leaf(home: &Home, table: &str) {
    let path = home.path().join("data.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "journal_mode", "DELETE").unwrap();
    let page: i64 = raw
        .query_row(
            "SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET 2",
            [table],
            |row| row.get(0),
        )
        .unwrap();
    drop(raw);
    let mut bytes = std::fs::read(&path).unwrap();
    let start = usize::try_from(page - 1).unwrap() * 4096;
    bytes[start..start + 4096].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn the_figures_of_an_outbox_that_was_repaired_are_those_of_its_rows() {
    let home = Home::new();
    let daemon = home.up();
    for number in 0..30 {
        send(&daemon, &format!("m{number}"), &"x".repeat(1500));
    }
    wait_until("the messages", || {
        daemon.http.get("/v1/status").expect(200)["outbox"]["done"] == 30
    });
    daemon.stop();
    lose_a_leaf(&home, "outbox");
    home.cli(&["doctor", "--repair"]).ok();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let rows: i64 = raw
        .query_row("SELECT count(*) FROM outbox", [], |row| row.get(0))
        .unwrap();
    drop(raw);
    assert!(0 < rows && rows < 30, "{rows} are left");
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let daemon = home.up();
    let outbox = || daemon.http.get("/v1/status").expect(200)["outbox"].clone();
    assert_eq!(outbox()["done"], rows, "{}", outbox());
    // What comes later is counted behind them.
    send(&daemon, "later", "text");
    let (done, pending) = (outbox()["done"].clone(), outbox()["pending"].clone());
    assert_eq!((done, pending), (rows.into(), 1.into()));
}

#[test]
fn the_figures_of_an_inbox_that_was_repaired_are_those_of_its_rows() {
    let home = Home::new();
    let daemon = home.up();
    for number in 0..30 {
        send(&daemon, &format!("m{number}"), &"x".repeat(1500));
    }
    wait_until("the messages", || {
        daemon.http.get("/v1/status").expect(200)["inbox"]["items"] == 30
    });
    daemon.stop();
    lose_a_leaf(&home, "inbox");
    home.cli(&["doctor", "--repair"]).ok();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let rows: i64 = raw
        .query_row("SELECT count(*) FROM inbox", [], |row| row.get(0))
        .unwrap();
    drop(raw);
    assert!(rows < 30, "nothing was lost");
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n");
    let daemon = home.up();
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["inbox"]["items"], rows, "{status}");
}

#[test]
fn dr_16_what_the_broker_still_holds_of_a_lost_inbox_comes_back_as_far_as_it_had_come() {
    let home = Home::new();
    let daemon = home.up();
    for number in 0..40 {
        send(&daemon, &format!("m{number}"), &format!("text {number}"));
    }
    wait_until("the messages", || items(&daemon, "/v1/inbox").len() == 40);
    let page = items(&daemon, "/v1/inbox");
    let acked: Vec<_> = page[..10].iter().map(|item| item["id"].clone()).collect();
    let ack = serde_json::json!({ "ids": acked });
    daemon.http.post("/v1/inbox/ack", &ack).expect(200);
    let reported = "heddle_receipts_reported_total 10";
    wait_until("the receipts to be told", || {
        daemon.http.get("/v1/metrics").body.contains(reported)
    });
    daemon.stop();
    support::inbox::damage(&home.path(), "inbox");
    let daemon = home.up();
    // Everything is there again, once, and what was acknowledged still is.
    wait_until("the messages to come back", || {
        items(&daemon, "/v1/inbox?all=true&limit=100").len() == 40
    });
    let mut texts: Vec<String> = items(&daemon, "/v1/inbox?all=true&limit=100")
        .iter()
        .map(|item| item["body"].as_str().unwrap().to_owned())
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 40);
    assert_eq!(items(&daemon, "/v1/inbox?limit=100").len(), 30);
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["inbox"]["items"], 40);
    let said = status["degraded"].to_string();
    assert!(
        said.contains("40 messages came back from the broker of mesh home"),
        "{said}"
    );
    // It was asked for once: the next start asks for nothing, and new mail comes as ever.
    daemon.stop();
    let daemon = home.up();
    send(&daemon, "new", "new");
    wait_until("new mail", || {
        items(&daemon, "/v1/inbox?all=true&limit=100").len() == 41
    });
}
