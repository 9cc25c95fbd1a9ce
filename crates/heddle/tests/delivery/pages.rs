//! Whoever cuts a list says so, and the command that it prints shows the rest.

use crate::support;

use serde_json::{Value, json};
use support::inbox::send;
use support::{Daemon, Home, Ran, wait_until};

const LARGE: usize = 13;

/// A home with so many messages of 900 KB, more than a page takes.
fn with_large_mail() -> (Home, Daemon) {
    let home = Home::new();
    let daemon = home.up();
    let text = format!("needle {}", "x".repeat(900_000));
    for number in 0..LARGE {
        send(&daemon, &format!("m{number}"), &text);
    }
    wait_until("the messages", || {
        daemon.http.get("/v1/status").expect(200)["inbox"]["items"] == LARGE
    });
    (home, daemon)
}

/// Every item behind this query, page by page, as the answers lead. Each page but the last says that it was cut.
fn all(daemon: &Daemon, query: &str, cursor: &str) -> Vec<String> {
    let mut seen = Vec::new();
    let mut target = query.to_owned();
    let mut pages = 0;
    loop {
        let page = daemon.http.get(&target).expect(200);
        let items = page["items"].as_array().unwrap();
        seen.extend(
            items
                .iter()
                .map(|item| item["client_message_id"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        if page["more"] == false {
            assert!(pages > 1, "{query} had room for everything");
            return seen;
        }
        assert_eq!(page["more"], true, "{query}");
        target = format!("{query}&{cursor}={}", page["cursor"].as_str().unwrap());
    }
}

/// The words behind `there is more: heddle`, unquoted.
fn hint(ran: &Ran) -> Option<Vec<String>> {
    let line = ran.stdout.lines().last()?;
    let command = line.strip_prefix("there is more: heddle ")?;
    let words = command.split(' ');
    Some(
        words
            .map(|word| word.trim_matches('\'').to_owned())
            .collect(),
    )
}

/// How many messages the command and those that it leads to print.
fn printed(home: &Home, first: &[&str]) -> usize {
    let mut count = 0;
    let mut words: Vec<String> = first.iter().map(|word| (*word).to_owned()).collect();
    loop {
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = home.cli(&args).ok();
        count += ran.stdout.matches("→").count();
        match hint(&ran) {
            Some(next) => words = next,
            None => return count,
        }
    }
}

#[test]
fn a_page_that_bytes_have_cut_says_that_there_is_more_and_how_to_see_it() {
    let (home, daemon) = with_large_mail();
    let mut expected: Vec<String> = (0..LARGE).map(|n| format!("m{n}")).collect();
    expected.sort();
    let sorted = |mut seen: Vec<String>| {
        seen.sort();
        seen
    };
    for (query, cursor) in [
        ("/v1/inbox?agent=tester", "since"),
        ("/v1/inbox?agent=tester&session=s", "since"),
        ("/v1/inbox/search?q=needle", "cursor"),
    ] {
        assert_eq!(sorted(all(&daemon, query, cursor)), expected, "{query}");
    }
    for args in [
        &["inbox"][..],
        &["inbox", "--agent", "tester", "--mesh", "home"],
        &["inbox", "--session", "t"],
        &["inbox", "--search", "needle"],
        &["inbox", "--since", "2020-01-01T00:00:00Z", "--all"],
        &["inbox", "--limit", "3"],
    ] {
        assert_eq!(printed(&home, args), LARGE, "{args:?}");
    }
    // What the caller named is named again.
    let ran = home.cli(&["inbox", "--agent", "tester", "--mesh", "home"]);
    let words = hint(&ran.ok()).unwrap().join(" ");
    assert!(words.ends_with("--agent tester --mesh home"), "{words}");
    // A page that holds everything says nothing.
    let page = daemon
        .http
        .get("/v1/inbox?agent=tester&since=12")
        .expect(200);
    assert_eq!(page["more"], false);
}

#[test]
fn a_list_that_was_cut_prints_the_whole_command_that_goes_on() {
    let home = Home::new();
    let daemon = home.up();
    for number in 0..60 {
        let body = json!({"title": format!("task {number}")});
        daemon.http.post("/v1/task/create", &body).expect(200);
        let body = json!({"key": format!("a b/{number:02}"), "value": number});
        daemon.http.post("/v1/state/set", &body).expect(200);
        send(&daemon, &format!("o{number}"), "x");
    }
    for (args, mark) in [
        (&["task", "list", "--limit", "25"][..], "task "),
        (&["daemon", "outbox", "list", "--limit", "25"], "@tester"),
    ] {
        let mut words: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
        let mut rows = 0;
        loop {
            let now: Vec<&str> = words.iter().map(String::as_str).collect();
            let ran = home.cli(&now).ok();
            let lines = ran
                .stdout
                .lines()
                .filter(|line| !line.starts_with("there is"));
            rows += lines.filter(|line| line.contains(mark)).count();
            match hint(&ran) {
                Some(next) => words = next,
                None => break,
            }
        }
        assert_eq!(rows, 60, "{args:?}");
    }
    let page: Value = daemon
        .http
        .get("/v1/state/list?prefix=a%20b&limit=10")
        .json();
    if page["cursor"].is_string() {
        assert_eq!(page["items"].as_array().unwrap().len(), 10);
    }
}
