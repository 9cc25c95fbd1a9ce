//! One id, one change: retries, races, another request under a taken id, and ids that stay free.

use crate::support;

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use support::data::under;
use support::{Home, wait_until};

#[test]
fn the_same_id_and_request_give_the_first_receipt_and_another_request_409() {
    let home = Home::new();
    let daemon = home.up();
    let remember = json!({"key": "k", "value": {"a": 1, "b": 2}, "tags": ["x", "y"]});
    let calls = [
        (
            "/v1/memory/remember",
            remember.clone(),
            json!({"key": "k", "value": 2}),
        ),
        (
            "/v1/state/set",
            json!({"key": "k", "value": 1}),
            json!({"key": "k", "value": "1"}),
        ),
        (
            "/v1/memory/forget",
            json!({"key": "k"}),
            json!({"key": "l"}),
        ),
        ("/v1/state/delete", json!({"key": "k"}), json!({"key": "l"})),
    ];
    for (n, (target, body, other)) in calls.iter().enumerate() {
        let id = format!("id-{n}");
        let first = under(&daemon, &id, target, body).expect(200);
        assert_eq!(first["duplicate"], false);
        let mut again = under(&daemon, &id, target, body).expect(200);
        assert_eq!(again["duplicate"], true, "{target}");
        again["duplicate"] = json!(false);
        assert_eq!(again, first, "{target}");
        let conflict = under(&daemon, &id, target, other).expect(409);
        assert_eq!(conflict["code"], "idempotency_key_reused");
        assert_eq!(
            conflict["daemon_fingerprint_prefix"]
                .as_str()
                .unwrap()
                .len(),
            16
        );
        // The verb is part of the request.
        let (elsewhere, ..) = &calls[(n + 2) % 4];
        let body = if elsewhere.ends_with("forget") || elsewhere.ends_with("delete") {
            json!({"key": "k"})
        } else {
            json!({"key": "k", "value": 1})
        };
        under(&daemon, &id, elsewhere, &body).expect(409);
    }
    let page = daemon.http.get("/v1/metrics").body;
    for (outcome, count) in [("fresh", 4), ("duplicate", 4), ("conflict", 8)] {
        let line = format!("heddle_data_changes_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(page.contains(&line), "no {line} in {page}");
    }
    // Spelling does not make another request: key order, numbers, tags, composed letters.
    under(&daemon, "s", "/v1/memory/remember", &remember).expect(200);
    let spelled = r#"{"tags":["y","x","y"],"value":{"b":2.0,"a":1},"key":"k"}"#;
    let headers = [("idempotency-key", "s")];
    let again = daemon
        .http
        .post_with("/v1/memory/remember", &headers, spelled);
    assert_eq!(again.expect(200)["duplicate"], true);
    // Another agent's ids are its own.
    let body = json!({"key": "k", "value": 5, "agent": "coder"});
    let coder = under(&daemon, "s", "/v1/memory/remember", &body).expect(200);
    assert_eq!(coder["duplicate"], false);
}

#[test]
fn c46_header_and_body_must_agree_and_a_refusal_consumes_no_id() {
    let home = Home::new();
    let daemon = home.up();
    let set = "/v1/state/set";
    let body = json!({"key": "k", "value": 1, "client_message_id": "b"});
    under(&daemon, "a", set, &body).expect(400);
    let absent = under(&daemon, "a", "/v1/state/delete", &json!({"key": "k"}));
    assert_eq!(absent.expect(404)["code"], "unknown_key");
    under(&daemon, "a", set, &json!({"key": "", "value": 1})).expect(400);
    let huge = json!({"key": "k", "value": "x".repeat(256 << 10)});
    assert_eq!(
        under(&daemon, "a", set, &huge).expect(413)["code"],
        "payload_too_large"
    );
    for id in ["a", "b"] {
        let fresh = under(&daemon, id, set, &json!({"key": "k", "value": 1}));
        let fresh = fresh.expect(200);
        assert_eq!(
            (&fresh["duplicate"], &fresh["client_message_id"]),
            (&json!(false), &json!(id))
        );
    }
}

#[test]
fn thirty_two_racing_retries_of_one_id_are_one_change() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "value": 1});
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..32)
            .map(|_| scope.spawn(|| under(&daemon, "race", "/v1/state/set", &body).expect(200)))
            .collect();
        racers
            .into_iter()
            .map(|racer| racer.join().unwrap())
            .collect()
    });
    let fresh = answers.iter().filter(|answer| answer["duplicate"] == false);
    assert_eq!(fresh.count(), 1);
    assert!(answers.iter().all(|answer| answer["stamp"]["lamport"] == 1));
}

