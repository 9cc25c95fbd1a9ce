//! A request that the broker's door refuses before it was read to its end: whoever writes all of it first reads why.

use crate::support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use heddle_core::limits::{FRAME_BYTES_MAX, REQUEST_BYTES_MAX, UNREAD_WAIT};
use serde_json::Value;
use support::Home;
use support::broker_process::BrokerProcess;

const MESHES: &str = "/api/my/meshes";

fn start(house: &Home) -> (BrokerProcess, String) {
    let data = house.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(house, &data, "127.0.0.1:0", &[]);
    let admin = std::fs::read_to_string(data.join("admin_token")).unwrap();
    (
        broker,
        format!("Authorization: Bearer {}\r\n", admin.trim()),
    )
}

fn connect(broker: &BrokerProcess) -> TcpStream {
    let stream = TcpStream::connect(broker.listen()).unwrap();
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).unwrap();
    stream.set_write_timeout(patience).unwrap();
    stream
}

fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Writes the whole request and only then reads, as most clients do.
fn asked(broker: &BrokerProcess, head: &str, body: &[u8]) -> (u16, String) {
    let mut stream = connect(broker);
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).expect("the body was not taken");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    read.expect("the answer was taken back");
    let (_, said) = answer.split_once("\r\n\r\n").unwrap();
    (status_of(&answer), said.to_owned())
}

fn announced(path: &str, more: &str, bytes: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n{more}\r\n")
}

/// (what stands behind `/api`, whether it comes with the token, bytes, status, code)
#[rustfmt::skip]
const REFUSED: [(&str, bool, usize, u16, &str); 7] = [
    ("/my/meshes", true, REQUEST_BYTES_MAX + 1, 413, "payload_too_large"),
    ("/my/meshes", true, 8 * REQUEST_BYTES_MAX, 413, "payload_too_large"),
    ("/my/meshes/team/invites", true, 3 * REQUEST_BYTES_MAX, 413, "payload_too_large"),
    (CHUNK, true, FRAME_BYTES_MAX + 1, 413, "payload_too_large"),
    (CHUNK, true, 3 * FRAME_BYTES_MAX, 413, "payload_too_large"),
    ("/my/meshes", false, 3 * REQUEST_BYTES_MAX, 401, "unauthorized"),
    ("/nothing", true, 3 * REQUEST_BYTES_MAX, 404, "not_found"),
];
const CHUNK: &str = "/my/meshes/team/snapshot/6ba7b810-9dad-51d1-80b4-00c04fd430c8/chunk";

#[test]
fn l_04_a_body_that_is_refused_unread_still_hears_why() {
    let house = Home::new();
    let (broker, admin) = start(&house);
    for (path, has_token, bytes, status, code) in REFUSED {
        let head = if has_token { admin.as_str() } else { "" };
        let request = announced(&format!("/api{path}"), head, bytes);
        let body = vec![b' '; bytes];
        for _ in 0..5 {
            let (told, said) = asked(&broker, &request, &body);
            let problem: Value = serde_json::from_str(&said).expect(&said);
            assert_eq!((told, &problem["code"]), (status, &code.into()), "{path}");
        }
    }
    // A page takes no body at all.
    let body = vec![b' '; 3 * REQUEST_BYTES_MAX];
    let request = announced("/healthz", "", body.len());
    assert_eq!(asked(&broker, &request, &body).0, 405);
}

#[test]
fn l_04_a_body_of_unknown_length_is_told_too_and_what_is_not_too_large_is_not_called_so() {
    let house = Home::new();
    let (broker, admin) = start(&house);
    let piece = vec![b' '; 1 << 16];
    let mut pieces = Vec::new();
    for _ in 0..48 {
        pieces.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        pieces.extend_from_slice(&piece);
        pieces.extend_from_slice(b"\r\n");
    }
    pieces.extend_from_slice(b"0\r\n\r\n");
    let chunked = "Transfer-Encoding: chunked";
    let head = format!("POST {MESHES} HTTP/1.1\r\nHost: x\r\n{chunked}\r\n{admin}\r\n");
    assert_eq!(asked(&broker, &head, &pieces).0, 413);
    // The limit itself is no reason: what it is, is.
    let most = vec![b' '; REQUEST_BYTES_MAX];
    let (told, said) = asked(&broker, &announced(MESHES, &admin, most.len()), &most);
    assert_eq!(told, 400, "{said}");
    // One that breaks off is not too large.
    let mut short = connect(&broker);
    let head = announced(MESHES, &admin, 100);
    short.write_all(head.as_bytes()).unwrap();
    short.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = short.read_to_string(&mut answer);
    assert!(!answer.contains("payload_too_large"), "{answer}");
}

