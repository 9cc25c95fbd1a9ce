//! The offline table, row by row: what each operation answers while the broker is dead (LF-19).

use crate::support;

use std::path::PathBuf;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::files::{base64, noise};
use support::{Answer, Daemon, Home, wait_until};

/// Two homes that share a mesh, whose broker can be killed and started again in its place.
struct Pair {
    house: Home,
    data: PathBuf,
    listen: String,
    broker: Option<BrokerProcess>,
    a: Daemon,
    b: Daemon,
    _homes: [Home; 2],
}

impl Pair {
    /// Both connected, the broker killed.
    fn cut_after(before: impl FnOnce(&Self)) -> Self {
        let house = Home::new();
        let data = house.path().parent().unwrap().join("broker");
        let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &["--mesh", "team"]);
        let listen = broker.listen();
        let member = |name: &str| {
            let home = Home::new();
            home.config(&format!(
                "[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = \"ws://{listen}/\"\ntoken_file = {:?}\n",
                data.join("broker_token"),
            ));
            home
        };
        let homes = [member("ann"), member("bob")];
        let (a, b) = (homes[0].up(), homes[1].up());
        let mut pair = Self {
            house,
            data,
            listen,
            broker: Some(broker),
            a,
            b,
            _homes: homes,
        };
        for daemon in [&pair.a, &pair.b] {
            wait_until("the connection", || {
                clock(daemon)["sync_state"] != "offline"
            });
        }
        before(&pair);
        pair.broker.take().unwrap().kill();
        for daemon in [&pair.a, &pair.b] {
            wait_until("the cut", || clock(daemon)["sync_state"] == "offline");
        }
        pair
    }

    fn cut() -> Self {
        Self::cut_after(|_| {})
    }

    fn mend(&mut self) {
        let more = ["--mesh", "team"];
        let broker = BrokerProcess::start(&self.house, &self.data, &self.listen, &more);
        self.broker = Some(broker);
    }
}

fn clock(daemon: &Daemon) -> Value {
    daemon.http.get("/v1/mesh/clock?mesh=team").expect(200)
}

fn post(daemon: &Daemon, path: &str, mut body: Value) -> Answer {
    body["mesh"] = json!("team");
    daemon.http.post(path, &body)
}

fn waiting(daemon: &Daemon) -> u64 {
    clock(daemon)["sync"]["out_waiting"].as_u64().unwrap()
}

/// The change succeeds here, and exactly one op waits for the others.
fn succeeds_and_waits(daemon: &Daemon, path: &str, body: Value) -> Value {
    let before = waiting(daemon);
    let answer = post(daemon, path, body).expect(200);
    assert_eq!(answer["durability"], "local", "{answer}");
    assert_eq!(waiting(daemon), before + 1, "{answer}");
    answer
}

#[test]
fn lf_19_remember_succeeds_and_enqueues_and_recall_answers_from_here() {
    let mut pair = Pair::cut();
    let body = json!({"key": "note", "value": {"n": 1}});
    succeeds_and_waits(&pair.a, "/v1/memory/remember", body);
    let page = pair
        .a
        .http
        .get("/v1/memory/recall?key=note&mesh=team")
        .expect(200);
    assert_eq!(page["items"][0]["value"], json!({"n": 1}));
    pair.mend();
    wait_until("the others to have it", || {
        let page = pair
            .b
            .http
            .get("/v1/memory/recall?key=note&scope=all&mesh=team");
        page.status == 200 && page.body.contains("\"n\":1")
    });
}

#[test]
fn lf_19_set_state_succeeds_and_enqueues_and_get_state_answers_from_here() {
    let mut pair = Pair::cut();
    succeeds_and_waits(&pair.a, "/v1/state/set", json!({"key": "k", "value": [1]}));
    let got = pair.a.http.get("/v1/state/get?key=k&mesh=team").expect(200);
    assert_eq!(got["value"], json!([1]));
    pair.mend();
    wait_until("the others to have it", || {
        pair.b.http.get("/v1/state/get?key=k&mesh=team").status == 200
    });
    wait_until("nothing to wait", || waiting(&pair.a) == 0);
}

#[test]
fn lf_19_vector_store_succeeds_and_enqueues_and_vector_search_finds_what_is_here() {
    let pair = Pair::cut();
    let body = json!({"key": "v", "content": "a heddle lifts the threads"});
    succeeds_and_waits(&pair.a, "/v1/vector/store", body);
    let hits = post(
        &pair.a,
        "/v1/vector/search",
        json!({"query": "threads", "limit": 3}),
    );
    assert!(hits.expect(200).to_string().contains("a heddle lifts"));
}

