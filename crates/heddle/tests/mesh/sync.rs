//! Two homes that share a mesh over a broker process: cut off, killed, put back, poisoned; and the same
//! bytes on both sides in the end.

use crate::support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_wire::broker::Envelope;
use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::{Daemon, Home, wait_until, wait_until_within};

/// Thousands of ops on a machine that has other work.
const AGREE: Duration = Duration::from_secs(90);

/// A mesh with a broker of its own, which can go away and come back in its place.
pub(crate) struct Team {
    pub(crate) house: Home,
    pub(crate) data: PathBuf,
    listen: String,
    pub(crate) broker: Option<BrokerProcess>,
}

impl Team {
    pub(crate) fn new() -> Self {
        let house = Home::new();
        let data = house.path().parent().unwrap().join("broker");
        let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &["--mesh", "team"]);
        Self {
            listen: broker.listen(),
            house,
            data,
            broker: Some(broker),
        }
    }

    pub(crate) fn cut(&mut self) {
        self.broker.take().unwrap().kill();
    }

    pub(crate) fn mend(&mut self) {
        let more = ["--mesh", "team"];
        let broker = BrokerProcess::start(&self.house, &self.data, &self.listen, &more);
        self.broker = Some(broker);
    }

    pub(crate) fn member(&self, name: &str) -> Home {
        let home = Home::new();
        home.config(&format!(
            "[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
            self.listen,
            self.data.join("broker_token"),
        ));
        home
    }
}

pub(crate) fn set(daemon: &Daemon, key: &str, value: &Value) -> Value {
    let body = json!({"key": key, "value": value, "mesh": "team"});
    daemon.http.post("/v1/state/set", &body).expect(200)
}

pub(crate) fn remember(daemon: &Daemon, key: &str, value: &Value) -> Value {
    let body = json!({"key": key, "value": value, "mesh": "team"});
    daemon.http.post("/v1/memory/remember", &body).expect(200)
}

pub(crate) fn value(daemon: &Daemon, key: &str) -> Option<Value> {
    let answer = daemon
        .http
        .get(&format!("/v1/state/get?key={key}&mesh=team"));
    (answer.status == 200).then(|| answer.json()["value"].clone())
}

pub(crate) fn clock(daemon: &Daemon) -> Value {
    daemon.http.get("/v1/mesh/clock?mesh=team").expect(200)
}

pub(crate) fn dump(home: &Home) -> String {
    home.cli(&["--mesh", "team", "advanced", "dump"])
        .ok()
        .stdout
}

/// Nothing waits on either side, and both print the same bytes.
pub(crate) fn converge(homes: &[(&Home, &Daemon)]) -> String {
    let mut first = String::new();
    wait_until_within(AGREE, "the replicas to agree", || {
        let quiet = homes.iter().all(|(_, daemon)| {
            let sync = &clock(daemon)["sync"];
            sync["out_waiting"] == 0 && sync["in_waiting"] == 0
        });
        let dumps: Vec<String> = homes.iter().map(|(home, _)| dump(home)).collect();
        first.clone_from(&dumps[0]);
        quiet && !first.is_empty() && dumps.iter().all(|other| *other == first)
    });
    first
}

fn wait_state(daemon: &Daemon, state: &str) {
    wait_until(&format!("the sync to be {state}"), || {
        clock(daemon)["sync_state"] == state
    });
}

fn wait_connected(daemon: &Daemon) {
    wait_until("the connection", || {
        let status = daemon.http.get("/v1/status").expect(200);
        let meshes = status["meshes"].as_array().unwrap();
        meshes.iter().all(|mesh| mesh["connected"] == true)
    });
}

