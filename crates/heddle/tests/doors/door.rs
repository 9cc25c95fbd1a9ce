//! The door of the daemon: who may come in, how much, how long (T-01 to T-05, L-01 to L-06).
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]
#![allow(
    clippy::too_many_lines,
    reason = "a case after another reads best in one place"
)]

use crate::support;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::json;
use support::door::{bearer, port, routes};
use support::http::{raw_tcp, tcp};
use support::{Home, text_of, wait_until};

#[test]
fn t_04_every_route_wants_the_token_on_tcp() {
    let home = Home::new();
    let daemon = home.up();
    let port = port(&daemon);
    let mut all = routes(&daemon);
    all.extend([
        ("GET".to_owned(), "/".to_owned()),
        ("GET".to_owned(), "/nowhere".to_owned()),
    ]);
    for (method, path) in &all {
        let none = tcp(port, method, path, &[], "{}").unwrap();
        assert_eq!(none.expect(401)["code"], "unauthorized", "{path}");
        let wrong = tcp(
            port,
            method,
            path,
            &[("authorization", "Bearer wrong")],
            "{}",
        )
        .unwrap();
        assert_eq!(wrong.status, 401, "{path}");
    }
    let right = tcp(
        port,
        "GET",
        "/v1/health",
        &[("authorization", &bearer(&home))],
        "",
    )
    .unwrap();
    assert_eq!(right.expect(200)["status"], "ok");
    assert!(
        daemon.http.get("/v1/status").expect(200)["running"] == true,
        "shutdown got through"
    );
}

#[test]
fn t_01_t_02_t_03_foreign_host_origin_and_preflight_are_refused_before_any_route() {
    let home = Home::new();
    let daemon = home.up();
    let port = port(&daemon);
    let token = bearer(&home);
    let auth = ("authorization", token.as_str());
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1:1",
        "0.0.0.0",
        "169.254.0.1",
    ] {
        let answer = tcp(port, "GET", "/v1/health", &[("host", host), auth], "").unwrap();
        assert_eq!(answer.expect(403)["code"], "forbidden_origin", "{host}");
    }
    let good = format!("127.0.0.1:{port}");
    for origin in [
        "http://evil.example",
        "null",
        "https://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost",
    ] {
        let answer = tcp(
            port,
            "GET",
            "/v1/health",
            &[("host", &good), ("origin", origin), auth],
            "",
        )
        .unwrap();
        assert_eq!(answer.expect(403)["code"], "forbidden_origin", "{origin}");
    }
    let preflight = tcp(
        port,
        "OPTIONS",
        "/v1/send",
        &[("origin", &format!("http://{good}")), auth],
        "",
    )
    .unwrap();
    assert_eq!(preflight.status, 403);
    assert!(
        !preflight
            .head
            .to_lowercase()
            .contains("access-control-allow")
    );
    let two_hosts = format!(
        "GET /v1/health HTTP/1.1\r\nhost: {good}\r\nhost: evil.example\r\nauthorization: {token}\r\nconnection: close\r\n\r\n"
    );
    assert!(matches!(
        raw_tcp(port, two_hosts.as_bytes()).unwrap().status,
        400 | 403
    ));
    let absolute = format!(
        "GET http://evil.example/v1/health HTTP/1.1\r\nhost: {good}\r\nauthorization: {token}\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(raw_tcp(port, absolute.as_bytes()).unwrap().status, 403);
    let plain = tcp(
        port,
        "POST",
        "/v1/send",
        &[("content-type", "text/plain"), auth],
        r#"{"to":"@tester","message":"m"}"#,
    )
    .unwrap();
    assert_eq!(plain.status, 415);
    let own = tcp(
        port,
        "GET",
        "/v1/health",
        &[("host", &good), ("origin", &format!("http://{good}")), auth],
        "",
    )
    .unwrap();
    assert_eq!(own.status, 200);
}

#[test]
fn t_05_a_token_in_the_query_is_refused_and_never_logged() {
    let home = Home::new();
    let daemon = home.up();
    let secret = text_of(&home.path().join("local_token"));
    for target in [
        format!("/v1/health?token={secret}"),
        format!("/v1/health?x={secret}"),
        "/v1/health?access_token=x".to_owned(),
    ] {
        let answer = tcp(
            port(&daemon),
            "GET",
            &target,
            &[("authorization", &bearer(&home))],
            "",
        )
        .unwrap();
        assert_eq!(answer.expect(400)["code"], "invalid_request");
        assert!(!answer.body.contains(&secret));
    }
    assert!(!daemon.log().contains(&secret));
}