/// The id is looked up before what the request is about: whoever uses a taken one again hears of that, and of nothing else.
#[test]
fn c47_a_taken_id_is_a_conflict_whatever_else_the_request_names() {
    let home = Home::new();
    let daemon = home.up();
    let first = json!({"key": "k", "value": 1});
    under(&daemon, "taken", "/v1/state/set", &first).expect(200);
    let nobody = "01a1e2f1-7d15-7ce3-b30b-ab044dc8e078";
    for (target, body, alone) in [
        ("task/claim", json!({"id": "none"}), 404),
        ("task/claim", json!({"id": nobody}), 404),
        ("task/release", json!({"id": "none"}), 404),
        ("task/complete", json!({"id": "none"}), 404),
        ("task/complete", json!({"id": nobody}), 404),
        ("task/cancel", json!({"id": "none"}), 404),
        (
            "task/create",
            json!({"title": "t", "blocked_by": ["none"]}),
            404,
        ),
        (
            "task/create",
            json!({"title": "t", "blocked_by": [nobody]}),
            404,
        ),
        ("file/delete", json!({"id": "none"}), 400),
        ("file/delete", json!({"id": nobody}), 404),
        ("file/delete", json!({"path": "nothing"}), 404),
        (
            "file/share",
            json!({"path": "a", "from": "/nowhere/at/all"}),
            400,
        ),
        (
            "file/share",
            json!({"path": "../a", "content_base64": "YQ=="}),
            400,
        ),
        (
            "file/share",
            json!({"path": "a", "content_base64": "no base64"}),
            400,
        ),
        (
            "file/share",
            json!({"path": "a", "content_base64": "YQ==", "mime": "no mime"}),
            400,
        ),
        ("vector/delete", json!({"key": "k"}), 404),
        ("vector/delete", json!({"key": "k", "model": "nobody"}), 404),
        (
            "vector/store",
            json!({"key": "k", "content": "c", "model": "nobody"}),
            400,
        ),
        (
            "vector/store",
            json!({"key": "k", "content": "c", "model": "p:m:1:3:float32", "embedding": [1, 2]}),
            400,
        ),
        ("memory/forget", json!({"key": "nothing"}), 404),
        ("state/delete", json!({"key": "nothing"}), 404),
    ] {
        let target = format!("/v1/{target}");
        let problem = under(&daemon, "taken", &target, &body).expect(409);
        assert_eq!(problem["code"], "idempotency_key_reused", "{target} {body}");
        assert_eq!(problem["client_message_id"], "taken");
        // Under an id that is free it is what it is, and the id stays free.
        under(&daemon, "free", &target, &body).expect(alone);
    }
    let again = under(&daemon, "taken", "/v1/state/set", &first).expect(200);
    assert_eq!(again["duplicate"], true);
    under(&daemon, "free", "/v1/state/set", &first).expect(200);
}

/// Whoever shares what was shared is answered, however many files are read and streamed at that moment.
#[test]
fn c47_a_known_share_is_answered_while_there_is_no_place_for_another_one() {
    let home = Home::new();
    let daemon = home.up();
    let small = json!({"path": "small", "content_base64": "c21hbGw="});
    under(&daemon, "small", "/v1/file/share", &small).expect(200);
    // Far more than the buffers between us hold: whoever does not read holds a place.
    let large = home.path().with_file_name("large");
    std::fs::write(&large, vec![b'x'; 16 << 20]).unwrap();
    let body = json!({"path": "large", "from": large.to_str().unwrap()});
    let shared = under(&daemon, "large", "/v1/file/share", &body).expect(200);
    let id = shared["id"].as_str().unwrap().to_owned();
    let mut idle = Vec::new();
    let fresh = json!({"path": "fresh", "content_base64": "ZnJlc2g="});
    wait_until("all places to be taken", || {
        let mut socket = UnixStream::connect(daemon.http.socket()).unwrap();
        let ask = format!("GET /v1/file/get?id={id}&raw=true HTTP/1.1\r\nHost: localhost\r\n\r\n");
        socket.write_all(ask.as_bytes()).unwrap();
        idle.push(socket);
        let tried = under(
            &daemon,
            &format!("try-{}", idle.len()),
            "/v1/file/share",
            &fresh,
        );
        tried.status == 429
    });
    let again = under(&daemon, "small", "/v1/file/share", &small).expect(200);
    assert_eq!(again["duplicate"], true);
    let again = under(&daemon, "large", "/v1/file/share", &body).expect(200);
    assert_eq!(again["duplicate"], true);
    let other = json!({"path": "small", "content_base64": "b3RoZXI="});
    under(&daemon, "small", "/v1/file/share", &other).expect(409);
    under(&daemon, "free", "/v1/file/share", &fresh).expect(429);
    drop(idle);
    wait_until("a place", || {
        under(&daemon, "free", "/v1/file/share", &fresh).status == 200
    });
}
