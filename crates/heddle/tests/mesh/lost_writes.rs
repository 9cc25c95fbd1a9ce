//! Two homes write the same keys while they are cut off: whoever lost is told with its next call, in every door, once.

use crate::support;

use serde_json::{Value, json};
use support::mcp::McpClient;
use support::side::{AGREE, Side, converge};
use support::{wait_until, wait_until_within};

impl Side {
    fn set_as(&self, agent: &str, key: &str, value: &Value) {
        let body = json!({"key": key, "value": value, "agent": agent});
        self.post("/v1/state/set", body);
    }

    fn delete(&self, agent: &str, key: &str) {
        self.post("/v1/state/delete", json!({"key": key, "agent": agent}));
    }

    /// So many writes that nobody else makes: the counter is ahead by then.
    fn ahead(&self, agent: &str, count: usize) {
        for number in 0..count {
            self.set_as(agent, &format!("tick-{agent}"), &json!(number));
        }
    }

    fn told(&self, agent: &str) -> Vec<Value> {
        let told = self.get(&format!("/v1/warnings?agent={agent}"));
        told["warnings"].as_array().unwrap().clone()
    }
}

fn pair() -> (Side, Side) {
    let (ann, mut bob) = (Side::new("ann"), Side::new("bob"));
    bob.join(&ann.invite());
    (ann, bob)
}

/// What the agent `ada` of this side lost, by its tools.
fn told_by_mcp(side: &Side) {
    let folder = side.home.path().parent().unwrap().join("here");
    std::fs::create_dir_all(&folder).unwrap();
    let mut ada = McpClient::start(
        &side.home,
        "ada",
        &folder,
        &["--mesh", &side.mesh, "--agent", "ada"],
    );
    let answer = ada.call("recall", json!({})).answer;
    let told = answer["warnings"].as_array().unwrap();
    assert_eq!(told.len(), 1, "{answer}");
    assert_eq!(told[0]["yours"]["value"], json!({"bob": "ada"}));
    assert_eq!(told[0]["theirs"]["value"], "ann");
    let next = told[0]["next"].as_str().unwrap();
    assert!(next.contains("`get_state`"), "{next}");
    let again = ada.call("recall", json!({})).answer;
    assert_eq!(again["warnings"], Value::Null, "{again}");
}

#[test]
fn exactly_the_loser_of_a_write_is_told_once_with_both_values_in_every_door() {
    let (mut ann, mut bob) = pair();
    ann.set_as("worker", "gone", &json!("before"));
    converge(&ann, &bob);
    ann.kill();
    wait_until("bob to notice", || {
        bob.get("/v1/mesh/clock")["sync_state"] == "offline"
    });
    for agent in ["cli", "http", "ada"] {
        bob.set_as(agent, &format!("of-{agent}"), &json!({"bob": agent}));
    }
    bob.delete("deleter", "gone");
    bob.ahead("bob", 60);
    bob.set_as("bob", "late", &json!("bob"));
    bob.kill();
    ann.up();
    ann.set_as("ann", "late", &json!("ann"));
    ann.ahead("ann", 20);
    for agent in ["cli", "http", "ada"] {
        ann.set_as("ann", &format!("of-{agent}"), &json!("ann"));
    }
    ann.set_as("ann", "gone", &json!("kept"));
    // The loser is told although it was killed in between.
    bob.up();
    converge(&ann, &bob);
    bob.kill();
    bob.up();

    let mesh = bob.mesh.clone();
    let read = ["--mesh", &mesh, "state", "get", "late"];
    let words = bob.home.cli_as("cli", &read).ok().stderr;
    assert!(
        words.contains(
            r#"warning: your write of state "of-cli" lost to the one of @ann/ann, who had not seen it: yours was {"bob":"cli"}, theirs is "ann""#
        ),
        "{words}"
    );
    let next = format!("`heddle state get of-cli --mesh {mesh}`");
    assert!(words.contains(&next), "{words}");
    let words = bob.home.cli_as("cli", &read).ok().stderr;
    assert!(!words.contains("warning"), "once: {words}");

    let told = bob.told("http");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["type"], "state_write_superseded");
    assert_eq!(told[0]["key"], "of-http");
    assert_eq!(told[0]["yours"]["value"], json!({"bob": "http"}));
    assert_eq!(told[0]["theirs"]["value"], "ann");
    assert_eq!(told[0]["theirs"]["peer"], "@ann/ann");
    assert_eq!(bob.told("http"), Vec::<Value>::new());

    let told = bob.told("deleter");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["yours"]["deleted"], true);
    assert_eq!(told[0]["theirs"]["value"], "kept");

    told_by_mcp(&bob);

    // Ann won all of these, and lost the one whose author was ahead of her.
    let told = ann.told("ann");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["key"], "late");
    assert_eq!(told[0]["yours"]["value"], "ann");
    assert_eq!(told[0]["theirs"]["peer"], "@bob/bob");
    assert_eq!(ann.told("worker"), Vec::<Value>::new());
    assert_eq!(bob.told("bob"), Vec::<Value>::new());
}