#[test]
fn l_04_a_body_is_bounded_before_and_while_it_is_read() {
    let home = Home::new();
    let daemon = home.up();
    let send = |bytes: usize| {
        let frame = json!({"to": "@tester", "message": ""}).to_string().len();
        daemon.http.post(
            "/v1/send",
            &json!({"to": "@tester", "message": "x".repeat(bytes - frame)}),
        )
    };
    send(1 << 20).expect(202);
    assert_eq!(send((1 << 20) + 1).expect(413)["code"], "payload_too_large");
    // Announced, never sent: refused at once.
    let mut stream = UnixStream::connect(daemon.http.socket()).unwrap();
    stream
        .write_all(
            b"POST /v1/send HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000000\r\n\r\n",
        )
        .unwrap();
    let mut head = [0; 12];
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    // Chunked, without a length: refused while it comes.
    let mut stream = UnixStream::connect(daemon.http.socket()).unwrap();
    stream
        .write_all(
            b"POST /v1/send HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..40 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
}

#[test]
fn l_01_requests_beyond_the_limit_are_refused_at_once_and_the_others_finish() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"to": "@tester", "message": "m"}).to_string();
    let hold = || {
        let mut stream = UnixStream::connect(daemon.http.socket()).unwrap();
        let head = format!(
            "POST /v1/send HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    // 64 requests whose bodies have not quite arrived are in flight.
    let mut held: Vec<UnixStream> = (0..64).map(|_| hold()).collect();
    wait_until("the door to be full", || {
        let is_full = daemon.http.get("/v1/peers").status == 429;
        // The question may have had a place when one of them came.
        held.extend((!is_full).then(hold));
        is_full
    });
    let start = Instant::now();
    let refused = daemon.http.get("/v1/peers");
    // At once: not when the time for a body is over, which those before it still have.
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(refused.expect(429)["code"], "daemon_busy");
    assert!(refused.head.to_lowercase().contains("retry-after"));
    let mut finished = 0;
    for stream in &mut held {
        // Who was refused has gone.
        let _ = stream.write_all(body.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 429");
        assert!(is_refused || answer.starts_with("HTTP/1.1 202"), "{answer}");
        finished += usize::from(!is_refused);
    }
    assert_eq!(finished, 64);
}

#[test]
fn l_02_event_streams_have_their_own_limit_and_free_their_place() {
    let home = Home::new();
    let daemon = home.up();
    let open = || {
        let mut stream = UnixStream::connect(daemon.http.socket()).unwrap();
        stream
            .write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, head)
    };
    let mut streams: Vec<_> = (0..32).map(|_| open()).collect();
    assert!(streams.iter().all(|(_, head)| head == b"HTTP/1.1 200"));
    assert_eq!(&open().1, b"HTTP/1.1 429");
    daemon.http.get("/v1/version").expect(200);
    streams.pop();
    wait_until("a free place", || &open().1 == b"HTTP/1.1 200");
}

#[test]
fn l_06_a_client_that_says_nothing_or_dribbles_is_cut_off() {
    let home = Home::new();
    let daemon = home.up();
    let silent = UnixStream::connect(daemon.http.socket()).unwrap();
    let mut half = UnixStream::connect(daemon.http.socket()).unwrap();
    half.write_all(b"GET /v1/hea").unwrap();
    let mut body = UnixStream::connect(daemon.http.socket()).unwrap();
    body.write_all(b"POST /v1/send HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        .unwrap();
    for (name, mut stream) in [
        ("silent", silent),
        ("half a head", half),
        ("half a body", body),
    ] {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut rest = Vec::new();
        assert!(
            stream.read_to_end(&mut rest).is_ok(),
            "{name} is still connected"
        );
    }
    daemon.http.get("/v1/health").expect(200);
}

#[test]
fn lf_37_t_08_everything_in_the_home_is_private() {
    let home = Home::new();
    let daemon = home.up();
    daemon
        .http
        .post("/v1/send", &json!({"to": "@tester", "message": "m"}))
        .expect(202);
    let mode = |path: &std::path::Path| {
        std::fs::symlink_metadata(path)
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&home.path()), 0o700);
    let mut seen = 0;
    let mut folders = vec![home.path()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), expected, "{}", path.display());
            if path.is_dir() {
                folders.push(path);
            } else {
                seen += 1;
            }
        }
    }
    assert!(seen >= 6, "{seen} files");
}
