//! A personal mesh is published, another home joins it, both work cut off, and in the end both hold the same
//! bytes. The owner's daemon is the broker: without it nobody is connected.

use crate::support;

use serde_json::{Value, json};
use support::files::{base64, noise};
use support::side::{AGREE, Side, converge};
use support::{wait_until, wait_until_within};

impl Side {
    fn set(&self, key: &str, value: &Value) {
        self.post("/v1/state/set", json!({"key": key, "value": value}));
    }

    fn remember(&self, key: &str, value: &Value) {
        let body = json!({"key": key, "value": value, "tags": ["t"]});
        self.post("/v1/memory/remember", body);
    }

    fn share(&self, path: &str, bytes: &[u8]) -> Value {
        let body = json!({"path": path, "content_base64": base64(bytes)});
        self.post("/v1/file/share", body)
    }

    fn vector(&self, key: &str, content: &str) {
        self.post("/v1/vector/store", json!({"key": key, "content": content}));
    }

    fn task(&self, title: &str) -> String {
        let made = self.post("/v1/task/create", json!({"title": title}));
        made["task"]["id"].as_str().unwrap().to_owned()
    }

    fn claim(&self, task: &str) -> u64 {
        let body = json!({"id": task, "agent": "worker"});
        let claimed = self.post("/v1/task/claim", body);
        claimed["fence"].as_u64().unwrap()
    }

    fn warnings(&self) -> Vec<Value> {
        let inbox = self.get("/v1/inbox?agent=worker");
        inbox["warnings"].as_array().unwrap().clone()
    }
}

/// Something of every noun, told apart by `who`.
fn work(side: &Side, who: &str) {
    for number in 0..5 {
        side.set("both", &json!([who, number]));
        side.set(&format!("{who}{number}"), &json!(number));
        side.remember(&format!("note{number}"), &json!({"of": who}));
    }
    side.share("docs/plan.md", who.as_bytes());
    side.share("docs/large.bin", &noise(who.len() as u64, 60_000));
    side.vector("fruit", &format!("plum cake of {who}"));
    side.task(&format!("by {who}"));
    let gone = json!({"key": format!("{who}3")});
    side.post("/v1/state/delete", gone);
    side.post("/v1/memory/forget", json!({"key": "note2"}));
}

#[test]
fn lf_09_lf_24_lf_33_two_homes_join_work_cut_off_and_agree_to_the_byte() {
    let (mut ann, mut bob) = (Side::new("ann"), Side::new("bob"));
    work(&ann, "before");
    let contested = ann.task("contested");
    let held = ann.task("held");
    ann.claim(&held);
    assert_eq!(ann.sync()["kind"], "personal");
    let before = ann.dump();
    let link = ann.invite();
    assert_eq!(ann.sync()["kind"], "shared_owner");
    bob.join(&link);
    assert_eq!(bob.sync()["kind"], "shared_guest");
    // What was there before the invitation is the same on both sides, without a restart.
    assert_eq!(converge(&ann, &bob), before);
    let found = bob.post(
        "/v1/vector/search",
        json!({"query": "plum cake", "limit": 1}),
    );
    assert_eq!(found["items"][0]["content"], "plum cake of before");

    ann.kill();
    wait_until("bob to notice", || {
        bob.get("/v1/mesh/clock")["sync_state"] == "offline"
    });
    work(&bob, "bob");
    bob.claim(&contested);
    bob.kill();
    ann.up();
    work(&ann, "ann");
    // Ann's clock is ahead by then: her claim is the later one, wherever it is seen first.
    for number in 0..20 {
        ann.set("tick", &json!(number));
    }
    let hers = ann.claim(&contested);
    bob.up();
    converge(&ann, &bob);
    // By somebody who has written nothing: whoever has is told here what it lost.
    let both = "/v1/state/get?key=both&agent=onlooker";
    assert_eq!(ann.get(both), bob.get(both));

    // The loser is told with its next call, with both values, once; the winner is not.
    let mut told = Vec::new();
    wait_until("the loser to be told", || {
        told.extend(ann.warnings());
        !told.is_empty()
    });
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["type"], "task_claim_superseded");
    assert_eq!(told[0]["task_id"], contested.as_str());
    assert_eq!(told[0]["yours"]["lamport"], hers);
    assert!(told[0]["theirs"]["lamport"].as_u64().unwrap() < hers);
    assert_eq!(told[0]["theirs"]["peer"], "@bob/worker");
    assert_eq!(ann.warnings(), Vec::<Value>::new());
    assert_eq!(bob.warnings(), Vec::<Value>::new());
    for side in [&ann, &bob] {
        let task = side.get(&format!("/v1/task/get?id={contested}&agent=onlooker"));
        assert_eq!(task["task"]["status"], "claimed");
    }
}

/// What publishing says of itself now, without waiting.
fn look(side: &Side) -> Value {
    side.post("/v1/mesh/publish", json!({}))
}

