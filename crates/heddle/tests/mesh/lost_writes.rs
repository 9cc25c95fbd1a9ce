//! Two homes write the same keys while they are cut off: whoever lost is told with its next call, in every door, once.

use crate::support;

use std::time::Duration;

use serde_json::{Value, json};
use support::mcp::McpClient;
use support::{Daemon, Home, wait_until, wait_until_within};

const AGREE: Duration = Duration::from_secs(120);

struct Side {
    home: Home,
    daemon: Option<Daemon>,
    mesh: String,
}

impl Side {
    fn new(person: &str) -> Self {
        let home = Home::new();
        home.config(&format!("[daemon]\nmember = \"{person}\"\n"));
        Self {
            daemon: Some(home.up()),
            home,
            mesh: "home".to_owned(),
        }
    }

    fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    fn up(&mut self) {
        self.daemon = Some(self.home.up());
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    fn get(&self, route: &str) -> Value {
        let joint = if route.contains('?') { '&' } else { '?' };
        let target = format!("{route}{joint}mesh={}", self.mesh);
        self.daemon().http.get(&target).expect(200)
    }

    fn set(&self, agent: &str, key: &str, value: &Value) {
        let body = json!({"key": key, "value": value, "agent": agent, "mesh": self.mesh});
        self.daemon().http.post("/v1/state/set", &body).expect(200);
    }

    fn delete(&self, agent: &str, key: &str) {
        let body = json!({"key": key, "agent": agent, "mesh": self.mesh});
        self.daemon()
            .http
            .post("/v1/state/delete", &body)
            .expect(200);
    }

    /// So many writes that nobody else makes: the counter is ahead by then.
    fn ahead(&self, agent: &str, count: usize) {
        for number in 0..count {
            self.set(agent, &format!("tick-{agent}"), &json!(number));
        }
    }

    fn dump(&self) -> String {
        let args = ["--mesh", &self.mesh, "advanced", "dump"];
        self.home.cli_as("onlooker", &args).ok().stdout
    }

    fn told(&self, agent: &str) -> Vec<Value> {
        let told = self.get(&format!("/v1/warnings?agent={agent}"));
        told["warnings"].as_array().unwrap().clone()
    }
}

fn pair() -> (Side, Side) {
    let (ann, mut bob) = (Side::new("ann"), Side::new("bob"));
    let invited = ann.home.cli(&["mesh", "invite", "--json"]).ok().json();
    let link = invited["link"].as_str().unwrap();
    let joined = bob.home.cli(&["mesh", "join", link, "--json"]).ok().json();
    bob.mesh = joined["mesh"].as_str().unwrap().to_owned();
    (ann, bob)
}

/// Nothing waits on either side, and both print the same bytes.
fn converge(ann: &Side, bob: &Side) {
    wait_until_within(AGREE, "the replicas to agree", || {
        let quiet = [ann, bob].iter().all(|side| {
            let sync = side.get("/v1/mesh/clock")["sync"].clone();
            sync["out_waiting"] == 0 && sync["in_waiting"] == 0
        });
        quiet && ann.dump() == bob.dump()
    });
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
    ann.set("worker", "gone", &json!("before"));
    converge(&ann, &bob);
    ann.kill();
    wait_until("bob to notice", || {
        bob.get("/v1/mesh/clock")["sync_state"] == "offline"
    });
    for agent in ["cli", "http", "ada"] {
        bob.set(agent, &format!("of-{agent}"), &json!({"bob": agent}));
    }
    bob.delete("deleter", "gone");
    bob.ahead("bob", 60);
    bob.set("bob", "late", &json!("bob"));
    bob.kill();
    ann.up();
    ann.set("ann", "late", &json!("ann"));
    ann.ahead("ann", 20);
    for agent in ["cli", "http", "ada"] {
        ann.set("ann", &format!("of-{agent}"), &json!("ann"));
    }
    ann.set("ann", "gone", &json!("kept"));
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
        writer.set("worker", "turn", &json!([turn, "first"]));
        writer.set("worker", "turn", &json!([turn, "then"]));
        wait_until_within(AGREE, "the other to see it", || {
            value(reader) == json!([turn, "then"])
        });
    }
    ann.delete("worker", "turn");
    wait_until_within(AGREE, "the delete to arrive", || value(&bob) == Value::Null);
    bob.set("worker", "turn", &json!("again"));
    converge(&ann, &bob);
    for side in [&ann, &bob] {
        assert_eq!(side.told("worker"), Vec::<Value>::new());
    }
}
