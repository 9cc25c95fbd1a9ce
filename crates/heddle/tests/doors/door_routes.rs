//! The routes of the door: described, served, and refused in words when they are asked wrongly.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;
use support::Home;
use support::door::routes;
use support::http::tcp;

#[test]
fn unknown_routes_methods_and_parameters_are_problems() {
    let home = Home::new();
    let daemon = home.up();
    assert_eq!(
        daemon.http.get("/v1/nothing").expect(404)["code"],
        "not_found"
    );
    assert_eq!(
        daemon.http.get("/v1/send").expect(405)["code"],
        "method_not_allowed"
    );
    assert_eq!(
        daemon.http.get("/v1/inbox?colour=red").expect(400)["code"],
        "invalid_request"
    );
    assert_eq!(
        daemon.http.get("/v1/inbox?since=yesterday").expect(400)["code"],
        "invalid_request"
    );
    assert_eq!(
        daemon.http.get("/v1/outbox?status=lost").expect(400)["code"],
        "invalid_request"
    );
    assert_eq!(
        daemon.http.get("/v1/inbox?agent=nobody").expect(404)["code"],
        "unknown_agent"
    );
}

#[test]
fn every_route_of_the_document_is_served_and_no_other_is() {
    let home = Home::new();
    let daemon = home.up();
    let routes = routes(&daemon);
    for (method, path) in &routes {
        // These end or never end; that they are routes shows in their other method.
        let other = if method == "GET" { "POST" } else { "GET" };
        let wrong = daemon.http.request(other, path, &[], "{}").unwrap();
        if path == "/v1/outbox/prune" {
            // An id may be spelled like a verb: a get asks for the row of that id.
            assert_eq!(wrong.expect(404)["code"], "not_found");
            continue;
        }
        assert_eq!(wrong.expect(405)["code"], "method_not_allowed", "{path}");
        let allow = format!("allow: {}", method.to_lowercase());
        assert!(wrong.head.to_lowercase().contains(&allow), "{wrong:?}");
        if path == "/v1/shutdown" || path == "/v1/events" {
            continue;
        }
        let right = daemon.http.request(method, path, &[], "{}").unwrap();
        let is_missing = right.status == 404 && right.body.contains("no such route");
        assert!(
            !is_missing && right.status != 405,
            "{method} {path}: {right:?}"
        );
    }
    for path in [
        "/v1/send",
        "/v1/compat",
        "/v1/openapi.json",
        "/v1/outbox/x/requeue",
    ] {
        assert!(routes.iter().any(|(_, route)| route == path), "{path}");
    }
    let gone = daemon.http.get("/v1/nowhere").expect(404);
    assert!(
        gone["next"].as_str().unwrap().contains("openapi.json"),
        "{gone}"
    );
}

#[test]
fn the_document_tells_what_a_route_takes_and_gives() {
    let home = Home::new();
    let daemon = home.up();
    let document = daemon.http.get("/v1/openapi.json").expect(200);
    assert_eq!(document["openapi"], "3.1.0");
    let send = &document["paths"]["/v1/send"]["post"];
    let body = &send["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(body, "#/components/schemas/SendBody");
    let schema = &document["components"]["schemas"]["SendBody"];
    assert_eq!(schema["required"], json!(["message", "to"]));
    assert_eq!(send["parameters"][0]["name"], "Idempotency-Key");
    let inbox = &document["paths"]["/v1/inbox"]["get"]["parameters"];
    let limit = inbox
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["name"] == "limit");
    assert_eq!(limit.unwrap()["schema"]["type"], "integer");
    // What the document calls required is in the answer.
    let status = daemon.http.get("/v1/status").expect(200);
    let required = &document["components"]["schemas"]["StatusView"]["required"];
    for field in required.as_array().unwrap() {
        assert!(status.get(field.as_str().unwrap()).is_some(), "{field}");
    }
    let compat = daemon.http.get("/v1/compat").expect(200);
    assert_eq!(compat["ipc"], json!({"min": 1, "max": 1}));
    assert_eq!(compat["version"], status["version"]);
    assert!(compat["client_version_min"].is_string());
    assert!(
        compat["required_of_broker"]
            .as_array()
            .unwrap()
            .contains(&json!("client_message_id_dedupe"))
    );
}

