//! The short lane of a plain send against hyper's way: the same bytes, the same answers.
//!
//! A connection whose first request is none for the lane belongs to hyper from then on, and one that has sent
//! a few times belongs to the shuttle. So the same bytes are sent three times, on a fresh connection, behind
//! a `GET` and behind some sends, and the answers are compared byte for byte, but for the date. The broker is out of reach: rows stay pending, and an id
//! that is sent again is answered as it was at first.

use crate::support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use support::{Daemon, Home};

const UNREACHABLE: &str = "[broker]\nurl = \"ws://127.0.0.1:9/\"\n";
const FIRST: &str = "GET /v1/version HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Ends the connection once everything before it was answered.
const LAST: &str = "GET /v1/version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn offline() -> (Home, Daemon) {
    let home = Home::new();
    home.config(UNREACHABLE);
    let daemon = home.up();
    (home, daemon)
}

fn connect(daemon: &Daemon) -> UnixStream {
    let stream = UnixStream::connect(daemon.http.socket()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
}

fn body(id: &str, message: &str) -> String {
    format!(r#"{{"to":"queue:q","message":"{message}","client_message_id":"{id}"}}"#)
}

fn request(fields: &str, body: &str) -> String {
    format!(
        "POST /v1/send HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn send(id: &str) -> String {
    request("content-type: application/json\r\n", &body(id, "m"))
}

/// Everything that is answered until the connection ends, with the dates taken out.
fn read_all(mut stream: UnixStream) -> String {
    let mut answer = Vec::new();
    // A refusal may reset the connection behind its last byte.
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    let lines = text.split("\r\n");
    let undated: Vec<&str> = lines.filter(|line| !line.starts_with("date: ")).collect();
    undated.join("\r\n")
}

fn by_lane(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = connect(daemon);
    // It may be refused before all of it is written.
    let _ = stream.write_all(bytes);
    read_all(stream)
}

fn by_hyper(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = connect(daemon);
    stream.write_all(FIRST.as_bytes()).unwrap();
    read_answer(&mut stream);
    let _ = stream.write_all(bytes);
    read_all(stream)
}

fn by_shuttle(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = aboard(daemon);
    let _ = stream.write_all(bytes);
    read_all(stream)
}

/// A connection that has sent so often that the shuttle has it.
fn aboard(daemon: &Daemon) -> UnixStream {
    let mut stream = connect(daemon);
    for _ in 0..4 {
        stream.write_all(send("again").as_bytes()).unwrap();
        let answer = read_answer(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    }
    stream
}

/// One answer, head and body.
fn read_answer(stream: &mut UnixStream) -> String {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).unwrap();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

/// Requests of every kind, with the status line that each must begin its answer with.
#[allow(
    clippy::too_many_lines,
    reason = "a list of requests, one after another"
)]
fn corpus() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let json = "content-type: application/json\r\n";
    let with = |id: &str, from: &str, to: &str| send(id).replacen(from, to, 1);
    let chunked = "POST /v1/send HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = body("chunked", "m");
    let chunks = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    let mut odd_key = request("idempotency-key: ?\r\n", &body("k", "m")).into_bytes();
    let at = odd_key.iter().position(|byte| *byte == b'?').unwrap();
    odd_key[at] = 0xff;
    let texts = [
        ("a plain send", send("plain"), "202"),
        ("two", format!("{}{}", send("one"), send("two")), "202"),
        (
            "a key",
            request(
                "idempotency-key: k 1\r\n",
                r#"{"to":"queue:q","message":"m"}"#,
            ),
            "202",
        ),
        (
            "a key and an id",
            request("idempotency-key: other\r\n", &body("k", "m")),
            "400",
        ),
        (
            "two keys",
            request(
                "idempotency-key: a\r\nidempotency-key: a\r\n",
                &body("a", "m"),
            ),
            "400",
        ),
        (
            "an empty key",
            request("idempotency-key:\r\n", r#"{"to":"queue:q","message":"m"}"#),
            "400",
        ),
        ("a taken id", request(json, &body("plain", "other")), "409"),
        (
            "nobody",
            request(json, r#"{"to":"@nobody","message":"m"}"#),
            "404",
        ),
        (
            "an odd name",
            request(json, r#"{"to":"queue:a b","message":"m"}"#),
            "400",
        ),
        (
            "no mesh",
            request(json, r#"{"to":"queue:q","message":"m","mesh":"none"}"#),
            "404",
        ),
        (
            "meta",
            request(
                json,
                r#"{"to":"queue:q","message":"m","meta":{"b":1,"a":2},"client_message_id":"meta"}"#,
            ),
            "202",
        ),
        (
            "a lossy number",
            request(
                json,
                r#"{"to":"queue:q","message":"m","meta":{"n":9007199254740993}}"#,
            ),
            "400",
        ),
        (
            "a repeated field",
            request(json, r#"{"to":"queue:q","message":"m","message":"n"}"#),
            "400",
        ),
        (
            "an unknown field",
            request(json, r#"{"to":"queue:q","message":"m","x":1}"#),
            "400",
        ),
        ("an array", request(json, r#"["queue:q","m"]"#), "400"),
        ("no JSON", request(json, "{"), "400"),
        ("nothing", request(json, ""), "400"),
        (
            "a send that closes",
            request("Connection: close\r\n", &body("closing", "m")),
            "202",
        ),
        (
            "a refusal that closes",
            request("connection: close\r\n", "{"),
            "400",
        ),
        (
            "a kept one",
            request("connection: keep-alive\r\n", &body("kept", "m")),
            "202",
        ),
        (
            "an unknown header",
            request("x-unknown: 1\r\n", &body("unknown", "m")),
            "202",
        ),
        (
            "expect",
            request("expect: 100-continue\r\n", &body("expect", "m")),
            "100",
        ),
        (
            "a hook's token",
            request("authorization: Bearer hh_x\r\n", &body("hook", "m")),
            "202",
        ),
        ("a query", with("query", "/v1/send", "/v1/send?x=1"), "400"),
        (
            "absolute form",
            with("absolute", "/v1/send", "http://localhost/v1/send"),
            "202",
        ),
        ("HTTP/1.0", with("old", "HTTP/1.1", "HTTP/1.0"), "202"),
        ("HTTP/2.0", with("new", "HTTP/1.1", "HTTP/2.0"), "400"),
        ("another method", with("put", "POST", "PUT"), "405"),
        ("a small method", with("small", "POST", "post"), "405"),
        ("bare line ends", send("bare").replace("\r\n", "\n"), "202"),
        (
            "an empty line first",
            format!("\r\n{}", send("empty")),
            "202",
        ),
        ("chunked", format!("{chunked}{chunks}"), "202"),
        (
            "a length and chunks",
            format!(
                "{}{chunks}",
                chunked.replace("transfer", "content-length: 5\r\ntransfer")
            ),
            "202",
        ),
        (
            "two lengths",
            with(
                "lengths",
                "content-length",
                "content-length: 1\r\ncontent-length",
            ),
            "400",
        ),
        (
            "a signed length",
            with("signed", "content-length: ", "content-length: +"),
            "400",
        ),
        (
            "a negative length",
            with("negative", "content-length: ", "content-length: -"),
            "400",
        ),
        (
            "a list of lengths",
            with("list", "content-length: ", "content-length: 5, "),
            "400",
        ),
        (
            "a space before the colon",
            with("space", "content-length:", "content-length :"),
            "400",
        ),
        (
            "a folded header",
            with("folded", "host: localhost", "host: localhost\r\n folded"),
            "400",
        ),
        ("no colon", with("colon", "host: localhost", "host"), "400"),
        (
            "a NUL",
            with("nul", "host: localhost", "host: local\0host"),
            "400",
        ),
        (
            "many headers",
            with("many", "host", &format!("{}host", "x: y\r\n".repeat(120))),
            "431",
        ),
        (
            "a large body",
            request(json, &body("large", &"x".repeat(100_000))),
            "202",
        ),
        (
            "too large a body",
            request(json, &body("huge", &"x".repeat(1 << 20))),
            "413",
        ),
        (
            "a send and noise",
            format!("{}hello?\r\n\r\n", send("noise")),
            "202",
        ),
        (
            "a send and a smuggled one",
            format!(
                "{}GET /v1/version HTTP/1.1\r\nhost: a\r\n\r\n",
                request("", &body("smuggled", "m"))
            ),
            "202",
        ),
        (
            "another route",
            LAST.replace("/v1/version", "/v1/none"),
            "404",
        ),
    ];
    let texts = texts.map(|(what, text, status)| (what, text.into_bytes(), status));
    let mut all = Vec::from(texts);
    all.push(("a key that is no text", odd_key, "400"));
    all
}

#[test]
fn the_lane_answers_every_request_as_hyper_does() {
    let (_home, daemon) = offline();
    daemon.http.get("/v1/health");
    for (what, mut bytes, status) in corpus() {
        bytes.extend_from_slice(LAST.as_bytes());
        // Under an id of its own the first one is told apart from all that follow, on every way.
        let _first = by_hyper(&daemon, &bytes);
        let lane = by_lane(&daemon, &bytes);
        let hyper = by_hyper(&daemon, &bytes);
        assert_eq!(masked(&lane), masked(&hyper), "{what}");
        let shuttle = by_shuttle(&daemon, &bytes);
        assert_eq!(masked(&shuttle), masked(&hyper), "{what}, by the shuttle");
        let line = lane.split(' ').nth(1).unwrap_or_default();
        assert_eq!(line, status, "{what}: {lane}");
    }
}

/// Minted ids differ from send to send.
fn masked(text: &str) -> String {
    let Some((before, rest)) = text.split_once("\"client_message_id\":\"01") else {
        return text.to_owned();
    };
    format!("{before}{}", rest.get(24..).unwrap_or_default())
}

#[test]
fn a_send_that_comes_in_two_pieces_is_answered_wherever_it_is_cut() {
    let (_home, daemon) = offline();
    let whole = format!(
        "{}{LAST}",
        request("idempotency-key: cut\r\n", &body("cut", "m"))
    );
    let first = by_hyper(&daemon, whole.as_bytes());
    assert!(first.starts_with("HTTP/1.1 202 "), "{first}");
    let expected = by_hyper(&daemon, whole.as_bytes());
    assert!(expected.contains("\"duplicate\":true"), "{expected}");
    for cut in 1..whole.len() {
        for mut stream in [connect(&daemon), aboard(&daemon)] {
            stream.write_all(&whole.as_bytes()[..cut]).unwrap();
            // Gives the daemon the chance to read the first piece alone; the answer is the same if not.
            std::thread::sleep(Duration::from_millis(1));
            stream.write_all(&whole.as_bytes()[cut..]).unwrap();
            assert_eq!(read_all(stream), expected, "cut at {cut}");
        }
    }
}

/// More answers than a socket holds: whoever reads late gets all of them, and nobody else waits for him.
#[test]
fn a_sender_that_does_not_read_delays_nobody_and_loses_no_answer() {
    // Refused without a commit, so that they come quickly.
    const REFUSALS: usize = 5000;
    let (_home, daemon) = offline();
    let mut late = aboard(&daemon);
    let mut other = aboard(&daemon);
    let mut writing = late.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        // As long as a whole part of the lane's buffer: a request that is cut would be hyper's.
        let refused = request("", &format!("{{{}}}", " ".repeat(958)));
        assert_eq!(refused.len(), 1024);
        for _ in 0..REFUSALS {
            writing.write_all(refused.as_bytes()).unwrap();
        }
        writing.write_all(send("last").as_bytes()).unwrap();
    });
    for number in 0..50 {
        let text = send(&format!("other-{number}"));
        other.write_all(text.as_bytes()).unwrap();
        let answer = read_answer(&mut other);
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    }
    // By now, or soon, his socket is full of answers; if not, the test says less.
    std::thread::sleep(Duration::from_secs(1));
    for number in 0..REFUSALS {
        let answer = read_answer(&mut late);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{number}: {answer}");
    }
    let answer = read_answer(&mut late);
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    writer.join().unwrap();
}

/// What a client wrote before it hung up is accepted, and its place is free again.
#[test]
fn a_sender_that_hangs_up_takes_only_its_own_place_along() {
    let (_home, daemon) = offline();
    for number in 0..200 {
        let mut gone = aboard(&daemon);
        gone.write_all(send(&format!("gone-{number}")).as_bytes())
            .unwrap();
        drop(gone);
    }
    let mut stays = aboard(&daemon);
    stays.write_all(send("stays").as_bytes()).unwrap();
    assert!(read_answer(&mut stays).starts_with("HTTP/1.1 202 "));
    for number in [0, 199] {
        let path = format!("/v1/outbox/gone-{number}");
        support::wait_until(&path, || daemon.http.get(&path).status == 200);
    }
}

#[test]
fn a_stopping_daemon_ends_the_connections_of_the_lane_and_of_the_shuttle() {
    let (_home, daemon) = offline();
    let mut streams = [connect(&daemon), aboard(&daemon)];
    for stream in &mut streams {
        stream.write_all(send("before").as_bytes()).unwrap();
        assert!(read_answer(stream).starts_with("HTTP/1.1 202 "));
    }
    daemon.stop();
    for mut stream in streams {
        let mut rest = Vec::new();
        assert!(stream.read_to_end(&mut rest).is_ok(), "still connected");
        assert!(rest.is_empty());
    }
}