#[test]
fn lf_09_lf_19_two_homes_work_cut_off_and_agree_to_the_byte_afterwards() {
    let mut team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    set(&a, "before", &json!(1));
    wait_until("the first op to arrive", || {
        value(&b, "before") == Some(json!(1))
    });
    team.cut();
    wait_state(&a, "offline");
    wait_state(&b, "offline");
    // The offline table, row by row: what is local succeeds, what is others' says how old it is.
    for number in 0..50 {
        set(&a, "both", &json!(["a", number]));
        set(&b, "both", &json!(["b", number]));
        set(&a, &format!("a{number}"), &json!(number));
        remember(&b, &format!("b{number}"), &json!({"n": number}));
        remember(&a, "note", &json!(["mine", number]));
    }
    assert_eq!(value(&a, "both"), Some(json!(["a", 49])));
    let recalled = b.http.get("/v1/memory/recall?key=b7&mesh=team").expect(200);
    assert_eq!(recalled["items"][0]["value"], json!({"n": 7}));
    let gone = json!({"key": "a3", "mesh": "team"});
    a.http.post("/v1/state/delete", &gone).expect(200);
    // One more where the last ack was cut off with the broker.
    assert!(clock(&a)["sync"]["out_waiting"].as_u64() >= Some(151));
    assert!(clock(&a)["last_sync_at"].is_string());
    let peers = a.http.get("/v1/peers?mesh=team").expect(200);
    assert_eq!(peers["stale"], true);
    let send = json!({"to": "@ann/tester", "message": "later", "mesh": "team"});
    let queued = a.http.post("/v1/send", &send).expect(202);
    assert_eq!(queued["status"], "queued");
    team.mend();
    let dump = converge(&[(&ann, &a), (&bob, &b)]);
    // 50 of a, one of both, one before; 50 of b, one note: a tombstone is a line like any other.
    assert_eq!(dump.lines().count(), 50 + 1 + 1 + 50 + 1);
    assert!(
        dump.lines()
            .all(|line| serde_json::from_str::<Value>(line).is_ok())
    );
    assert_eq!(value(&a, "both"), value(&b, "both"));
    assert_eq!(value(&b, "a3"), None);
    assert_eq!(value(&b, "a4"), Some(json!(4)));
    let status = ann.cli(&["status"]).ok().stdout;
    assert!(status.contains("to send"), "{status}");
    // A home of its own shares nothing.
    let home = ann.cli(&["--json", "mesh", "clock"]).ok().json();
    assert_eq!(home["sync"]["kind"], "personal");
    let said = ann.cli(&["--mesh", "team", "mesh", "clock"]).ok().stdout;
    assert!(said.contains("shared_guest"), "{said}");
}

#[test]
fn lf_05_lf_14_a_daemon_killed_in_the_middle_of_two_thousand_ops_loses_none() {
    let team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let b = bob.up();
    let mut a = Some(ann.up());
    let mut acknowledged = Vec::new();
    for number in 0..2000_u32 {
        if number % 500 == 250 {
            a.take().unwrap().kill();
            a = Some(ann.up());
        }
        let daemon = a.as_ref().unwrap();
        let key = format!("k{number}");
        // The caller's own key: what was asked twice is done once.
        let body = json!({"key": key, "value": number, "mesh": "team", "client_message_id": key});
        daemon.http.post("/v1/state/set", &body).expect(200);
        daemon.http.post("/v1/state/set", &body).expect(200);
        acknowledged.push(key);
    }
    let a = a.unwrap();
    let dump = converge(&[(&ann, &a), (&bob, &b)]);
    assert_eq!(dump.lines().count(), acknowledged.len());
    for number in [0, 249, 250, 251, 1999] {
        assert_eq!(value(&b, &format!("k{number}")), Some(json!(number)));
    }
    let orphans = team.house.cli(&[
        "broker",
        "orphan-check",
        "--data",
        team.data.to_str().unwrap(),
    ]);
    orphans.ok();
}

#[test]
fn lf_16_a_new_epoch_changes_nothing_that_is_there_and_stops_nobody() {
    let team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    set(&a, "one", &json!(1));
    converge(&[(&ann, &a), (&bob, &b)]);
    let data = team.data.to_str().unwrap();
    let bumped = team
        .house
        .cli(&["--json", "broker", "epoch", "bump", "--data", data]);
    let bumped = bumped.ok().json();
    assert_eq!(bumped["meshes"][0]["epoch"], 2);
    for number in 0..20 {
        set(&a, "two", &json!(number));
        set(&b, "three", &json!(number));
    }
    converge(&[(&ann, &a), (&bob, &b)]);
    assert_eq!(value(&a, "three"), Some(json!(19)));
    for daemon in [&a, &b] {
        assert_eq!(clock(daemon)["sync"]["broker_epoch"], 2);
        assert_eq!(clock(daemon)["sync"]["needs_resync"], false);
    }
}

