//! `Idempotency-Key` on every call that changes something (CONTRACT): the same key and request get the first answer with
//! `duplicate: true`, another request is 409, a refusal consumes no key, and that is so after a kill as well.

use crate::support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::data::under;
use support::door::routes;
use support::{Daemon, Home};

/// Posts that change nothing which could be done twice.
const READS: [&str; 2] = ["/v1/vector/search", "/v1/shutdown"];

/// Calls with a gate of their own, which their own tests ask about: messages, data, effects, invitations.
const OWN: [&str; 6] = [
    "/v1/send",
    "/v1/topic/post",
    "/v1/queue/push",
    "/v1/outbox/x/requeue",
    "/v1/mesh/invite",
    "/v1/effect/",
];
const DATA: [&str; 5] = [
    "/v1/memory/",
    "/v1/state/",
    "/v1/task/",
    "/v1/file/",
    "/v1/vector/",
];

/// Each of the others with a request, another one, and whether the first is well in a home by itself.
type Call = (&'static str, &'static str, &'static str, bool);
const CALLS: &[Call] = &[
    (
        "/v1/topic/create",
        r#"{"topic": "ops"}"#,
        r#"{"topic": "dev"}"#,
        true,
    ),
    (
        "/v1/topic/subscribe",
        r#"{"topic": "ops"}"#,
        r#"{"topic": "dev"}"#,
        true,
    ),
    (
        "/v1/topic/unsubscribe",
        r#"{"topic": "ops"}"#,
        r#"{"topic": "dev"}"#,
        true,
    ),
    (
        "/v1/agent/register",
        r#"{"agent": "coder"}"#,
        r#"{"agent": "other"}"#,
        true,
    ),
    (
        "/v1/inbox/ack",
        r#"{"ids": ["1"]}"#,
        r#"{"ids": ["2"]}"#,
        true,
    ),
    (
        "/v1/inbox/shown",
        r#"{"ids": ["1"]}"#,
        r#"{"ids": ["2"]}"#,
        true,
    ),
    (
        "/v1/inbox/seen",
        r#"{"session": "s", "through": "1"}"#,
        r#"{"session": "s", "through": "2"}"#,
        true,
    ),
    (
        "/v1/queue/take",
        r#"{"queue": "w"}"#,
        r#"{"queue": "v"}"#,
        true,
    ),
    (
        "/v1/queue/ack",
        r#"{"queue": "w", "items": [{"id": "1.1", "fence": 1}]}"#,
        r#"{"queue": "w", "items": [{"id": "1.1", "fence": 2}]}"#,
        true,
    ),
    (
        "/v1/queue/release",
        r#"{"queue": "w", "items": [{"id": "1.1", "fence": 1}]}"#,
        r#"{"queue": "w", "items": [{"id": "1.1", "fence": 2}]}"#,
        true,
    ),
    (
        "/v1/queue/renew",
        r#"{"queue": "w", "items": [{"id": "1.1", "fence": 1}]}"#,
        r#"{"queue": "w", "items": [{"id": "1.1", "fence": 2}]}"#,
        true,
    ),
    (
        "/v1/outbox/prune",
        r#"{"status": ["done"], "older_than_seconds": 5}"#,
        r#"{"status": ["dead"], "older_than_seconds": 5}"#,
        true,
    ),
    (
        "/v1/peers/grant",
        r#"{"peer": "nobody"}"#,
        r#"{"peer": "somebody"}"#,
        false,
    ),
    (
        "/v1/peers/revoke",
        r#"{"peer": "nobody"}"#,
        r#"{"peer": "somebody"}"#,
        false,
    ),
    (
        "/v1/peers/block",
        r#"{"peer": "nobody"}"#,
        r#"{"peer": "somebody"}"#,
        false,
    ),
    ("/v1/mesh/publish", "{}", r#"{"mesh": "home"}"#, true),
    (
        "/v1/mesh/join",
        r#"{"link": "no link"}"#,
        r#"{"link": "another"}"#,
        false,
    ),
    (
        "/v1/mesh/revoke",
        r#"{"member": "nobody"}"#,
        r#"{"member": "somebody"}"#,
        false,
    ),
    (
        "/v1/mesh/block",
        r#"{"member": "nobody"}"#,
        r#"{"member": "somebody"}"#,
        false,
    ),
    (
        "/v1/mesh/grant",
        r#"{"member": "nobody", "role": "member"}"#,
        r#"{"member": "somebody", "role": "member"}"#,
        false,
    ),
    (
        "/v1/mesh/take-back",
        r#"{"mesh_id": "x", "ops": []}"#,
        r#"{"mesh_id": "y", "ops": []}"#,
        false,
    ),
    (
        "/v1/mesh/create",
        r#"{"name": "play"}"#,
        r#"{"name": "work"}"#,
        true,
    ),
    ("/v1/doctor/let-be", r#"{"mesh": "home"}"#, "{}", true),
    ("/v1/doctor/resume-sync", r#"{"mesh": "home"}"#, "{}", true),
    (
        "/v1/doctor/backup",
        r#"{"file": "HOME/copy.db"}"#,
        r#"{"file": "HOME/other.db"}"#,
        true,
    ),
    (
        "/v1/doctor/retry",
        r#"{"id": "x"}"#,
        r#"{"id": "y"}"#,
        false,
    ),
    ("/v1/doctor/drop", r#"{"id": "x"}"#, r#"{"id": "y"}"#, false),
    (
        "/v1/file/sweep",
        "{}",
        r#"{"grace_seconds": 9999999}"#,
        true,
    ),
    (
        "/v1/vector/re_embed",
        r#"{"to": "none"}"#,
        r#"{"to": "other"}"#,
        false,
    ),
];

fn calls(home: &Home) -> Vec<(&'static str, Value, Value, bool)> {
    let body = |text: &str| {
        let text = text.replace("HOME", home.path().to_str().unwrap());
        serde_json::from_str(&text).unwrap()
    };
    let one = |(path, one, other, is_well): &Call| (*path, body(one), body(other), *is_well);
    CALLS.iter().map(one).collect()
}

fn status_of(daemon: &Daemon, id: &str, path: &str, body: &Value) -> (u16, Value) {
    let answer = under(daemon, id, path, body);
    let value = serde_json::from_str(&answer.body).unwrap_or_default();
    (answer.status, value)
}

#[test]
fn every_call_that_changes_something_obeys_its_key() {
    let home = Home::new();
    let mut daemon = home.up();
    let calls = calls(&home);
    let named: BTreeSet<&str> = calls.iter().map(|(path, ..)| *path).collect();
    for (method, path) in routes(&daemon) {
        let path = path.as_str();
        let has_own = OWN.iter().any(|own| path.starts_with(own));
        let is_data = DATA.iter().any(|of| path.starts_with(of)) && !named.contains(path);
        if method == "POST" && !READS.contains(&path) && !has_own && !is_data {
            assert!(
                named.contains(path),
                "{path} is in no table: whether it obeys a key nobody has looked"
            );
        }
    }
    let mut firsts = Vec::new();
    for (path, body, other, is_well) in &calls {
        let id = format!("key of {path}");
        let (status, first) = status_of(&daemon, &id, path, body);
        assert_eq!(status / 100 == 2, *is_well, "{path}: {status} {first}");
        if *is_well {
            let conflict = under(&daemon, &id, path, other).expect(409);
            assert_eq!(
                conflict["code"], "idempotency_key_reused",
                "{path}: {conflict}"
            );
            assert_eq!(conflict["client_message_id"], id, "{path}");
            firsts.push((*path, body, id, first));
        } else {
            // A refusal consumes nothing: another request under that key is heard.
            let (status, said) = status_of(&daemon, &id, path, other);
            assert_ne!(
                said["code"], "idempotency_key_reused",
                "{path}: {status} {said}"
            );
        }
    }
    for round in 0..2 {
        for (path, body, id, first) in &firsts {
            let mut again = under(&daemon, id, path, body).expect(200);
            assert_eq!(again["duplicate"], true, "{path}");
            let mut first = first.clone();
            for answer in [&mut again, &mut first] {
                let fields = answer.as_object_mut().unwrap();
                fields.remove("duplicate");
                fields.remove("warnings");
            }
            assert_eq!(again, first, "{path} round {round}");
        }
        daemon.kill();
        daemon = home.up();
    }
}

/// One key, one request, whatever it is about.
#[test]
fn a_key_of_a_call_and_a_key_of_a_change_are_one() {
    let home = Home::new();
    let daemon = home.up();
    let (topic, state) = (json!({"topic": "ops"}), json!({"key": "k", "value": 1}));
    under(&daemon, "one", "/v1/topic/create", &topic).expect(200);
    under(&daemon, "one", "/v1/state/set", &state).expect(409);
    under(&daemon, "two", "/v1/state/set", &state).expect(200);
    under(&daemon, "two", "/v1/topic/create", &topic).expect(409);
    // Another agent's keys are its own; who is registered is no caller.
    let body = json!({"topic": "ops", "agent": "coder"});
    let other = under(&daemon, "one", "/v1/topic/subscribe", &body).expect(200);
    assert_eq!(other.get("duplicate"), None);
    under(
        &daemon,
        "three",
        "/v1/agent/register",
        &json!({"agent": "a"}),
    )
    .expect(200);
    under(
        &daemon,
        "three",
        "/v1/agent/register",
        &json!({"agent": "b"}),
    )
    .expect(409);
    let agents = daemon.http.get("/v1/agent/list").expect(200);
    assert!(!agents.to_string().contains("@tester/b"), "{agents}");
}

/// What a home does with its meshes is under one key whichever mesh it names: a publish of another mesh was answered as new, and
/// a mesh was made under the key of a change.
#[test]
fn a_key_of_a_mesh_that_is_made_or_published_is_one_with_all_others() {
    let home = Home::new();
    let mut daemon = home.up();
    let state = json!({"key": "k", "value": 1});
    let create = |name: &str| json!({"name": name});
    let publish = |mesh: &str| json!({"mesh": mesh});
    under(&daemon, "set", "/v1/state/set", &state).expect(200);
    under(&daemon, "set", "/v1/mesh/create", &create("play")).expect(409);
    under(&daemon, "set", "/v1/mesh/publish", &publish("home")).expect(409);
    let meshes = daemon.http.get("/v1/mesh/list").expect(200);
    assert!(!meshes.to_string().contains("play"), "{meshes}");
    let made = under(&daemon, "make", "/v1/mesh/create", &create("play")).expect(200);
    assert_eq!(made["duplicate"], false);
    let first = under(&daemon, "share", "/v1/mesh/publish", &publish("play")).expect(200);
    assert_eq!(first["fresh"], true, "{first}");
    for _ in 0..2 {
        let again = under(&daemon, "share", "/v1/mesh/publish", &publish("play")).expect(200);
        assert_eq!(
            (&again["duplicate"], &again["fresh"]),
            (&json!(true), &first["fresh"])
        );
        let again = under(&daemon, "make", "/v1/mesh/create", &create("play")).expect(200);
        assert_eq!(
            (&again["duplicate"], &again["mesh_id"]),
            (&json!(true), &made["mesh_id"])
        );
        for (key, path, body) in [
            ("share", "/v1/mesh/publish", publish("home")),
            ("share", "/v1/mesh/create", create("work")),
            ("share", "/v1/state/set", state.clone()),
            ("make", "/v1/mesh/publish", publish("play")),
            ("make", "/v1/mesh/publish", publish("home")),
            ("make", "/v1/mesh/create", create("work")),
            ("make", "/v1/state/set", state.clone()),
        ] {
            under(&daemon, key, path, &body).expect(409);
        }
        daemon.kill();
        daemon = home.up();
    }
    let meshes = daemon.http.get("/v1/mesh/list").expect(200);
    assert!(!meshes.to_string().contains("work"), "{meshes}");
}

/// The key of a call that a kill cut off stands for that call: the same one goes on, another one is refused.
#[test]
fn a_mesh_whose_making_or_publishing_was_cut_off_goes_on_under_its_key() {
    let home = Home::new();
    let daemon = home.up();
    under(&daemon, "make", "/v1/mesh/create", &json!({"name": "play"})).expect(200);
    under(
        &daemon,
        "share",
        "/v1/mesh/publish",
        &json!({"mesh": "play"}),
    )
    .expect(200);
    daemon.kill();
    // As it was between the work and its answer.
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let cut = "UPDATE applied_request SET answer = json_set(json_remove(answer, '$.note.answer'), '$.note.call', 'begun')
        WHERE request_key IN ('make', 'share')";
    assert_eq!(raw.execute(cut, []).unwrap(), 2);
    drop(raw);
    let daemon = home.up();
    for (key, path, body, other) in [
        (
            "make",
            "/v1/mesh/create",
            json!({"name": "play"}),
            json!({"name": "work"}),
        ),
        (
            "share",
            "/v1/mesh/publish",
            json!({"mesh": "play"}),
            json!({"mesh": "home"}),
        ),
    ] {
        under(&daemon, key, path, &other).expect(409);
        for _ in 0..2 {
            let again = under(&daemon, key, path, &body).expect(200);
            assert_eq!(again["duplicate"], true, "{again}");
        }
        under(&daemon, key, path, &other).expect(409);
    }
    let meshes = daemon.http.get("/v1/mesh/list").expect(200);
    assert_eq!(meshes["meshes"].as_array().unwrap().len(), 2, "{meshes}");
}

/// Work that was taken and whose answer was lost: the same take is given the same work, and nobody else's.
#[test]
fn a_take_under_a_key_gives_the_same_work_again() {
    let home = Home::new();
    let daemon = home.up();
    for id in ["w1", "w2"] {
        let body = json!({"queue": "work", "message": id, "client_message_id": id});
        daemon.http.post("/v1/queue/push", &body).expect(202);
    }
    let take = json!({"queue": "work", "wait_seconds": 20});
    let first = under(&daemon, "take-1", "/v1/queue/take", &take).expect(200);
    assert_eq!(first["items"].as_array().unwrap().len(), 1, "{first}");
    let again = under(&daemon, "take-1", "/v1/queue/take", &take).expect(200);
    assert_eq!(again["items"], first["items"]);
    assert_eq!(again["duplicate"], true);
    let other = under(&daemon, "take-2", "/v1/queue/take", &take).expect(200);
    assert_ne!(other["items"][0]["id"], first["items"][0]["id"]);
}

#[test]
fn the_verbs_take_an_id() {
    let home = Home::new();
    let _daemon = home.up();
    home.cli(&["topic", "create", "ops", "--id", "t1"]).ok();
    let again = home
        .cli(&["topic", "create", "ops", "--id", "t1", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&again["duplicate"], &again["changed"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(home.cli(&["topic", "create", "dev", "--id", "t1"]).code, 3);
    home.cli(&["agent", "register", "coder", "--id", "a1"]).ok();
    assert_eq!(
        home.cli(&["agent", "register", "other", "--id", "a1"]).code,
        3
    );
}

#[test]
fn the_verbs_of_meshes_of_the_outbox_and_of_the_doctor_take_an_id() {
    let home = Home::new();
    let _daemon = home.up();
    home.cli(&["mesh", "create", "play"]).ok();
    let publish = ["mesh", "publish", "play", "--id", "p1"];
    let resume = ["doctor", "--resume-sync", "home", "--id", "r1"];
    let prune = ["daemon", "outbox", "prune", "--confirm", "--id", "o1"];
    for verb in [&publish[..], &resume, &prune] {
        for _ in 0..2 {
            home.cli(verb).ok();
        }
    }
    for other in [
        &["mesh", "publish", "home", "--id", "p1"][..],
        &["doctor", "--resume-sync", "home", "--id", "o1"],
        &["daemon", "outbox", "prune", "--id", "o1"],
        &["daemon", "outbox", "prune", "--id", "r1"],
    ] {
        let said = home.cli(other);
        assert_eq!(said.code, 3, "{other:?}: {said:?}");
        assert!(said.stderr.contains("belongs to another"), "{said:?}");
    }
    // A look changes nothing, and a key that stands for nothing is no promise.
    assert_eq!(home.cli(&["doctor", "--id", "d1"]).code, 2);
}

/// A client that writes its whole request first, as most do: cut off in the middle of it, it would never read why.
#[test]
fn a_key_that_is_none_is_refused_when_the_body_was_read_and_not_before() {
    let home = Home::new();
    let _daemon = home.up();
    let body = json!({"topic": "ops", "more": "x".repeat(900_000)}).to_string();
    for key in ["x".repeat(257), String::new(), "a\tb".to_owned()] {
        let mut stream = UnixStream::connect(home.path().join("daemon.sock")).unwrap();
        let head = format!(
            "POST /v1/topic/create HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // Slower than a refusal that waits for nothing.
        thread::sleep(Duration::from_millis(100));
        stream.write_all(body.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 400"), "{said}");
        assert!(said.contains("invalid_request"), "{said}");
    }
}