#[test]
fn lf_33_publish_killed_again_and_again_brings_each_row_once() {
    const WRITERS: usize = 8;
    const EACH: usize = 150;
    let (mut ann, mut bob) = (Side::new("ann"), Side::new("bob"));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let ann = &ann;
            scope.spawn(move || {
                for number in 0..EACH {
                    ann.set(&format!("k{writer}-{number}"), &json!(number));
                }
            });
        }
    });
    work(&ann, "before");
    let before = ann.dump();
    assert_eq!(look(&ann)["fresh"], true);
    let mut places = Vec::new();
    for round in 0..6 {
        // At once the first time, later after it got a little further.
        let from = places.last().copied().unwrap_or((0, 0));
        let now = || {
            let view = look(&ann);
            assert_eq!(view["fresh"], false);
            let number = |name: &str| view[name].as_u64().unwrap();
            let at = (number("rows_done"), number("out_waiting"));
            (at, view["done"] == true)
        };
        let (mut at, mut done) = now();
        if round > 0 {
            wait_until_within(AGREE, "a step", || {
                (at, done) = now();
                at != from || done
            });
        }
        places.push(at);
        ann.kill();
        ann.up();
        assert_eq!(ann.sync()["kind"], "shared_owner");
        if done {
            break;
        }
    }
    let said = ann.home.cli(&["mesh", "publish"]).ok();
    assert!(said.stdout.contains("was published before"), "{said:?}");
    wait_until_within(AGREE, "the end", || look(&ann)["done"] == true);
    let link = ann.invite();
    bob.join(&link);
    assert_eq!(converge(&ann, &bob), before, "killed at {places:?}");
    assert_eq!(
        before
            .lines()
            .filter(|line| line.contains("\"key\":\"k"))
            .count(),
        WRITERS * EACH
    );
}

#[test]
fn a_link_that_cannot_be_made_publishes_nothing_and_a_guest_has_nothing_to_publish() {
    let (ann, mut bob) = (Side::new("ann"), Side::new("bob"));
    ann.set("k", &json!(1));
    let refused = ann.home.cli(&["mesh", "invite", "--uses", "0"]);
    assert_ne!(refused.code, 0);
    assert_eq!(ann.sync()["kind"], "personal");
    let answer = ann.home.cli(&["mesh", "invite", "--json"]).ok().json();
    assert_eq!(answer["published"], true);
    let second = ann.home.cli(&["mesh", "invite", "--json"]).ok().json();
    assert_eq!(second["published"], false);
    bob.join(answer["link"].as_str().unwrap());
    let said = bob.home.cli(&["--mesh", &bob.mesh, "mesh", "publish"]).ok();
    assert!(said.stdout.contains("shared already"), "{said:?}");
    assert_eq!(bob.sync()["kind"], "shared_guest");
    let own = bob.home.cli(&["mesh", "clock", "--json"]).ok().json();
    assert_eq!(own["sync"]["kind"], "personal", "bob's own mesh stays his");
}

/// The owner's side and a guest's whose member has another name than the guest's own person.
fn owner_and_bob() -> (Side, Side) {
    let (owner, mut guest) = (Side::new("ann"), Side::new("eve"));
    let link = owner.invite();
    guest.join_with(&["mesh", "join", &link, "--name", "bob", "--json"]);
    owner.set("first", &json!(1));
    converge(&owner, &guest);
    (owner, guest)
}

#[test]
fn a_lease_that_runs_out_in_a_joined_home_ends_everywhere_and_holds_nobody_up() {
    let (owner, guest) = owner_and_bob();
    let task = guest.task("short lease");
    let claim = json!({"id": task, "agent": "g0", "lease_seconds": 1});
    guest.post("/v1/task/claim", claim);
    let status = |side: &Side| {
        let shown = side.get(&format!("/v1/task/get?id={task}"));
        shown["task"]["status"].clone()
    };
    wait_until("the lease to end at home", || status(&guest) == "open");
    wait_until("the end to reach the owner", || status(&owner) == "open");
    converge(&owner, &guest);
    guest.home.cli(&["doctor"]).ok();
}

#[test]
fn an_op_whose_author_the_broker_never_heard_of_goes_out_all_the_same() {
    let (mut owner, mut guest) = owner_and_bob();
    owner.kill();
    let body = json!({"key": "said", "value": 1, "agent": "ghost"});
    guest.post("/v1/state/set", body);
    guest.daemon.take().unwrap().stop();
    // As a version left it that signed in a name without a mailbox.
    let raw = rusqlite::Connection::open(guest.home.path().join("data.db")).unwrap();
    let gone = raw.execute("DELETE FROM agent WHERE agent = 'ghost'", []);
    assert!(gone.unwrap() > 0);
    drop(raw);
    owner.up();
    guest.up();
    guest.set("after", &json!(2));
    let dump = converge(&owner, &guest);
    assert!(dump.contains("said") && dump.contains("after"), "{dump}");
}
