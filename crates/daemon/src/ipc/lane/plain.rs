//! Which bytes are a plain send: a pure decision, and a narrow one.
//!
//! Whoever is not recognised loses nothing but a few microseconds, so in doubt the answer is no:
//! a request that is not here in whole, a header that could change the meaning of another, anything
//! that two readers of HTTP could see differently.

use std::str;

/// The one request line, as nearly everybody writes it.
const REQUEST_LINE: &[u8] = b"POST /v1/send HTTP/1.1\r\n";
/// More than a local client sends.
const HEADERS_MAX: usize = 16;
/// Digits of a length that can fit into the lane.
const LENGTH_DIGITS_MAX: usize = 6;

/// A whole send, borrowed from the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain<'a> {
    pub(super) body: &'a [u8],
    pub(super) idempotency_key: Option<&'a str>,
    /// The client wants no further answer on this connection.
    pub(super) is_last: bool,
    /// How many bytes of the buffer it is.
    pub(super) bytes: usize,
}

/// The send that the bytes begin with, if it is whole and plain.
pub(super) fn recognise(bytes: &[u8]) -> Option<Plain<'_>> {
    let fields = bytes.strip_prefix(REQUEST_LINE)?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let Ok(httparse::Status::Complete((fields_bytes, headers))) =
        httparse::parse_headers(fields, &mut headers)
    else {
        return None;
    };
    let (mut length, mut idempotency_key, mut is_last) = (None, None, false);
    for header in headers {
        match field(header.name) {
            Field::Length if length.is_none() => length = Some(content_length(header.value)?),
            Field::Key if idempotency_key.is_none() => {
                idempotency_key = Some(str::from_utf8(header.value).ok()?);
            }
            Field::Connection if !is_last && header.value.eq_ignore_ascii_case(b"close") => {
                is_last = true;
            }
            Field::Meaningless => {}
            _ => return None,
        }
    }
    let head_bytes = REQUEST_LINE.len() + fields_bytes;
    let bytes_end = head_bytes.checked_add(length?)?;
    Some(Plain {
        body: bytes.get(head_bytes..bytes_end)?,
        idempotency_key,
        is_last,
        bytes: bytes_end,
    })
}

/// What a header of that name does to a send on the Unix socket.
enum Field {
    Length,
    Key,
    Connection,
    /// Nothing at all; the routes do not look at it.
    Meaningless,
    /// Perhaps something: hyper knows.
    Other,
}

fn field(name: &str) -> Field {
    const MEANINGLESS: [&str; 5] = [
        "host",
        "content-type",
        "user-agent",
        "accept",
        "accept-encoding",
    ];
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if is("content-length") {
        Field::Length
    } else if is("idempotency-key") {
        Field::Key
    } else if is("connection") {
        Field::Connection
    } else if MEANINGLESS.into_iter().any(is) {
        Field::Meaningless
    } else {
        Field::Other
    }
}

/// Digits only, and few of them.
fn content_length(value: &[u8]) -> Option<usize> {
    if value.is_empty() || value.len() > LENGTH_DIGITS_MAX || !value.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: &str = "POST /v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nIdempotency-Key: k 1\r\n\r\nbody";

    #[test]
    fn a_whole_send_is_recognised_and_no_part_of_it() {
        let plain = recognise(SEND.as_bytes()).unwrap();
        assert_eq!(plain.body, b"body");
        assert_eq!(plain.idempotency_key, Some("k 1"));
        assert!(!plain.is_last);
        assert_eq!(plain.bytes, SEND.len());
        for end in 0..SEND.len() {
            assert_eq!(recognise(&SEND.as_bytes()[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn what_follows_a_send_is_left_alone() {
        let two = format!("{SEND}{SEND}");
        let first = recognise(two.as_bytes()).unwrap();
        assert_eq!(first.bytes, SEND.len());
        assert_eq!(first.body, b"body");
    }

    #[test]
    fn a_client_that_closes_says_so_once() {
        let close = SEND.replace("Host: localhost", "connection: Close");
        assert!(recognise(close.as_bytes()).unwrap().is_last);
    }

    #[test]
    fn everything_that_could_be_read_in_two_ways_goes_to_hyper() {
        for (from, to) in [
            ("POST", "PUT"),
            ("POST", "post"),
            ("POST ", "POST  "),
            ("POST", "\r\nPOST"),
            ("/v1/send", "/v1/send?x=1"),
            ("/v1/send", "http://localhost/v1/send"),
            ("/v1/send", "/v1/sen%64"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("HTTP/1.1\r\n", "HTTP/1.1\n"),
            ("Content-Length: 4\r\n", ""),
            ("Length: 4", "Length: +4"),
            ("Length: 4", "Length: -4"),
            ("Length: 4", "Length: 4, 4"),
            ("Length: 4", "Length: 0x4"),
            ("Length: 4", "Length: 99999999999999999999"),
            ("Length: 4", "Length:"),
            ("Length: 4", "Length: 4\r\nContent-Length: 4"),
            ("Length: 4", "Length: 4\r\ncontent-length: 5"),
            ("Length: 4", "Length : 4"),
            ("Length: 4", "Length: 4\r\nTransfer-Encoding: chunked"),
            ("Length: 4", "Length: 4\r\nTransfer-Encoding : chunked"),
            ("Host: localhost", "Expect: 100-continue"),
            ("Host: localhost", "Connection: keep-alive"),
            ("Host: localhost", "Connection: upgrade"),
            ("Host: localhost", "Connection: close\r\nConnection: close"),
            ("Host: localhost", "Authorization: Bearer x"),
            ("Host: localhost", "Upgrade: websocket"),
            ("Host: localhost", "X-Unknown: 1"),
            ("Host: localhost", "Content-Encoding: gzip"),
            ("Host: localhost", "Content-Encoding: identity"),
            ("Host: localhost", "Host: localhost\r\n folded"),
            ("Host: localhost", "Host: local\0host"),
            ("Host: localhost", "no colon"),
            ("Key: k 1", "Key: a\r\nIdempotency-Key: b"),
        ] {
            let odd = SEND.replacen(from, to, 1);
            assert_ne!(odd, SEND);
            assert_eq!(recognise(odd.as_bytes()), None, "{odd:?}");
        }
        let many = SEND.replace("Host: localhost", &"Host: a\r\n".repeat(HEADERS_MAX));
        assert_eq!(recognise(many.as_bytes()), None);
        let mut key = SEND.as_bytes().to_vec();
        let at = SEND.find("k 1").unwrap();
        key[at] = 0xff;
        assert_eq!(recognise(&key), None, "a key that is not UTF-8");
    }
}
