//! Composed and decomposed spellings are one: whatever is compared is found under either, at every door.

use crate::support;

use serde_json::{Value, json};
use support::{Daemon, Home, wait_until};

/// Latin, Greek and Cyrillic letters with marks, composed; and the same taken apart.
const COMPOSED: &str = "caf\u{e9}\u{3ac}\u{439}";
const APART: &str = "cafe\u{301}\u{3b1}\u{301}\u{438}\u{306}";
/// Of a script that is searched by its parts.
const HANGUL: &str = "\u{d55c}\u{ad6d}";
const HANGUL_APART: &str = "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}";

fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// What is written at one door and found at another. `NAME` is spelled one way there and the other way here.
struct Entry {
    what: &'static str,
    write: Option<(&'static str, Value)>,
    read: &'static str,
    /// Where the answer names it, as a JSON pointer, and what stands there.
    at: &'static str,
    is: &'static str,
}

fn entry(
    what: &'static str,
    write: (&'static str, Value),
    read: &'static str,
    (at, is): (&'static str, &'static str),
) -> Entry {
    let write = Some(write);
    Entry {
        what,
        write,
        read,
        at,
        is,
    }
}

fn also(what: &'static str, read: &'static str, (at, is): (&'static str, &'static str)) -> Entry {
    Entry {
        what,
        write: None,
        read,
        at,
        is,
    }
}

/// In order: what an entry without a write reads was written by one before it.
fn entries() -> Vec<Entry> {
    let named = ("/items/0/key", COMPOSED);
    vec![
        entry(
            "a key of the state",
            ("/v1/state/set", json!({"key": "NAME", "value": "of state"})),
            "/v1/state/get?key=NAME",
            ("/value", "of state"),
        ),
        also("a prefix", "/v1/state/list?prefix=NAME", named),
        also(
            "a key that is explained",
            "/v1/explain/NAME",
            ("/rows/0/key", COMPOSED),
        ),
        also(
            "a mesh",
            "/v1/state/get?key=NAME&mesh=mesh-NAME",
            ("/code", "unknown_key"),
        ),
        entry(
            "a key and a tag of the memory",
            (
                "/v1/memory/remember",
                json!({"key": "NAME", "value": "of memory", "tags": ["NAME"], "agent": "NAME"}),
            ),
            "/v1/memory/recall?key=NAME&agent=NAME",
            ("/items/0/tags/0", COMPOSED),
        ),
        also(
            "an agent in a scope",
            "/v1/memory/recall?key=NAME&scope=NAME&agent=other",
            named,
        ),
        entry(
            "words of a value",
            (
                "/v1/memory/remember",
                json!({"key": "words", "value": {"x": "of NAME here"}}),
            ),
            "/v1/memory/recall?search=NAME%20here",
            ("/items/0/key", "words"),
        ),
        entry(
            "parts of a value",
            (
                "/v1/memory/remember",
                json!({"key": "parts", "value": "vonHANGULher"}),
            ),
            "/v1/memory/recall?search=HANGUL",
            ("/items/0/key", "parts"),
        ),
    ]
}

/// The other nouns, and messages.
fn more_entries() -> Vec<Entry> {
    let named = ("/items/0/key", COMPOSED);
    vec![
        entry(
            "a path",
            (
                "/v1/file/share",
                json!({"path": "in/NAME.txt", "content_base64": "YQ=="}),
            ),
            "/v1/file/list?prefix=in%2FNAME",
            ("/items/0/path", "in/NAME.txt"),
        ),
        entry(
            "the title of a task",
            ("/v1/task/create", json!({"title": "NAME"})),
            "/v1/task/list",
            ("/items/0/title", COMPOSED),
        ),
        entry(
            "a key of a vector",
            (
                "/v1/vector/store",
                json!({"key": "NAME", "content": "plum"}),
            ),
            "/v1/vector/list",
            named,
        ),
        entry(
            "a topic",
            (
                "/v1/topic/subscribe",
                json!({"topic": "NAME", "agent": "NAME"}),
            ),
            "/v1/topic/list",
            ("/topics/0/topic", COMPOSED),
        ),
        entry(
            "a topic of a message, and a mailbox",
            (
                "/v1/send",
                json!({"to": "#NAME", "message": "word NAME", "agent": "writer"}),
            ),
            "/v1/inbox?agent=NAME&topic=NAME",
            ("/items/0/topic", COMPOSED),
        ),
        also(
            "words of a message",
            "/v1/inbox/search?q=NAME&agent=NAME",
            ("/items/0/topic", COMPOSED),
        ),
    ]
}

fn spelled(text: &str, name: &str, hangul: &str) -> String {
    text.replace("NAME", name).replace("HANGUL", hangul)
}

/// The entry's answer, as soon as it says what it should; the last one where it never does.
fn found(daemon: &Daemon, entry: &Entry, asked: (&str, &str)) -> Value {
    let target = spelled(entry.read, &escaped(asked.0), &escaped(asked.1));
    let is = spelled(entry.is, COMPOSED, HANGUL);
    let is_there = |answer: &Value| answer.pointer(entry.at) == Some(&json!(is));
    let mut answer = daemon.http.get(&target).json();
    if !is_there(&answer) && entry.read.starts_with("/v1/inbox") {
        // A message is on its way, and indexed behind its arrival.
        wait_until(entry.what, || {
            answer = daemon.http.get(&target).json();
            is_there(&answer)
        });
    }
    answer
}

#[test]
fn lf_07_one_table_of_entries_written_in_one_spelling_and_found_in_the_other() {
    for (written, asked) in [
        ((APART, HANGUL_APART), (COMPOSED, HANGUL)),
        ((COMPOSED, HANGUL), (APART, HANGUL_APART)),
    ] {
        let home = Home::new();
        home.config(&format!(
            "[[mesh]]\nname = \"mesh-{}\"\nurl = \"ws://127.0.0.1:1/\"\n",
            written.0
        ));
        let daemon = home.up();
        for entry in entries().into_iter().chain(more_entries()) {
            if let Some((route, body)) = &entry.write {
                let body: Value =
                    serde_json::from_str(&spelled(&body.to_string(), written.0, written.1))
                        .unwrap();
                let answer = daemon.http.post(route, &body);
                assert!(answer.status < 300, "{}: {:?}", entry.what, answer.json());
            }
            let answer = found(&daemon, &entry, asked);
            let is = spelled(entry.is, COMPOSED, HANGUL);
            assert_eq!(
                answer.pointer(entry.at),
                Some(&json!(is)),
                "{}: {answer}",
                entry.what
            );
        }
        // What is kept for its owner comes back as it was given.
        let kept = daemon.http.get("/v1/memory/recall?key=words").json();
        let value = format!("of {} here", written.0);
        assert_eq!(kept["items"][0]["value"]["x"], value.as_str(), "{kept}");
        daemon.stop();
    }
}

#[test]
fn a_member_is_named_in_either_spelling_by_those_who_grant_and_block() {
    let (ann, bob) = (Home::new(), Home::new());
    let (_of_ann, _of_bob) = (ann.up(), bob.up());
    let invited = ann.cli(&["mesh", "invite", "--json"]).ok().json();
    let link = invited["link"].as_str().unwrap();
    bob.cli(&["mesh", "join", link, "--name", APART]).ok();
    wait_until("the roster", || {
        ann.cli(&["peers"]).ok().stdout.contains(COMPOSED)
    });
    for name in [APART, COMPOSED] {
        for verb in [
            ["block"].as_slice(),
            &["grant"],
            &["mesh", "block"],
            &["mesh", "grant"],
        ] {
            let mut args = verb.to_vec();
            args.push(name);
            if verb == ["mesh", "grant"] {
                args.push("member");
            }
            ann.cli(&args).ok();
        }
    }
}
