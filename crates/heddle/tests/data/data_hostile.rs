//! Memory and state over the real binary, in hostile hands: keys, values, searches, two forms of one key.

use crate::support;

use serde_json::{Value, json};
use support::Home;
use support::data::{encoded, get, recalled, under};

#[test]
fn hostile_keys_values_and_fields_are_refused_and_change_nothing() {
    let home = Home::new();
    let daemon = home.up();
    let long = "x".repeat(257);
    for key in [
        "",
        "a\u{0}b",
        "a\nb",
        "\u{1b}[31m",
        "\u{7f}",
        "\u{9b}",
        &long,
    ] {
        for target in ["/v1/memory/remember", "/v1/state/set"] {
            let refused = daemon.http.post(target, &json!({"key": key, "value": 1}));
            assert_eq!(refused.expect(400)["code"], "invalid_request", "{key:?}");
        }
        for target in ["/v1/memory/forget", "/v1/state/delete"] {
            daemon.http.post(target, &json!({"key": key})).expect(400);
        }
        get(&daemon, key).expect(400);
        let recall = format!("/v1/memory/recall?key={}", encoded(key));
        daemon.http.get(&recall).expect(400);
    }
    let deep = format!(
        r#"{{"key":"k","value":{}1{}}}"#,
        "[".repeat(99),
        "]".repeat(99)
    );
    for body in [
        r#"{"key":"k"}"#,
        r#"{"value":1}"#,
        r#"{"key":7,"value":1}"#,
        r#"{"key":"k","value":1,"wat":1}"#,
        r#"{"key":"k","value":{"a":1,"a":2}}"#,
        r#"{"key":"k","value":9007199254740993}"#,
        r#"{"key":"k","value":1e400}"#,
        r#"{"key":"k","value":"\ud800"}"#,
        r#"{"key":"k","value":1,"agent":"a b"}"#,
        r#"["k",1]"#,
        "",
        &deep,
    ] {
        for target in ["/v1/memory/remember", "/v1/state/set"] {
            let refused = daemon.http.post_with(target, &[], body);
            assert_eq!(refused.expect(400)["code"], "invalid_request", "{body}");
        }
    }
    let tags: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    for tags in [
        json!(tags),
        json!([""]),
        json!(["a\nb"]),
        json!([7]),
        json!("t"),
    ] {
        let body = json!({"key": "k", "value": 1, "tags": tags});
        daemon.http.post("/v1/memory/remember", &body).expect(400);
    }
    assert_eq!(recalled(&daemon, "scope=all"), [] as [Value; 0]);
    let first = daemon
        .http
        .post("/v1/state/set", &json!({"key": "k", "value": 1}));
    assert_eq!(
        first.expect(200)["stamp"]["lamport"],
        1,
        "no refusal ticked"
    );
}

#[test]
fn no_search_and_no_query_however_hostile_breaks_anything() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "value": "deploy notes"});
    daemon.http.post("/v1/memory/remember", &body).expect(200);
    let long = "x".repeat(10_000);
    for hostile in [
        "\"",
        "\"\"\"",
        "AND",
        "deploy AND",
        "NEAR(",
        "words:",
        "key:k",
        "* *",
        "a\0b",
        "^",
        "-deploy",
        "(",
        "';--",
        "",
        "👩‍👩‍👧",
        "rank",
        "{k}:x",
        &long,
        &"\"a ".repeat(300),
    ] {
        let target = format!("/v1/memory/recall?search={}", encoded(hostile));
        let answer = daemon.http.get(&target);
        assert!(
            matches!(answer.status, 200 | 400),
            "{hostile:?}: {answer:?}"
        );
        assert!(answer.status == 200 || answer.json()["code"] == "invalid_request");
    }
    for bad in [
        "key=k&search=x",
        "key=k&cursor=1",
        "cursor=x",
        "limit=0",
        "limit=501",
        "wat=1",
        "scope=%00",
        "scope=%23ops",
    ] {
        let answer = daemon.http.get(&format!("/v1/memory/recall?{bad}"));
        assert_eq!(answer.expect(400)["code"], "invalid_request", "{bad}");
    }
    for bad in ["prefix=%00", "cursor=%0a", "limit=0", "wat=1"] {
        daemon
            .http
            .get(&format!("/v1/state/list?{bad}"))
            .expect(400);
    }
    daemon.http.get("/v1/state/get").expect(400);
    assert_eq!(recalled(&daemon, "search=DEPLOY").len(), 1);
}

#[test]
fn lf_07_composed_and_decomposed_keys_are_one_key_everywhere() {
    let home = Home::new();
    let daemon = home.up();
    let (nfc, nfd) = ("caf\u{e9}", "cafe\u{301}");
    let first = under(
        &daemon,
        "a",
        "/v1/state/set",
        &json!({"key": nfc, "value": 1}),
    );
    assert_eq!(first.expect(200)["key"], nfc);
    let again = under(
        &daemon,
        "a",
        "/v1/state/set",
        &json!({"key": nfd, "value": 1}),
    );
    assert_eq!(again.expect(200)["duplicate"], true);
    assert_eq!(get(&daemon, nfd).expect(200)["key"], nfc);
    let prefix = format!("/v1/state/list?prefix={}", encoded(nfd));
    assert_eq!(
        daemon.http.get(&prefix).expect(200)["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    daemon
        .http
        .post("/v1/state/delete", &json!({"key": nfd}))
        .expect(200);
    get(&daemon, nfc).expect(404);
    for key in [nfc, nfd] {
        let body = json!({"key": key, "value": key});
        daemon.http.post("/v1/memory/remember", &body).expect(200);
    }
    assert_eq!(recalled(&daemon, "").len(), 1);
    assert_eq!(
        recalled(&daemon, &format!("search={}", encoded(nfc))).len(),
        1
    );
}
