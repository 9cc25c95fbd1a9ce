//! What a hook may do, over the real binary: its token, its scopes, its end (IN-07).

use crate::support;

use serde_json::{Value, json};
use support::hooks::{WAIT, Yard, received, send, set_mode};
use support::http::tcp;
use support::{Daemon, wait_until};

fn post_with_token(daemon: &Daemon, token: &str, target: &str, body: &Value) -> (u16, String) {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let answer = daemon.http.post_with(target, &headers, &body.to_string());
    let code = answer.json()["code"].as_str().unwrap_or("").to_owned();
    (answer.status, code)
}

fn yard_with_token(scopes: &str) -> (Yard, Daemon, String, Value) {
    let yard = Yard::new(&format!(
        "[hook.on-dm]\nenabled = true\nscopes = {scopes}\n"
    ));
    yard.script(
        "on-dm",
        &format!("[ -e OUT/event ] && exit 0\ncat > OUT/event; printf %s $HEDDLE_HOOK_TOKEN > OUT/token.new; mv OUT/token.new OUT/token; {WAIT}"),
    );
    let daemon = yard.home.up();
    for agent in ["planner", "eve"] {
        daemon
            .http
            .post("/v1/agent/register", &json!({"agent": agent}))
            .expect(200);
    }
    for topic in ["ops", "dev"] {
        daemon
            .http
            .post("/v1/topic/create", &json!({"topic": topic}))
            .expect(200);
    }
    let body = json!({"to": "@tester", "message": "do it", "agent": "planner", "client_message_id": "ask-1"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("the hook", || yard.out("token").exists());
    let token = yard.lines("token").remove(0);
    let event = serde_json::from_slice(&std::fs::read(yard.out("event")).unwrap()).unwrap();
    (yard, daemon, token, event)
}

#[test]
fn in_07_a_token_does_what_its_scopes_say_and_stops_with_its_process() {
    let (yard, daemon, token, event) = yard_with_token("[\"reply:event\", \"topic:ops:post\"]");
    let post = |target: &str, body: Value| post_with_token(&daemon, &token, target, &body);
    let forbidden = (403, "forbidden_scope".to_owned());
    let good =
        json!({"to": event["from"], "message": "done", "reply_to_id": event["client_message_id"]});
    assert_eq!(post("/v1/send", good.clone()).0, 202);
    let topic = json!({"topic": "ops", "message": "done"});
    assert_eq!(post("/v1/topic/post", topic.clone()).0, 202);
    for body in [
        json!({"to": "@planner", "message": "not an answer"}),
        json!({"to": "@planner", "message": "x", "reply_to_id": "another"}),
        json!({"to": "@eve", "message": "x", "reply_to_id": "ask-1"}),
        json!({"to": "@planner", "message": "x", "reply_to_id": "ask-1", "agent": "eve"}),
        json!({"to": "@planner", "message": "x", "reply_to_id": "ask-1", "mentions": ["@eve"]}),
        json!({"to": "#dev", "message": "x", "reply_to_id": "ask-1"}),
        json!({"to": "@nobody", "message": "x", "reply_to_id": "ask-1"}),
    ] {
        assert_eq!(post("/v1/send", body.clone()), forbidden, "{body}");
    }
    assert_eq!(
        post("/v1/topic/post", json!({"topic": "dev", "message": "x"})),
        forbidden
    );
    assert_eq!(
        post("/v1/agent/register", json!({"agent": "mallory"})),
        forbidden
    );
    assert_eq!(post("/v1/shutdown", json!({})), forbidden);
    let bearer = format!("Bearer {token}");
    let read = daemon
        .http
        .request("GET", "/v1/inbox", &[("authorization", &bearer)], "");
    assert_eq!(read.unwrap().status, 403);
    // The answer speaks for the mailbox that was asked.
    wait_until("the answer", || {
        let page = daemon.http.get("/v1/inbox?agent=planner").expect(200);
        page["items"][0]["from"] == "@tester/tester"
    });
    // Without a token the socket's owner may do what he may always do.
    send(&daemon, "own", "mine");

    yard.release();
    yard.wait_first_ended();
    let (status, code) = post("/v1/send", good);
    assert_eq!((status, code.as_str()), (401, "unauthorized"));
    assert_eq!(post("/v1/topic/post", topic).0, 401);
    assert_eq!(
        post_with_token(&daemon, "hhk_guess", "/v1/send", &json!({})).0,
        401
    );
    let log = daemon.log();
    assert!(!log.contains(&token), "the token is in the log");
    let audit = std::fs::read_to_string(yard.home.path().join("logs/hooks.jsonl")).unwrap();
    assert!(!audit.contains(&token), "the token is in the audit");
}

#[test]
fn in_07_over_tcp_a_token_is_as_good_and_no_better() {
    let (yard, daemon, token, event) = yard_with_token("[\"dm:send:<sender>\"]");
    let url = daemon.ready["http"].as_str().unwrap();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    let bearer = format!("Bearer {token}");
    let ask = |method: &str, target: &str, extra: &[(&str, &str)], body: &Value| {
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend_from_slice(extra);
        tcp(port, method, target, &headers, &body.to_string())
            .unwrap()
            .status
    };
    let good = json!({"to": event["from"], "message": "x"});
    let bad = json!({"to": "@eve", "message": "x"});
    assert_eq!(ask("POST", "/v1/send", &[], &good), 202);
    assert_eq!(ask("POST", "/v1/send", &[], &bad), 403);
    assert_eq!(ask("GET", "/v1/status", &[], &json!({})), 403);
    assert_eq!(
        ask(
            "POST",
            "/v1/send",
            &[("origin", "http://evil.example")],
            &good
        ),
        403
    );
    assert_eq!(
        ask("POST", "/v1/send", &[("host", "evil.example")], &good),
        403
    );
    // In a URL it is refused, also when it is right.
    let leaked = daemon.http.get(&format!("/v1/inbox?since={token}"));
    assert_eq!(leaked.status, 400);
    assert!(!leaked.body.contains(&token), "{leaked:?}");
    yard.release();
    yard.wait_first_ended();
    assert_eq!(ask("POST", "/v1/send", &[], &good), 401);
}

#[test]
fn in_07_a_hook_without_scopes_may_send_nothing() {
    let (yard, daemon, token, event) = yard_with_token("[]");
    let body = json!({"to": event["from"], "message": "x", "reply_to_id": "ask-1"});
    assert_eq!(post_with_token(&daemon, &token, "/v1/send", &body).0, 403);
    yard.release();
    yard.wait_first_ended();
}

#[test]
fn the_example_of_the_page_answers_each_message_once() {
    let page = include_str!("../../../../docs/HOOKS.md");
    let block = |begin: &str| {
        let behind = page.split(begin).nth(1).unwrap();
        behind.split("```").next().unwrap().to_owned()
    };
    let yard = Yard::new(&block("```toml\n"));
    let program = yard.hooks().join("on-dm");
    std::fs::write(&program, block("```python\n")).unwrap();
    set_mode(&program, 0o700);
    let daemon = yard.home.up();
    let register = json!({"agent": "planner"});
    daemon
        .http
        .post("/v1/agent/register", &register)
        .expect(200);
    let body = json!({"to": "@tester", "message": "do it", "agent": "planner", "client_message_id": "ask-1"});
    daemon.http.post("/v1/send", &body).expect(202);
    // The message, and then the answer to it, which is not answered.
    let audit = yard.wait_audit(2);
    assert!(
        audit.iter().all(|line| line["outcome"] == "ok"),
        "{audit:?}\n{}",
        daemon.log()
    );
    let page = daemon.http.get("/v1/inbox?agent=planner").expect(200);
    let items = page["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{page}");
    assert_eq!(items[0]["reply_to_id"], "ask-1");
    assert_eq!(items[0]["from"], "@tester/tester");
    received(&daemon, 1);
}
