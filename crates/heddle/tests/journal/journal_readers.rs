//! `heddle journal events`: each event once, none of one's own, and none that could not be shown counts as shown.

use crate::support;

use serde_json::json;
use support::Ran;
use support::repository::Repository;

#[test]
fn a_reader_sees_each_event_once_and_never_its_own() {
    let repository = Repository::new();
    repository.journal_json(&["init"]);
    repository.append("a", &json!({"n":1}));
    let own = [
        "append",
        "--type",
        "plan",
        "--id",
        "b",
        "--action",
        "update",
        "--payload",
        "{}",
        "--reader",
        "me",
    ];
    repository.journal_json(&own);
    let peeked = repository.journal_json(&["events", "--reader", "me", "--peek"]);
    let page = repository.journal_json(&["events", "--reader", "me"]);
    assert_eq!(peeked["events"], page["events"]);
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(
        (
            &page["events"][0]["item_id"],
            &page["gap"],
            &page["last_seq"]
        ),
        (&json!("a"), &json!(false), &json!(2))
    );
    assert_eq!(
        repository.journal_json(&["events", "--reader", "me"])["events"],
        json!([])
    );
    assert_eq!(
        repository.journal_json(&["events", "--reader", "other"])["events"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

/// The mark moves behind what was printed: a full disk or a reader that has gone loses nothing.
#[test]
fn events_that_could_not_be_printed_are_shown_again() {
    let repository = Repository::new();
    repository.journal(&["init"]).ok();
    for id in ["a", "b"] {
        repository.append(id, &json!({"n": 1}));
    }
    let ask = ["journal", "events", "--reader", "r"];
    let count = |words: &[&str]| {
        let page = repository.json(words);
        page["events"].as_array().unwrap().len()
    };
    for more in [&[][..], &["--json"][..]] {
        let told = repository.run_on_full(&[&ask[..], more].concat());
        assert_eq!(told.code, 1, "{told:?}");
        assert_eq!(count(&[&ask[..], &["--peek"]].concat()), 2, "{more:?}");
    }
    // Closed: what is written there goes nowhere, and no write fails.
    let closed = repository.run_on_closed(&ask);
    assert_eq!(closed.code, 1, "{closed:?}");
    assert!(closed.stderr.contains("closed"), "{closed:?}");
    assert_eq!(count(&[&ask[..], &["--peek"]].concat()), 2);
    // A pipe that nobody reads any more.
    let mut command = repository.home.command(&ask);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.current_dir(repository.path()).stdout(writer);
    let _ = Ran::from(command.output().unwrap());
    assert_eq!(count(&[&ask[..], &["--peek"]].concat()), 2);
    assert_eq!(count(&ask), 2);
    assert_eq!(count(&ask), 0);
}

/// Killed while it prints: a pipe that is full keeps it there.
#[test]
fn events_of_a_reader_that_is_killed_while_it_prints_are_shown_again() {
    use std::io::Read;
    let repository = Repository::new();
    repository.journal(&["init"]).ok();
    let words = "w".repeat(60_000);
    for n in 0..4 {
        repository.append("a", &json!({"n": n, "words": words}));
    }
    let ask = ["journal", "events", "--reader", "r", "--json"];
    let mut command = repository.home.command(&ask);
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.current_dir(repository.path()).stdout(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut first = [0; 1];
    reader.read_exact(&mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let page = repository.journal_json(&["events", "--reader", "r"]);
    assert_eq!(page["events"].as_array().unwrap().len(), 4);
}