#[test]
fn what_is_no_request_is_refused_with_a_problem_all_the_same() {
    let home = Home::new();
    let daemon = home.up();
    let long = "x".repeat(600_000);
    let ok = "GET /v1/version HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for (what, text, status, code) in [
        (
            "no HTTP",
            "hello?\r\n\r\n".to_owned(),
            400,
            "invalid_request",
        ),
        (
            "a bad method",
            "G\u{e9}T / HTTP/1.1\r\n\r\n".to_owned(),
            400,
            "invalid_request",
        ),
        (
            "a bad header",
            "GET /v1/version HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),
            400,
            "invalid_request",
        ),
        (
            "a second one",
            format!("{ok}hello?\r\n\r\n"),
            400,
            "invalid_request",
        ),
        (
            "a long head",
            format!("GET /v1/version HTTP/1.1\r\nx: {long}\r\n\r\n"),
            431,
            "headers_too_large",
        ),
        (
            "a long target",
            format!(
                "GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
                &long[..70_000]
            ),
            414,
            "uri_too_long",
        ),
    ] {
        let mut stream = UnixStream::connect(daemon.http.socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        // It may be refused before all of it is written.
        let _ = stream.write_all(text.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let last = answer
            .rfind("HTTP/1.1 4")
            .unwrap_or_else(|| panic!("{what}: {answer:?}"));
        let (head, body) = answer[last..].split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{what}: {answer}"
        );
        assert!(
            head.contains("application/problem+json"),
            "{what}: {answer}"
        );
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["code"], code, "{what}");
        assert_eq!(problem["status"], status, "{what}");
        assert!(problem["next"].as_str().unwrap().ends_with('.'), "{what}");
    }
    let page = daemon.http.get("/v1/metrics").body;
    assert!(
        page.contains("heddle_ipc_refused_unread_total{status=\"431\"} 1"),
        "{page}"
    );
    daemon.http.get("/v1/health").expect(200);
}

#[test]
fn a_head_beyond_its_bound_is_431_on_both_doors_and_one_below_is_read() {
    let home = Home::new();
    let daemon = home.up();
    let token = std::fs::read_to_string(home.path().join("local_token")).unwrap();
    let port: u16 = std::fs::read_to_string(home.path().join("http.port"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let bearer = format!("Bearer {}", token.trim());
    for (bytes, status) in [
        (30 << 10, 200),
        (33 << 10, 431),
        (200 << 10, 431),
        (500 << 10, 431),
    ] {
        let long = "x".repeat(bytes);
        let headers = [
            ("host", "localhost"),
            ("authorization", bearer.as_str()),
            ("x-long", long.as_str()),
        ];
        let unix = daemon.http.request("GET", "/v1/version", &headers[..], "");
        let over_tcp = tcp(port, "GET", "/v1/version", &headers, "");
        for (door, answer) in [("unix", unix), ("tcp", over_tcp)] {
            // A head that is far too long may be cut off before all of it is written.
            let Some(answer) = answer else {
                assert!(bytes > 100 << 10, "{door}: no answer to {bytes} bytes");
                continue;
            };
            assert_eq!(
                answer.status, status,
                "{door}, {bytes} bytes: {}",
                answer.body
            );
            if status == 431 {
                let problem = answer.json();
                assert_eq!(problem["code"], "headers_too_large", "{door}: {problem}");
                assert!(!problem["next"].as_str().unwrap().is_empty());
            }
        }
    }
    daemon.http.get("/v1/health").expect(200);
}

#[test]
fn a_path_that_is_no_text_is_a_problem_like_any_other() {
    let home = Home::new();
    let daemon = home.up();
    let document = daemon.http.get("/v1/openapi.json").expect(200);
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if !path.contains('{') {
            continue;
        }
        let begin = path.find('{').unwrap();
        let end = path.find('}').unwrap() + 1;
        for strange in ["%ff%00", "%00", "%c3%28"] {
            let target = format!("{}{strange}{}", &path[..begin], &path[end..]);
            for method in methods.as_object().unwrap().keys() {
                let answer = match method.as_str() {
                    "get" => daemon.http.get(&target),
                    _ => daemon.http.post(&target, &json!({})),
                };
                let problem = answer.expect(400);
                assert_eq!(problem["code"], "invalid_request", "{target}");
                assert!(problem["next"].is_string(), "{problem}");
                asked += 1;
            }
        }
    }
    assert!(asked >= 9, "{asked}");
}

#[test]
fn posts_refuse_parameters_that_they_do_not_have_and_do_nothing() {
    let home = Home::new();
    let daemon = home.up();
    let document = daemon.http.get("/v1/openapi.json").expect(200);
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if methods.get("post").is_none() {
            continue;
        }
        let target = format!("{}?colour=blue", path.replace("{id}", "x"));
        let problem = daemon.http.post(&target, &json!({})).expect(400);
        assert_eq!(problem["code"], "invalid_request", "{target}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("parameters") || detail.contains("colour"),
            "{target}: {detail}"
        );
        asked += 1;
    }
    assert!(asked > 20, "{asked}");
    let body = json!({"to": "@tester", "message": "x", "client_message_id": "a"});
    daemon.http.post("/v1/send?mesh=other", &body).expect(400);
    daemon.http.get("/v1/outbox/a").expect(404);
    daemon.http.post("/v1/send", &body).expect(202);
    // A get of the same path that belongs to another route keeps its own.
    daemon.http.get("/v1/outbox/prune?mesh=home").expect(404);
}