#[test]
fn writes_that_follow_each_other_warn_nobody() {
    let (ann, bob) = pair();
    let value = |side: &Side| {
        let found = side.get("/v1/state/list?prefix=turn");
        found["items"][0]["value"].clone()
    };
    // Published before there was anybody else, then written by both in turns.
    for turn in 0..4 {
        let (writer, reader) = if turn % 2 == 0 {
            (&ann, &bob)
        } else {
            (&bob, &ann)
        };
        writer.set_as("worker", "turn", &json!([turn, "first"]));
        writer.set_as("worker", "turn", &json!([turn, "then"]));
        wait_until_within(AGREE, "the other to see it", || {
            value(reader) == json!([turn, "then"])
        });
    }
    ann.delete("worker", "turn");
    wait_until_within(AGREE, "the delete to arrive", || value(&bob) == Value::Null);
    bob.set_as("worker", "turn", &json!("again"));
    converge(&ann, &bob);
    for side in [&ann, &bob] {
        assert_eq!(side.told("worker"), Vec::<Value>::new());
    }
}

#[test]
fn what_a_write_lost_to_is_told_as_it_stands_when_it_is_told() {
    let (mut ann, mut bob) = pair();
    ann.set_as("ann", "before", &json!(1));
    converge(&ann, &bob);
    ann.kill();
    wait_until("bob to notice", || {
        bob.get("/v1/mesh/clock")["sync_state"] == "offline"
    });
    for key in ["twice", "then-gone", "back"] {
        bob.set_as("coder", key, &json!("bob"));
    }
    bob.kill();
    ann.up();
    ann.ahead("ann", 20);
    for key in ["twice", "then-gone", "back"] {
        ann.set_as("ann", key, &json!("first"));
    }
    ann.set_as("ann", "twice", &json!("second"));
    ann.delete("ann", "then-gone");
    ann.set_as("ann", "back", &json!("bob"));
    bob.up();
    converge(&ann, &bob);
    let words = bob.told("coder");
    let told = |key: &str| {
        let mut of_key = words.iter().filter(|one| one["key"] == key);
        of_key.next().unwrap_or_else(|| panic!("{words:?}"))
    };
    let said = |key: &str| told(key)["message"].as_str().unwrap().to_owned();
    assert_eq!(words.len(), 3, "{words:?}");
    assert_eq!(told("twice")["theirs"]["value"], "first");
    assert_eq!(told("twice")["stands"]["value"], "second");
    assert!(said("twice").ends_with(r#"theirs was "first"; by now it is "second""#));
    assert_eq!(told("then-gone")["stands"]["deleted"], true);
    assert!(said("then-gone").ends_with("; by now it is deleted"));
    assert!(said("back").ends_with("; by now what stands is what you wrote"));
}