fn copy_broker(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("broker.db") {
            std::fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

#[test]
fn c9_a_broker_put_back_from_an_old_copy_gets_again_what_it_has_lost() {
    let mut team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    set(&a, "old", &json!(1));
    converge(&[(&ann, &a), (&bob, &b)]);
    let broker = team.broker.take().unwrap();
    assert_eq!(broker.terminate(), 0);
    let copy = team.data.with_extension("copy");
    copy_broker(&team.data, &copy);
    team.mend();
    wait_connected(&a);
    wait_connected(&b);
    for number in 0..30 {
        set(&a, &format!("lost{number}"), &json!(number));
        remember(&b, &format!("gone{number}"), &json!(number));
    }
    let before = converge(&[(&ann, &a), (&bob, &b)]);
    let broker = team.broker.take().unwrap();
    assert_eq!(broker.terminate(), 0);
    for name in ["broker.db", "broker.db-wal", "broker.db-shm"] {
        let _ = std::fs::remove_file(team.data.join(name));
    }
    copy_broker(&copy, &team.data);
    team.mend();
    wait_connected(&a);
    wait_connected(&b);
    // Somebody who was not there before hears of it all, from those who made it.
    let eve = team.member("eve");
    let e = eve.up();
    let after = converge(&[(&ann, &a), (&bob, &b), (&eve, &e)]);
    assert_eq!(after, before);
    assert_eq!(clock(&e)["sync"]["broker_epoch"], 2);
}

/// An op that every broker refuses, and that is as it was made: it is larger than any.
fn poison(home: &Home, id: &str, attempts: u32) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    raw.execute_batch("DROP TRIGGER outbox_frozen").unwrap();
    let find = "SELECT payload FROM outbox WHERE client_message_id = ?1 AND kind = 'op'";
    let payload: Vec<u8> = raw.query_row(find, [id], |row| row.get(0)).unwrap();
    let mut envelope: Value = serde_json::from_slice(&payload).unwrap();
    envelope["body"] = json!("x".repeat(1_100_000));
    let payload = envelope.to_string();
    let made = Envelope::parse(payload.as_bytes()).unwrap();
    let made = made.wire_fingerprint().unwrap();
    let changed = raw.execute(
        "UPDATE outbox SET attempts = ?2, payload = ?3, wire_fingerprint = ?4
         WHERE client_message_id = ?1 AND kind = 'op'",
        rusqlite::params![id, attempts, payload.as_bytes(), made.0],
    );
    assert_eq!(changed.unwrap(), 1);
}

#[test]
fn lf_17_lf_18_a_poisoned_op_stops_no_other_and_ten_refusals_pause_the_mesh() {
    let mut team = Team::new();
    let (ann, bob) = (team.member("ann"), team.member("bob"));
    let (a, b) = (ann.up(), bob.up());
    wait_connected(&a);
    wait_connected(&b);
    team.cut();
    wait_state(&a, "offline");
    let id = set(&a, "bad", &json!(0))["stamp"]["op_id"]
        .as_str()
        .unwrap()
        .to_owned();
    set(&a, "good", &json!(1));
    a.stop();
    poison(&ann, &id, 0);
    team.mend();
    let a = ann.up();
    wait_until("the good op to arrive", || {
        value(&b, "good") == Some(json!(1))
    });
    wait_until("the refusal to be counted", || {
        let doctor = ann.cli(&["--json", "doctor"]).json();
        let ops = doctor["ops"].as_array().unwrap().clone();
        ops.iter()
            .any(|op| op["id"] == id.as_str() && op["attempts"].as_u64() > Some(0))
    });
    assert_eq!(clock(&a)["sync"]["paused"], false);
    // Refused is not well: the others do not have it.
    assert_eq!(clock(&a)["sync"]["out_refused"], 1);
    let status = a.http.get("/v1/status").expect(200);
    assert_eq!(status["verdict"], "degraded", "{status}");
    let words = status["degraded"].to_string();
    assert!(words.contains("refuses 1 change of this home"), "{words}");
    assert_eq!(ann.cli(&["doctor"]).code, 1);
    a.stop();
    assert_eq!(ann.cli(&["doctor"]).code, 1, "also while it does not run");
    // Nine refusals ago; one more pauses.
    poison_again(&ann, &id, 9);
    let a = ann.up();
    wait_state(&a, "paused");
    set(&a, "meanwhile", &json!(2));
    set(&b, "theirs", &json!(3));
    wait_until("the others' ops to arrive", || {
        value(&a, "theirs") == Some(json!(3))
    });
    assert_eq!(value(&b, "meanwhile"), None);
    let doctor = ann.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains(&id), "{doctor:?}");
    let status = a.http.get("/v1/status").expect(200);
    assert_eq!(status["verdict"], "degraded");
    // An op keeps its id: it cannot be requeued like a message.
    let requeued = a
        .http
        .post(&format!("/v1/outbox/{id}/requeue?mesh=team"), &json!({}));
    assert_eq!(requeued.status, 400, "{requeued:?}");
    let unknown = ann.cli(&["doctor", "--drop", "nobody"]);
    assert_eq!(unknown.code, 4, "{unknown:?}");
    let retried = ann.cli(&["doctor", "--retry", &id]).ok();
    assert!(
        retried.stdout.contains("heddle doctor --resume-sync team"),
        "{retried:?}"
    );
    ann.cli(&["doctor", "--drop", &id]).ok();
    let told = ann.cli(&["explain", &id]).stdout;
    assert!(told.contains("writing the same key again"), "{told}");
    assert!(!told.contains("under a new id"), "{told}");
    ann.cli(&["doctor", "--resume-sync", "team"]).ok();
    wait_until("the rest to arrive", || {
        value(&b, "meanwhile") == Some(json!(2))
    });
    assert!(clock(&a)["sync"]["out_waiting"] == 0);
    ann.cli(&["doctor"]).ok();
}

fn poison_again(home: &Home, id: &str, attempts: u32) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let changed = raw.execute(
        "UPDATE outbox SET attempts = ?2 WHERE client_message_id = ?1 AND kind = 'op'",
        rusqlite::params![id, attempts],
    );
    assert_eq!(changed.unwrap(), 1);
}
