//! What a home says of effects while their broker is away, and of what was refused when it came back.

use crate::support;

use serde_json::json;
use support::effect_pair::{MESH, Pair, pair, request, run};
use support::wait_until;

const NEVER: &str = "[[rule]]\noperation = \"drop\"\napproval = \"never\"\n";

fn away(pair: &mut Pair) {
    pair.up.0.take().unwrap().stop();
    wait_until("bob to notice", || {
        pair.bob(&["effect", "status", "nobody"]).code == 5
    });
}

fn back(pair: &mut Pair) {
    pair.up.0 = Some(pair.alice.up());
    pair.wait_connected();
}

#[test]
fn a_request_that_waited_and_was_refused_then_is_told_with_its_reason() {
    let mut pair = pair(NEVER);
    away(&mut pair);
    let drop = [
        "effect", "request", "--json", "--key", "k", "--op", "drop", "--target", "db",
    ];
    let asked = pair.bob(&drop).ok().json();
    assert_eq!(asked["status"], "waiting_for_broker");
    back(&mut pair);
    wait_until("the refusal", || {
        pair.bob(&["effect", "status", "k"]).code == 4
    });
    let status = pair.bob(&["effect", "status", "k"]);
    assert!(status.stderr.contains("says never"), "{status:?}");
    assert!(!status.stderr.contains("nobody asked"), "{status:?}");
    let whole = "`heddle effect request --key k --op drop --target db --mesh alice-home`";
    assert!(status.stderr.contains(whole), "{status:?}");
    let json = pair.bob(&["effect", "status", "k", "--json"]).json();
    assert_eq!(json["approval"], "refused", "{json}");
    for told in [
        pair.bob(&["explain", "effect:k"]),
        pair.bob.cli(&["explain", "effect:k"]),
    ] {
        let words = told.ok().stdout;
        for part in ["k is refused", "drop db", "says never", "requested"] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
    // Asked for again as something that is allowed, the key is free.
    pair.bob(&request("k")).ok();
}

#[test]
fn what_nobody_could_ever_approve_does_not_wait() {
    let mut pair = pair("");
    away(&mut pair);
    let long = "x".repeat(5_000);
    for (op, target) in [("de\u{1}ploy", "prod"), ("deploy", long.as_str())] {
        let asked = pair.bob(&[
            "effect", "request", "--json", "--key", "k", "--op", op, "--target", target,
        ]);
        assert_eq!(asked.code, 2, "{asked:?}");
    }
    let status = pair.bob(&["effect", "status", "k"]);
    assert_eq!(status.code, 5, "{status:?}");
    assert!(!status.stdout.contains("waiting"), "{status:?}");
}

#[test]
fn what_is_kept_and_what_ran_is_told_as_it_is_while_the_broker_is_away() {
    let mut pair = pair("[[rule]]\noperation = \"*\"\napproval = \"auto\"\n");
    pair.bob(&run("ran", &[], "true")).ok();
    away(&mut pair);
    pair.bob(&request("asked")).ok();
    // It did run here: whatever is said, it is not that nothing was.
    let status = pair.bob(&["effect", "status", "ran"]);
    assert_eq!(status.code, 5, "{status:?}");
    assert!(!status.stderr.contains("Nothing was run"), "{status:?}");
    assert!(!status.stderr.contains("kept"), "{status:?}");
    // A request waits, and nothing has happened.
    for words in [run("asked", &[], "true"), run("other", &[], "true")] {
        let refused = pair.bob(&words);
        assert_eq!(refused.code, 5, "{refused:?}");
        assert!(refused.stderr.contains("ran nothing"), "{refused:?}");
        assert!(!refused.stderr.contains("command ended"), "{refused:?}");
    }
    let list = pair.bob(&["effect", "list"]);
    assert!(!list.stderr.contains("command ended"), "{list:?}");
    // A key that was used and is asked for once more: nobody here can say that it is free.
    pair.bob(&request("ran")).ok();
    let unknown = pair.bob(&["effect", "status", "ran", "--json"]);
    assert_eq!(
        (unknown.code, unknown.json()["state"].as_str()),
        (5, Some("unknown"))
    );
}

#[test]
fn an_id_that_waits_already_is_one_request_and_no_other() {
    let mut pair = pair("");
    away(&mut pair);
    let ask = |key: &str, target: &str| {
        let named = ["effect", "request", "--json", "--key", key, "--op", "pay"];
        let more = ["--target", target, "--id", "gid1"];
        pair.bob(&[named.as_slice(), more.as_slice()].concat())
    };
    let first = ask("og1", "x").ok().json();
    assert_eq!(first["status"], "waiting_for_broker");
    assert_eq!(first["duplicate"], false);
    let again = ask("og1", "x").ok().json();
    assert_eq!(
        (&again["status"], &again["duplicate"]),
        (&json!("waiting_for_broker"), &json!(true))
    );
    // Without an id it is the same one, too, and waits once.
    let unnamed = ["effect", "request", "--json", "--key", "og4", "--op", "pay"];
    let unnamed = [unnamed.as_slice(), &["--target", "x"]].concat();
    let said = [(); 2].map(|()| pair.bob(&unnamed).ok().json()["duplicate"].clone());
    assert_eq!(said, [json!(false), json!(true)]);
    let list = pair.bob(&["effect", "list", "--json"]).json();
    assert_eq!(list["waiting"], json!(["request", "request"]), "{list}");
    // Another key, or another effect under the same one: nothing is taken and forgotten.
    for (key, target) in [("og2", "y"), ("og1", "y")] {
        let other = ask(key, target);
        assert_eq!(other.code, 3, "{other:?}");
        assert_eq!(other.json()["code"], "idempotency_key_reused", "{other:?}");
    }
    let http = &pair.up.1.http;
    let body = json!({"key": "og3", "op": "pay", "target": "z", "mesh": MESH});
    let header = [("Idempotency-Key", "gid1")];
    let refused = http.post_with("/v1/effect/request", &header, &body.to_string());
    assert_eq!(refused.expect(409)["code"], "idempotency_key_reused");
    back(&mut pair);
    wait_until("the request to be made", || {
        let status = pair.bob(&["effect", "status", "og1", "--json"]).json();
        status["status"] == "awaiting_approval"
    });
    assert_eq!(pair.bob(&["effect", "status", "og2"]).code, 4);
}