/// It is read on for a bounded time and number of bytes, and then cut; its place is free again.
#[test]
fn l_04_whoever_never_stops_writing_is_told_and_then_cut() {
    let house = Home::new();
    let (broker, admin) = start(&house);
    let mut stream = connect(&broker);
    let head = announced(MESHES, &admin, 10_000_000_000);
    stream.write_all(head.as_bytes()).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let piece = vec![b' '; 1 << 16];
        let mut written = 0_usize;
        while writer.write_all(&piece).is_ok() {
            written += piece.len();
        }
        written
    });
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 413");
    let written = writing.join().unwrap();
    assert!(written < 64 << 20, "{written}");
    // And one that says nothing more keeps its connection for as long as that, no longer.
    let mut silent = connect(&broker);
    silent
        .write_all(announced(MESHES, "", 100).as_bytes())
        .unwrap();
    let mut answer = String::new();
    silent.read_to_string(&mut answer).unwrap();
    assert_eq!(status_of(&answer), 401);
    std::thread::sleep(UNREAD_WAIT + Duration::from_secs(1));
    // What is written to a connection that is gone is answered with a reset, and then fails.
    let is_gone = (0..20).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        silent.write_all(b" ").is_err()
    });
    assert!(is_gone, "the connection is held for ever");
}

const BEGIN: &str = "/api/my/meshes/team/snapshot/begin";
const MEMBER: &str = r#"{"member":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}"#;
const EVIL: &str = "Origin: http://evil.example\r\n";

/// (method, path, whether it comes with the token, more of its head, body, status, what the answer holds)
#[rustfmt::skip]
const HEADS: [(&str, &str, bool, &str, &str, u16, &str); 12] = [
    ("POST", "/readyz", false, "", "", 405, "allow: GET, HEAD\r\n"),
    ("GET", MESHES, true, "", "", 405, "allow: POST\r\n"),
    ("GET", "/metrics", false, "", "", 401, "www-authenticate: Bearer\r\n"),
    ("POST", MESHES, false, "", "", 401, "www-authenticate: Bearer\r\n"),
    ("GET", "/healthz", false, "", "", 200, "content-type: application/json\r\n"),
    ("GET", "/readyz", false, "", "", 200, "content-type: application/json\r\n"),
    ("GET", "/", false, "", "", 426, "content-type: text/plain; charset=utf-8\r\n"),
    ("GET", "/metrics", true, "", "", 200, "content-type: text/plain; version=0.0.4\r\n"),
    ("POST", MESHES, true, "", "{}", 400, "content-type: application/problem+json\r\n"),
    ("POST", MESHES, true, EVIL, "{}", 403, "without an Origin header; no page of a browser"),
    ("POST", MESHES, true, "", r#"{"slug":"team"}"#, 200, "content-type: application/json\r\n"),
    ("POST", BEGIN, true, "", MEMBER, 403, "heddle broker members --json"),
];

/// What programs go by, beside the words: the method that there is, how to prove who one is, what the body is.
#[test]
fn a_refusal_at_the_door_names_the_method_and_the_proof_that_it_wants() {
    let house = Home::new();
    let (broker, admin) = start(&house);
    for (method, path, has_token, more, body, status, holds) in HEADS {
        let token = if has_token { admin.as_str() } else { "" };
        let head = format!("{token}{more}Content-Length: {}\r\n", body.len());
        let mut stream = connect(&broker);
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(status_of(&answer), status, "{method} {path}: {answer}");
        assert!(answer.contains(holds), "{method} {path}: {answer}");
    }
}