#[test]
fn lf_19_share_file_succeeds_with_its_blob_here_and_peers_files_are_the_last_that_came() {
    let pair = Pair::cut_after(|pair| {
        let body = json!({"path": "b/small", "content_base64": base64(b"from bob")});
        post(&pair.b, "/v1/file/share", body).expect(200);
        wait_until("bob's file", || {
            let list = pair.a.http.get("/v1/file/list?mesh=team");
            list.body.contains("b/small")
        });
    });
    let bytes = noise(3, 100_000);
    let body = json!({"path": "a/large", "content_base64": base64(&bytes)});
    let shared = succeeds_and_waits(&pair.a, "/v1/file/share", body);
    assert_eq!(shared["size"], 100_000);
    let list = pair.a.http.get("/v1/file/list?mesh=team").expect(200);
    let find = |path: &str| {
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .find(|item| item["path"] == path)
            .unwrap()
            .clone()
    };
    assert_eq!(find("a/large")["content"], "blob");
    // The last content that came of a peer's file.
    let id = find("b/small")["id"].as_str().unwrap().to_owned();
    let got = pair
        .a
        .http
        .get(&format!("/v1/file/get?id={id}&mesh=team"))
        .expect(200);
    assert_eq!(got["content_base64"], base64(b"from bob"));
    // What never came is said to be unknown, not empty.
    let never = pair
        .a
        .http
        .get("/v1/file/get?path=b/never&scope=@bob/tester&mesh=team");
    assert_eq!(never.status, 404, "{never:?}");
}

#[test]
fn lf_19_list_peers_is_the_last_list_and_says_that_it_is_stale() {
    let pair = Pair::cut_after(|pair| {
        wait_until("bob to be known", || {
            pair.a.http.get("/v1/peers?mesh=team").body.contains("bob")
        });
    });
    let peers = pair.a.http.get("/v1/peers?mesh=team").expect(200);
    assert_eq!(peers["stale"], true);
    assert!(peers["as_of"].is_string(), "{peers}");
    let list = peers["peers"].as_array().unwrap();
    let bob = list.iter().find(|peer| peer["member"] == "bob").unwrap();
    assert_eq!(bob["online"], Value::Null, "unknown is not offline");
}

#[test]
fn lf_19_send_message_is_queued_and_goes_out_by_itself() {
    let mut pair = Pair::cut_after(|pair| {
        wait_until("bob to be known", || {
            pair.a.http.get("/v1/peers?mesh=team").body.contains("bob")
        });
    });
    let body = json!({"to": "@bob/tester", "message": "later", "client_message_id": "m1"});
    let queued = post(&pair.a, "/v1/send", body).expect(202);
    assert_eq!(
        (&queued["status"], &queued["durability"]),
        (&json!("queued"), &json!("local"))
    );
    pair.mend();
    wait_until("the message", || {
        let inbox = pair.b.http.get("/v1/inbox?agent=tester&mesh=team");
        inbox.body.contains("later")
    });
}

#[test]
fn lf_19_claim_task_is_tentative_and_reverts_when_another_peer_won() {
    let id = std::cell::RefCell::new(String::new());
    let mut pair = Pair::cut_after(|pair| {
        let task = post(&pair.a, "/v1/task/create", json!({"title": "one"})).expect(200);
        let made = task["task"]["id"].as_str().unwrap().to_owned();
        wait_until("the task", || {
            pair.b
                .http
                .get("/v1/task/list?mesh=team")
                .body
                .contains(&made)
        });
        id.replace(made);
    });
    let id = id.into_inner();
    for daemon in [&pair.a, &pair.b] {
        let claimed = post(daemon, "/v1/task/claim", json!({"id": id})).expect(200);
        assert_eq!(claimed["task"]["status"], "claimed", "{claimed}");
        assert_eq!(claimed["tentative"], true, "{claimed}");
    }
    // A warning rides on the agent's next call, which may be one of these.
    let warned = std::cell::Cell::new(0);
    let holder = |daemon: &Daemon| {
        let story = daemon.http.get(&format!("/v1/task/get?id={id}&mesh=team"));
        let story = story.json();
        warned.set(warned.get() + story["warnings"].as_array().unwrap().len());
        story["task"]["claim"]["by"].clone()
    };
    assert_ne!(holder(&pair.a), holder(&pair.b));
    pair.mend();
    wait_until("one holder", || holder(&pair.a) == holder(&pair.b));
    let winner = holder(&pair.a);
    let task = post(&pair.a, "/v1/task/create", json!({"title": "two"})).expect(200);
    let claimed = post(&pair.a, "/v1/task/claim", json!({"id": task["task"]["id"]})).expect(200);
    assert_eq!(claimed["tentative"], Value::Null, "{claimed}");
    warned.set(warned.get() + claimed["warnings"].as_array().unwrap().len());
    warned.set(warned.get() + task["warnings"].as_array().unwrap().len());
    let loser = if winner.as_str().unwrap().contains("ann") {
        &pair.b
    } else {
        &pair.a
    };
    let told = post(loser, "/v1/state/set", json!({"key": "next", "value": 1})).expect(200);
    let told = told["warnings"].as_array().unwrap().len();
    assert_eq!(warned.get() + told, 1, "LF-24: told once");
}

#[test]
fn lf_19_mesh_clock_and_mesh_info_answer_from_here_and_say_that_they_are_offline() {
    let pair = Pair::cut_after(|pair| {
        post(&pair.a, "/v1/state/set", json!({"key": "k", "value": 1})).expect(200);
        wait_until("the op to be sent", || waiting(&pair.a) == 0);
    });
    let clock = clock(&pair.a);
    assert_eq!(clock["sync_state"], "offline");
    assert!(clock["lamport"].as_u64() >= Some(1), "{clock}");
    assert!(clock["last_sync_at"].is_string(), "{clock}");
    let info = pair.a.http.get("/v1/mesh/info?mesh=team").expect(200);
    assert_eq!(info["mesh"], "team", "{info}");
}
