//! An invitation under an idempotency key: asked for again, also after a kill, it is the same link.

use crate::support;

use serde_json::{Value, json};
use support::{Daemon, Home};

fn invite(daemon: &Daemon, key: &str, uses: u32) -> (u16, Value) {
    let body = json!({"uses": uses, "expires_seconds": 3600}).to_string();
    let headers = [("Idempotency-Key", key)];
    let answer = daemon.http.post_with("/v1/mesh/invite", &headers, &body);
    (answer.status, answer.json())
}

#[test]
fn the_same_key_gives_the_same_link_and_another_request_is_refused() {
    let (host, guest) = (Home::new(), Home::new());
    host.config("[daemon]\nmember = \"anna\"\n");
    guest.config("[daemon]\nmember = \"bert\"\n");
    let daemon = host.up();
    let (status, first) = invite(&daemon, "for-bert", 1);
    assert_eq!(
        (status, &first["duplicate"]),
        (200, &Value::Null),
        "{first}"
    );
    let (_, again) = invite(&daemon, "for-bert", 1);
    assert_eq!(again["duplicate"], json!(true));
    for field in ["link", "invite_id", "expires_at", "uses"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    let (status, refused) = invite(&daemon, "for-bert", 2);
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("idempotency_key_reused"))
    );
    let (_, other) = invite(&daemon, "for-carl", 1);
    assert_ne!(other["link"], first["link"]);
    daemon.kill();
    let daemon = host.up();
    let (_, again) = invite(&daemon, "for-bert", 1);
    assert_eq!(again["link"], first["link"], "a kill forgets no key");
    // It is one invitation, for one home: the second one that comes with it is refused.
    let _guest_up = guest.up();
    let link = first["link"].as_str().unwrap();
    guest.cli(&["mesh", "join", link]).ok();
    let late = Home::new();
    late.config("[daemon]\nmember = \"carl\"\n");
    let _late_up = late.up();
    assert_ne!(late.cli(&["mesh", "join", link]).code, 0);
    // The verb takes a key as well.
    let args = ["mesh", "invite", "--id", "by-hand", "--json"];
    let made = host.cli(&args).ok().json();
    assert_eq!(host.cli(&args).ok().json()["link"], made["link"]);
}
